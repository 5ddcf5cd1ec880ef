"""When messages were written, by which run, and how long models and tools worked for them."""

from collections.abc import Sequence
from dataclasses import replace
from time import time_ns

import anyio
import pytest
from tests.support.killable_worker import killable_worker
from tests.support.runs import (
    ASK,
    FAILING_LOST,
    KEY,
    PAINT,
    QUICK,
    call_ids,
    events,
    outcome,
    park,
    post,
    record,
    result,
    says,
    until,
    worker,
)
from tests.unit.engine.sub_agents import helper, lead_worker

from passback.context.compaction import Compaction
from passback.core.deltas import UsageChunk
from passback.core.events import (
    Completed,
    Failed,
    RunFinished,
    TextDelta,
    ToolResulted,
    TurnEnded,
    TurnStarted,
    innermost_event,
)
from passback.core.imported import split_history
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    HistoryMessage,
    Message,
    MessageId,
    RunId,
    RunRef,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.core.transcript import innermost_message
from passback.engine.ledger import Ledger
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.agents import AgentTools
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


@tool
def look() -> str:
    """A server tool."""
    return "seen"


def now() -> int:
    return time_ns() // 1_000_000


def runs_of(messages: Sequence[Message]) -> list[str]:
    return [each.run_id for each in messages]


def assert_recorded(messages: Sequence[Message], since: int) -> None:
    """Each was written since a time, none before the one above it."""
    created = [each.created for each in messages]
    assert created == sorted(created)
    assert since <= created[0]
    assert created[-1] <= now()


# ---------------------------------------------------------------- what runs and posts write
async def test_all_messages_of_a_run_have_their_time_and_the_run(store: Ledger) -> None:
    since = now()
    async with worker(store, ScriptedModel([calls(("look", {})), words("so")]), look) as runs:
        run = await post(runs, says())
        assert await outcome(runs, run) == Completed()
        messages = await record(runs)
    assert [each.role for each in messages] == ["user", "assistant", "tool", "assistant"]
    assert set(runs_of(messages)) == {run.run_id}
    assert_recorded(messages, since)


async def test_answers_have_the_run_that_they_began_or_none(store: Ledger) -> None:
    script = [calls(("paint", {}), ("ask", {})), words("done")]
    async with worker(store, ScriptedModel(script)) as runs:
        first = await post(runs, says(), tools=[PAINT, ASK])
        await outcome(runs, first)
        paint, ask = await call_ids(runs)
        since = now()
        await park(runs, result(paint))
        second = await post(runs, result(ask))
        await outcome(runs, second)
        messages = await record(runs)
    assert runs_of(messages) == [
        first.run_id,
        first.run_id,
        "",
        second.run_id,
        second.run_id,
    ]
    assert_recorded(messages[2:], since)


async def test_messages_of_sub_agents_have_the_run_of_their_caller(store: Ledger) -> None:
    task = calls(("helper", {"task": "find it"}))
    since = now()
    async with lead_worker(
        store,
        ScriptedModel([task, words("so")]),
        helper(ScriptedModel([calls(("look", {})), words("here")]), look),
    ) as runs:
        run = await post(runs, says())
        await outcome(runs, run)
        messages = await record(runs)
    children = [each for each in messages if isinstance(each, ChildMessage)]
    inner = [innermost_message(each) for each in children]
    assert [each.role for each in inner] == ["user", "assistant", "tool", "assistant"]
    assert set(runs_of(messages)) == set(runs_of(inner)) == {run.run_id}
    assert [each.created for each in children] == [each.created for each in inner]
    assert_recorded(messages, since)


async def test_a_post_that_waited_was_written_when_it_came_for_the_run_that_it_began(
    store: Ledger,
) -> None:
    gate = anyio.Event()
    async with worker(store, ScriptedModel([[gate, *words("one")], words("two")])) as runs:
        first = await post(runs, says("a", "a"))
        await until(runs, first, TurnStarted)
        second = await post(runs, says("b", "b"), on_busy="enqueue")
        queued = (await store.load(KEY)).queue[0].post.messages[0]
        gate.set()
        assert await outcome(runs, second) == Completed()
        messages = await record(runs)
    assert runs_of([queued]) == [""]
    assert runs_of(messages) == [first.run_id] * 2 + [second.run_id] * 2
    assert messages[0].created <= messages[2].created == queued.created <= messages[1].created


