"""Following a run of another worker, which shows more than it has stored, and may die of a sudden."""

from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.runs import (
    KEY,
    QUICK,
    at_once,
    followed,
    let_pass,
    outcome,
    post,
    reading,
    says,
    until,
    worker,
)

from passback.core.errors import InvalidCursor
from passback.core.events import Completed, Position, Rewound, RunEvent, TextDelta
from passback.core.messages import RunRef
from passback.core.ports import Store
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


@tool
def look() -> str:
    """A server tool."""
    return "seen"


async def test_a_place_ahead_of_a_live_log_waits_elsewhere_for_what_comes_behind_it(
    memory: Store,
) -> None:
    """Its reader has seen it where the run is, before it was stored."""
    gate = anyio.Event()
    silent = replace(QUICK, log_delay=3600)
    async with (
        worker(memory, ScriptedModel([["a", gate, *words("b")]]), timing=silent) as owner,
        worker(memory, ScriptedModel([])) as other,
    ):
        run = await post(owner, says())
        ahead = await until(owner, run, TextDelta)
        with pytest.raises(InvalidCursor):  # of an epoch that was not begun
            await followed(other, run, Position(2, 1))
        async with reading(other, run, ahead.position) as reader:
            await let_pass(other)
            assert reader.seen == []
            gate.set()
        assert reader.seen == (await followed(owner, run))[ahead.position.seq :]


@pytest.mark.promise("P3", "P12")
async def test_a_place_from_the_future_is_refused_elsewhere_too(memory: Store) -> None:
    """When the run's worker has stored more, and it was not in it."""
    gates = [anyio.Event() for _ in range(1000)]
    steps = [step for number, gate in enumerate(gates) for step in (gate, f"{number} ")]
    model = ScriptedModel([steps])
    async with worker(memory, model) as owner, worker(memory, ScriptedModel([])) as other:
        run = await post(owner, says())
        async with at_once() as tasks:

            async def read() -> None:
                await refused(other, run, Position(1, 5000))
                tasks.cancel_scope.cancel()

            tasks.start_soon(read)
            for number, gate in enumerate(gates):
                gate.set()
                await shown(other, run, TextDelta(f"{number} "))
            raise AssertionError("it was not refused")
        await owner.cancel(run)


async def test_a_place_from_the_future_is_refused_while_its_worker_lives_in_silence(
    memory: Store,
) -> None:
    model = ScriptedModel([["a", anyio.Event()]])
    hasty = replace(QUICK, lease=0.3)
    async with worker(memory, model) as owner, worker(memory, model, timing=hasty) as other:
        run = await post(owner, says())
        await until(other, run, TextDelta)
        await refused(other, run, Position(1, 99))
        await owner.cancel(run)


@pytest.mark.promise("P3", "P10")
@pytest.mark.parametrize("ends", [False, True])
async def test_a_place_that_a_dead_worker_never_stored_is_waited_for(
    memory: Store, ends: bool
) -> None:
    """Its reader saw it there; the take-over tells him that it is void, also when the run ends before he looks again."""
    silent = replace(QUICK, log_delay=3600)
    async with (
        worker(memory, ScriptedModel([words("good")])) as third,
        worker(memory, ScriptedModel([words("good")])) as other,
        killable_worker(memory, ScriptedModel([["void", anyio.Event()]]), timing=silent) as dying,
    ):
        run = await post(dying.runs, says())
        ahead = await until(dying.runs, run, TextDelta)
        async with reading(other, run, ahead.position) as reader:
            await let_pass(other)
            await dying.kill()
            if ends:
                assert await outcome(third, run) == Completed()
        assert isinstance(reader.events[0], Rewound)
        assert TextDelta("good") in reader.events


@pytest.mark.promise("P3", "P10")
async def test_a_place_is_waited_for_as_long_as_its_dead_workers_lease_lasts(store: Store) -> None:
    mute = replace(QUICK, log_delay=3600)
    async with (
        worker(store, ScriptedModel([words("good")])) as other,
        killable_worker(store, ScriptedModel([["void", anyio.Event()]]), timing=mute) as dying,
    ):
        run = await post(dying.runs, says())
        ahead = await until(dying.runs, run, TextDelta)
        await dying.vanish()
        async with reading(other, run, ahead.position) as reader:
            await let_pass(other)
            assert reader.seen == []
            await dying.expire()
        assert isinstance(reader.events[0], Rewound)
        assert TextDelta("good") in reader.events


