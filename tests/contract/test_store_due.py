"""Promises of every store: one caller finds a conversation that nobody works on."""

from collections import Counter
from collections.abc import Awaitable, Callable

import anyio
import pytest
from tests.support.store_values import (
    CANCELLED,
    LONG,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_key,
    take_over_run,
    turn,
    user,
    waiting,
)

from passback.core.changes import Lease
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.engine.ledger import Ledger

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P10")]


async def found(store: Ledger, *, lease: float = LONG) -> list[ConversationKey]:
    return list(await store.take_due(100, lease=lease))


async def until_found(store: Ledger, key: ConversationKey) -> None:
    with anyio.fail_after(5):
        while key not in await found(store, lease=0.02):
            pass


# ---------------------------------------------------------------- runs whose lease is over
async def test_a_run_whose_lease_is_over_is_given_to_one_caller(
    store: Ledger, peer: Ledger
) -> None:
    keys = [(await begin_run(store, new_key(), lease=0)).run.key for _ in range(10)]
    given: Counter[ConversationKey] = Counter()

    async def look(here: Ledger) -> None:
        while batch := await here.take_due(3, lease=LONG):
            assert len(batch) <= 3
            given.update(batch)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(look, store)
                tasks.start_soon(look, peer)

    assert given == Counter(keys)


async def test_a_conversation_that_its_finder_left_alone_is_found_again(store: Ledger) -> None:
    held = await begin_run(store, new_key(), lease=0)
    assert await found(store, lease=0.02) == [held.run.key]
    await until_found(store, held.run.key)
    await until_found(store, held.run.key)


async def test_no_more_than_the_limit_is_given(store: Ledger) -> None:
    keys = {(await begin_run(store, new_key(), lease=0)).run.key for _ in range(3)}

    batches = [await store.take_due(2, lease=LONG) for _ in range(3)]

    assert [len(batch) for batch in batches] == [2, 1, 0]
    assert {key for batch in batches for key in batch} == keys
    assert await store.take_due(0, lease=LONG) == []


@pytest.mark.parametrize(
    "name", ["plain", "a:b/../c", "naïve 会話 🗨 \u2028\r\n", "x" * 10_000, "{}|"]
)
async def test_a_found_conversation_has_its_own_name(store: Ledger, name: str) -> None:
    key = ConversationKey(OwnerId("owner"), ConversationId(name))
    await begin_run(store, key, lease=0)
    assert await found(store) == [key]


async def test_a_run_that_is_held_is_not_found(store: Ledger) -> None:
    await begin_run(store, new_key())
    renewed = await begin_run(store, new_key(), lease=0)
    await store.renew([renewed], lease=LONG)
    committed = await begin_run(store, new_key(), lease=0)
    await store.commit(turn(committed, 0, 2), lease=LONG)
    taken = await begin_run(store, new_key(), lease=0)
    await take_over_run(store, taken.run.key)

    assert await found(store) == []


async def test_a_run_that_was_held_long_is_found_when_its_lease_is_over(store: Ledger) -> None:
    held = await begin_run(store, new_key(), lease=0)
    await store.renew([held], lease=0.2)
    await found(store, lease=0)
    await until_found(store, held.run.key)
    assert (await store.status(held.run.key)).lapsed


async def test_a_run_that_was_released_is_found_at_once(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.release(held)
    assert await found(store) == [held.run.key]


async def test_a_run_is_found_again_whenever_it_was_taken_over(store: Ledger) -> None:
    held = await begin_run(store, new_key(), lease=0)
    for _ in range(3):
        await until_found(store, held.run.key)
        await take_over_run(store, held.run.key, lease=0)


# ---------------------------------------------------------------- after the end
async def commit(store: Ledger, held: Lease) -> None:
    await store.commit(ending(held, 0, 2), lease=0)


async def fail_lost(store: Ledger, held: Lease) -> None:
    await fail_lost_run(store, held.run.key)


async def delete(store: Ledger, held: Lease) -> None:
    await store.delete(held.run.key)


async def leave(store: Ledger, held: Lease) -> None:
    """The run ends while a post waits, and that post leaves."""
    entry = waiting(held.run.key)
    await store.enqueue(entry)
    await store.commit(ending(held, 0, 2), lease=0)
    await store.cancel(entry.run, CANCELLED)


End = Callable[[Ledger, Lease], Awaitable[None]]


@pytest.mark.parametrize("end", [commit, fail_lost, delete, leave])
async def test_what_has_ended_is_not_found(store: Ledger, end: End) -> None:
    held = await begin_run(store, new_key(), lease=0)
    await end(store, held)
    assert await found(store, lease=0) == []
    assert await found(store, lease=0) == []


async def test_a_conversation_that_was_only_written_to_is_not_found(store: Ledger) -> None:
    await store.park(change(new_key(), 0, user("hello")))
    assert await found(store) == []


# ---------------------------------------------------------------- posts that wait
@pytest.mark.parametrize("end", [commit, fail_lost])
async def test_posts_that_wait_while_nothing_runs_are_found(store: Ledger, end: End) -> None:
    held = await begin_run(store, new_key(), lease=0)
    await store.enqueue(waiting(held.run.key))
    await end(store, held)

    await until_found(store, held.run.key)

    assert not (await store.status(held.run.key)).running


async def test_posts_that_wait_behind_a_run_are_not_found(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.enqueue(waiting(held.run.key))
    assert await found(store) == []


async def test_a_post_that_came_when_nothing_ran_is_found(store: Ledger) -> None:
    """The worker that ended the run died before it looked at the queue."""
    held = await begin_run(store, new_key(), lease=0)
    first, second = waiting(held.run.key), waiting(held.run.key)
    await store.enqueue(first)
    await store.commit(ending(held, 0, 2), lease=0)
    await store.enqueue(second)
    await store.cancel(first.run, CANCELLED)

    await until_found(store, held.run.key)
