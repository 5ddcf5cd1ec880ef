"""State of a run beside its messages: it goes on behind a boundary, and adds up turns' usage."""

from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.runs import (
    KEY,
    PAINT,
    QUICK,
    call_ids,
    contents,
    outcome,
    post,
    record,
    result,
    says,
    until,
    worker,
)
from tests.support.store_values import LONG, change, opening

from passback.core.changes import Commit, Lease, LogWrite
from passback.core.deltas import Finish, UsageChunk
from passback.core.errors import ModelUnavailable, Reused, UnknownConversation
from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    RunFinished,
    TextDelta,
    TurnStarted,
)
from passback.core.ids import new_call_id, new_message_id, new_run_id
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    Message,
    MessageId,
    PlanEntry,
    RunRef,
    ToolCall,
    ToolMessage,
    Usage,
)
from passback.core.permissions import declaration_digest
from passback.core.posts import StartRun
from passback.core.state import State
from passback.core.transcript import owed_answers
from passback.engine.agents import Agents, AgentSpec, ServedAgent
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import FunctionTools, tool

pytestmark = pytest.mark.anyio

PLAN = (PlanEntry("look"),)


@tool
def look() -> str:
    """A server tool."""
    return "seen"


def using(tokens: int, *steps: Step) -> list[Step]:
    """A turn that tells its usage."""
    return [UsageChunk(Usage(tokens, 1)), *steps]


def said(text: str, tokens: int = 0) -> AssistantMessage:
    return AssistantMessage(new_message_id(KEY), text, usage=Usage(tokens) if tokens else None)


def looking(tokens: int) -> tuple[Message, ...]:
    """A turn that calls the server's tool, and its result."""
    call, usage = ToolCall(new_call_id(KEY), "look", "{}"), Usage(tokens) if tokens else None
    asked = AssistantMessage(new_message_id(KEY), "", (call,), usage=usage)
    return asked, ToolMessage(new_message_id(KEY), call.id, "seen")


async def parked(store: Ledger, state: State, *messages: Message) -> None:
    assert await store.park(replace(change(KEY, 0, *messages), state=state))


async def state(store: Ledger) -> State:
    """Return the state without what was spent, which has tests of its own."""
    return unspent((await store.status(KEY)).state)


def unspent(known: State) -> State:
    return replace(known, tokens=0, seconds=0.0)


# ---------------------------------------------------------------- usage
async def test_each_turn_adds_its_usage_with_its_message(store: Ledger) -> None:
    model = ScriptedModel([using(3, *calls(("look", {}))), using(4, *words("so")), words("bye")])
    async with worker(store, model, look) as runs:
        await outcome(runs, await post(runs, says()))
        usages = [each.usage for each in await record(runs) if isinstance(each, AssistantMessage)]
        assert usages == [Usage(3, 1), Usage(4, 1)]
        assert await state(store) == State(usage=Usage(7, 2))
        await outcome(runs, await post(runs, says("again", "v")))
        assert await state(store) == State(usage=Usage(7, 2))


@pytest.mark.promise("P1")
async def test_usage_counts_when_calls_are_handed_back_and_over_several_runs(store: Ledger) -> None:
    model = ScriptedModel([using(3, *calls(("paint", {}))), using(4, *words("so"))])
    async with worker(store, model) as runs:
        run = await post(runs, says(), tools=[PAINT])
        assert isinstance(await outcome(runs, run), HandedBack)
        assert await state(store) == State(usage=Usage(3, 1))
        [call] = await call_ids(runs)
        await outcome(runs, await post(runs, result(call)))
        assert await state(store) == State(usage=Usage(7, 2))


@pytest.mark.parametrize("shown", ["half", ""])
async def test_a_cut_turn_counts_if_some_of_it_is_kept(memory: Ledger, shown: str) -> None:
    model = ScriptedModel([using(3, shown, ModelUnavailable("gone"))])
    async with worker(memory, model) as runs:
        await outcome(runs, await post(runs, says()))
        usages = [each.usage for each in await record(runs) if isinstance(each, AssistantMessage)]
        assert usages == ([Usage(3, 1)] if shown else [])
        assert (await state(memory)).usage == (Usage(3, 1) if shown else Usage())