async def test_an_imported_history_has_neither_time_nor_run(store: Ledger) -> None:
    history: list[HistoryMessage] = [
        UserMessage(MessageId("h1"), "look"),
        AssistantMessage(MessageId("h2"), "seen"),
        UserMessage(MessageId("u"), "so?"),
    ]
    imported = split_history([(f"messages.{n}", one) for n, one in enumerate(history)])
    since = now()
    async with worker(store, ScriptedModel([words("so")])) as runs:
        run = await runs.start(StartRun(KEY, imported.new, history=imported.history))
        assert isinstance(run, RunRef)
        await outcome(runs, run)
        messages = await record(runs)
    assert [(each.created, each.run_id) for each in messages[:2]] == [(0, ""), (0, "")]
    assert set(runs_of(messages[2:])) == {run.run_id}
    assert_recorded(messages[2:], since)


async def test_an_answer_that_was_stopped_has_its_time_its_run_and_its_duration(
    store: Ledger,
) -> None:
    since = now()
    async with worker(store, ScriptedModel([["half", anyio.Event()]])) as runs:
        run = await post(runs, says())
        await until(runs, run, TextDelta)
        await runs.cancel(run)
        await outcome(runs, run)
        messages = await record(runs)
    answer = messages[1]
    assert isinstance(answer, AssistantMessage)
    assert (answer.partial, answer.run_id, answer.duration > 0) == (True, run.run_id, True)
    assert_recorded(messages, since)


# ---------------------------------------------------------------- repeats
@pytest.mark.promise("P8")
async def test_a_repeat_of_a_post_is_a_repeat_although_it_comes_later(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("one")])) as runs:
        command = StartRun(KEY, (says(),), (PAINT,), "key", frozenset({MessageId("u")}))
        first = await runs.start(command)
        assert isinstance(first, RunRef)
        await outcome(runs, first)
        messages = await record(runs)
        assert await runs.start(command) == first
        later = (replace(says(), created=now() + 5, run_id=RunId("another")),)
        assert await runs.start(replace(command, messages=later)) == first
        after = await record(runs)
    assert [(each.id, each.created) for each in after] == [
        (each.id, each.created) for each in messages
    ]


# ---------------------------------------------------------------- recovery
@pytest.mark.promise("P10")
async def test_a_take_over_keeps_what_was_committed_and_writes_in_the_name_of_the_run(
    store: Ledger,
) -> None:
    asks = calls(("look", {}), ("work", {}))
    begun = anyio.Event()

    @tool
    async def work() -> None:
        begun.set()
        await anyio.sleep_forever()

    async with (
        worker(store, ScriptedModel([words("whole")]), look, work) as other,
        killable_worker(store, ScriptedModel([asks]), look, work) as dying,
    ):
        run = await post(dying.runs, says())
        await begun.wait()
        await dying.kill()
        early = (await store.page(KEY, start=0, limit=10)).messages
        await other.status(KEY)
        assert await outcome(other, run) == Completed()
        messages = await record(other)
    assert [each.role for each in early] == ["user", "assistant", "tool"]
    assert [(each.id, each.created) for each in messages[:3]] == [
        (each.id, each.created) for each in early
    ]
    closed = messages[3]
    assert isinstance(closed, ToolMessage)
    assert (closed.synthetic, closed.duration) == ("interrupted", 0)
    assert set(runs_of(messages)) == {run.run_id}
    assert_recorded(messages, early[0].created)


async def test_a_run_that_fails_as_lost_closes_its_calls_in_its_name(store: Ledger) -> None:
    begun = anyio.Event()

    @tool
    async def work() -> None:
        begun.set()
        await anyio.sleep_forever()

    async with (
        worker(store, ScriptedModel([]), work, timing=FAILING_LOST) as other,
        killable_worker(store, ScriptedModel([calls(("work", {}))]), work) as dying,
    ):
        run = await post(dying.runs, says())
        await begun.wait()
        await dying.kill()
        await other.status(KEY)
        assert isinstance(await outcome(other, run), Failed)
        messages = await record(other)
    assert [each.role for each in messages] == ["user", "assistant", "tool"]
    assert set(runs_of(messages)) == {run.run_id}
    assert_recorded(messages, messages[0].created)


