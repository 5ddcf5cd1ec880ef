"""Runs with very long logs: memory is bounded; readers get everything or an error (P11)."""

import itertools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.ledgers import open_ledger
from tests.support.runs import (
    KEY,
    QUICK,
    contents,
    followed,
    outcome,
    over,
    post,
    reading,
    says,
    until,
    worker,
)
from tests.support.waiting import moment

from passback.core.changes import Change, Lease
from passback.core.deltas import Finish, TextChunk
from passback.core.errors import CursorExpired, StoreUnavailable
from passback.core.events import (
    START,
    Cancelled,
    Completed,
    Logged,
    Position,
    RunFinished,
    RunStarted,
    TextDelta,
)
from passback.core.messages import RunId, RunRef
from passback.engine.ledger import Ledger
from passback.engine.log import End, LogWriter, RunLog
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step
from passback.models.scripted import says as words
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

AT_ONCE = 1000


class Chatter:
    """A model that says a thousand words when asked to go on, and waits until they are stored."""

    def __init__(self, faults: Faults, rounds: int, *, word: str = "w") -> None:
        self._faults = faults
        self._gates = [anyio.Event() for _ in range(rounds)]
        self._left = iter(self._gates)
        batch = [TextChunk(f"{word}{number}") for number in range(AT_ONCE)]
        steps: list[Step] = [step for gate in self._gates for step in (gate, batch)]
        self.last = anyio.Event()
        self.model = ScriptedModel([[*steps, self.last, Finish("stop")]])

    async def go_on(self, rounds: int) -> None:
        for gate in itertools.islice(self._left, rounds):
            written = self._faults.calls["append"]
            gate.set()
            await self._faults.until("append", written + 1)


def assert_whole(seen: Sequence[Logged], events: int) -> None:
    """Check that every event comes once, in order, to the end."""
    assert [one.position.seq for one in seen] == list(range(1, events + 1))
    assert isinstance(seen[-1].event, RunFinished)


# ---------------------------------------------------------------- memory
async def test_a_long_log_keeps_a_third_in_memory(memory: Ledger) -> None:
    run = RunRef(KEY, RunId("r"))
    opening = (RunStarted(run.run_id),)
    lease = await memory.begin(Change(KEY, "n", 0, (says(),)), run.run_id, opening, lease=30)
    assert isinstance(lease, Lease)
    writer = LogWriter(memory, delay=0.001, lease=30, write_timeout=5)
    log = RunLog(lease, opening, writer, lambda _: None)
    for number in range(30):
        log.append([TextDelta(f"{number}")] * AT_ONCE)
        assert len(log.events_after(log.start)) <= 11_000
        assert await writer.flush()
        assert len(log.events_after(log.start)) <= 10_000
    await log.commit((), (RunFinished(Completed()),), End(()))
    kept = log.events_after(log.start)
    assert len(kept) <= 10_000
    assert kept[-1] == Logged(Position(1, 30_002), RunFinished(Completed()))
    assert log.start == Position(1, kept[0].position.seq - 1)


async def test_what_is_not_stored_is_not_forgotten(memory: Ledger) -> None:
    """The store is away: all that it lacks stays in memory, and is written when it comes back."""
    run = RunRef(KEY, RunId("r"))
    opening = (RunStarted(run.run_id),)
    faults = Faults(memory)
    lease = await memory.begin(Change(KEY, "n", 0, (says(),)), run.run_id, opening, lease=30)
    assert isinstance(lease, Lease)
    writer = LogWriter(faults.store, delay=0.001, lease=30, write_timeout=5)
    log = RunLog(lease, opening, writer, lambda _: None)
    faults.plan["append"] = ["refuse"] * 12
    for number in range(12):
        log.append([TextDelta(f"{number}")] * AT_ONCE)
        assert not await writer.flush()
    assert len(log.events_after(START)) == 12_001
    await log.commit((), (RunFinished(Completed()),), End(()))
    assert len(log.events_after(log.start)) <= 10_000
    stored: list[Logged] = []
    while batch := await memory.read_log(run, after=stored[-1].position if stored else START):
        stored += batch
    assert_whole(stored, 12_002)


# ---------------------------------------------------------------- readers
@pytest.mark.promise("P3")
async def test_readers_get_all_of_a_long_run_however_slow_they_are(store: Ledger) -> None:
    """One follows closely, one lags behind the memory's part, some come later or elsewhere."""
    faults = Faults(store)
    chatter = Chatter(faults, 12)
    async with (
        worker(faults.store, chatter.model) as runs,
        worker(store, ScriptedModel([])) as other,
    ):
        run = await post(runs, says())
        async with runs.follow(run) as batches, reading(runs, run) as along:
            slow = list(await anext(batches))
            await chatter.go_on(12)
            async with reading(runs, run) as late, reading(runs, run, Position(1, 5000)) as middle:
                chatter.last.set()
            slow += [logged async for batch in batches for logged in batch]
        total = 12 * AT_ONCE + 4
        for seen in (slow, along.seen, late.seen, await followed(other, run)):
            assert_whole(seen, total)
        assert middle.seen == slow[5000:]


