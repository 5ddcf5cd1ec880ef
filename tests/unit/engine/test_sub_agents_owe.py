"""What sub-agents owe bubbles up, and its answers find their way back."""

import anyio
import pytest
from tests.support.runs import (
    PAINT,
    approval,
    at_once,
    call_ids,
    denial,
    events,
    let_pass,
    outcome,
    park,
    post,
    record,
    reply,
    result,
)
from tests.support.runs import (
    says as user,
)
from tests.unit.engine.sub_agents import (
    TASK,
    answers,
    approved,
    deep_call,
    erase,
    helper,
    lead_worker,
    said_by_children,
)

from passback.core.deltas import Finish
from passback.core.errors import ResultConflict, UnknownToolCall
from passback.core.events import (
    Completed,
    HandedBack,
    Nested,
    Outcome,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
)
from passback.core.messages import (
    RunRef,
    ToolMessage,
)
from passback.core.ports import Store
from passback.engine.supervisor import Timing
from passback.models.scripted import ScriptedModel, Step, calls, says

pytestmark = pytest.mark.anyio


@pytest.mark.promise("P1", "P2", "P4")
async def test_a_client_tool_of_a_sub_agent_is_handed_back_and_finds_its_way(store: Store) -> None:
    other = ScriptedModel([calls(("paint", {})), says("painted")])
    lead = ScriptedModel([TASK, says("Done.")])
    async with lead_worker(store, lead, helper(other)) as runs:
        run = await post(runs, user(), tools=[PAINT])
        said = await events(runs, run)
        ended = await outcome(runs, run)
        assert isinstance(ended, HandedBack)
        [owed] = ended.owed
        assert (await runs.status(run.key)).owed == (owed,)
        [parent] = [e.call_id for e in said if isinstance(e, ToolCallStarted)]
        assert (owed.name, owed.parent_id) == ("paint", parent)
        # the client may act on it: said last, when the lease is free
        assert said[-2] == Nested(parent, ToolCallEnded(owed.id))
    async with lead_worker(store, lead, helper(other)) as runs:  # another worker
        again = await post(runs, result(owed.id, "blue"))
        assert await outcome(runs, again) == Completed()
        messages = await record(runs)
        assert answers(messages) == ["painted"]
    assert [message.content for message in other.requests[1].messages] == ["find it", "", "blue"]


@pytest.mark.promise("P4")
async def test_a_result_for_a_call_deep_within_that_is_not_handed_back_yet_waits(
    memory: Store,
) -> None:
    gate = anyio.Event()
    paints: list[Step] = [*calls(("paint", {}))[:-1], gate, Finish("tool_calls")]
    inner = helper(ScriptedModel([paints, says("painted")]), name="inner")
    outer = ScriptedModel([calls(("inner", {"task": "go"})), says("passed on")])
    lead = ScriptedModel([TASK, says("Done.")])
    begun: list[RunRef] = []
    async with lead_worker(memory, lead, helper(outer, agents=[inner])) as runs:
        run = await post(runs, user(), tools=[PAINT])
        call = await deep_call(runs, run)

        async def answer() -> None:
            begun.append(await post(runs, result(call, "blue")))

        async with at_once() as tasks:
            tasks.start_soon(answer)
            await let_pass(runs)
            assert begun == []
            gate.set()
        assert await outcome(runs, begun[0]) == Completed()
        assert answers(await record(runs)) == ["passed on"]


@pytest.mark.promise("P4")
async def test_the_end_of_a_deeper_ones_call_is_said_once_and_last(store: Store) -> None:
    deepest = helper(ScriptedModel([calls(("paint", {})), says("painted")]), name="deepest")
    asks = [calls(("deepest", {"task": "go"})), says("it is painted")]
    between = helper(ScriptedModel(asks), agents=[deepest])
    async with lead_worker(store, ScriptedModel([TASK, says("Done.")]), between) as runs:
        run = await post(runs, user(), tools=[PAINT])
        said = await events(runs, run)
        [owed] = (await runs.status(run.key)).owed
        told = [event for event in said if f"{ToolCallEnded(owed.id)}" in f"{event}"]
        assert told == said[-2:-1]
        again = await post(runs, result(owed.id, "blue"))
        assert await outcome(runs, again) == Completed()
        assert answers(await record(runs)) == ["it is painted"]


async def test_the_turns_of_a_task_count_together_whatever_was_owed_between_them(
    store: Store,
) -> None:
    """Also on another worker: an agent that asks again and again comes to an end."""
    other = ScriptedModel([calls(("paint", {}))] * 9)
    lead = ScriptedModel([TASK, says("Enough.")])
    ended: Outcome = HandedBack(())
    asked = 0
    async with lead_worker(store, lead, helper(other)) as runs:
        run = await post(runs, user(), tools=[PAINT])
        while isinstance(ended := await outcome(runs, run), HandedBack):
            asked += 1
            async with lead_worker(store, lead, helper(other)) as another:
                run = await post(another, result(ended.owed[0].id, "blue"))
                await outcome(another, run)
        said = answers(await record(runs))
    assert (ended, asked, len(other.requests)) == (Completed(), 3, 3)
    assert said == ["[The agent was stopped before its end.]"]


