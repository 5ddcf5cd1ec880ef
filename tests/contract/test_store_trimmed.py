"""Promises of every store: a log that became too large has no gap that is not reported."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

import pytest
from tests.support.ledgers import open_ledger
from tests.support.store_values import (
    LONG,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_key,
    opening,
    take_over_run,
    texts,
    turn,
    user,
    waiting,
)

from passback.core.changes import Commit, Lease, LogWrite
from passback.core.errors import CursorExpired
from passback.core.events import START, Logged, Position, RunEvent, TextDelta
from passback.core.messages import RunRef
from passback.engine.ledger import Ledger
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3", "P11")]

ROOM = 1000  # bytes of a log here, some twenty short events


@pytest.fixture
async def small(store_url: str) -> AsyncGenerator[Ledger]:
    """A store with little room for logs."""
    async with open_ledger(store_url, options=StoreOptions(log_bytes=ROOM)) as opened:
        yield opened


@dataclass
class WrittenLog:
    """A run's log as its writers know it, whatever the store has kept of it."""

    store: Ledger
    lease: Lease
    events: list[Logged] = field(default_factory=list[Logged])

    def add(self, first: int, *events: RunEvent) -> None:
        places = (Position(self.lease.epoch, first + number) for number in range(len(events)))
        self.events += map(Logged, places, events)

    async def append(self, count: int, size: int = 10) -> None:
        """Append entries of one event each."""
        first = self.next()
        for number in range(first, first + count):
            event = TextDelta(f"{number}".ljust(size, "."))
            await self.store.append([LogWrite(self.lease, number, (event,))], lease=LONG)
            self.add(number, event)

    async def commit(self, step: int) -> None:
        first, event = self.next(), TextDelta(f"step {step}")
        await self.store.commit(turn(self.lease, step, first, event), lease=LONG)
        self.add(first, event)

    async def take_over(self) -> None:
        """Another worker takes over; what was not committed is void."""
        await self.store.release(self.lease)
        committed = (await self.store.status(self.lease.run.key)).committed
        self.lease = await take_over_run(self.store, self.lease.run.key)
        self.events = [each for each in self.events if each.position <= committed]
        newest = (await self.store.read_log(self.lease.run, after=committed))[-1]
        self.add(1, newest.event)

    def next(self) -> int:
        last = self.events[-1].position
        return last.seq + 1 if last.epoch == self.lease.epoch else 1

    async def readable(self, run: RunRef | None = None, limit: int = 1000) -> int:
        """Count the readable events; behind each position all the rest follow, or an error."""
        starts = [START, *(each.position for each in self.events)]
        whole: list[bool] = []
        for place, start in enumerate(starts):
            try:
                rest = await self.store.read_log(run or self.lease.run, after=start, limit=limit)
            except CursorExpired:
                whole.append(False)
                continue
            expected = self.events[place:]
            assert rest == expected[: max(len(rest), min(limit, len(expected)))]
            whole.append(True)
        return sum(whole) - 1


async def begin_log(store: Ledger, lease: float = LONG) -> WrittenLog:
    held = await begin_run(store, new_key(), user("hello"), lease=lease)
    log = WrittenLog(store, held)
    log.add(1, *opening(held.run.run_id))
    return log


# ---------------------------------------------------------------- one epoch
async def test_a_log_within_its_room_is_whole(small: Ledger) -> None:
    log = await begin_log(small)
    await log.append(5)
    assert await log.readable() == 6


async def test_an_old_cursor_has_expired_and_what_is_left_is_whole(small: Ledger) -> None:
    log = await begin_log(small)
    await log.append(100)

    left = await log.readable()

    assert 5 <= left <= 40
    with pytest.raises(CursorExpired):
        await small.read_log(log.lease.run)
    with pytest.raises(CursorExpired):
        await small.read_log(log.lease.run, after=Position(log.lease.epoch, 1))
    assert (await small.read_log(log.lease.run, after=log.events[-2].position)) == log.events[-1:]
    assert (await small.page(log.lease.run.key, start=0, limit=9)).total == 1


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_trimmed_log_is_read_in_parts_without_a_gap(small: Ledger, limit: int) -> None:
    log = await begin_log(small)
    await log.append(100)
    assert await log.readable(limit=limit) >= 5


async def test_the_newest_entry_is_kept_however_large(small: Ledger) -> None:
    log = await begin_log(small)
    await log.append(1, size=10 * ROOM)
    assert await log.readable() >= 1
    await log.append(1, size=20 * ROOM)
    assert await log.readable() >= 1


async def test_one_entry_of_many_events_is_read_from_its_middle(small: Ledger) -> None:
    log = await begin_log(small)
    await log.append(50)
    words = [str(number) for number in range(200)]
    await small.append([texts(log.lease, log.next(), *words)], lease=LONG)
    log.add(log.next(), *map(TextDelta, words))
    assert await log.readable() >= 200


