"""What is particular to the store in memory: its warning, its end, and its size."""

import tracemalloc
from dataclasses import replace

import pytest
from tests.contract.door.writes import (
    a_write,
    append,
    applied,
    due_keys,
    entry,
    first_write,
    made,
    new_key,
    new_run,
    running,
    whole,
)

from passback.core.conversation.store import Append, LogChange
from passback.stores.memory import MemoryStore
from passback.stores.options import StoreOptions

pytestmark = pytest.mark.anyio

LARGE = 100_000  # bytes


async def test_it_warns_that_all_is_gone_when_the_server_stops() -> None:
    store = MemoryStore()
    assert (store.location, store.sees_followers) == ("memory:", False)
    async with store:
        [warning] = await store.check()
        assert warning.startswith("The store is in memory: ")
        key, run_id = await running(store)
        [answer] = await append(store, Append(key, run_id, "one", entry(1, 2)))
        assert not answer.followed
    async with store:
        assert (await whole(store, key)).version == 0


async def test_two_stores_have_nothing_in_common() -> None:
    async with MemoryStore() as one, MemoryStore() as other:
        key = await made(one)
        assert (await whole(other, key)).version == 0


async def test_an_append_that_shortens_a_lease_counts_at_once() -> None:
    async with MemoryStore() as store:
        key, run_id = await running(store)
        await append(store, Append(key, run_id, "one"), lease=0)
        assert await due_keys(store) == {key}


async def test_conversations_that_have_expired_do_not_stay_in_memory() -> None:
    async with MemoryStore(StoreOptions(ttl=0.0001)) as store:
        tracemalloc.start()
        try:
            for number in range(200):
                message = bytes([number]) * LARGE
                await applied(store, replace(first_write(new_key()), messages=(message,)))
            assert tracemalloc.get_traced_memory()[0] < 20 * LARGE
        finally:
            tracemalloc.stop()


async def test_logs_that_have_expired_do_not_stay_in_memory() -> None:
    """Those of a conversation that nobody writes to are removed, too."""
    async with MemoryStore(StoreOptions(log_ttl=0.0001)) as store:
        idle, key = await made(store), await made(store)
        tracemalloc.start()
        try:
            for number in range(200):
                ended = entry(number + 1, 1, 1, bytes([number]) * LARGE)
                await applied(
                    store, replace(a_write(idle), log=LogChange(new_run(), ended, ends=True))
                )
            for _ in range(400):
                await applied(store, replace(a_write(key), head=b"head"))
            assert tracemalloc.get_traced_memory()[0] < 20 * LARGE
        finally:
            tracemalloc.stop()
