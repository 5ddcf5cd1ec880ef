"""A write is applied if its guard holds; else nothing is written."""

import asyncio
from dataclasses import replace
from itertools import product

import pytest
from tests.contract.door.writes import (
    LONG,
    OVER,
    a_write,
    applied,
    entry,
    first_write,
    leased,
    log_of,
    made,
    new_key,
    new_run,
    running,
    whole,
)

from passback.core.conversation.store import (
    Guard,
    LeaseChange,
    LogChange,
    QueueEntry,
    RenewLease,
    Store,
    TakeLease,
    Wanted,
    Write,
)

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P15", "P16")]

EVERYTHING = Wanted(("title",), ("key:a",), (new_run(),), queue=True, within=1000)


async def holds(store: Store, write: Write) -> bool:
    """Tell if a write was applied; check that otherwise nothing is."""
    run_id, log = EVERYTHING.runs[0], write.log or LogChange(new_run(), entry(9, 1))
    write = replace(
        write,
        head=b"changed",
        fields={"title": b"changed"},
        messages=(b"changed",),
        receipts={"key:a": "changed"},
        enqueue=QueueEntry(new_run(), b"changed"),
        runs={run_id: b"changed"},
        log=log,
        touches=True,
    )
    before = await store.read(write.key, EVERYTHING)
    logged = await log_of(store, write.key, log.run_id)
    answer = await store.apply(write)
    after = await store.read(write.key, EVERYTHING)
    if answer is None:
        assert (after, after.updated) == (before, before.updated)
        assert await log_of(store, write.key, log.run_id) == logged
        return False
    assert after.version == answer.version
    assert after.messages == (*(before.messages or ()), b"changed")
    return True


# ---------------------------------------------------------------- the version
async def test_a_write_on_version_0_makes_a_conversation(door: Store) -> None:
    write = first_write(new_key())
    assert await holds(door, write)
    assert (await whole(door, write.key)).version == 1


async def test_a_write_on_version_0_does_not_fit_a_conversation_that_is_there(door: Store) -> None:
    key = await made(door)
    assert not await holds(door, first_write(key))


@pytest.mark.parametrize(
    "guard",
    [
        Guard(),
        Guard(version=1),
        Guard(fence="one"),
        Guard(lease_over=True),
        Guard(message_count=0),
        Guard(version=0, fence="one"),
        Guard(version=0, lease_over=True),
        Guard(version=0, message_count=1),
    ],
)
async def test_no_other_guard_makes_a_conversation(door: Store, guard: Guard) -> None:
    write = a_write(new_key(), guard)
    assert not await holds(door, write)
    assert (await whole(door, write.key)).version == 0


async def test_a_conversation_that_is_not_there_has_no_messages(door: Store) -> None:
    assert await holds(door, a_write(new_key(), Guard(version=0, message_count=0)))


@pytest.mark.parametrize(("version", "fits"), [(2, False), (3, True), (4, False), (None, True)])
async def test_a_write_fits_its_version_or_any(
    door: Store, version: int | None, fits: bool
) -> None:
    key = await made(door)
    await applied(door, a_write(key))
    await applied(door, a_write(key))
    assert await holds(door, a_write(key, Guard(version=version))) == fits


async def test_versions_grow_by_one_from_the_first(door: Store) -> None:
    key = new_key()
    large = 2**40 + 5
    made_first = await applied(door, replace(first_write(key), first_version=large))
    second = await applied(door, replace(a_write(key, Guard(version=large)), first_version=7))
    third = await applied(door, a_write(key))
    assert [made_first.version, second.version, third.version] == [large, large + 1, large + 2]
    assert (await whole(door, key)).version == large + 2


async def test_a_conversation_that_was_deleted_is_made_again_by_version_0_alone(
    door: Store,
) -> None:
    key = await made(door)
    await door.delete(key)
    assert not await holds(door, a_write(key, Guard(version=1)))
    assert not await holds(door, a_write(key))
    assert (await applied(door, replace(first_write(key), first_version=40))).version == 40


# ---------------------------------------------------------------- the lease
@pytest.mark.parametrize("milliseconds", [OVER, LONG])
async def test_a_fence_is_held_whether_or_not_its_time_is_over(
    door: Store, milliseconds: int
) -> None:
    key, _ = await running(door, milliseconds=milliseconds)
    assert not await holds(door, a_write(key, Guard(fence="other")))
    assert await holds(door, replace(a_write(key, Guard(fence="one")), log=LogChange(new_run())))


@pytest.mark.parametrize("change", ["release", "end", TakeLease("two", LONG)])
async def test_a_fence_is_not_held_once_its_lease_was_released_ended_or_taken(
    door: Store, change: LeaseChange
) -> None:
    key, _ = await running(door)
    await applied(door, replace(a_write(key), lease=change))
    assert not await holds(door, a_write(key, Guard(fence="one")))
    assert not await holds(door, a_write(key, Guard(fence="")))


async def test_without_a_lease_no_fence_is_held(door: Store) -> None:
    key = await made(door)
    assert not await holds(door, a_write(key, Guard(fence="one")))
    assert not await holds(door, a_write(key, Guard(fence="")))


@pytest.mark.parametrize(("milliseconds", "is_over"), [(OVER, True), (LONG, False)])
async def test_a_lease_is_over_after_its_time(
    door: Store, milliseconds: int, is_over: bool
) -> None:
    key, _ = await running(door, milliseconds=milliseconds)
    assert await holds(door, a_write(key, Guard(lease_over=True))) == is_over


async def test_a_lease_that_was_released_is_over(door: Store) -> None:
    key, _ = await running(door)
    await applied(door, replace(a_write(key), lease="release"))
    assert await holds(door, a_write(key, Guard(lease_over=True)))


