"""Agents that give tasks to others: what these say, what becomes of them, and how they go on."""

import anyio
import pytest
from tests.support.faults import Faults
from tests.support.runs import (
    DYING,
    KEY,
    at_once,
    events,
    outcome,
    post,
    record,
    reply,
    until,
)
from tests.support.runs import (
    says as user,
)
from tests.support.sub_agents import TASK, answers, boss, helper, said_by_children

from passback.core.deltas import Finish, UsageChunk
from passback.core.errors import ModelRejected
from passback.core.events import (
    Cancelled,
    Completed,
    Failed,
    Nested,
    TextDelta,
    ToolResulted,
)
from passback.core.messages import (
    AssistantMessage,
    ChildMessage,
    Usage,
    UserMessage,
)
from passback.core.ports import Store
from passback.core.state import State, usage_of
from passback.models.scripted import ScriptedModel, Turn, calls, says
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


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


async def test_a_store_that_has_no_room_for_a_sub_agent_fails_the_run(memory: Store) -> None:
    faults = Faults(memory)
    faults.plan["commit"] = [
        "none",
        "full",
    ]  # the leading agent's turn is stored, the other one's is not
    lead, other = ScriptedModel([TASK, says("Done.")]), ScriptedModel([says("found")])
    async with boss(faults.store, lead, helper(other)) as runs:
        ended = await outcome(runs, await post(runs, user()))
    assert ended == Failed("store_full", "no room in the test", retryable=True)