@pytest.mark.promise("P10")
async def test_who_comes_after_a_workers_death_is_shown_nothing_that_becomes_void(
    store: Store,
) -> None:
    """What was committed is shown, and the good text after the take-over, as if nothing had happened."""
    script: list[list[Step]] = [["Let me see.", *calls(("look", {}))], ["void", anyio.Event()]]
    async with (
        worker(store, ScriptedModel([words("good")]), look) as other,
        killable_worker(store, ScriptedModel(script), look) as dying,
    ):
        run = await post(dying.runs, says())
        await shown(other, run, TextDelta("void"))
        await dying.vanish()
        async with reading(other, run) as reader:
            await reader.until(TextDelta("Let me see."))
            await let_pass(other)
            await dying.expire()
        assert [event for event in reader.events if isinstance(event, TextDelta | Rewound)] == [
            TextDelta("Let me see."),
            TextDelta("good"),
        ]


async def refused(runs: RunService, run: RunRef, place: Position) -> None:
    with pytest.raises(InvalidCursor):
        await followed(runs, run, place)


async def shown(runs: RunService, run: RunRef, event: RunEvent) -> None:
    """Wait until a reader of the run has been shown an event."""
    async with runs.follow(run) as batches:
        async for batch in batches:
            if any(logged.event == event for logged in batch):
                return
    raise AssertionError("the run ended without it")


@pytest.mark.promise("P3", "P12")
async def test_a_place_is_waited_for_while_its_worker_cannot_store_but_keeps_its_lease(
    memory: Store,
) -> None:
    faults, gate = Faults(memory), anyio.Event()
    async with (
        worker(faults.store, ScriptedModel([["a", gate, *words("b")]])) as owner,
        worker(memory, ScriptedModel([])) as other,
    ):
        faults.plan["append"] = ["refuse"] * 10_000
        run = await post(owner, says())
        ahead = await until(owner, run, TextDelta)
        async with reading(other, run, ahead.position) as reader:
            await faults.until("renew", faults.calls["renew"] + 20)
            faults.plan["append"].clear()
            gate.set()
        assert TextDelta("b") in reader.events


@pytest.mark.promise("P10")
async def test_a_hand_over_is_no_sign_of_life(memory: Store) -> None:
    faults, looking = Faults(memory), Faults(memory)
    silent = replace(QUICK, heartbeat=3600)
    async with (
        worker(faults.store, ScriptedModel([["void", anyio.Event()]]), timing=silent) as owner,
        worker(looking.store, ScriptedModel([words("good")])) as other,
    ):
        run = await post(owner, says())
        await faults.until("append", 1)
        async with reading(other, run) as reader:
            await looking.until("status", 2)
            await owner.drain(0)
        assert [event for event in reader.events if isinstance(event, TextDelta | Rewound)] == [
            TextDelta("good")
        ]


@pytest.mark.promise("P3", "P10")
async def test_a_worker_that_lost_its_run_without_knowing_takes_the_cursors_of_the_new_one(
    memory: Store,
) -> None:
    faults, gate = Faults(memory), anyio.Event()
    mute = replace(QUICK, heartbeat=3600, log_delay=3600)
    async with (
        worker(faults.store, ScriptedModel([["void", anyio.Event()]]), timing=mute) as stale,
        worker(memory, ScriptedModel([["good", gate, *words(" end")]])) as other,
    ):
        run = await post(stale, says())
        await until(stale, run, TextDelta)
        await memory.renew(faults.leases, lease=0)
        await other.status(KEY)
        ahead = await until(other, run, TextDelta)
        assert ahead.position.epoch > 1
        gate.set()
        seen = await followed(stale, run, ahead.position)
        assert TextDelta(" end") in [logged.event for logged in seen]
