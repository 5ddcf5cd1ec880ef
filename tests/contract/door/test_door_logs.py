"""Logs: what is appended is read, what is void is gone, and what was trimmed shows."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.contract.door.writes import (
    LONG,
    a_write,
    append,
    applied,
    entries,
    entry,
    filled,
    leased,
    log_of,
    made,
    new_key,
    new_run,
    running,
)

from passback.core.changes import dump_events
from passback.core.conversation.store import (
    Append,
    Guard,
    LogChange,
    LogEntry,
    LogPage,
    Store,
    TakeLease,
)
from passback.core.events import START, Position
from passback.core.messages import ConversationKey, RunId
from passback.stores.options import StoreOptions

if TYPE_CHECKING:
    from tests.contract.door.conftest import Doors

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3")]

BYTES = bytes(range(256))
ROOM = 1000  # bytes of a log in `small`
SIZE = 100  # bytes of an entry there


def sized(epoch: int, seq: int, size: int = SIZE) -> LogEntry:
    return entry(epoch, seq, 1, f"{epoch}-{seq}".encode().ljust(size, b"."))


async def change_log(store: Store, key: ConversationKey, change: LogChange) -> None:
    await applied(store, replace(a_write(key), log=change))


# ---------------------------------------------------------------- adding and reading
async def test_an_entry_is_read_as_it_was_written(door: Store, peer: Store) -> None:
    key, run_id = await running(door)
    added = [entry(1, 4, 3, BYTES), entry(1, 5, 1, b"\0"), entry(1, 105, 100)]
    await filled(door, key, run_id, added)
    assert await log_of(peer, key, run_id) == [entry(1, 1), *added]
    assert [each.first for each in added] == [2, 5, 6]


async def test_a_log_is_made_by_its_first_change(door: Store) -> None:
    key, run_id = await made(door), new_run()
    assert await log_of(door, key, run_id) is None
    await change_log(door, key, LogChange(run_id))
    assert await door.log(key, run_id, after=START, limit=9) == LogPage(run_id, ())
    await change_log(door, key, LogChange(run_id, entry(1, 1)))
    assert await log_of(door, key, run_id) == [entry(1, 1)]


async def test_an_append_makes_the_log_of_its_run(door: Store) -> None:
    key, run_id = await made(door), new_run()
    await applied(door, replace(a_write(key), lease=TakeLease("one", LONG)))
    await filled(door, key, run_id, entries(1, 1, 3))
    assert await log_of(door, key, run_id) == entries(1, 1, 3)


async def test_each_run_has_a_log_of_its_own(door: Store) -> None:
    key, run_id = await running(door)
    queued = new_run()
    await change_log(door, key, LogChange(queued, entry(2, 1)))
    await filled(door, key, run_id, entries(1, 2, 3))
    assert await log_of(door, key, run_id) == entries(1, 1, 3)
    assert await log_of(door, key, queued) == [entry(2, 1)]
    assert await log_of(door, await made(door), run_id) is None
    assert await log_of(door, new_key(), run_id) is None


async def test_an_entry_is_not_added_where_it_is_already(door: Store) -> None:
    key, run_id = await made(door), new_run()
    await change_log(door, key, LogChange(run_id, entry(1, 2, 2)))
    await change_log(door, key, LogChange(run_id, entry(2, 1)))
    for again in (entry(1, 2, 2), entry(2, 1), entry(1, 2, 2, b"other")):
        await change_log(door, key, LogChange(run_id, again))
    assert await log_of(door, key, run_id) == [entry(1, 2, 2), entry(2, 1)]


async def test_epochs_are_ordered_as_numbers(door: Store) -> None:
    key, run_id = await made(door), new_run()
    added = [entry(epoch, seq) for epoch in (9, 10, 11, 2**40) for seq in (9, 10, 100, 2**31)]
    for each in added:
        await change_log(door, key, LogChange(run_id, each))
    assert await log_of(door, key, run_id) == added
    for place, each in enumerate(added):
        assert await log_of(door, key, run_id, each.position) == added[place + 1 :]


AFTER = [
    (START, 0),
    (Position(1, 0), 0),
    (Position(1, 1), 1),
    (Position(1, 2), 1),
    (Position(1, 3), 2),
    (Position(1, 99), 2),
    (Position(2, 0), 2),
    (Position(2, 1), 3),
    (Position(2, 2), 4),
    (Position(3, 0), 4),
]


@pytest.mark.parametrize(("after", "place"), AFTER)
@pytest.mark.parametrize("limit", [1, 2, 9])
async def test_a_log_is_read_behind_any_position(
    door: Store, after: Position, place: int, limit: int
) -> None:
    key, run_id = await running(door)
    await filled(door, key, run_id, [entry(1, 3, 2)])
    await leased(door, key, run_id, fence="two", epoch=2)
    await filled(door, key, run_id, [entry(2, 2)], fence="two")
    written = [entry(1, 1), entry(1, 3, 2), entry(2, 1), entry(2, 2)]
    page = await door.log(key, run_id, after=after, limit=limit)
    assert page == LogPage(run_id, tuple(written[place : place + limit]))


async def test_a_large_log_is_read_in_parts_of_one_entry_at_least(door: Store) -> None:
    key, run_id = await running(door)
    sizes = [5 * 2**20, 2 * 2**20, 3 * 2**20, 1]
    doors_log = [sized(1, seq, size) for seq, size in enumerate(sizes, 2)]
    await filled(door, key, run_id, doors_log)
    place, read, pages = START, list[LogEntry](), 0
    while page := await door.log(key, run_id, after=place, limit=99):
        if not page.entries:
            break
        read += page.entries
        place, pages = read[-1].position, pages + 1
    assert read == [entry(1, 1), *doors_log]
    assert pages >= 2


async def test_appends_of_many_runs_come_in_one_call(door: Store) -> None:
    runs = [await running(door) for _ in range(20)]
    appends = [Append(key, run_id, "one", entry(1, 2)) for key, run_id in runs]
    assert all(answer.held for answer in await append(door, *appends))
    for key, run_id in runs:
        assert await log_of(door, key, run_id) == entries(1, 1, 2)


async def test_no_appends_have_no_answers(door: Store) -> None:
    assert list(await door.append([], lease=LONG)) == []


async def test_writers_of_many_runs_do_not_disturb_each_other(door: Store, peer: Store) -> None:
    runs = [await running(door) for _ in range(8)]

    async def write(number: int, key: ConversationKey, run_id: RunId) -> None:
        await filled((door, peer)[number % 2], key, run_id, entries(1, 2, 20))

    await asyncio.gather(*(write(number, *run) for number, run in enumerate(runs)))
    for key, run_id in runs:
        assert await log_of(peer, key, run_id) == entries(1, 1, 20)


async def test_of_appends_at_the_same_time_each_entry_is_written_once(
    door: Store, peer: Store
) -> None:
    key, run_id = await running(door)
    added = entries(1, 2, 30)

    async def write(store: Store) -> None:
        for each in added:
            assert (await append(store, Append(key, run_id, "one", each)))[0].held

    await asyncio.gather(write(door), write(peer), write(door), write(peer))
    assert await log_of(door, key, run_id) == entries(1, 1, 30)


# ---------------------------------------------------------------- the next log of a conversation
async def test_without_a_run_the_log_with_the_first_later_entry_is_read(door: Store) -> None:
    key, (one, two, three) = await made(door), (new_run(), new_run(), new_run())
    # the first one waits, begins when the second has ended, and ends before the third
    await change_log(door, key, LogChange(two, entry(1, 1)))
    await change_log(door, key, LogChange(one, entry(2, 1)))
    await change_log(door, key, LogChange(two, entry(3, 2, 2)))
    await change_log(door, key, LogChange(one, entry(4, 1)))
    await change_log(door, key, LogChange(three, entry(10, 1)))

    expected = {
        START: LogPage(two, (entry(1, 1), entry(3, 2, 2))),
        Position(1, 1): LogPage(one, (entry(2, 1), entry(4, 1))),
        Position(2, 1): LogPage(two, (entry(3, 2, 2),)),
        Position(3, 1): LogPage(two, (entry(3, 2, 2),)),
        Position(3, 2): LogPage(one, (entry(4, 1),)),
        Position(4, 1): LogPage(three, (entry(10, 1),)),
        Position(10, 1): None,
    }
    for after, page in expected.items():
        assert await door.log(key, None, after=after, limit=9) == page
    assert await door.log(key, None, after=START, limit=1) == LogPage(two, (entry(1, 1),))


async def test_without_entries_there_is_no_next_log(door: Store) -> None:
    key = await made(door)
    assert await log_of(door, key, None) is None
    assert await log_of(door, new_key(), None) is None
    await change_log(door, key, LogChange(new_run()))
    assert await log_of(door, key, None) is None


# ---------------------------------------------------------------- what is void
@pytest.mark.promise("P10")
@pytest.mark.parametrize("last", [1, 3, 4, 6])
async def test_entries_after_a_position_are_removed(door: Store, last: int) -> None:
    key, run_id = await running(door)
    written = [entry(1, 1), entry(1, 3, 2), entry(1, 4), entry(1, 6, 2)]
    await filled(door, key, run_id, written[1:])
    await change_log(door, key, LogChange(run_id, entry(2, 1), Position(1, last)))
    kept = [each for each in written if each.position.seq <= last]
    assert await log_of(door, key, run_id) == [*kept, entry(2, 1)]


async def test_entries_of_later_epochs_are_removed_too(door: Store) -> None:
    key, run_id = await running(door)
    for epoch in (2, 3, 10):
        await change_log(door, key, LogChange(run_id, entry(epoch, 1)))
    await change_log(door, key, LogChange(run_id, None, Position(2, 1)))
    assert await log_of(door, key, run_id) == [entry(1, 1), entry(2, 1)]
    await change_log(door, key, LogChange(run_id, entry(11, 1), Position(2, 1)))
    assert await log_of(door, key, run_id) == [entry(1, 1), entry(2, 1), entry(11, 1)]


async def test_a_take_over_voids_and_goes_on_in_one_write(door: Store) -> None:
    key, run_id = await running(door)
    await filled(door, key, run_id, entries(1, 2, 5))
    await applied(
        door,
        replace(
            a_write(key),
            log=LogChange(run_id, entry(2, 2, 2), Position(1, 3)),
            lease=TakeLease("two", LONG),
        ),
    )
    assert not (await append(door, Append(key, run_id, "one", entry(1, 6))))[0].held
    await filled(door, key, run_id, entries(2, 3, 4), fence="two")
    assert await log_of(door, key, run_id) == [
        *entries(1, 1, 3),
        entry(2, 2, 2),
        *entries(2, 3, 4),
    ]


async def test_entries_of_other_runs_are_kept(door: Store) -> None:
    key, run_id = await running(door)
    other = new_run()
    await change_log(door, key, LogChange(other, entry(5, 1)))
    await change_log(door, key, LogChange(run_id, entry(6, 1), Position(1, 1)))
    assert await log_of(door, key, other) == [entry(5, 1)]


GAP = dump_events(())


async def test_where_the_last_entry_has_gone_one_without_events_takes_its_place(
    door: Store,
) -> None:
    key, run_id = await made(door), new_run()
    await change_log(door, key, LogChange(run_id, entry(2, 1), Position(1, 3)))
    assert await log_of(door, key, run_id) == [LogEntry(Position(1, 3), 0, GAP), entry(2, 1)]
    assert GAP == b"[]"
    assert await door.log(key, None, after=START, limit=1) == LogPage(
        run_id, (LogEntry(Position(1, 3), 0, GAP),)
    )
    # the log goes back further still
    await change_log(door, key, LogChange(run_id, entry(3, 1), Position(1, 2)))
    assert await log_of(door, key, run_id) == [LogEntry(Position(1, 2), 0, GAP), entry(3, 1)]


# ---------------------------------------------------------------- what was trimmed
@pytest.fixture
async def small(doors: "Doors") -> AsyncGenerator[Store]:
    """A store with little room for logs."""
    async with AsyncExitStack() as stack:
        options = StoreOptions(log_bytes=ROOM)
        yield await stack.enter_async_context(doors.make(options))


@pytest.mark.promise("P11")
async def test_a_log_that_is_too_large_loses_its_oldest_entries(small: Store) -> None:
    key, run_id = await running(small)
    first = entry(1, 1)
    fitting = ROOM - len(first.record)
    added = [sized(1, seq) for seq in range(2, 2 + fitting // SIZE)]
    await filled(small, key, run_id, added)
    assert await log_of(small, key, run_id) == [first, *added]

    rest = ROOM - len(first.record) - len(added) * SIZE
    fills = sized(1, len(added) + 2, rest)
    await filled(small, key, run_id, [fills])
    assert await log_of(small, key, run_id) == [first, *added, fills]

    one_more = entry(1, len(added) + 3, 1, b"x")
    await filled(small, key, run_id, [one_more])
    assert await log_of(small, key, run_id) == [*added, fills, one_more]


@pytest.mark.promise("P11")
async def test_entries_of_writes_are_trimmed_as_those_of_appends(small: Store) -> None:
    key, run_id = await running(small)
    for seq in range(2, 30):
        write = replace(a_write(key, Guard(fence="one")), log=LogChange(run_id, sized(1, seq)))
        await applied(small, write)
    kept = [sized(1, seq) for seq in range(30 - ROOM // SIZE, 30)]
    assert await log_of(small, key, run_id) == kept


async def test_the_newest_entry_is_kept_however_large(small: Store) -> None:
    key, run_id = await running(small)
    for seq in (2, 3):
        large = sized(1, seq, 3 * ROOM)
        await filled(small, key, run_id, [large])
        assert await log_of(small, key, run_id) == [large]
    await filled(small, key, run_id, [sized(1, 4)])
    assert await log_of(small, key, run_id) == [sized(1, 4)]


async def test_what_remains_does_not_begin_with_the_opening_of_an_epoch(small: Store) -> None:
    key, run_id = await running(small)
    await filled(small, key, run_id, [sized(1, 2)])
    opening = entry(2, 2, 2, b"o" * (ROOM - SIZE))
    await change_log(small, key, LogChange(run_id, opening))
    # (1, 1) may go alone, and there is room for the rest
    assert await log_of(small, key, run_id) == [sized(1, 2), opening]
    await change_log(small, key, LogChange(run_id, sized(2, 3, ROOM)))
    assert await log_of(small, key, run_id) == [sized(2, 3, ROOM)]
    # nothing that may begin the log is smaller: all of it stays
    large = entry(3, 1, 1, b"o" * ROOM)
    await change_log(small, key, LogChange(run_id, large))
    assert await log_of(small, key, run_id) == [sized(2, 3, ROOM), large]
    await change_log(small, key, LogChange(run_id, sized(3, 2, 1)))
    assert await log_of(small, key, run_id) == [sized(3, 2, 1)]


@pytest.mark.promise("P11")
async def test_many_entries_of_many_epochs_leave_what_fits(small: Store) -> None:
    key, run_id = await made(small), new_run()
    written = [sized(epoch, seq) for epoch in range(1, 20) for seq in (1, 2, 3)]
    for place, each in enumerate(written, 1):
        await change_log(small, key, LogChange(run_id, each))
        kept = await log_of(small, key, run_id)
        assert kept == written[place - len(kept or ()) : place]
        assert kept
        assert len(kept) in {min(place, ROOM // SIZE), min(place, ROOM // SIZE) - 1}
        assert kept[0].first > 1 or len(kept) == place


@pytest.mark.promise("P15")
async def test_an_append_sent_again_does_not_bring_back_what_was_trimmed(small: Store) -> None:
    key, run_id = await running(small)
    await filled(small, key, run_id, [sized(1, seq) for seq in range(2, 40)])
    left = await log_of(small, key, run_id)
    for seq in (2, 20, 39):
        assert (await append(small, Append(key, run_id, "one", sized(1, seq))))[0].held
    assert await log_of(small, key, run_id) == left


async def test_an_entry_at_the_end_of_what_stays_is_there_already(door: Store) -> None:
    key, run_id = await running(door)
    await filled(door, key, run_id, entries(1, 2, 4))
    log = LogChange(run_id, entry(1, 2), void_after=entry(1, 2).position)
    await applied(door, replace(a_write(key), log=log, lease="end"))
    assert await log_of(door, key, run_id) == entries(1, 1, 2)


@pytest.mark.promise("P10", "P11")
async def test_a_void_log_whose_committed_part_was_trimmed_shows_the_gap(small: Store) -> None:
    key, run_id = await running(small)
    await filled(small, key, run_id, [sized(1, seq) for seq in range(2, 40)])
    change = LogChange(run_id, sized(2, 1), Position(1, 3))
    await applied(small, replace(a_write(key), log=change, lease=TakeLease("two", LONG)))
    gap = LogEntry(Position(1, 3), 0, GAP)
    assert await log_of(small, key, run_id) == [gap, sized(2, 1)]
    # the room is that of what is left
    more = [sized(2, seq) for seq in range(2, 10)]
    await filled(small, key, run_id, more, fence="two")
    assert await log_of(small, key, run_id) == [gap, sized(2, 1), *more]
    await filled(small, key, run_id, [sized(2, 10)], fence="two")
    assert await log_of(small, key, run_id) == [*more, sized(2, 10)]


@pytest.mark.promise("P10", "P11")
async def test_a_void_log_whose_committed_part_is_there_has_room_again(small: Store) -> None:
    key, run_id = await running(small)
    await filled(small, key, run_id, [sized(1, seq) for seq in range(2, 40)])
    change = LogChange(run_id, sized(2, 1), Position(1, 32))
    await applied(small, replace(a_write(key), log=change, lease=TakeLease("two", LONG)))
    kept = [sized(1, seq) for seq in range(30, 33)]
    assert await log_of(small, key, run_id) == [*kept, sized(2, 1)]
    more = [sized(2, seq) for seq in range(2, 8)]
    await filled(small, key, run_id, more, fence="two")
    assert await log_of(small, key, run_id) == [*kept, sized(2, 1), *more]


async def test_each_log_has_room_of_its_own(small: Store) -> None:
    key, run_id = await running(small)
    other = new_run()
    await change_log(small, key, LogChange(other, sized(5, 1, ROOM)))
    await filled(small, key, run_id, [sized(1, seq) for seq in range(2, 10)])
    assert await log_of(small, key, other) == [sized(5, 1, ROOM)]
    assert len(await log_of(small, key, run_id) or ()) == 9


# ---------------------------------------------------------------- what has ended
async def test_a_log_that_has_ended_is_read_for_a_while(door: Store) -> None:
    key, run_id = await running(door)
    await applied(
        door,
        replace(
            a_write(key, Guard(fence="one")),
            log=LogChange(run_id, entry(1, 2), ends=True),
            lease="end",
        ),
    )
    assert await log_of(door, key, run_id) == entries(1, 1, 2)


async def test_the_log_of_a_run_that_is_over_expires(doors: "Doors") -> None:
    store = await doors.open(StoreOptions(log_ttl=0.0001))
    key, ended = await running(store)
    waits = new_run()
    await change_log(store, key, LogChange(waits, entry(2, 1)))
    assert await log_of(store, key, ended) == [entry(1, 1)]
    write = replace(a_write(key, Guard(fence="one")), log=LogChange(ended, entry(1, 2), ends=True))
    await applied(store, replace(write, lease="end"))
    assert await log_of(store, key, ended) is None
    assert await door_log_after(store, key) == waits
    await change_log(store, key, LogChange(waits, None, ends=True))
    assert await log_of(store, key, waits) is None
    assert await log_of(store, key, None) is None


async def door_log_after(store: Store, key: ConversationKey) -> RunId | None:
    page = await store.log(key, None, after=START, limit=1)
    return None if page is None else page.run_id


async def test_a_log_that_has_expired_is_made_anew(doors: "Doors") -> None:
    store = await doors.open(StoreOptions(log_ttl=0.0001))
    key, run_id = await made(store), new_run()
    await change_log(store, key, LogChange(run_id, entry(1, 3, 3), ends=True))
    await change_log(store, key, LogChange(run_id, entry(1, 2)))
    assert await log_of(store, key, run_id) == [entry(1, 2)]
