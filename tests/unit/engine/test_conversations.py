"""Whole conversations through the service of runs: text, client tools, posts that are refused."""

import itertools
from collections.abc import Sequence

import anyio
import pytest
from tests.support import runs as support
from tests.support.runs import (
    ASK,
    KEY,
    OTHER,
    PAINT,
    call_ids,
    events,
    outcome,
    park,
    post,
    record,
    reply,
    result,
    worker,
)

from passback.core.budgets import Left
from passback.core.deltas import Finish, ModelDelta, ModelRequest, TextChunk, UsageChunk
from passback.core.errors import (
    ConversationBusy,
    NothingToDo,
    ResultConflict,
    StoreFull,
    ToolNameClash,
    UnknownConversation,
    UnknownToolCall,
)
from passback.core.events import (
    Completed,
    CompletedReason,
    HandedBack,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    MessageId,
    Owed,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from passback.core.posts import Parked, StartRun
from passback.core.transcript import SYNTHETIC_TEXT, owed_answers
from passback.engine.ledger import Ledger
from passback.engine.supervisor import Readiness
from passback.models.scripted import ScriptedModel, calls, says
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# ---------------------------------------------------------------- text
async def test_a_post_is_answered_and_both_are_kept(store: Ledger) -> None:
    model = ScriptedModel([says("Hel", "lo")])
    async with worker(store, model) as runs:
        run = await post(runs, support.says("hi"))
        seen = await events(runs, run)
        started = seen[1]
        assert isinstance(started, TurnStarted)
        assert seen == [
            RunStarted(run.run_id),
            started,
            TextDelta("Hel"),
            TextDelta("lo"),
            TurnEnded(started.message_id, "scripted"),
            RunFinished(Completed("end_turn")),
        ]
        assert await record(runs) == [
            support.says("hi"),
            AssistantMessage(started.message_id, "Hello", model="scripted"),
        ]
    assert model.requests == [ModelRequest((support.says("hi"),), "be brief", ())]
    assert model.open_streams == 0


async def test_a_client_posts_only_what_is_new(store: Ledger) -> None:
    model = ScriptedModel([says("one"), says("two")])
    async with worker(store, model) as runs:
        assert await reply(runs, support.says("first", "u1")) == "one"
        assert await reply(runs, support.says("second", "u2")) == "two"
    shown = [message.content for message in model.requests[1].messages]
    assert shown == ["first", "one", "second"]


async def test_conversations_do_not_see_each_other(store: Ledger) -> None:
    model = ScriptedModel([says("one"), says("two")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, support.says("mine")))
        await outcome(runs, await post(runs, support.says("yours"), key=OTHER))
    assert [[m.content for m in request.messages] for request in model.requests] == [
        ["mine"],
        ["yours"],
    ]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (Finish("stop"), "end_turn"),
        (Finish("tool_calls"), "end_turn"),
        (Finish("length"), "max_tokens"),
        (Finish("refusal"), "refusal"),
    ],
)
async def test_the_outcome_says_why_the_answer_ended(
    memory: Ledger, finish: Finish, reason: CompletedReason
) -> None:
    async with worker(memory, ScriptedModel([["words", finish]])) as runs:
        assert await outcome(runs, await post(runs, support.says())) == Completed(reason)
        answer = (await record(runs))[-1]
    assert isinstance(answer, AssistantMessage)
    assert (answer.content, answer.partial) == ("words", reason == "max_tokens")


async def test_an_empty_answer_ends_the_run_and_leaves_no_message(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([[Finish("stop")]])) as runs:
        assert await outcome(runs, await post(runs, support.says())) == Completed("end_turn")
        assert await record(runs) == [support.says()]


async def test_the_usage_of_each_model_call_is_reported(memory: Ledger) -> None:
    script: list[ModelDelta] = [TextChunk("a"), UsageChunk(Usage(3, 1)), Finish("stop")]
    async with worker(memory, ScriptedModel([script])) as runs:
        seen = await events(runs, await post(runs, support.says()))
    assert seen[-2:] == [
        UsageReported(Usage(3, 1), Left(turns=3), "scripted"),
        RunFinished(Completed()),
    ]


