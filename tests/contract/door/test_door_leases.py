"""A lease: taken, renewed, released, ended; its holder appends, and gets its signal."""

import asyncio
from dataclasses import replace

import pytest
from tests.contract.door.writes import (
    LONG,
    OVER,
    a_write,
    append,
    applied,
    entries,
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
    Append,
    Appended,
    FoundLease,
    Guard,
    LeaseChange,
    LogChange,
    LogEntry,
    RenewLease,
    Store,
    TakeLease,
)
from passback.core.messages import ConversationKey

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P10")]


async def change_lease(store: Store, key: ConversationKey, change: LeaseChange) -> None:
    await applied(store, replace(a_write(key), lease=change))


async def found_lease(store: Store, key: ConversationKey) -> FoundLease | None:
    return (await whole(store, key)).lease


async def is_over(store: Store, key: ConversationKey) -> bool:
    found = await whole(store, key)
    assert found.lease is not None
    return found.lease.expires <= found.now


# ---------------------------------------------------------------- taking
async def test_a_lease_is_taken_with_its_signal_and_lasts_for_its_time(door: Store) -> None:
    key = await made(door)
    assert await found_lease(door, key) is None
    before = (await whole(door, key)).now
    await change_lease(door, key, TakeLease("one", 50_000, "stop"))
    found = await whole(door, key)
    assert found.lease is not None
    assert found.lease == FoundLease("one", 0, 0, "stop")
    assert before + 50_000 <= found.lease.expires <= found.now + 50_000


async def test_a_first_write_may_take_a_lease(door: Store) -> None:
    key, run_id = new_key(), new_run()
    opening = LogChange(run_id, entry(1, 3, 3))
    await applied(door, replace(first_write(key), log=opening, lease=TakeLease("one", LONG)))
    assert await found_lease(door, key) == FoundLease("one", 0, 3)
    assert (await append(door, Append(key, run_id, "one", entry(1, 4))))[0].held


@pytest.mark.parametrize("given", [None, entry(2, 1), entry(2, 4, 4)])
async def test_the_log_of_a_lease_begins_with_the_entry_of_its_write(
    door: Store, given: LogEntry | None
) -> None:
    key, run_id = await running(door)
    await append(door, Append(key, run_id, "one", entry(1, 2)))
    log = None if given is None else LogChange(run_id, given)
    await applied(door, replace(a_write(key), log=log, lease=TakeLease("two", LONG)))
    seq = 0 if given is None else given.position.seq
    assert await found_lease(door, key) == FoundLease("two", 0, seq)
    assert not (await append(door, Append(key, run_id, "two", entry(2, seq + 2))))[0].held
    assert (await append(door, Append(key, run_id, "two", entry(2, seq + 1))))[0].held


async def test_what_earlier_fences_held_is_over(door: Store) -> None:
    key, run_id = await running(door)
    await leased(door, key, run_id, fence="two", epoch=2)
    for fence, held in (("one", False), ("two", True)):
        answers = await append(
            door, Append(key, run_id, fence), Append(key, run_id, fence, entry(2, 2))
        )
        assert [answer.held for answer in answers] == [held, held]
    assert await log_of(door, key, run_id) == [entry(1, 1), entry(2, 1), entry(2, 2)]


async def test_a_write_of_somebody_else_keeps_the_lease(door: Store) -> None:
    key, run_id = await running(door)
    queued = LogChange(new_run(), entry(7, 1))
    await applied(door, replace(a_write(key), messages=(b"one",), log=queued))
    assert await found_lease(door, key) == FoundLease("one", 0, 1)
    assert (await append(door, Append(key, run_id, "one", entry(1, 2))))[0].held


# ---------------------------------------------------------------- renewing
async def test_a_write_renews_a_lease(door: Store) -> None:
    key, _ = await running(door, milliseconds=OVER)
    for milliseconds in (LONG, OVER, LONG):
        await change_lease(door, key, RenewLease(milliseconds))
        assert await is_over(door, key) == (milliseconds == OVER)
    assert await found_lease(door, key) == FoundLease("one", 0, 1)


async def test_where_there_is_no_lease_none_is_renewed_released_or_ended(door: Store) -> None:
    key = await made(door)
    changes: list[LeaseChange] = [RenewLease(LONG), "release", "end"]
    for change in changes:
        await applied(door, replace(a_write(key), lease=change, signal="nobody"))
        assert await found_lease(door, key) is None


