"""A worker stops and leaves its runs: nothing is lost or doubled, and no attempt is counted."""

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest
from tests.support.killable_worker import Fault, Faults
from tests.support.runs import (
    FAILING_LOST,
    KEY,
    OTHER,
    PAINT,
    QUICK,
    RECOVERING,
    at_once,
    call_ids,
    contents,
    events,
    followed,
    let_pass,
    outcome,
    post,
    reading,
    record,
    reply,
    result,
    says,
    standing,
    until,
    worker,
)
from tests.support.waiting import moment
from tests.unit.engine.sub_agents import helper, lead_worker

from passback.core.errors import ShuttingDown
from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    Position,
    Rewound,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolResulted,
)
from passback.core.messages import RunRef, ToolMessage
from passback.engine.ledger import Ledger
from passback.models.scripted import ScriptedModel, Step, Turn, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio


@tool
def look() -> str:
    """A server tool."""
    return "seen"


# ---------------------------------------------------------------- draining
async def test_a_stopping_worker_lets_the_turn_end_and_admits_no_more(memory: Ledger) -> None:
    gate = anyio.Event()
    async with worker(memory, ScriptedModel([[gate, *words("done")]])) as runs:
        run = await post(runs, says())
        await until(runs, run, RunStarted)
        await anyio.wait_all_tasks_blocked()
        async with at_once() as tasks:
            tasks.start_soon(runs.drain, 5)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ShuttingDown):
                await post(runs, says(), key=OTHER)
            with pytest.raises(ShuttingDown):
                await runs.ready()
            gate.set()
        assert await outcome(runs, run) == Completed()


@pytest.mark.promise("P6", "P10")
async def test_between_two_turns_a_run_is_left_to_another_worker(store: Ledger) -> None:
    """Nothing is void: readers of both workers are shown one unbroken stream."""
    gate = anyio.Event()
    first: list[Step] = ["one ", gate, *calls(("look", {}))]
    model = ScriptedModel([first])
    after = ScriptedModel([words("two")])
    async with (
        worker(store, model, look) as leaving,
        worker(store, after, look, timing=RECOVERING) as other,
    ):
        run = await post(leaving, says())
        async with reading(leaving, run) as here, reading(other, run) as there:
            await there.until(TextDelta("one "))
            async with at_once() as tasks:
                tasks.start_soon(leaving.drain, 5)
                await anyio.wait_all_tasks_blocked()
                gate.set()
        fresh = await followed(other, run)
        assert here.seen == there.seen == fresh
        assert not [one for one in fresh if isinstance(one.event, Rewound)]
        assert await contents(other) == ["hi", "one ", "seen", "two"]
        assert (await other.status(KEY)).attempt == 1
    assert [m.content for m in after.requests[0].messages] == ["hi", "one ", "seen"]


@pytest.mark.promise("P10")
async def test_after_the_grace_a_run_is_left_in_the_middle_of_its_turn(store: Ledger) -> None:
    model = ScriptedModel([["half", anyio.Event()]])
    async with (
        worker(store, model) as leaving,
        worker(store, ScriptedModel([words("whole")])) as other,
    ):
        run = await post(leaving, says())
        async with reading(leaving, run) as here, reading(other, run) as there:
            await there.until(TextDelta("half"))
            await leaving.drain(0.01)
            assert model.open_streams == 0
            assert (await other.status(KEY)).attempt == 1
        fresh = await followed(other, run)
        for reader in (here, there):
            assert Rewound(Position(1, 1)) in reader.events
            assert standing(reader.seen) == fresh
        assert await contents(other) == ["hi", "whole"]


@pytest.mark.promise("P10")
async def test_a_run_that_has_just_begun_is_left_whole(store: Ledger) -> None:
    faults = Faults(store)
    model = ScriptedModel([words("never asked")])
    async with (
        worker(faults.store, model) as leaving,
        worker(store, ScriptedModel([words("whole")])) as other,
    ):

        async def stop() -> None:
            await leaving.drain(0)

        faults.first["begin"] = stop
        run = await post(leaving, says())
        assert await outcome(other, run) == Completed()
        seen = await events(other, run)
        assert seen[0] == RunStarted(run.run_id)
        assert seen[-1] == RunFinished(Completed())
        assert await contents(other) == ["hi", "whole"]
    assert model.requests == []


