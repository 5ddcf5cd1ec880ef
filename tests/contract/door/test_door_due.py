"""Conversations that are due for recovery: each is found, by one caller."""

from collections import Counter
from dataclasses import replace

import anyio
import pytest
from tests.contract.door.writes import (
    LONG,
    OVER,
    a_write,
    append,
    applied,
    due_keys,
    entry,
    first_write,
    leased,
    made,
    new_key,
    new_run,
    running,
    whole,
)

from passback.core.conversation.store import (
    NEVER_DUE,
    Append,
    Due,
    Guard,
    LeaseChange,
    QueueEntry,
    RenewLease,
    Store,
    TakeLease,
)
from passback.core.messages import ConversationId, ConversationKey, OwnerId

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P10")]


async def set_due(store: Store, key: ConversationKey, due: Due) -> None:
    await applied(store, replace(a_write(key), due=due))


async def enqueue(store: Store, key: ConversationKey, due: Due | None = None) -> None:
    await applied(store, replace(a_write(key), enqueue=QueueEntry(new_run()), due=due))


# ---------------------------------------------------------------- leases
async def test_a_conversation_whose_lease_is_over_is_due(door: Store) -> None:
    over, _ = await running(door, milliseconds=OVER)
    held, _ = await running(door, milliseconds=LONG)
    released, _ = await running(door, milliseconds=LONG)
    ended, _ = await running(door, milliseconds=OVER)
    await applied(door, replace(a_write(released), lease="release"))
    await applied(door, replace(a_write(ended), lease="end"))
    idle = await made(door)
    assert await due_keys(door) == {over, released}
    assert await due_keys(door) == {over, released}
    assert {held, ended, idle}.isdisjoint(await due_keys(door))


@pytest.mark.parametrize("change", [RenewLease(LONG), TakeLease("two", LONG), "end"])
async def test_a_conversation_whose_lease_is_changed_in_time_is_not_due(
    door: Store, change: LeaseChange
) -> None:
    key, _ = await running(door, milliseconds=OVER)
    assert await due_keys(door) == {key}
    await applied(door, replace(a_write(key), lease=change))
    assert await due_keys(door) == set()


async def test_an_append_in_time_keeps_a_conversation_from_being_due(door: Store) -> None:
    renewed, run_id = await running(door, milliseconds=OVER)
    written, other = await running(door, milliseconds=OVER)
    await append(door, Append(renewed, run_id, "one"), Append(written, other, "one", entry(1, 2)))
    assert await due_keys(door) == set()
    await applied(door, replace(a_write(renewed), lease="release"))
    assert await due_keys(door) == {renewed}


async def test_a_renewed_lease_is_due_when_it_is_over(door: Store) -> None:
    """What was found to be renewed is looked at again."""
    key, run_id = await running(door, milliseconds=OVER)
    await append(door, Append(key, run_id, "one"), lease=300)
    with anyio.fail_after(10):
        while key not in await due_keys(door):
            pass
    found = await whole(door, key)
    assert found.lease is not None
    assert found.lease.expires <= found.now


async def test_a_lease_is_due_again_whenever_it_is_taken(door: Store) -> None:
    key, run_id = await running(door, milliseconds=OVER)
    for number in range(3):
        assert await due_keys(door, milliseconds=LONG) == {key}
        assert await due_keys(door) == set()
        await leased(
            door, key, run_id, fence=f"fence:{number}", epoch=number + 2, milliseconds=OVER
        )


# ---------------------------------------------------------------- without a lease
DUES = [
    (Due(), False, False),
    (Due(after=0), True, True),
    (Due(after=LONG), False, False),
    (Due(queued=0), False, True),
    (Due(queued=LONG), False, False),
    (Due(after=LONG, queued=0), False, True),
    (Due(after=0, queued=LONG), True, True),
]


@pytest.mark.parametrize(("due", "is_due", "is_due_queued"), DUES)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_conversation_is_due_as_its_write_says(
    door: Store, due: Due, is_due: bool, is_due_queued: bool, at_once: bool
) -> None:
    """`at_once`: the entry of the queue comes with the same write."""
    idle, waits = await made(door), await made(door)
    await set_due(door, idle, due)
    if not at_once:
        await enqueue(door, waits)
        await set_due(door, waits, due)
    else:
        await enqueue(door, waits, due)
    expected = [idle] * is_due + [waits] * is_due_queued
    assert await due_keys(door) == set(expected)


async def test_the_queue_counts_as_it_is_once_the_write_is_applied(door: Store) -> None:
    key, run_id = await made(door), new_run()
    await applied(door, replace(a_write(key), enqueue=QueueEntry(run_id)))
    await applied(door, replace(a_write(key), dequeue=run_id, due=Due(queued=0)))
    assert await due_keys(door) == set()
    # what comes into the queue later does not count
    await enqueue(door, key)
    assert await due_keys(door) == set()


async def test_the_time_is_told(door: Store) -> None:
    key = await made(door)
    assert (await whole(door, key)).due is None
    for due, after in ((Due(50_000), 50_000), (Due(90_000, 0), 90_000), (Due(queued=0), None)):
        before = (await whole(door, key)).now
        await set_due(door, key, due)
        found = await whole(door, key)
        if after is None:
            assert found.due is None
        else:
            assert found.due is not None
            assert before + after <= found.due <= found.now + after
    await enqueue(door, key, Due(90_000, 40_000))
    found = await whole(door, key)
    assert found.due is not None
    assert 0 <= found.now + 40_000 - found.due <= 30_000


