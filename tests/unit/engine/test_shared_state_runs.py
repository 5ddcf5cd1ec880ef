"""Server tools share state with the clients of their conversation."""

import anyio
import pytest
from tests.support.runs import (
    KEY,
    OTHER,
    events,
    outcome,
    post,
    says,
    until,
    worker,
)
from tests.unit.engine.sub_agents import helper

from passback.core.events import (
    Cancelled,
    Completed,
    Nested,
    RunEvent,
    RunQueued,
    RunStarted,
    StateChanged,
    TextDelta,
    ToolResulted,
    innermost_event,
)
from passback.core.messages import JsonObject
from passback.core.shared_state import STATE_BYTES
from passback.core.toolsets import ToolContext
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.agents import AgentTools
from passback.toolsets.functions import ToolError, tool

pytestmark = pytest.mark.anyio


@tool
def count(context: ToolContext, by: int = 1) -> str:
    """Count."""
    known = context.state.get("count", 0)
    assert isinstance(known, int)
    context.state.set("count", known + by)
    return str(known + by)


@tool
def forget(context: ToolContext) -> str:
    """Forget."""
    context.state.remove("count")
    return "gone"


@tool
def breaks(context: ToolContext) -> str:
    """Write and break."""
    context.state.set("count", -1)
    raise ToolError("broken")


@tool
def fill(context: ToolContext) -> str:
    """Write too much."""
    context.state.set("all", "x" * STATE_BYTES)
    return "never"


TOOLS = (count, forget, breaks, fill)


def changes(seen: list[RunEvent]) -> list[StateChanged]:
    return [each for each in map(innermost_event, seen) if isinstance(each, StateChanged)]


async def shared(runs: RunService) -> JsonObject:
    return (await runs.status(KEY)).state.shared or {}


async def test_a_change_is_an_event_behind_its_result_and_is_kept(store: Ledger) -> None:
    turn = calls(("count", {}), ("count", {"by": 2}), ("breaks", {}), ("fill", {}))
    script = [turn, words("three"), calls(("forget", {})), words("none")]
    async with worker(store, ScriptedModel(script), *TOOLS) as runs:
        seen = list(await events(runs, await post(runs, says())))
        assert changes(seen) == [StateChanged({"count": 1}), StateChanged({"count": 3})]
        at = seen.index(StateChanged({"count": 1}))
        assert isinstance(seen[at - 1], ToolResulted)
        assert await shared(runs) == {"count": 3}
        results = [each for each in seen if isinstance(each, ToolResulted)]
        assert [each.is_error for each in results] == [False, False, True, True]
        assert f"of at most {STATE_BYTES}" in str(results[-1].content)
        later = list(await events(runs, await post(runs, says("forget", "u2"))))
        assert changes(later) == [StateChanged({}, ("count",))]
        assert await shared(runs) == {}


async def test_sub_agents_share_it(store: Ledger) -> None:
    asked = helper(ScriptedModel([calls(("count", {"by": 5})), words("counted")]), count)
    script = [calls(("count", {})), calls(("helper", {"task": "count"})), calls(("count", {}))]
    model = ScriptedModel([*script, words("seven")])
    async with worker(store, model, count, toolsets=[AgentTools([asked])]) as runs:
        seen = list(await events(runs, await post(runs, says())))
        assert [each.values for each in changes(seen)] == [{"count": n} for n in (1, 6, 7)]
        assert sum(isinstance(each, Nested) for each in seen if changes([each])) == 1
        assert await shared(runs) == {"count": 7}


@pytest.mark.parametrize("before", [2, 0])
async def test_it_is_taken_back_with_its_run(store: Ledger, before: int) -> None:
    half: list[Step] = ["half", anyio.Event()]
    first_run = [calls(("count", {"by": before})), words("so")] if before else [words("so")]
    model = ScriptedModel(
        [*first_run, calls(("count", {})), calls(("count", {})), half, words("as before")]
    )
    kept = {"count": before} if before else {}
    async with (
        worker(store, model, count) as runs,
        worker(store, model, count) as elsewhere,
    ):
        await outcome(runs, await post(runs, says()))
        first = await post(runs, says("wrong", "u2"))
        await until(runs, first, TextDelta)
        assert await shared(runs) == {"count": before + 2}
        second = await post(elsewhere, says("right", "u3"), on_busy="rollback")
        seen = await events(elsewhere, second)
        assert await outcome(runs, first) == Cancelled()
        back = StateChanged(kept, () if before else ("count",))
        assert seen[:3] == [RunQueued(second.run_id), RunStarted(second.run_id), back]
        assert await shared(runs) == kept


async def test_a_fork_has_it_and_a_branch_keeps_it(store: Ledger) -> None:
    script = [calls(("count", {})), words("one"), words("again"), calls(("count", {}))]
    model = ScriptedModel([*script, words("two")])
    async with worker(store, model, count) as runs:
        await outcome(runs, await post(runs, says("a", "a")))
        await runs.fork(KEY, OTHER)
        assert (await runs.status(OTHER)).state.shared == {"count": 1}
        run = await post(runs, says("b", "b"))
        assert await outcome(runs, run) == Completed()
        await runs.switch(KEY, (await runs.messages(KEY, start=1, limit=1)).messages[0].id)
        assert await shared(runs) == {"count": 1}
        await outcome(runs, await post(runs, says("c", "c")))
        assert await shared(runs) == {"count": 2}
        assert (await runs.status(OTHER)).state.shared == {"count": 1}