async def test_commits_are_trimmed_as_appends_are_and_the_end_is_read(small: Ledger) -> None:
    log = await begin_log(small)
    for step in range(60):
        await log.commit(step)
    first = log.next()
    end = ending(log.lease, 60, first)
    await small.commit(end, lease=LONG)
    log.add(first, *end.log.events)

    assert 1 <= await log.readable() <= 40


async def test_each_log_has_room_of_its_own(small: Ledger) -> None:
    before = await begin_log(small)
    await before.append(10)
    await small.commit(ending(before.lease, 0, before.next()), lease=LONG)
    before.add(before.next(), *ending(before.lease, 0, 1).log.events)
    key = before.lease.run.key
    log = WrittenLog(small, await begin_run(small, key))
    log.add(1, *opening(log.lease.run.run_id))
    await log.append(100)

    assert await before.readable() == 12
    assert await log.readable() < 100


@pytest.mark.promise("P15")
async def test_a_write_sent_again_does_not_bring_back_what_was_trimmed(small: Ledger) -> None:
    log = await begin_log(small)
    await log.append(5)
    old = [LogWrite(log.lease, each.position.seq, (each.event,)) for each in log.events[1:]]
    await log.append(100)
    left = await log.readable()

    assert await small.append(old[:1], lease=LONG) == ["held"]
    assert await small.append(old, lease=LONG) == ["held"] * 5

    assert await log.readable() == left


async def test_a_room_that_grew_smaller_is_kept_from_the_next_write_on(
    peer: Ledger, small: Ledger
) -> None:
    log = await begin_log(peer)
    await log.append(100)
    log.store = small
    assert await log.readable() == 101
    for _ in range(20):
        await log.append(1)
    assert await log.readable() <= 40


# ---------------------------------------------------------------- several epochs
@pytest.mark.promise("P10")
async def test_a_take_over_of_a_trimmed_log_leaves_no_gap(small: Ledger) -> None:
    log = await begin_log(small)
    await log.append(50)
    await log.commit(0)
    await log.append(3)
    left = await log.readable()

    await log.take_over()

    assert 2 <= await log.readable() <= left
    await log.append(3)
    assert await log.readable() >= 5


@pytest.mark.promise("P10")
async def test_a_take_over_when_what_was_committed_is_trimmed_leaves_no_gap(small: Ledger) -> None:
    """The first worker's log is void, and its committed part is trimmed."""
    log = await begin_log(small)
    await log.append(3)
    await log.commit(0)
    committed = log.events[-1].position
    await log.append(100)

    await log.take_over()

    assert await log.readable() >= 1
    assert await small.read_log(log.lease.run, after=committed) == log.events[-1:]
    with pytest.raises(CursorExpired):
        await small.read_log(log.lease.run)


@pytest.mark.promise("P10")
async def test_many_take_overs_and_trims_leave_no_gap(small: Ledger) -> None:
    log = await begin_log(small)
    for count in (2, 30, 0, 60, 1, 0, 25):
        await log.append(count)
        assert await log.readable() >= 1
        await log.take_over()
        assert await log.readable() >= 1
        await log.append(count // 2)
        await log.commit(0)
        assert await log.readable() >= 1


@pytest.mark.promise("P6")
async def test_fail_lost_leaves_the_end_of_a_trimmed_log(small: Ledger) -> None:
    log = await begin_log(small)
    await log.append(3)
    await log.commit(0)
    committed = log.events[-1].position
    await log.append(100)
    await small.release(log.lease)

    await fail_lost_run(small, log.lease.run.key)

    (end,) = await small.read_log(log.lease.run, after=committed)
    log.events = [*log.events[: committed.seq], end]
    assert await log.readable() >= 1


async def test_the_log_of_a_run_that_waited_is_trimmed_without_a_gap(small: Ledger) -> None:
    held = await begin_run(small, new_key())
    entry = waiting(held.run.key)
    await small.enqueue(entry)
    opened = await small.read_log(entry.run)
    await small.commit(ending(held, 0, 2), lease=LONG)
    version = (await small.status(held.run.key)).version
    dequeues = replace(change(held.run.key, version), dequeues=entry.run.run_id)
    events = opening(entry.run.run_id)
    lease = await small.begin(dequeues, entry.run.run_id, events, lease=LONG)
    assert lease is not None
    log = WrittenLog(small, lease, list(opened))
    log.add(1, *events)

    for _ in range(60):
        await log.append(1)
        assert await log.readable() >= 1
    assert await log.readable() <= 40


async def test_the_events_of_an_ending_are_together(small: Ledger) -> None:
    log = await begin_log(small)
    await log.append(100)
    first = log.next()
    last = tuple(TextDelta(f"last {number}") for number in range(100))
    end = Commit(
        LogWrite(log.lease, first, (*last, *ending(log.lease, 0, 1).log.events)), 0, ends=True
    )
    await small.commit(end, lease=LONG)
    log.add(first, *end.log.events)
    assert await log.readable() >= 101
