"""A worker that stood still for longer than its lease finds a run of its own that is lost, and goes on with it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    KEY,
    QUICK,
    RECOVERING,
    at_once,
    contents,
    events,
    followed,
    outcome,
    post,
    reading,
    says,
    standing,
    until,
    worker,
)

from passback.core.events import Cancelled, Completed, Position, Rewound, TextDelta
from passback.core.ports import Store
from passback.engine.service import RunService
from passback.engine.supervisor import Timing
from passback.models.scripted import ScriptedModel, Step
from passback.models.scripted import says as words

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P6", "P10")]

STILL = replace(QUICK, heartbeat=3600, log_delay=3600)
"""It renews its leases only when it commits."""


def half() -> list[Step]:
    return ["half", anyio.Event()]


@asynccontextmanager
async def stalled(
    store: Store, model: ScriptedModel, timing: Timing = STILL
) -> AsyncGenerator[tuple[RunService, Faults]]:
    faults = Faults(store)
    async with worker(faults.store, model, timing=timing) as runs:
        yield runs, faults


async def stand_still(store: Store, faults: Faults) -> None:
    """What a long stop does to the leases."""
    await store.renew(faults.leases, lease=0)


@pytest.mark.parametrize("who", ["status", "post"])
async def test_a_worker_goes_on_with_its_own_lost_run(store: Store, who: str) -> None:
    model = ScriptedModel([half(), words("whole"), words("next")])
    async with stalled(store, model) as (runs, faults):
        run = await post(runs, says())
        async with reading(runs, run) as reader:
            await reader.until(TextDelta("half"))
            await stand_still(store, faults)
            if who == "status":
                assert (await runs.status(KEY)).attempt == 2
            else:
                await post(runs, says("more"), on_busy="enqueue")
        assert Rewound(Position(1, 1)) in reader.events
        assert standing(reader.seen) == await followed(runs, run)
        assert (await contents(runs))[:2] == ["hi", "whole"]
        assert model.open_streams == 0


async def test_a_worker_finds_its_own_lost_run_by_itself(store: Store) -> None:
    model = ScriptedModel([half(), words("whole")])
    timing = replace(RECOVERING, lease=0.3, heartbeat=3600, log_delay=3600)
    async with stalled(store, model, timing) as (runs, _):
        run = await post(runs, says())
        async with reading(runs, run) as reader:
            await reader.until(TextDelta("whole"))
        assert standing(reader.seen) == await followed(runs, run)
        assert await contents(runs) == ["hi", "whole"]


async def test_a_run_that_its_worker_took_over_can_be_cancelled(store: Store) -> None:
    model = ScriptedModel([half(), half()])
    async with stalled(store, model) as (runs, faults):
        run = await post(runs, says())
        await until(runs, run, TextDelta)
        await stand_still(store, faults)
        await runs.status(KEY)
        await until(runs, run, TextDelta)
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        assert model.open_streams == 0


async def test_a_run_that_its_worker_took_over_again_and_again_ends(store: Store) -> None:
    """It is lost as often as there are attempts, and the service lives."""
    model = ScriptedModel([half(), half(), half(), words("next")])
    async with stalled(store, model) as (runs, faults):
        run = await post(runs, says())
        for attempt in (1, 2, 3):
            assert (await runs.status(KEY)).attempt == attempt
            await until(runs, run, TextDelta)
            await stand_still(store, faults)
        status = await runs.status(KEY)
        assert not status.running
        assert await outcome(runs, await post(runs, says("again"))) == Completed()
    assert model.open_streams == 0


async def test_a_stop_leaves_the_run_that_was_taken_over(store: Store) -> None:
    model = ScriptedModel([half(), half()])
    async with worker(store, ScriptedModel([words("whole")])) as other:
        async with stalled(store, model) as (runs, faults):
            run = await post(runs, says())
            await until(runs, run, TextDelta)
            await stand_still(store, faults)
            await runs.status(KEY)
            async with at_once() as tasks:
                tasks.start_soon(runs.drain, 0)
        assert await outcome(other, run) == Completed()
        assert TextDelta("half") not in await events(other, run)
    assert model.open_streams == 0