@pytest.mark.parametrize("milliseconds", [OVER, LONG])
async def test_an_append_renews_with_and_without_an_entry(door: Store, milliseconds: int) -> None:
    runs = [await running(door, milliseconds=LONG - milliseconds) for _ in range(3)]
    given = [None, entry(1, 2), entry(1, 1)]
    appends = [
        Append(key, run_id, "one", each) for (key, run_id), each in zip(runs, given, strict=True)
    ]
    assert all(each.held for each in await append(door, *appends, lease=milliseconds))
    for key, _ in runs:
        assert await is_over(door, key) == (milliseconds == OVER)


async def test_an_append_holds_when_the_time_is_over_and_nobody_has_taken_it(door: Store) -> None:
    key, run_id = await running(door, milliseconds=OVER)
    assert (await append(door, Append(key, run_id, "one", entry(1, 2)), lease=OVER))[0].held
    assert (await append(door, Append(key, run_id, "one", entry(1, 3)), lease=OVER))[0].held


async def test_an_append_does_not_change_the_version(door: Store) -> None:
    key, run_id = await running(door)
    before = await whole(door, key)
    await append(door, Append(key, run_id, "one", entry(1, 2)))
    after = await whole(door, key)
    assert (after.version, after.updated) == (before.version, before.updated)


# ---------------------------------------------------------------- releasing and ending
async def test_a_lease_that_was_released_is_over_and_nobodys(door: Store) -> None:
    key, run_id = await running(door)
    await append(door, Append(key, run_id, "one", entry(1, 2)))
    await applied(door, replace(a_write(key, Guard(fence="one")), lease="release", signal="stop"))
    assert await found_lease(door, key) == FoundLease("", 0, 2, "stop")
    assert await is_over(door, key)
    for fence in ("one", ""):
        answers = await append(
            door, Append(key, run_id, fence), Append(key, run_id, fence, entry(1, 3))
        )
        assert answers == [Appended(held=False)] * 2
    assert await is_over(door, key)
    assert await log_of(door, key, run_id) == entries(1, 1, 2)


async def test_a_lease_that_was_released_is_taken(door: Store) -> None:
    key, run_id = await running(door)
    await change_lease(door, key, "release")
    await applied(door, replace(a_write(key, Guard(lease_over=True)), lease=TakeLease("two", LONG)))
    assert (await append(door, Append(key, run_id, "two", entry(2, 1))))[0].held


async def test_a_lease_that_has_ended_is_gone(door: Store) -> None:
    key, run_id = await running(door)
    await applied(door, replace(a_write(key, Guard(fence="one")), lease="end"))
    assert await found_lease(door, key) is None
    assert await append(door, Append(key, run_id, "one")) == [Appended(held=False)]
    assert await log_of(door, key, run_id) == [entry(1, 1)]


# ---------------------------------------------------------------- what is not held
async def test_an_append_without_a_lease_writes_nothing(door: Store) -> None:
    idle, gone, run_id = await made(door), new_key(), new_run()
    for key in (idle, gone):
        for given in (None, entry(1, 1)):
            answers = await append(door, Append(key, run_id, "one", given))
            assert answers == [Appended(held=False)]
        assert await log_of(door, key, run_id) is None
    assert (await whole(door, gone)).version == 0


GAPS = [
    *[(4, 1, False), (5, 2, False), (3, 2, False), (4, 4, False)],
    *[(4, 2, True), (3, 1, True), (2, 2, True), (1, 1, True)],
]


@pytest.mark.parametrize(("last", "size", "held"), GAPS)
async def test_an_entry_that_leaves_a_gap_is_refused_and_its_lease_is_not_renewed(
    door: Store, last: int, size: int, held: bool
) -> None:
    key, run_id = await running(door, milliseconds=OVER)
    await append(door, Append(key, run_id, "one", entry(1, 2)), lease=OVER)
    given = entry(1, last, size)
    [answer] = await append(door, Append(key, run_id, "one", given), lease=LONG)
    assert answer.held == held
    assert await is_over(door, key) != answer.held
    added = [given] if answer.held and last > 2 else []
    assert await log_of(door, key, run_id) == [*entries(1, 1, 2), *added]