@pytest.mark.promise("P7")
async def test_a_reader_that_could_not_begin_does_not_keep_its_run(memory: Ledger) -> None:
    faults = Faults(memory)
    chatter = Chatter(faults, 12)
    timing = replace(QUICK, disconnect_grace=0.05)
    async with worker(faults.store, chatter.model, timing=timing) as runs:
        run = await post(runs, says(), on_disconnect="cancel")
        async with runs.follow(run) as batches:
            await anext(batches)
            await chatter.go_on(12)  # its beginning is no longer in memory
            faults.plan["read_log"] = ["refuse"]
            with pytest.raises(StoreUnavailable):
                async with runs.follow(run):
                    pytest.fail("it was opened")
        await over(memory, run)
        assert await outcome(runs, run) == Cancelled()


async def test_a_reader_reads_past_what_is_forgotten_while_it_reads(store: Ledger) -> None:
    """It has to go back to the store more than once."""
    faults = Faults(store)
    chatter = Chatter(faults, 24)
    async with worker(faults.store, chatter.model) as runs:
        run = await post(runs, says())
        await chatter.go_on(12)
        async with runs.follow(run) as batches:
            seen = list(await anext(batches))
            await chatter.go_on(12)
            chatter.last.set()
            seen += [logged async for batch in batches for logged in batch]
        assert_whole(seen, 24 * AT_ONCE + 4)


@pytest.mark.promise("P3", "P10")
async def test_a_long_run_that_was_taken_over_is_read_whole(store: Ledger) -> None:
    faults = Faults(store)
    chatter = Chatter(faults, 12)
    async with (
        worker(faults.store, chatter.model) as other,
        killable_worker(store, ScriptedModel([["void", anyio.Event()]])) as dying,
    ):
        run = await post(dying.runs, says())
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        await other.status(KEY)
        await chatter.go_on(12)
        async with reading(other, run) as reader:
            chatter.last.set()
        assert reader.events[0] == RunStarted(run.run_id)
        assert [one.position for one in reader.seen[1:]] == [
            Position(2, number) for number in range(2, 12 * AT_ONCE + 5)
        ]
        assert isinstance(reader.events[-1], RunFinished)


# ---------------------------------------------------------------- logs that were trimmed
@pytest.fixture(params=["memory", "file"])
async def small(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Ledger]:
    """A store with little room for logs."""
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/small.db"
    async with open_ledger(url, options=StoreOptions(log_bytes=100_000)) as opened:
        yield opened


async def assert_expired(runs: RunService, run: RunRef, after: Position) -> None:
    with pytest.raises(CursorExpired):
        await followed(runs, run, after)


@pytest.mark.promise("P3", "P12")
async def test_a_cursor_into_the_trimmed_part_is_an_error(small: Ledger) -> None:
    """Never a silent gap; and what was said is in the conversation all the same."""
    faults = Faults(small)
    chatter = Chatter(faults, 8)
    async with (
        worker(faults.store, chatter.model) as runs,
        worker(small, ScriptedModel([])) as other,
    ):
        run = await post(runs, says())
        await chatter.go_on(8)
        # where the run is, memory still has it
        async with reading(runs, run) as here:
            await here.until(TextDelta("w999"))
            await assert_expired(other, run, START)
            await assert_expired(other, run, Position(1, 500))
            async with reading(other, run, Position(1, 8 * AT_ONCE)) as near:
                chatter.last.set()
        assert_whole(here.seen, 8 * AT_ONCE + 4)
        assert near.seen == here.seen[8 * AT_ONCE :]
        await assert_expired(other, run, START)
        assert await followed(other, run, here.seen[-1].position) == []
        text = "".join(f"w{number}" for number in range(AT_ONCE)) * 8
        assert await contents(other) == ["hi", text]


@pytest.mark.promise("P3")
async def test_a_reader_overtaken_by_the_trimming_gets_an_error(small: Ledger) -> None:
    faults = Faults(small)
    chatter = Chatter(faults, 12)
    async with (
        worker(faults.store, chatter.model) as runs,
        worker(small, ScriptedModel([])) as other,
    ):
        run = await post(runs, says())
        async with runs.follow(run) as here, other.follow(run) as there:
            await anext(here)
            await anext(there)
            await chatter.go_on(12)
            for batches in (here, there):
                with pytest.raises(CursorExpired):
                    await anext(batches)
        chatter.last.set()
        while (await small.status(KEY)).running:
            await moment()


@pytest.mark.promise("P10")
async def test_a_run_whose_log_was_trimmed_is_taken_over_all_the_same(small: Ledger) -> None:
    faults = Faults(small)
    chatter = Chatter(faults, 8)
    async with (
        worker(small, ScriptedModel([words("whole")])) as other,
        killable_worker(faults.store, chatter.model, timing=QUICK) as dying,
    ):
        run = await post(dying.runs, says())
        await chatter.go_on(8)
        await dying.kill()
        status = await other.status(KEY)
        assert status.attempt == 2
        assert await outcome_from(other, run, Position(1, 8 * AT_ONCE)) == Completed()
        assert await contents(other) == ["hi", "whole"]


async def outcome_from(runs: RunService, run: RunRef, after: Position) -> object:
    last = (await followed(runs, run, after))[-1].event
    assert isinstance(last, RunFinished)
    return last.outcome


async def test_a_short_run_after_a_long_one_has_room(small: Ledger) -> None:
    faults = Faults(small)
    chatter = Chatter(faults, 8)
    async with worker(faults.store, chatter.model) as runs:
        await post(runs, says())
        await chatter.go_on(8)
        chatter.last.set()
        while (await small.status(KEY)).running:
            await moment()
    async with worker(small, ScriptedModel([words("short")])) as runs:
        assert await outcome(runs, await post(runs, says("again"))) == Completed()
