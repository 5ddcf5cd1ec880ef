"""`update_plan`: what the model says it means to do becomes an event, and part of the conversation's state."""

import anyio
import pytest
from pydantic import JsonValue
from tests.support.runs import KEY, events, outcome, post, until, worker
from tests.support.runs import says as user

from passback.agent import Agent
from passback.core.events import (
    Cancelled,
    Completed,
    PlanUpdated,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolResulted,
)
from passback.core.messages import CallId, PlanEntry, RunId, RunRef, ToolCall
from passback.core.ports import Store
from passback.core.toolsets import ToolContext
from passback.models.scripted import ScriptedModel, Step, calls, says
from passback.session import Session
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


def plans(*entries: str) -> list[Step]:
    """A turn that says what is meant to be done."""
    planned: list[JsonValue] = [{"content": each} for each in entries]
    return calls(("update_plan", {"entries": planned}))


def plan_of(*entries: str) -> tuple[PlanEntry, ...]:
    return tuple(map(PlanEntry, entries))


@pytest.mark.parametrize("before", [("first",), ()], ids=["a plan before", "none"])
async def test_a_plan_is_taken_back_with_its_run(store: Store, before: tuple[str, ...]) -> None:
    half: list[Step] = ["half", anyio.Event()]
    cut = [plans("second"), plans("third"), half]
    model = ScriptedModel([plans(*before), says("so"), *cut, says("as before"), says("more")])
    async with (
        worker(store, model, toolsets=[PlanTools()]) as runs,
        worker(store, model, toolsets=[PlanTools()]) as elsewhere,
    ):
        await outcome(runs, await post(runs, user()))
        first = await post(runs, user("wrong", "u2"))
        await until(runs, first, TextDelta)
        assert (await runs.status(KEY)).state.plan == plan_of("third")
        second = await post(elsewhere, user("right", "u3"), on_busy="rollback")
        said = await events(elsewhere, second)
        assert await outcome(runs, first) == Cancelled()
        # who follows is told, for he has seen the other one
        taken_back = PlanUpdated(plan_of(*before))
        assert said[:3] == [RunQueued(second.run_id), RunStarted(second.run_id), taken_back]
        assert (await runs.status(KEY)).state.plan == plan_of(*before)
        later = await events(runs, await post(runs, user("go on", "u4")))
        assert not any(isinstance(each, PlanUpdated) for each in later)
        assert (await runs.status(KEY)).state.plan == plan_of(*before)


async def test_a_plan_stays_when_a_run_without_one_is_taken_back(store: Store) -> None:
    model = ScriptedModel([plans("first"), says("so"), ["half", anyio.Event()], says("done")])
    async with worker(store, model, toolsets=[PlanTools()]) as runs:
        await outcome(runs, await post(runs, user()))
        await until(runs, await post(runs, user("wrong", "u2")), TextDelta)
        second = await post(runs, user("right", "u3"), on_busy="rollback")
        assert not any(isinstance(each, PlanUpdated) for each in await events(runs, second))
        assert (await runs.status(KEY)).state.plan == plan_of("first")


async def test_a_plan_stays_when_its_run_is_interrupted(store: Store) -> None:
    model = ScriptedModel([plans("first"), ["half", anyio.Event()], says("done")])
    async with worker(store, model, toolsets=[PlanTools()]) as runs:
        await until(runs, await post(runs, user()), TextDelta)
        second = await post(runs, user("right", "u3"), on_busy="interrupt")
        assert await outcome(runs, second) == Completed()
        assert (await runs.status(KEY)).state.plan == plan_of("first")
        assert (await runs.status(KEY)).state.earlier_plan is None


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
        assert (resulted.is_error, resulted.synthetic) == (True, "invalid")
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
        async with Session(Agent(model=ScriptedModel([says("hi")]), plan=True)) as session:
            assert [event async for event in session.submit("hi")]