async def test_an_answer_that_leaves_no_message_is_not_in_the_usage(memory: Ledger) -> None:
    model = ScriptedModel([using(3, Finish("stop"))])
    async with worker(memory, model) as runs:
        await outcome(runs, await post(runs, says()))
        assert await state(memory) == State()


@pytest.mark.promise("P10")
async def test_a_worker_that_dies_between_two_turns_leaves_what_they_used(store: Ledger) -> None:
    dying_model = ScriptedModel([using(3, *calls(("look", {}))), using(9, "void", anyio.Event())])
    async with (
        worker(store, ScriptedModel([using(4, *words("so"))]), look) as other,
        killable_worker(store, dying_model, look) as dying,
    ):
        run = await post(dying.runs, says())
        async with dying.runs.follow(run) as batches:
            turns = 0
            while turns < 2:
                turns += sum(isinstance(one.event, TurnStarted) for one in await anext(batches))
        await dying.kill()
        assert await state(store) == State(usage=Usage(3, 1))
        await other.status(KEY)
        assert await outcome(other, run) == Completed()
        assert await state(store) == State(usage=Usage(7, 2))


# ---------------------------------------------------------------- behind a boundary
async def test_a_run_reads_only_what_is_behind_the_boundary(store: Ledger) -> None:
    await parked(
        store, State(PLAN, Usage(1), history_start=2), says("old"), said("zero"), says("kept")
    )
    model = ScriptedModel([using(3, *words("one")), using(4, *words("two"))])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says("a", "a")))
        await outcome(runs, await post(runs, says("b", "b")))
        assert await contents(runs) == ["old", "zero", "kept", "a", "one", "b", "two"]
        shown = [[each.content for each in request.messages] for request in model.requests]
        assert shown == [["kept", "a"], ["kept", "a", "one", "b"]]
        status = await runs.status(KEY)
        assert (status.run_start, status.message_count) == (5, 7)
        assert unspent(status.state) == State(PLAN, Usage(8, 2), history_start=2)


@pytest.mark.promise("P8")
async def test_ids_before_the_boundary_stay_known(store: Ledger) -> None:
    model = ScriptedModel([words("one"), words("two")])
    async with worker(store, model) as runs:
        named = StartRun(KEY, (says("a", "mine"),), named=frozenset([MessageId("mine")]))
        run = await runs.start(named)
        assert isinstance(run, RunRef)
        assert await outcome(runs, run) == Completed()
        given = (await record(runs))[1].id
        status = await store.status(KEY)
        moved = replace(change(KEY, status.version), state=State(history_start=2))
        assert await store.park(moved)

        assert await runs.start(named) == run
        for name in (MessageId("mine"), given):
            with pytest.raises(Reused):
                await runs.start(StartRun(KEY, (says("b", name),), named=frozenset([name])))


@tool(permission="ask")
def burn() -> str:
    return "burnt"


async def _allowed_for_good(store: Ledger, digest: str) -> None:
    """Store a conversation in which it was allowed before the boundary."""
    call = ToolCall(new_call_id(KEY), "burn", "{}", asks="approval")
    messages: list[Message] = [
        says("old"),
        AssistantMessage(new_message_id(KEY), "", (call,)),
        ApprovalMessage(
            new_message_id(KEY), call.id, True, always=True, tool="burn", digest=digest
        ),
        ToolMessage(new_message_id(KEY), call.id, "burnt"),
        said("done"),
    ]
    await parked(store, State().with_history_start(5, messages), *messages)


async def test_what_was_allowed_for_good_before_the_boundary_stays_allowed(memory: Ledger) -> None:
    [spec] = await FunctionTools([burn]).specs()
    await _allowed_for_good(memory, declaration_digest(spec))
    model = ScriptedModel([calls(("burn", {})), words("again")])
    async with worker(memory, model, burn) as runs:
        assert await outcome(runs, await post(runs, says("more"))) == Completed()
        assert (await contents(runs))[-3:] == ["", "burnt", "again"]