async def test_of_many_appends_each_has_its_own_answer(door: Store) -> None:
    (one, first), (two, second), (three, third) = [await running(door) for _ in range(3)]
    await applied(door, replace(a_write(one), signal="stop"))
    answers = await append(
        door,
        Append(one, first, "one", entry(1, 2)),
        Append(two, second, "other", entry(1, 2)),
        Append(new_key(), new_run(), "one", entry(1, 2)),
        Append(three, third, "one", entry(1, 9)),
        Append(three, third, "one", entry(1, 2)),
    )
    assert [answer.held for answer in answers] == [True, False, False, False, True]
    assert [answer.signal for answer in answers] == ["stop", "", "", "", ""]
    assert await log_of(door, two, second) == [entry(1, 1)]
    assert await log_of(door, three, third) == entries(1, 1, 2)


async def test_an_append_after_a_failover_is_refused(door: Store) -> None:
    """The store has lost entries that it had acknowledged: the lease says what it has."""
    key, run_id = await running(door)
    await leased(door, key, run_id, fence="two", epoch=2)
    [answer] = await append(door, Append(key, run_id, "two", entry(2, 7)))
    assert answer == Appended(held=False)


# ---------------------------------------------------------------- signals
async def test_the_holder_gets_the_signal_with_each_answer(door: Store, peer: Store) -> None:
    key, run_id = await running(door)
    beat, written = Append(key, run_id, "one"), Append(key, run_id, "one", entry(1, 2))
    assert (await append(door, beat))[0].signal == ""
    await applied(peer, replace(a_write(key), signal="naïve 会話 stop"))
    for each in (beat, written, written, beat):
        assert (await append(door, each))[0].signal == "naïve 会話 stop"
    await applied(peer, replace(a_write(key), head=b"head"))
    assert (await append(door, beat))[0].signal == "naïve 会話 stop"
    await applied(peer, replace(a_write(key), signal=""))
    assert (await append(door, beat))[0].signal == ""


async def test_a_signal_is_that_of_its_lease(door: Store) -> None:
    key, run_id = await running(door)
    await applied(door, replace(a_write(key), signal="for one"))
    await leased(door, key, run_id, fence="two", epoch=2)
    assert (await append(door, Append(key, run_id, "two")))[0].signal == ""
    await change_lease(door, key, TakeLease("three", LONG, "from the beginning"))
    assert (await append(door, Append(key, run_id, "three")))[0].signal == "from the beginning"


async def test_a_signal_without_a_lease_is_for_nobody(door: Store) -> None:
    key, run_id = await made(door), new_run()
    await applied(door, replace(a_write(key), signal="nobody"))
    await leased(door, key, run_id)
    assert (await append(door, Append(key, run_id, "one")))[0].signal == ""


async def test_a_signal_that_is_refused_is_not_given(door: Store) -> None:
    key, run_id = await running(door)
    assert await door.apply(replace(a_write(key, Guard(version=9)), signal="stop")) is None
    assert (await append(door, Append(key, run_id, "one")))[0].signal == ""


# ---------------------------------------------------------------- at the same time
async def test_a_lease_is_renewed_while_others_write(door: Store, peer: Store) -> None:
    key, run_id = await running(door)

    async def beat() -> None:
        for seq in range(2, 22):
            [answer] = await append(door, Append(key, run_id, "one", entry(1, seq)))
            assert answer.held

    async def write() -> None:
        for number in range(20):
            await applied(peer, replace(a_write(key), messages=(b"%d" % number,)))

    await asyncio.gather(beat(), write())
    found = await whole(door, key)
    assert (found.message_count, found.lease) == (20, FoundLease("one", 0, 21))
    assert await log_of(door, key, run_id) == entries(1, 1, 21)


async def test_nothing_is_appended_once_another_has_taken_the_lease(
    door: Store, peer: Store
) -> None:
    key, run_id = await running(door)
    written: list[int] = []

    async def beat() -> None:
        for seq in range(2, 200):
            [answer] = await append(door, Append(key, run_id, "one", entry(1, seq)))
            if not answer.held:
                return
            written.append(seq)

    async def take() -> None:
        while len(written) < 10:
            await whole(peer, key)
        await applied(
            peer,
            replace(a_write(key), log=LogChange(run_id, entry(2, 1)), lease=TakeLease("two", LONG)),
        )

    await asyncio.gather(beat(), take())
    assert await log_of(door, key, run_id) == [*entries(1, 1, written[-1]), entry(2, 1)]