async def test_what_times_out_has_the_run_that_goes_on_without_it(store: Ledger) -> None:
    late = replace(QUICK, tool_timeout=0)
    script = [calls(("paint", {})), words("without")]
    async with worker(store, ScriptedModel(script), timing=late) as runs:
        first = await post(runs, says(), tools=[PAINT])
        await outcome(runs, first)
        second = (await runs.status(KEY)).run_id
        assert second is not None
        await outcome(runs, RunRef(KEY, second))
        messages = await record(runs)
    assert runs_of(messages) == [first.run_id, first.run_id, second, second]
    assert_recorded(messages, messages[0].created)


# ---------------------------------------------------------------- durations
async def test_answers_and_results_of_the_servers_tools_say_how_long_they_took(
    store: Ledger,
) -> None:
    """A result that no tool gave has no duration."""
    script = [calls(("look", {}), ("look", {"no": 1}), ("fly", {})), words("so")]
    async with worker(store, ScriptedModel(script), look) as runs:
        run = await post(runs, says())
        seen = await events(runs, run)
        messages = await record(runs)
    assert seen[-1] == RunFinished(Completed())
    answers = [each for each in messages if isinstance(each, AssistantMessage)]
    assert [each.duration > 0 for each in answers] == [True, True]
    results = {each.call_id: each for each in messages if isinstance(each, ToolMessage)}
    worked, invalid, unknown = (results[call.id] for call in answers[0].tool_calls)
    assert (worked.synthetic, worked.duration > 0) == (None, True)
    assert (invalid.synthetic, invalid.duration) == ("invalid", 0)
    assert (unknown.synthetic, unknown.duration) == ("invalid", 0)
    told = {each.call_id: each.duration for each in seen if isinstance(each, ToolResulted)}
    assert told == {each.call_id: each.duration for each in (worked, invalid)}


async def test_the_events_say_of_each_answer_what_its_message_says(store: Ledger) -> None:
    """Also of one that was stopped, and of those of a sub-agent."""
    asks = calls(("look", {}), ("helper", {"task": "find it"}))
    script: list[list[Step]] = [
        [*asks[:-1], UsageChunk(Usage(7, 3)), asks[-1]],
        ["half", anyio.Event()],
    ]
    agents = [helper(ScriptedModel([words("here")]))]
    since = now()
    async with worker(
        store, ScriptedModel(script), look, toolsets=[AgentTools(agents)], context=Compaction(9_000)
    ) as runs:
        run = await post(runs, says())
        await until(runs, run, TextDelta)
        await runs.cancel(run)
        seen = [innermost_event(event) for event in await events(runs, run)]
        messages = [innermost_message(each) for each in await record(runs)]
    answers = [each for each in messages if isinstance(each, AssistantMessage)]
    assert [each.partial for each in answers] == [False, False, True]
    assert answers[0].usage == Usage(7, 3)
    assert [each.window for each in answers] == [9_000, 0, 9_000]
    assert all(since <= each.started <= each.created for each in answers)
    assert {each.message_id: each.started for each in seen if isinstance(each, TurnStarted)} == {
        each.id: each.started for each in answers
    }
    ends = [each for each in seen if isinstance(each, TurnEnded)]
    assert [(each, each.window, each.duration) for each in ends] == [
        (TurnEnded(each.id, "scripted", each.usage), each.window, each.duration) for each in answers
    ]


async def test_a_clients_result_has_no_duration(store: Ledger) -> None:
    async with worker(store, ScriptedModel([calls(("paint", {})), words("done")])) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
        await outcome(runs, await post(runs, result(call_id)))
        answered = (await record(runs))[2]
    assert isinstance(answered, ToolMessage)
    assert (answered.call_id, answered.duration) == (CallId(call_id), 0)