async def test_an_approval_of_a_sub_agents_tool(store: Store) -> None:
    other = ScriptedModel([calls(("erase", {})), says("gone")])
    lead = ScriptedModel([TASK, says("Done.")])
    async with lead_worker(store, lead, helper(other, erase)) as runs:
        await events(runs, await post(runs, user()))
        [call_id] = await call_ids(runs)
        with pytest.raises(UnknownToolCall):
            await post(runs, result(call_id, "erased"))
        again = await post(runs, approved(call_id))
        said = said_by_children(await events(runs, again))
        assert [e for e in said if isinstance(e, ToolResulted)] == [ToolResulted(call_id, "erased")]
        assert answers(await record(runs)) == ["gone"]


async def test_what_a_person_allows_for_good_holds_for_sub_agents_too(store: Store) -> None:
    other = ScriptedModel([calls(("erase", {})), says("gone"), calls(("erase", {})), says("gone")])
    lead = ScriptedModel([TASK, says("Done."), TASK, says("Done again.")])
    async with lead_worker(store, lead, helper(other, erase)) as runs:
        await events(runs, await post(runs, user()))
        [call_id] = await call_ids(runs)
        await events(runs, await post(runs, approval(call_id, always=True)))
        assert await reply(runs, user("again", "u2")) == "Done again."
        assert await call_ids(runs) == []


async def test_a_denial_is_told_where_the_call_was_made(store: Store) -> None:
    other = ScriptedModel([calls(("erase", {})), says("left alone")])
    lead = ScriptedModel([TASK, says("Fine.")])
    async with lead_worker(store, lead, helper(other, erase)) as runs:
        await events(runs, await post(runs, user()))
        [call_id] = await call_ids(runs)
        said = said_by_children(await events(runs, await post(runs, denial(call_id))))
        text = "This call was not allowed."
        assert said[0] == ToolResulted(call_id, text, is_error=True, synthetic="denied")
        assert answers(await record(runs)) == ["left alone"]


async def test_several_sub_agents_owe_and_are_answered_one_by_one(store: Store) -> None:
    asks = [calls(("paint", {})), says("painted")]
    one, two = ScriptedModel(asks), ScriptedModel(asks)
    both = calls(("one", {"task": "go"}), ("two", {"task": "go"}))
    lead = ScriptedModel([both, says("ok")])
    helpers = helper(one, name="one"), helper(two, name="two")
    async with lead_worker(store, lead, *helpers) as runs:
        await events(runs, await post(runs, user(), tools=[PAINT]))
        first, second = await call_ids(runs)
        parked = await park(runs, result(second, "b"))
        assert [each.id for each in parked.owed] == [first]
        again = await post(runs, result(first, "a"))
        assert await outcome(runs, again) == Completed()
        # a repeat of what was parked joins the run that it led to
        assert await post(runs, result(second, "b")) == again
        with pytest.raises(ResultConflict):
            await post(runs, result(second, "c"))
    assert one.requests[1].messages[-1].content == "a"
    assert two.requests[1].messages[-1].content == "b"


@pytest.mark.promise("P5")
async def test_a_message_instead_of_the_answer_closes_the_sub_agents_call(store: Store) -> None:
    other = ScriptedModel([calls(("paint", {}))])
    lead = ScriptedModel([TASK, says("Fine.")])
    async with lead_worker(store, lead, helper(other)) as runs:
        await events(runs, await post(runs, user(), tools=[PAINT]))
        [call_id] = await call_ids(runs)
        assert await reply(runs, user("never mind", "u2")) == "Fine."
        assert await call_ids(runs) == []
        [closed] = [m for m in await record(runs) if isinstance(m, ToolMessage)]
        assert closed.synthetic == "superseded"
        with pytest.raises(ResultConflict):
            await post(runs, result(call_id))


async def test_time_that_is_over_goes_to_the_sub_agent(memory: Store) -> None:
    other = ScriptedModel([calls(("paint", {})), says("nobody painted")])
    lead = ScriptedModel([TASK, says("A pity.")])
    timing = Timing(lease=30, heartbeat=0.01, log_delay=0.001, scan=0.01, tool_timeout=0.01)
    async with lead_worker(memory, lead, helper(other), timing=timing) as runs:
        run = await post(runs, user(), tools=[PAINT])
        await events(runs, run)
        status = await runs.status(run.key)
        while status.running or status.run_id == run.run_id:
            await anyio.lowlevel.checkpoint()
            status = await runs.status(run.key)
        assert answers(await record(runs)) == ["nobody painted"]
    assert other.requests[1].messages[-1].content == "Nobody answered this call in time."
