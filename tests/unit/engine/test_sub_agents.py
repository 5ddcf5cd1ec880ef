"""Agents that give tasks to others: what these say, what they owe, and how they go on."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from tests.support.runs import (
    DYING,
    KEY,
    PAINT,
    QUICK,
    approval,
    at_once,
    call_ids,
    denial,
    events,
    outcome,
    park,
    post,
    record,
    reply,
    result,
    until,
)
from tests.support.runs import (
    says as user,
)

from passback.core.deltas import Finish, UsageChunk
from passback.core.errors import ModelRejected, ResultConflict, UnknownToolCall
from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    Nested,
    RunEvent,
    TextDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
)
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    Message,
    MessageId,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.ports import ModelClient, Store
from passback.core.state import State, usage_of
from passback.engine.agents import Actor, Agents
from passback.engine.brain import Brain
from passback.engine.runs import RunService
from passback.engine.supervisor import Tempo
from passback.engine.toolbox import Equipment
from passback.models.scripted import ScriptedModel, Turn, calls, says
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.functions import Functions, FunctionTool, tool

pytestmark = pytest.mark.anyio

TASK = calls(("helper", {"task": "find it"}))


@tool(permission="ask")
def erase() -> str:
    """Erase it."""
    return "erased"


def helper(
    model: ModelClient,
    *tools: FunctionTool,
    name: str = "helper",
    agents: Sequence[AgentTool] = (),
    together: bool = False,
) -> AgentTool:
    equipment = Equipment((Functions(tools), AgentTools(agents)))
    actor = Actor(Brain(model, "help", max_turns=3), equipment, name)
    return AgentTool.of(actor, "Helps.", together=together)


@asynccontextmanager
async def boss(
    store: Store, model: ModelClient, *helpers: AgentTool, tempo: Tempo = QUICK
) -> AsyncGenerator[RunService]:
    equipment = Equipment([AgentTools(helpers)])
    agents = Agents([Actor(Brain(model, "lead", max_turns=5), equipment)])
    service = RunService(store, agents, tempo)
    with anyio.fail_after(20):
        async with service.running():
            yield service


def said_by_children(said: Sequence[RunEvent]) -> list[RunEvent]:
    return [event.event for event in said if isinstance(event, Nested)]


def approved(call_id: CallId) -> ApprovalMessage:
    return ApprovalMessage(MessageId("a"), call_id, approved=True)


def answers(messages: Sequence[Message]) -> list[object]:
    """The results that the calling agent got."""
    return [each.content for each in messages if isinstance(each, ToolMessage)]


# ---------------------------------------------------------------- a task, and its answer
async def test_an_agent_gives_a_task_and_gets_the_others_last_words(store: Store) -> None:
    lead = ScriptedModel([TASK, says("It is there.")])
    other = ScriptedModel([says("in the cellar")])
    async with boss(store, lead, helper(other)) as runs:
        run = await post(runs, user("where?"))
        said = await events(runs, run)
        messages = await record(runs)
    assert TextDelta("in the cellar") in said_by_children(said)
    assert TextDelta("in the cellar") not in said
    [resulted] = [event for event in said if isinstance(event, ToolResulted)]
    assert resulted.content == "in the cellar"
    assert answers(messages) == ["in the cellar"]
    [asked] = other.requests
    assert asked.system == "help"
    assert [message.content for message in asked.messages] == ["find it"]
    assert [spec.name for spec in lead.requests[0].tools] == ["helper"]
    # the leading model is never shown what was said within the call
    assert [message.role for message in lead.requests[1].messages] == ["user", "assistant", "tool"]
    children = [message for message in messages if isinstance(message, ChildMessage)]
    assert [type(child.message) for child in children] == [UserMessage, AssistantMessage]


async def test_what_sub_agents_use_counts_also_of_those_that_work_together(store: Store) -> None:
    tasks = calls(("helper", {"task": "a"}), ("other", {"task": "b"}))
    lead = ScriptedModel([[UsageChunk(Usage(1)), *tasks], [UsageChunk(Usage(20)), *says("done")]])
    one = ScriptedModel([[UsageChunk(Usage(300)), *says("here")]])
    other = ScriptedModel([[UsageChunk(Usage(4000)), *says("there")]])
    both = helper(one, together=True), helper(other, name="other", together=True)
    async with boss(store, lead, *both) as runs:
        assert await outcome(runs, await post(runs, user())) == Completed()
        state = (await runs.status(KEY)).state
        assert state == State(usage=Usage(4321), tokens=4321, seconds=state.seconds)
        assert usage_of(await record(runs)) == Usage(4321)


async def test_a_sub_agent_uses_tools_of_its_own(memory: Store) -> None:
    @tool(read_only=True)
    def look(where: str) -> str:
        return f"nothing in the {where}"

    other = ScriptedModel([calls(("look", {"where": "cellar"})), says("not there")])
    lead = ScriptedModel([TASK, says("Sorry.")])
    async with boss(memory, lead, helper(other, look)) as runs:
        said = await events(runs, await post(runs, user()))
    results = [e for e in said_by_children(said) if isinstance(e, ToolResulted)]
    assert [each.content for each in results] == ["nothing in the cellar"]


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        ([ModelRejected("no")], "The agent failed: no"),
        (["half", Finish("length")], "half\n[The agent was stopped before its end.]"),
        (says(""), "The agent is done, and says nothing."),
    ],
)
async def test_what_becomes_of_a_sub_agent_is_told_to_the_other(
    memory: Store, turn: Turn, told: str
) -> None:
    lead = ScriptedModel([TASK, says("ok")])
    async with boss(memory, lead, helper(ScriptedModel([turn]))) as runs:
        assert await reply(runs, user()) == "ok"
        assert answers(await record(runs)) == [told]


async def test_a_task_that_is_none_is_an_error_for_the_model(memory: Store) -> None:
    lead = ScriptedModel([calls(("helper", {"order": 1})), says("ok")])
    async with boss(memory, lead, helper(ScriptedModel([]))) as runs:
        assert await reply(runs, user()) == "ok"
        assert answers(await record(runs)) == ["The arguments have to be a task, as a text."]


async def test_agents_call_each_other_only_so_deep(memory: Store) -> None:
    deeper = helper(ScriptedModel([says("deepest")]), name="a5")
    for level in (4, 3, 2, 1, 0):
        asks = calls((f"a{level + 1}", {"task": "go"}))
        model = ScriptedModel([asks, says(f"from {level + 1}")])
        deeper = helper(model, name=f"a{level}", agents=[deeper])
    lead = ScriptedModel([calls(("a0", {"task": "go"})), says("ok")])
    async with boss(memory, lead, deeper) as runs:
        assert await reply(runs, user()) == "ok"
        messages = await record(runs)
    innermost = messages
    for _ in range(5):
        innermost = [each.message for each in innermost if isinstance(each, ChildMessage)]
    assert answers(innermost) == ["Too many agents call each other."]


async def test_sub_agents_may_work_side_by_side(memory: Store) -> None:
    """Each waits until the other has begun."""
    begun = anyio.Event(), anyio.Event()
    one = ScriptedModel([["a", begun[1], *says("one")]])
    two = ScriptedModel([["b", begun[0], *says("two")]])
    both = calls(("one", {"task": "go"}), ("two", {"task": "go"}))
    lead = ScriptedModel([both, says("ok")])
    helpers = helper(one, name="one", together=True), helper(two, name="two", together=True)
    async with boss(memory, lead, *helpers) as runs, at_once() as tasks:
        run = await post(runs, user())

        async def watch(text: str, event: anyio.Event) -> None:
            async with runs.follow(run) as batches:
                async for batch in batches:
                    if TextDelta(text) in said_by_children([each.event for each in batch]):
                        event.set()

        tasks.start_soon(watch, "a", begun[0])
        tasks.start_soon(watch, "b", begun[1])
        assert await outcome(runs, run) == Completed()
        assert sorted(map(str, answers(await record(runs)))) == ["aone", "btwo"]


# ---------------------------------------------------------------- what they owe
@pytest.mark.promise("P1", "P2", "P4")
async def test_a_client_tool_of_a_sub_agent_is_handed_back_and_finds_its_way(store: Store) -> None:
    other = ScriptedModel([calls(("paint", {})), says("painted")])
    lead = ScriptedModel([TASK, says("Done.")])
    async with boss(store, lead, helper(other)) as runs:
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
    async with boss(store, lead, helper(other)) as runs:  # another worker
        again = await post(runs, result(owed.id, "blue"))
        assert await outcome(runs, again) == Completed()
        messages = await record(runs)
        assert answers(messages) == ["painted"]
    assert [message.content for message in other.requests[1].messages] == ["find it", "", "blue"]


@pytest.mark.promise("P4")
async def test_the_end_of_a_deeper_ones_call_is_said_once_and_last(store: Store) -> None:
    deepest = helper(ScriptedModel([calls(("paint", {})), says("painted")]), name="deepest")
    asks = [calls(("deepest", {"task": "go"})), says("it is painted")]
    between = helper(ScriptedModel(asks), agents=[deepest])
    async with boss(store, ScriptedModel([TASK, says("Done.")]), between) as runs:
        run = await post(runs, user(), tools=[PAINT])
        said = await events(runs, run)
        [owed] = (await runs.status(run.key)).owed
        told = [event for event in said if f"{ToolCallEnded(owed.id)}" in f"{event}"]
        assert told == said[-2:-1]
        again = await post(runs, result(owed.id, "blue"))
        assert await outcome(runs, again) == Completed()
        assert answers(await record(runs)) == ["it is painted"]


async def test_an_approval_of_a_sub_agents_tool(store: Store) -> None:
    other = ScriptedModel([calls(("erase", {})), says("gone")])
    lead = ScriptedModel([TASK, says("Done.")])
    async with boss(store, lead, helper(other, erase)) as runs:
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
    async with boss(store, lead, helper(other, erase)) as runs:
        await events(runs, await post(runs, user()))
        [call_id] = await call_ids(runs)
        await events(runs, await post(runs, approval(call_id, always=True)))
        assert await reply(runs, user("again", "u2")) == "Done again."
        assert await call_ids(runs) == []


async def test_a_denial_is_told_where_the_call_was_made(store: Store) -> None:
    other = ScriptedModel([calls(("erase", {})), says("left alone")])
    lead = ScriptedModel([TASK, says("Fine.")])
    async with boss(store, lead, helper(other, erase)) as runs:
        await events(runs, await post(runs, user()))
        [call_id] = await call_ids(runs)
        said = said_by_children(await events(runs, await post(runs, denial(call_id))))
        assert said[0] == ToolResulted(call_id, "This call was not allowed.", is_error=True)
        assert answers(await record(runs)) == ["left alone"]


async def test_several_sub_agents_owe_and_are_answered_one_by_one(store: Store) -> None:
    asks = [calls(("paint", {})), says("painted")]
    one, two = ScriptedModel(asks), ScriptedModel(asks)
    both = calls(("one", {"task": "go"}), ("two", {"task": "go"}))
    lead = ScriptedModel([both, says("ok")])
    helpers = helper(one, name="one"), helper(two, name="two")
    async with boss(store, lead, *helpers) as runs:
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
    async with boss(store, lead, helper(other)) as runs:
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
    tempo = Tempo(lease=30, heartbeat=0.01, log_delay=0.001, scan=0.01, tool_timeout=0.01)
    async with boss(memory, lead, helper(other), tempo=tempo) as runs:
        run = await post(runs, user(), tools=[PAINT])
        await events(runs, run)
        status = await runs.status(run.key)
        while status.running or status.run_id == run.run_id:
            await anyio.lowlevel.checkpoint()
            status = await runs.status(run.key)
        assert answers(await record(runs)) == ["nobody painted"]
    assert other.requests[1].messages[-1].content == "Nobody answered this call in time."


# ---------------------------------------------------------------- ends and crashes
@pytest.mark.promise("P5", "P6")
async def test_a_cancelled_run_takes_its_sub_agents_along(memory: Store) -> None:
    other = ScriptedModel([["thinking", anyio.Event()]])
    lead = ScriptedModel([TASK, says("Fine.")])
    async with boss(memory, lead, helper(other)) as runs:
        run = await post(runs, user())
        await until(runs, run, Nested)
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        assert other.open_streams == 0
        assert await reply(runs, user("go on", "u2")) == "Fine."


@pytest.mark.promise("P10")
async def test_a_sub_agent_goes_on_after_its_worker_was_lost(store: Store) -> None:
    """Its call that may have been made is not made again."""
    made: list[str] = []
    gate = anyio.Event()

    @tool
    async def pay() -> str:
        made.append("paid")
        await gate.wait()
        return "paid"

    first = ScriptedModel([calls(("pay", {}))])
    async with boss(store, ScriptedModel([TASK]), helper(first, pay), tempo=DYING) as dying:
        run = await post(dying, user())
        while not made:
            await anyio.lowlevel.checkpoint()
        second = ScriptedModel([says("perhaps paid")])
        lead = ScriptedModel([says("ok")])
        async with boss(store, lead, helper(second, pay)) as runs:
            await runs.status(run.key)
            assert await outcome(runs, run) == Completed()
            assert answers(await record(runs)) == ["perhaps paid"]
    assert made == ["paid"]
    told = second.requests[0].messages[-1].content
    assert told == "This call was stopped before it was answered; it may or may not have run."