async def test_the_agent_that_was_asked_before_the_boundary_answers_what_it_asked_for(
    store: Ledger,
) -> None:
    asking = ToolCall(new_call_id(KEY), "paint", "{}", client=True)
    asked = AssistantMessage(new_message_id(KEY), "", (asking,))
    messages: list[Message] = [replace(says("old"), agent="second"), said("zero")]
    known = State().with_history_start(2, messages)
    owing = owed_answers([asked])
    assert await store.park(replace(change(KEY, 0, *messages, asked), state=known, owed=owing))
    silent, model = ScriptedModel([]), ScriptedModel([words("done")])
    agents = Agents([ServedAgent(AgentSpec(silent)), ServedAgent(AgentSpec(model), name="second")])
    service = RunService(store, agents, QUICK)
    with anyio.fail_after(10):
        async with service.running():
            run = await post(service, result(asking.id), tools=[PAINT])
            assert await outcome(service, run) == Completed()
    assert silent.requests == []
    assert (await store.load(KEY)).messages[-1].role == "assistant"


# ---------------------------------------------------------------- a boundary that moves
async def run_across_a_boundary(store: Ledger, *, lease: float) -> tuple[Lease, Commit]:
    """Run three turns: the record is `old, zero, a` and the turns, of which two are behind it.

    Gives its lease, and the commit that ends it as cancelled.
    """
    await parked(store, State(PLAN, Usage(1)), says("old", "old"), said("zero", 1))
    run_id, version = new_run_id(KEY), (await store.status(KEY)).version
    begun = replace(change(KEY, version, says("a", "a")), run_start=2)
    held = await store.begin(begun, run_id, opening(run_id), lease=lease)
    assert held is not None
    for step, known in enumerate([None, State(PLAN, Usage(11), history_start=5), None]):
        log = LogWrite(held, 2, ())
        await store.commit(
            Commit(log, step, looking(10 if step == 1 else 0), state=known), lease=lease
        )
    cut = Commit(LogWrite(held, 2, (RunFinished(Cancelled()),)), 3, ends=True, stopped_early=True)
    return held, cut


@pytest.mark.promise("P10")
async def test_a_taken_over_run_counts_its_turns_before_the_boundary(store: Ledger) -> None:
    held, _ = await run_across_a_boundary(store, lease=0)
    model = ScriptedModel([calls(("look", {}))] * 4)
    async with worker(store, model, look) as runs:
        await runs.status(KEY)
        assert await outcome(runs, held.run) == Completed("max_turns")
        assert [len(request.messages) for request in model.requests] == [4]
        assert await state(store) == State(PLAN, Usage(11), history_start=5)


async def test_a_conversation_that_is_gone_by_then_is_not_taken_over(memory: Ledger) -> None:
    await run_across_a_boundary(memory, lease=0)
    faults = Faults(memory)
    faults.first["read_branch"] = lambda: memory.delete(KEY)
    model = ScriptedModel([])
    async with worker(faults.store, model, look) as runs:
        with pytest.raises(UnknownConversation):
            await runs.status(KEY)
        assert faults.calls["take_over"] == 1
        assert model.requests == []


async def test_a_rollback_to_before_the_boundary_reads_everything_again(store: Ledger) -> None:
    _, cut = await run_across_a_boundary(store, lease=LONG)
    model = ScriptedModel([using(4, *words("two"))])
    async with worker(store, model, look) as runs:
        second = await post(runs, says("b", "b"), on_busy="rollback")
        assert await store.commit(cut, lease=LONG) is True
        assert await outcome(runs, second) == Completed()
        assert await contents(runs) == ["old", "zero", "b", "two"]
        assert [each.content for each in model.requests[0].messages] == ["old", "zero", "b"]
        status = await store.status(KEY)
        assert (unspent(status.state), status.run_start) == (State(PLAN, Usage(5, 1)), 2)


async def test_a_rollback_to_behind_the_boundary_leaves_it_there(store: Ledger) -> None:
    known = State(PLAN, Usage(1), cost=0.5, history_start=1)
    await parked(store, known, says("old", "old"), said("zero", 1))
    model = ScriptedModel([using(3, "half", anyio.Event()), using(4, *words("two"))])
    async with worker(store, model) as runs:
        first = await post(runs, says("a", "a"))
        await until(runs, first, TextDelta)
        second = await post(runs, says("b", "b"), on_busy="rollback")
        assert await outcome(runs, second) == Completed()
        assert await outcome(runs, first) == Cancelled()
        assert await contents(runs) == ["old", "zero", "b", "two"]
        assert [each.content for each in model.requests[1].messages] == ["zero", "b"]
        assert await state(store) == replace(known, usage=Usage(5, 1))
