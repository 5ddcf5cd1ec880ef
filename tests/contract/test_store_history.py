"""Promises of every store: a history's bytes are counted with each write, and bounded."""

from dataclasses import replace

import pytest
from tests.support.store_values import (
    LONG,
    answer,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_key,
    new_run,
    take_over_run,
    turn,
    user,
    waiting,
)

from passback.core.changes import Change, Status, dump_message, dump_queued
from passback.core.messages import ConversationKey, Message
from passback.core.state import State
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

MESSAGES: tuple[Message, ...] = (user("a"), user("b" * 30), user("c" * 200), user("d" * 5))


async def assert_counted(store: Ledger, key: ConversationKey) -> int:
    """The count is that of the records from the boundary on, in both reads; gives it."""
    loaded = await store.load(key)
    size = sum(len(dump_message(message)) for message in loaded.messages)
    assert loaded.status.history_bytes == size
    assert (await store.status(key)).history_bytes == size
    return size


async def parked(store: Ledger, how: Change) -> None:
    """Park with a change as it is, but for its version."""
    version = (await store.status(how.key)).version
    assert await store.park(replace(how, expected=version))


async def test_the_bytes_of_a_history_are_counted_with_whatever_writes_messages(
    store: Ledger,
) -> None:
    key = new_key()
    await parked(store, change(key, 0, *MESSAGES))
    sizes = [await assert_counted(store, key)]
    held = await begin_run(store, key, user("begins"))
    sizes.append(await assert_counted(store, key))
    await store.commit(turn(held, 0, 2, say="says"), lease=LONG)
    sizes.append(await assert_counted(store, key))
    await store.renew([held], lease=0)
    held = await take_over_run(store, key, answer("takes over"))
    sizes.append(await assert_counted(store, key))
    await store.commit(ending(held, 0, 2, say="ends"), lease=LONG)
    sizes.append(await assert_counted(store, key))
    held = await begin_run(store, key, user("again"))
    await store.renew([held], lease=0)
    await fail_lost_run(store, key, answer("closes"))
    sizes.append(await assert_counted(store, key))
    assert sizes == sorted(set(sizes))
    assert await store.delete(key)
    assert (await store.status(key)).history_bytes == Status().history_bytes == 0


@pytest.mark.promise("P15")
async def test_a_write_that_arrives_again_is_not_counted_again(store: Ledger) -> None:
    key = new_key()
    first = change(key, 0, *MESSAGES)
    assert await store.park(first)
    assert await store.park(first)
    await assert_counted(store, key)
    held = await begin_run(store, key)
    end = ending(held, 0, 2, say="ends")
    for _ in range(2):
        await store.commit(end, lease=LONG)
    await assert_counted(store, key)


@pytest.mark.parametrize("boundary", [0, 1, 3, 4, 5])
async def test_what_lies_before_the_boundary_does_not_count(store: Ledger, boundary: int) -> None:
    key = new_key()
    await parked(store, change(key, 0, *MESSAGES))
    held = await begin_run(store, key)
    end = replace(ending(held, 0, 2, say="ends"), state=State(history_start=boundary))
    await store.commit(end, lease=LONG)
    await assert_counted(store, key)
    held = await begin_run(store, key, user("more"))
    await store.commit(replace(turn(held, 0, 2, say="says"), state=State(cost=1.0)), lease=LONG)
    await assert_counted(store, key)
    await store.commit(
        replace(turn(held, 1, 2, say="on"), state=State(history_start=2)), lease=LONG
    )
    await assert_counted(store, key)


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
@pytest.mark.parametrize("boundary", [0, 2])
async def test_what_is_taken_back_does_not_count(store: Ledger, keep: int, boundary: int) -> None:
    """The boundary may be taken back with it, or set anew."""
    key = new_key()
    await parked(store, replace(change(key, 0, *MESSAGES), state=State(history_start=boundary)))
    await parked(store, replace(change(key, 0, user("e")), leaf=keep - 1))
    await assert_counted(store, key)
    await parked(store, replace(change(key), leaf=0, state=State(history_start=1)))
    await assert_counted(store, key)


async def test_messages_that_are_more_than_asked_for_are_left_out(store: Ledger) -> None:
    key, run_id = new_key(), new_run()
    await parked(store, replace(change(key, 0, *MESSAGES), state=State(history_start=1)))
    await begin_run(store, key)
    entry = waiting(key, run_id)
    assert await store.enqueue(entry) == "queued"
    size = await assert_counted(store, key)
    whole = await store.load(key)
    assert whole.queue_bytes == len(dump_queued(entry.queued))
    for within in (size, size + 1, None):
        assert await store.load(key, within=within) == whole
    for within in (0, size - 1):
        left_out = await store.load(key, within=within)
        assert left_out == replace(whole, messages=(), left_out=True)
        assert left_out.status.history_bytes == size
        assert left_out.queue_bytes == whole.queue_bytes


async def test_of_an_unknown_conversation_nothing_is_left_out(store: Ledger) -> None:
    assert (await store.load(new_key(), within=0)).left_out is False