async def test_a_service_whose_task_is_cancelled_leaves_its_runs_too(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("whole")])) as other:
        with anyio.CancelScope() as scope:
            async with worker(store, ScriptedModel([["half", anyio.Event()]])) as leaving:
                run = await post(leaving, says())
                await until(leaving, run, TextDelta)
                scope.cancel()
        assert await outcome(other, run) == Completed()
        assert (await other.status(KEY)).attempt == 1


async def test_runs_handed_on_by_many_workers_count_no_attempt(store: Ledger) -> None:
    run: RunRef | None = None
    for _ in range(5):
        async with worker(store, ScriptedModel([["half", anyio.Event()]])) as leaving:
            run = run or await post(leaving, says())
            assert (await leaving.status(KEY)).attempt == 1
            await until(leaving, run, TextDelta)
    assert run is not None
    # for this one a worker that died would have been one too many
    async with worker(store, ScriptedModel([words("whole")]), timing=FAILING_LOST) as last:
        assert await outcome(last, run) == Completed()
        assert (await last.status(KEY)).attempt == 1


# ---------------------------------------------------------------- server tools
@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.promise("P5", "P10")
async def test_a_tool_that_was_running_is_called_again_only_if_that_is_harmless(
    store: Ledger, repeatable: bool
) -> None:
    begun: list[str] = []
    started = anyio.Event()

    def working(who: str) -> FunctionTool:
        async def work() -> str:
            begun.append(who)
            if who == "first":
                started.set()
                await anyio.sleep_forever()
            return "worked"

        return tool(name="work", repeatable=repeatable)(work)

    async with (
        worker(store, ScriptedModel([calls(("work", {}))]), working("first")) as leaving,
        worker(store, ScriptedModel([words("so")]), working("second")) as other,
    ):
        run = await post(leaving, says())
        await started.wait()
        await leaving.drain(0)
        (resulted,) = [e for e in await events(other, run) if isinstance(e, ToolResulted)]
        assert resulted.is_error is not repeatable
        (answer,) = [m for m in await record(other) if isinstance(m, ToolMessage)]
        assert answer.synthetic == (None if repeatable else "interrupted")
        assert await outcome(other, run) == Completed()
    assert begun == (["first", "second"] if repeatable else ["first"])


async def test_a_tool_that_ends_within_the_grace_is_not_called_again(store: Ledger) -> None:
    begun: list[str] = []
    started, gate = anyio.Event(), anyio.Event()

    @tool
    async def work() -> str:
        begun.append("once")
        started.set()
        await gate.wait()
        return "worked"

    async with (
        worker(store, ScriptedModel([calls(("work", {}))]), work) as leaving,
        worker(store, ScriptedModel([words("so")]), work) as other,
    ):
        run = await post(leaving, says())
        await started.wait()
        async with at_once() as tasks:
            tasks.start_soon(leaving.drain, 5)
            await anyio.wait_all_tasks_blocked()
            gate.set()
        assert await outcome(other, run) == Completed()
        assert await contents(other) == ["hi", "", "worked", "so"]
    assert begun == ["once"]


# ---------------------------------------------------------------- sub-agents
async def _left_to(store: Ledger, lead: Turn, owes: Turn, write: FunctionTool) -> RunRef:
    """Leave a run while one sub-agent waits for the client, and another is at its first turn."""
    gate = anyio.Event()
    busy = ScriptedModel([[gate, *calls(("look", {}))]])
    owing = helper(ScriptedModel([owes]), name="owing")
    helpers = owing, helper(busy, look, write, name="busy")
    async with lead_worker(store, ScriptedModel([lead]), *helpers, tools=[write]) as leaving:
        run = await post(leaving, says(), tools=[PAINT])
        while not busy.open_streams:
            await anyio.lowlevel.checkpoint()
        async with at_once() as tasks:
            tasks.start_soon(leaving.drain, 5)
            await let_pass(leaving)
            gate.set()
    return run


@pytest.mark.promise("P10")
async def test_what_follows_a_sub_agent_that_is_left_is_left_too(store: Ledger) -> None:
    """It is handed back, and a tool is called, only when the sub-agent has done its work."""
    made: list[str] = []

    @tool
    async def write() -> str:
        made.append("written")
        return "written"

    tasks = calls(("owing", {"task": "go"}), ("busy", {"task": "go"}), ("write", {}))
    run = await _left_to(store, tasks, calls(("paint", {})), write)
    assert made == []
    assert (await store.status(KEY)).owed == ()
    later = ScriptedModel([words("done")])
    helpers = helper(ScriptedModel([words("it is blue")]), name="owing"), helper(later, name="busy")
    async with lead_worker(store, ScriptedModel([words("ok")]), *helpers, tools=[write]) as other:
        assert isinstance(await outcome(other, run), HandedBack)
        assert made == ["written"]
        (owed,) = await call_ids(other)
        assert await reply(other, result(owed)) == "ok"
        given = [m.content for m in await record(other) if isinstance(m, ToolMessage)]
    assert given == ["done", "written", "it is blue"]