# ---------------------------------------------------------------- client tools
@pytest.mark.promise("P1")
async def test_a_client_tool_call_is_handed_back_and_its_result_goes_on(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {"to": "red"})), says("It is red.")])
    async with worker(store, model) as runs:
        run = await post(runs, support.says(), tools=[PAINT])
        seen = await events(runs, run)
        (call_id,) = await call_ids(runs)
        owing = (Owed(call_id, "paint", '{"to": "red"}'),)
        turn = seen[1]
        assert isinstance(turn, TurnStarted)
        assert seen[2:] == [
            ToolCallStarted(call_id, "paint", client=True),
            ToolCallArguments(call_id, '{"to": "red"}'),
            TurnEnded(turn.message_id, "scripted"),
            ToolCallEnded(call_id),
            RunFinished(HandedBack(owing)),
        ]
        assert owed_answers(await record(runs)) == owing
        assert await reply(runs, result(call_id)) == "It is red."
        assert await call_ids(runs) == []
    answered = model.requests[1].messages[1:]
    assert answered == (
        AssistantMessage(
            turn.message_id,
            "",
            (ToolCall(call_id, "paint", '{"to": "red"}', client=True, provider_id="call_0"),),
            model="scripted",
        ),
        result(call_id),
    )


async def test_declared_tools_are_kept_until_they_are_replaced_or_cleared(memory: Ledger) -> None:
    model = ScriptedModel([says(str(n)) for n in range(4)])
    async with worker(memory, model) as runs:
        for tools in ([PAINT], None, [ASK], []):
            await outcome(runs, await post(runs, support.says(), tools=tools))
    assert [request.tools for request in model.requests] == [(PAINT,), (PAINT,), (ASK,), ()]


async def test_tools_that_come_with_a_parked_result_are_kept(memory: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {}), ("paint", {})), says("done")])
    async with worker(memory, model) as runs:
        await outcome(runs, await post(runs, support.says(), tools=[PAINT]))
        one, two = await call_ids(runs)
        await runs.start(StartRun(KEY, (result(one),), (ASK,)))
        parked = await runs.start(StartRun(KEY, (result(one),), (PAINT, ASK)))
        assert parked == Parked(KEY, (Owed(two, "paint", "{}"),))
        await outcome(runs, await post(runs, result(two)))
    assert model.requests[1].tools == (PAINT, ASK)


@pytest.mark.parametrize("name", ["add", "ADD", "\uff41\uff44\uff44"])
@pytest.mark.promise("P14")
async def test_a_client_tool_cannot_take_a_servers_name(memory: Ledger, name: str) -> None:
    async with worker(memory, ScriptedModel([]), add) as runs:
        with pytest.raises(ToolNameClash):
            await post(runs, support.says(), tools=[ToolSpec(name, "", {})])
        with pytest.raises(UnknownConversation):
            await runs.status(KEY)


