"""Expiry in Redis: all keys of a conversation together, none under a run or a waiting post."""

from collections.abc import AsyncGenerator

import pytest
from tests.support.redis_server import RedisServer
from tests.support.store_values import (
    CANCELLED,
    LONG,
    begin_run,
    ending,
    fail_lost_run,
    new_key,
    new_nonce,
    new_run,
    user,
    waiting,
)

from passback.core.changes import Change
from passback.core.ports import Store
from passback.core.posts import Receipt
from passback.stores.open import open_store
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

DAY = 24 * 3600


@pytest.fixture
async def store(redis_url: str) -> AsyncGenerator[Store]:
    async with open_store(redis_url) as opened:
        yield opened


async def test_without_a_ttl_a_conversation_stays_and_only_its_log_expires(
    store: Store, shared_redis: RedisServer
) -> None:
    key = new_key()
    held = await begin_run(store, key, user("hello"))
    running = lifetimes(shared_redis)
    await store.commit(ending(held, 0, 2), lease=LONG)

    kept = {"state": -1, "messages": -1, "runs": -1}
    log = f"log:{held.run.run_id}"
    assert running == {**kept, log: DAY}
    assert lifetimes(shared_redis) == {**kept, log: 3600}


async def test_with_a_ttl_all_keys_of_a_conversation_expire_together(
    redis_url: str, shared_redis: RedisServer
) -> None:
    key = new_key()
    async with open_store(redis_url, options=StoreOptions(ttl=600, log_ttl=60)) as store:
        await store.park(
            Change(key, new_nonce(), 0, (user("hello"),), {"call:c": Receipt("ab" * 32)})
        )
        parked = lifetimes(shared_redis)
        held = await begin_run(store, key)
        running = lifetimes(shared_redis)
        await store.commit(ending(held, 0, 2), lease=LONG)
        ended = lifetimes(shared_redis)
        lapsed = await begin_run(store, key, lease=0)
        await fail_lost_run(store, key)
        closed = lifetimes(shared_redis)

    kept = {"state", "messages", "receipts"}
    first, second = f"log:{held.run.run_id}", f"log:{lapsed.run.run_id}"
    assert parked == dict.fromkeys(kept, 600)
    assert running == dict.fromkeys({*kept, "runs", first}, DAY)
    assert ended == {**dict.fromkeys({*kept, "runs"}, 600), first: 60}
    assert closed == {**dict.fromkeys({*kept, "runs"}, 600), first: 60, second: 60}


async def test_nothing_expires_under_a_post_that_waits(
    redis_url: str, shared_redis: RedisServer
) -> None:
    key = new_key()
    async with open_store(redis_url, options=StoreOptions(ttl=600, log_ttl=60)) as store:
        held = await begin_run(store, key, user("hello"))
        entry = waiting(key, receipts={"key:k": Receipt("ab" * 32, new_run())})
        await store.enqueue(entry)
        queued = lifetimes(shared_redis)
        await store.commit(ending(held, 0, 2), lease=LONG)
        ended = lifetimes(shared_redis)
        await store.cancel(entry.run, CANCELLED)
        left = lifetimes(shared_redis)

    parts = {"state", "messages", "receipts", "runs"}
    own, waits = f"log:{held.run.run_id}", f"log:{entry.run.run_id}"
    assert queued == dict.fromkeys({*parts, "queue", own, waits}, DAY)
    assert ended == {**dict.fromkeys({*parts, "queue", waits}, DAY), own: 60}
    assert left == {**dict.fromkeys(parts, 600), own: 60, waits: 60}


async def test_a_log_does_not_outlive_its_conversation(
    redis_url: str, shared_redis: RedisServer
) -> None:
    async with open_store(redis_url, options=StoreOptions(ttl=60)) as store:
        held = await begin_run(store, new_key(), user("hello"))
        await store.commit(ending(held, 0, 2), lease=LONG)

    assert set(lifetimes(shared_redis).values()) == {60}


def lifetimes(server: RedisServer) -> dict[str, int]:
    """Return each key's seconds to live, rounded up; -1 for ever."""
    found: dict[str, int] = {}
    for name in server.command("KEYS", "*}:*"):
        left = int(server.command("PTTL", name))
        found[name.decode().partition("}:")[2]] = left if left < 0 else -(-left // 1000)
    return found