async def test_a_write_that_says_nothing_keeps_the_time(door: Store) -> None:
    key = await made(door)
    await set_due(door, key, Due(after=0))
    before = (await whole(door, key)).due
    await applied(door, replace(a_write(key), messages=(b"one",)))
    await enqueue(door, key)
    assert (await whole(door, key)).due == before
    assert await due_keys(door) == {key}
    await set_due(door, key, NEVER_DUE)
    await applied(door, replace(a_write(key), messages=(b"two",)))
    assert await due_keys(door) == set()


async def test_a_first_write_makes_due(door: Store) -> None:
    soon, taken = first_write(new_key()), first_write(new_key())
    await applied(door, replace(soon, due=Due(after=0)))
    await applied(door, replace(taken, lease=TakeLease("one", OVER)))
    assert await due_keys(door) == {soon.key, taken.key}


async def test_while_there_is_a_lease_its_time_counts(door: Store) -> None:
    key, over = await made(door), await made(door)
    await applied(door, replace(a_write(key), due=Due(after=0), lease=TakeLease("one", LONG)))
    await applied(door, replace(a_write(over), due=NEVER_DUE, lease=TakeLease("one", OVER)))
    assert await due_keys(door) == {over}
    assert (await whole(door, key)).due is not None
    # once it has ended, the time that was kept counts again
    await applied(door, replace(a_write(key), lease="end"))
    await applied(door, replace(a_write(over), lease="end"))
    assert await due_keys(door) == {key}


async def test_a_write_may_end_a_lease_and_say_what_is_due_then(door: Store) -> None:
    never, soon = (await running(door, milliseconds=OVER))[0], (await running(door))[0]
    await applied(door, replace(a_write(never), lease="end", due=NEVER_DUE))
    await applied(door, replace(a_write(soon), lease="end", due=Due(after=0)))
    assert await due_keys(door) == {soon}


# ---------------------------------------------------------------- one caller
async def test_each_is_given_to_one_caller(door: Store, peer: Store) -> None:
    keys = [(await running(door, milliseconds=OVER))[0] for _ in range(10)]
    keys += [await made(door) for _ in range(10)]
    for key in keys[10:]:
        await set_due(door, key, Due(after=0))
    given: Counter[ConversationKey] = Counter()

    async def look(store: Store) -> None:
        while batch := await store.due(3, milliseconds=LONG):
            assert len(batch) <= 3
            given.update(batch)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(look, door)
                tasks.start_soon(look, peer)
    assert given == Counter(keys)


async def test_no_more_than_the_limit_is_given(door: Store) -> None:
    keys = {(await running(door, milliseconds=OVER))[0] for _ in range(3)}
    batches = [await door.due(2, milliseconds=LONG) for _ in range(3)]
    assert [len(batch) for batch in batches] == [2, 1, 0]
    assert {key for batch in batches for key in batch} == keys
    assert list(await door.due(0, milliseconds=LONG)) == []


async def test_what_its_finder_left_alone_is_found_again(door: Store) -> None:
    key, _ = await running(door, milliseconds=OVER)
    assert await due_keys(door, milliseconds=20) == {key}
    with anyio.fail_after(10):
        while await due_keys(door) != {key}:
            pass


async def test_a_write_that_does_not_say_when_leaves_it_with_its_finder(door: Store) -> None:
    leased_one, _ = await running(door, milliseconds=OVER)
    idle = await made(door)
    await set_due(door, idle, Due(after=0))
    assert await due_keys(door, milliseconds=LONG) == {leased_one, idle}
    for key in (leased_one, idle):
        await applied(door, replace(a_write(key), messages=(b"one",), touches=True))
    assert await due_keys(door) == set()


async def test_a_write_that_says_when_makes_it_due_anew(door: Store) -> None:
    leased_one, _ = await running(door, milliseconds=OVER)
    idle = await made(door)
    await set_due(door, idle, Due(after=0))
    assert await due_keys(door, milliseconds=LONG) == {leased_one, idle}
    await set_due(door, idle, Due(after=0))
    await applied(door, replace(a_write(leased_one), lease=TakeLease("two", OVER)))
    assert await due_keys(door) == {leased_one, idle}


async def test_a_write_that_is_refused_does_not_make_due(door: Store) -> None:
    key = await made(door)
    refused = a_write(key, Guard(version=9))
    assert await door.apply(replace(refused, due=Due(after=0))) is None
    assert await door.apply(replace(refused, lease=TakeLease("one", OVER))) is None
    assert await due_keys(door) == set()


async def test_what_was_deleted_is_not_due(door: Store) -> None:
    leased_one, _ = await running(door, milliseconds=OVER)
    idle = await made(door)
    await set_due(door, idle, Due(after=0))
    for key in (leased_one, idle):
        await door.delete(key)
    assert await due_keys(door) == set()
    await applied(door, first_write(idle))
    assert await due_keys(door) == set()


@pytest.mark.parametrize(
    "name", ["plain", "a:b/../c", "naïve 会話 🗨 \u2028\r\n", "x" * 10_000, "{}|", "\0", "\ud800"]
)
async def test_a_conversation_that_is_due_has_its_own_name(door: Store, name: str) -> None:
    key = ConversationKey(OwnerId(f"owner {name}"), ConversationId(name))
    await applied(door, replace(first_write(key), due=Due(after=0)))
    assert await due_keys(door) == {key}
