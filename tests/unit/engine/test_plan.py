"""`update_plan`: what the model says it means to do becomes an event, and part of the conversation's state."""

import anyio
import pytest
from pydantic import JsonValue
from tests.support.runs import KEY, events, outcome, post, worker
from tests.support.runs import says as user

from passback.agent import Agent
from passback.core.events import Completed, PlanUpdated, ToolResulted
from passback.core.messages import CallId, RunId, RunRef, ToolCall
from passback.core.plans import PlanEntry
from passback.core.ports import Store
from passback.core.toolsets import ToolContext
from passback.models.scripted import ScriptedModel, calls, says
from passback.toolsets.plan import PlanTools

pytestmark = pytest.mark.anyio

LOOK: dict[str, JsonValue] = {"content": "look", "priority": "high", "status": "in_progress"}


async def test_a_plan_is_told_and_kept(store: Store) -> None:
    script = [
        calls(("update_plan", {"entries": [LOOK, {"content": "answer"}]})),
        says("so"),
        calls(("update_plan", {"entries": []})),
        says("done"),
    ]
    async with worker(store, ScriptedModel(script), toolsets=[PlanTools()]) as runs:
        run = await post(runs, user())
        said = await events(runs, run)
        plan = (PlanEntry("look", "high", "in_progress"), PlanEntry("answer"))
        assert [event for event in said if isinstance(event, PlanUpdated)] == [PlanUpdated(plan)]
        assert (await runs.status(KEY)).state.plan == plan
        assert await outcome(runs, await post(runs, user("go on", "u2"))) == Completed()
        assert (await runs.status(KEY)).state.plan == ()


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([{"content": ""}], "entries.0.content"),
        ([{"content": "a", "status": "perhaps"}], "entries.0.status"),
        ([{"content": "a"}] * 101, "entries"),
        ("look", "entries"),
    ],
)
async def test_a_plan_that_is_none_is_told_to_the_model(
    memory: Store, entries: JsonValue, why: str
) -> None:
    script = [calls(("update_plan", {"entries": entries})), says("so")]
    async with worker(memory, ScriptedModel(script), toolsets=[PlanTools()]) as runs:
        said = await events(runs, await post(runs, user()))
        [resulted] = [event for event in said if isinstance(event, ToolResulted)]
        assert resulted.is_error
        assert f"The plan is not valid: {why}" in str(resulted.content)
        assert (await runs.status(KEY)).state.plan == ()


async def test_an_agent_offers_it_where_its_author_says_so() -> None:
    [tools] = Agent(plan=True).own_toolsets()
    [spec] = await tools.specs()
    assert spec.name == "update_plan"
    assert not tools.is_read_only("update_plan")
    assert tools.is_repeatable("update_plan")
    call = ToolCall(CallId("c"), "update_plan", '{"entries": []}')
    got = await tools.call(call, ToolContext(RunRef(KEY, RunId("r")), call.id))
    assert got is not None
    assert got.plan == ()
    with anyio.fail_after(10):
        async with Agent(model=ScriptedModel([says("hi")]), plan=True).session() as session:
            assert [event async for event in session.submit("hi")]