async def test_a_lease_that_was_ended_or_never_given_is_not_over(door: Store) -> None:
    key = await made(door)
    assert not await holds(door, a_write(key, Guard(lease_over=True)))
    await leased(door, key, new_run(), milliseconds=OVER)
    await applied(door, replace(a_write(key), lease="end"))
    assert not await holds(door, a_write(key, Guard(lease_over=True)))


async def test_a_lease_that_was_renewed_is_not_over(door: Store) -> None:
    key, _ = await running(door, milliseconds=OVER)
    await applied(door, replace(a_write(key, Guard(fence="one")), lease=RenewLease(LONG)))
    assert not await holds(door, a_write(key, Guard(lease_over=True)))


# ---------------------------------------------------------------- the messages, and all at once
@pytest.mark.parametrize(("count", "fits"), [(0, False), (1, False), (2, True), (3, False)])
async def test_a_write_fits_its_count_of_messages(door: Store, count: int, fits: bool) -> None:
    key = await made(door, b"one", b"two")
    assert await holds(door, a_write(key, Guard(message_count=count))) == fits


GUARDS = [
    Guard(*parts)
    for parts in product([None, 2, 3], [None, "one", "two"], [False, True], [None, 0, 1])
]


@pytest.mark.parametrize("milliseconds", [OVER, LONG])
async def test_a_guard_holds_if_all_of_it_does(door: Store, milliseconds: int) -> None:
    for guard in GUARDS:
        key, _ = await running(door, milliseconds=milliseconds)
        write = replace(a_write(key, guard), log=LogChange(new_run()))
        fits = [
            guard.version in (None, 2),
            guard.fence in (None, "one"),
            not guard.lease_over or milliseconds == OVER,
            guard.message_count in (None, 0),
        ]
        assert await holds(door, write) == all(fits), guard


# ---------------------------------------------------------------- under a fence, the log
@pytest.mark.parametrize(
    ("last", "size", "fits"),
    [
        *[(4, 1, True), (6, 3, True), (3, 1, True), (3, 3, True), (2, 1, True)],
        *[(5, 1, False), (6, 2, False), (4, 2, False), (5, 5, False)],
    ],
)
async def test_an_entry_under_a_fence_follows_on_the_log_or_is_there(
    door: Store, last: int, size: int, fits: bool
) -> None:
    key, run_id = await running(door)
    await applied(
        door, replace(a_write(key, Guard(fence="one")), log=LogChange(run_id, entry(1, 3, 2)))
    )
    before = await log_of(door, key, run_id)

    given = entry(1, last, size)
    write = replace(a_write(key, Guard(fence="one")), log=LogChange(run_id, given))
    assert await holds(door, write) == fits

    added = [given] if last > 3 and fits else []
    assert await log_of(door, key, run_id) == [*(before or ()), *added]
    lease = (await whole(door, key)).lease
    assert lease is not None
    assert lease.seq == (last if added else 3)


async def test_an_entry_without_a_fence_may_leave_a_gap(door: Store) -> None:
    key, run_id = await running(door)
    write = replace(a_write(key), log=LogChange(run_id, entry(1, 9)))
    await applied(door, write)
    assert await log_of(door, key, run_id) == [entry(1, 1), entry(1, 9)]
    lease = (await whole(door, key)).lease
    assert lease is not None
    assert lease.seq == 1


# ---------------------------------------------------------------- many at once
@pytest.mark.promise("P4")
async def test_of_many_writes_on_one_version_one_is_applied(door: Store, peer: Store) -> None:
    key = await made(door)
    for version in range(1, 6):
        writes = [
            replace(a_write(key, Guard(version=version)), messages=(b"%d" % number,))
            for number in range(12)
        ]
        stores = [door, peer] * 6
        answers = await asyncio.gather(
            *(store.apply(write) for store, write in zip(stores, writes, strict=True))
        )
        [winner] = [w for w, answer in zip(writes, answers, strict=True) if answer is not None]
        found = await whole(peer, key)
        assert found.version == version + 1
        assert found.messages is not None
        assert found.messages[version - 1 :] == winner.messages


async def test_of_many_first_writes_one_makes_the_conversation(door: Store, peer: Store) -> None:
    key = new_key()
    writes = [replace(first_write(key), messages=(b"%d" % number,)) for number in range(12)]
    answers = await asyncio.gather(
        *(store.apply(write) for store, write in zip([door, peer] * 6, writes, strict=True))
    )
    assert sum(answer is not None for answer in answers) == 1
    assert (await whole(door, key)).message_count == 1


async def test_of_many_takers_of_a_lease_that_is_over_one_has_it(door: Store, peer: Store) -> None:
    key, _ = await running(door, milliseconds=OVER)
    writes = [
        replace(a_write(key, Guard(lease_over=True)), lease=TakeLease(f"taker:{number}", LONG))
        for number in range(12)
    ]
    answers = await asyncio.gather(
        *(store.apply(write) for store, write in zip([door, peer] * 6, writes, strict=True))
    )
    [winner] = [w for w, answer in zip(writes, answers, strict=True) if answer is not None]
    lease = (await whole(peer, key)).lease
    assert lease is not None
    assert isinstance(winner.lease, TakeLease)
    assert lease.fence == winner.lease.fence


async def test_writes_on_any_version_are_all_applied(door: Store, peer: Store) -> None:
    key = await made(door)
    writes = [replace(a_write(key), messages=(b"%d" % number,)) for number in range(20)]
    answers = await asyncio.gather(
        *(store.apply(write) for store, write in zip([door, peer] * 10, writes, strict=True))
    )
    assert sorted(each.version for each in answers if each) == list(range(2, 22))
    found = await whole(door, key)
    assert found.messages is not None
    assert sorted(found.messages) == sorted(message for w in writes for message in w.messages)
