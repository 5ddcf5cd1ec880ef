"""Posts that wait go on without a reader who would see to it, also behind an end of which nobody was told."""

import anyio
import anyio.lowlevel
import pytest
from tests.support.killable_worker import Fault, Faults, killable_worker
from tests.support.runs import FAILING_LOST, KEY, contents, outcome, post, says, worker

from passback.core.events import Completed
from passback.core.messages import RunRef
from passback.core.ports import Store
from passback.engine.recovery import LOST_RUN
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


async def enqueue(runs: RunService) -> RunRef:
    return await post(runs, says("b", "b"), on_busy="enqueue")


async def nothing_waits(store: Store) -> None:
    while (await store.status(KEY)).queued:
        await anyio.lowlevel.checkpoint()


@pytest.mark.promise("P15")
async def test_the_queue_goes_on_when_the_end_was_stored_and_nobody_was_told(store: Store) -> None:
    """The heartbeat finds the lease gone before the end is sent again."""
    faults, gate = Faults(store), anyio.Event()
    model = ScriptedModel([[gate, *words("one")], words("two")])
    async with worker(faults.store, model) as runs:
        await post(runs, says("a"))
        run = await enqueue(runs)
        refused: list[Fault] = ["refuse"] * 9
        faults.plan["commit"] = ["lose reply", *refused]
        gate.set()
        await nothing_waits(store)
        assert await outcome(runs, run) == Completed()
        assert await contents(runs) == ["a", "one", "b", "two"]


@pytest.mark.promise("P10")
async def test_the_queue_goes_on_behind_a_run_that_was_given_up(store: Store) -> None:
    async with (
        worker(store, ScriptedModel([words("two")]), timing=FAILING_LOST) as other,
        killable_worker(store, ScriptedModel([["half", anyio.Event()]])) as dying,
    ):
        first = await post(dying.runs, says("a"))
        run = await enqueue(dying.runs)
        await dying.kill()
        assert await outcome(other, first) == LOST_RUN
        await nothing_waits(store)
        assert await outcome(other, run) == Completed()
        assert await contents(other) == ["a", "b", "two"]