# ---------------------------------------------------------------- other events during a hand-over
@pytest.mark.promise("P7")
async def test_a_run_that_was_left_may_be_cancelled_before_anybody_goes_on(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([["half", anyio.Event()]])) as leaving,
        worker(store, ScriptedModel([["more", anyio.Event()]])) as other,
    ):
        run = await post(leaving, says())
        await until(leaving, run, TextDelta)
        await leaving.drain(0)
        assert await leaving.cancel(run)
        assert await outcome(other, run) == Cancelled()


async def test_a_release_that_the_store_refuses_costs_time_and_nothing_else(store: Ledger) -> None:
    """The lease lapses by itself."""
    faults = Faults(store)
    faults.plan["release"] = ["refuse"]
    short = replace(QUICK, lease=0.5, heartbeat=0.01)
    async with (
        worker(faults.store, ScriptedModel([["half", anyio.Event()]]), timing=short) as leaving,
        worker(store, ScriptedModel([words("whole")]), timing=RECOVERING) as other,
    ):
        run = await post(leaving, says())
        await until(leaving, run, TextDelta)
        await leaving.drain(0)
        while (await store.status(KEY)).running:
            await moment()
        assert await outcome(other, run) == Completed()
        assert (await other.status(KEY)).attempt == 2
    assert faults.calls["release"] == 1


@pytest.mark.parametrize("fault", ["refuse", "lose reply"])
@pytest.mark.promise("P15")
async def test_a_run_is_left_although_text_is_in_doubt(store: Ledger, fault: Fault) -> None:
    faults = Faults(store)
    faults.plan["append"] = [fault]
    slow = replace(QUICK, log_delay=0.05)  # and ten times that after a failure
    async with (
        worker(faults.store, ScriptedModel([["half", anyio.Event()]]), timing=slow) as leaving,
        worker(store, ScriptedModel([words("whole")])) as other,
    ):
        run = await post(leaving, says())
        async with reading(leaving, run) as here:
            await faults.until("append", 1)
            await leaving.drain(0)
            assert (await other.status(KEY)).attempt == 1
        assert standing(here.seen) == await followed(other, run)
        assert await contents(other) == ["hi", "whole"]
    assert faults.calls["append"] == 2


async def test_a_stopped_worker_takes_nothing_over(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([["half", anyio.Event()]])) as leaving,
        worker(store, ScriptedModel([]), timing=RECOVERING) as stopped,
        worker(store, ScriptedModel([words("whole")])) as other,
    ):
        await stopped.drain(0)
        run = await post(leaving, says())
        await until(leaving, run, TextDelta)
        await leaving.drain(0)
        assert (await stopped.status(KEY)).lapsed
        await let_pass(stopped)
        assert (await stopped.status(KEY)).lapsed
        assert await outcome(other, run) == Completed()


@pytest.mark.parametrize("method", ["take_due", "load", "take_over"])
async def test_a_look_for_lost_runs_that_fails_is_repeated(memory: Ledger, method: str) -> None:
    faults = Faults(memory)
    faults.plan[method] = ["refuse"]
    timing = replace(RECOVERING, lease=0.5)
    async with worker(faults.store, ScriptedModel([words("whole")]), timing=timing) as other:
        async with worker(memory, ScriptedModel([["half", anyio.Event()]])) as leaving:
            run = await post(leaving, says())
            await until(leaving, run, TextDelta)
        while (await memory.status(KEY)).running:
            await moment()
        assert await outcome(other, run) == Completed()
    assert faults.plan[method] == []


async def test_a_result_that_a_stopping_worker_refuses_is_not_lost(memory: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {})), words("done")])
    async with worker(memory, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
        await runs.drain(0)
        with pytest.raises(ShuttingDown):
            await post(runs, result(call_id))
    async with worker(memory, model) as other:
        assert await reply(other, result(call_id)) == "done"