async def test_some_results_are_parked_and_the_last_starts_the_run(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {}), ("paint", {})), says("both")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, support.says(), tools=[PAINT]))
        one, two = await call_ids(runs)
        assert await park(runs, result(two)) == Parked(KEY, (Owed(one, "paint", "{}"),))
        assert await park(runs, result(two)) == Parked(KEY, (Owed(one, "paint", "{}"),))
        assert await call_ids(runs) == [one]
        assert await reply(runs, result(one)) == "both"
    answers = [m.call_id for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert answers == [one, two]


ORDERS = [
    [order[:cut], order[cut:]] for order in itertools.permutations(range(3)) for cut in range(3)
] + [[[one], [two], [three]] for one, two, three in itertools.permutations(range(3))]


@pytest.mark.parametrize("posts", ORDERS, ids=str)
async def test_parallel_calls_are_answered_in_any_order_and_grouping(
    memory: Ledger, posts: Sequence[Sequence[int]]
) -> None:
    model = ScriptedModel([calls(("paint", {}), ("ask", {}), ("paint", {})), says("all")])
    async with worker(memory, model) as runs:
        await outcome(runs, await post(runs, support.says(), tools=[PAINT, ASK]))
        owing = await call_ids(runs)
        groups = [[result(owing[n], f"result {n}") for n in group] for group in posts if group]
        for group in groups[:-1]:
            left = (await park(runs, *group)).owed
            assert [one.id for one in left] == await call_ids(runs)
        run = await post(runs, *groups[-1])
        assert await outcome(runs, run) == Completed()
        for group in groups:
            assert await post(runs, *group) == run
    shown = [m.content for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert shown == ["result 0", "result 1", "result 2"]


@pytest.mark.promise("P5")
async def test_a_user_message_supersedes_what_is_owed(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {})), says("as you like")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, support.says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
        assert await reply(runs, support.says("never mind", "u2")) == "as you like"
        with pytest.raises(ResultConflict):
            await post(runs, result(call_id))
    closed = model.requests[1].messages[2]
    assert isinstance(closed, ToolMessage)
    assert (closed.call_id, closed.content, closed.is_error, closed.synthetic) == (
        call_id,
        SYNTHETIC_TEXT["superseded"],
        True,
        "superseded",
    )


@pytest.mark.promise("P12", "P13")
async def test_a_wrong_post_changes_nothing(store: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {})), says("done")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, support.says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
        before = await runs.status(KEY), await record(runs)
        with pytest.raises(UnknownToolCall):
            await post(runs, result(CallId("never")))
        with pytest.raises(UnknownToolCall):
            await post(runs, result(call_id), result(CallId("never")))
        with pytest.raises(UnknownToolCall):
            await post(runs, result(call_id), key=OTHER)
        with pytest.raises(ResultConflict):
            await post(runs, result(call_id, "one"), result(call_id, "two"))
        with pytest.raises(NothingToDo):
            await post(runs)
        assert (await runs.status(KEY), await record(runs)) == before


# ---------------------------------------------------------------- other questions
async def test_an_unknown_conversation_is_an_error(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([])) as runs:
        await runs.ready()
        for question in (runs.status(KEY), runs.delete(KEY), runs.messages(KEY, start=0, limit=1)):
            with pytest.raises(UnknownConversation):
                await question


async def test_a_deleted_conversation_begins_anew(store: Ledger) -> None:
    model = ScriptedModel([says("one"), says("two")])
    async with worker(store, model) as runs:
        await reply(runs, support.says("first"))
        await runs.delete(KEY)
        with pytest.raises(UnknownConversation):
            await runs.status(KEY)
        await reply(runs, support.says("second"))
    assert model.requests[1].messages == (UserMessage(MessageId("u"), "second"),)


async def test_a_second_message_during_a_run_meets_busy(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([calls(("paint", {})), [gate, *says("x")]])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, support.says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
        run = await post(runs, result(call_id))
        with pytest.raises(ConversationBusy):
            await post(runs, support.says("and?"))
        gate.set()
        assert await post(runs, result(call_id)) == run
        assert await outcome(runs, run) == Completed()


# ---------------------------------------------------------------- readiness
class _Store:
    def __init__(self, error: StoreFull | None = None) -> None:
        self.asked = 0
        self.error = error
        self.answers = anyio.Event()

    async def ping(self) -> None:
        self.asked += 1
        await self.answers.wait()
        if self.error:
            raise self.error


async def test_many_probes_are_one_request() -> None:
    store = _Store()
    ready = Readiness(store.ping, seconds=60)
    async with anyio.create_task_group() as tasks:
        for _ in range(200):
            tasks.start_soon(ready.check)
        await anyio.wait_all_tasks_blocked()
        store.answers.set()
    await ready.check()
    assert store.asked == 1


async def test_a_failed_probe_is_kept_and_raised_for_each_caller() -> None:
    store = _Store(StoreFull("no room", retry_after=2))
    store.answers.set()
    ready = Readiness(store.ping, seconds=60)
    refusals = []
    for _ in range(3):
        with pytest.raises(StoreFull, match="no room") as raised:
            await ready.check()
        refusals.append(raised.value)
    assert store.asked == 1
    assert [each.retry_after for each in refusals] == [2, 2, 2]
    assert len(set(map(id, refusals))) == 3


async def test_a_cancelled_probe_leaves_the_request_to_the_next() -> None:
    store = _Store()
    ready = Readiness(store.ping)
    with anyio.move_on_after(0.01):
        await ready.check()
    store.answers.set()
    await ready.check()
    assert store.asked == 2
