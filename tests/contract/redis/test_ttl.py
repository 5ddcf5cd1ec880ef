"""Expiry in Redis: all keys of a conversation together, none under a run or a waiting post."""

from dataclasses import replace

import pytest
from tests.contract.door.writes import (
    LONG,
    a_write,
    append,
    applied,
    entry,
    first_write,
    leased,
    made,
    new_key,
    new_run,
    running,
)
from tests.contract.redis.doors import key_name, open_door
from tests.support.redis_server import RedisServer

from passback.core.conversation.store import (
    Append,
    Guard,
    LogChange,
    QueueEntry,
    Store,
    TakeLease,
    Write,
)
from passback.core.messages import ConversationKey, RunId
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

DAY = 24 * 3600
BRIEF = StoreOptions(ttl=600, log_ttl=60)
KEPT = {"state", "messages", "logs"}


def lifetimes(server: RedisServer) -> dict[str, int]:
    """Return each key's seconds to live, rounded up; -1 for ever."""
    found: dict[str, int] = {}
    for name in server.command("KEYS", "*}:*"):
        left = int(server.command("PTTL", name))
        found[name.decode().partition("}:")[2]] = left if left < 0 else -(-left // 1000)
    return found


def ends(key: ConversationKey, run_id: RunId) -> Write:
    """End the run that has the lease."""
    log = LogChange(run_id, entry(1, 2), ends=True)
    return replace(a_write(key, Guard(fence="one")), log=log, lease="end")


async def test_without_a_ttl_a_conversation_stays_and_only_its_log_expires(
    store: Store, shared_redis: RedisServer
) -> None:
    key, run_id = await made(store, b"hello"), new_run()
    await leased(store, key, run_id)
    kept = dict.fromkeys(KEPT, -1)
    assert lifetimes(shared_redis) == {**kept, f"log:{run_id}": DAY}
    await applied(store, ends(key, run_id))
    assert lifetimes(shared_redis) == {**kept, f"log:{run_id}": 3600}


async def test_with_a_ttl_all_keys_of_a_conversation_expire_together(
    redis_url: str, shared_redis: RedisServer
) -> None:
    async with open_door(redis_url, BRIEF) as store:
        key, run_id = await made(store, b"hello"), new_run()
        assert lifetimes(shared_redis) == {"state": 600, "messages": 600}
        await leased(store, key, run_id)
        running = {**dict.fromkeys(KEPT, DAY), f"log:{run_id}": DAY}
        assert lifetimes(shared_redis) == running
        shared_redis.command("EXPIRE", key_name(key, f"log:{run_id}"), 9)
        await append(store, Append(key, run_id, "one", entry(1, 2)))
        assert lifetimes(shared_redis) == running
        await applied(store, ends(key, run_id))
        ended = {**dict.fromkeys(KEPT, 600), f"log:{run_id}": 60}
        assert lifetimes(shared_redis) == ended


async def test_nothing_expires_under_what_waits(redis_url: str, shared_redis: RedisServer) -> None:
    async with open_door(redis_url, BRIEF) as store:
        key, run_id, waits = await made(store, b"hello"), new_run(), new_run()
        await leased(store, key, run_id)
        enqueues = replace(a_write(key), log=LogChange(waits, entry(2, 1)))
        await applied(store, replace(enqueues, enqueue=QueueEntry(waits, b"waits")))
        await applied(store, ends(key, run_id))
        left = {f"log:{run_id}": 60, f"log:{waits}": DAY}
        assert lifetimes(shared_redis) == {**dict.fromkeys(KEPT, DAY), **left}
        log = LogChange(waits, entry(3, 1), ends=True)
        await applied(store, replace(a_write(key), dequeue=waits, log=log))
        left = {f"log:{run_id}": 60, f"log:{waits}": 60}
        assert lifetimes(shared_redis) == {**dict.fromkeys(KEPT, 600), **left}


async def test_a_log_does_not_outlive_its_conversation(
    redis_url: str, shared_redis: RedisServer
) -> None:
    async with open_door(redis_url, StoreOptions(ttl=60)) as store:
        key, run_id = await made(store, b"hello"), new_run()
        await leased(store, key, run_id)
        await applied(store, ends(key, run_id))
    assert set(lifetimes(shared_redis).values()) == {60}


async def test_another_time_to_live_holds_from_the_next_write_on(
    store: Store, redis_url: str, shared_redis: RedisServer
) -> None:
    key = await made(store, b"hello")
    async with open_door(redis_url, BRIEF) as brief:
        await applied(brief, a_write(key))
        assert lifetimes(shared_redis) == {"state": 600, "messages": 600}
    await applied(store, a_write(key))
    assert lifetimes(shared_redis) == {"state": -1, "messages": -1}


# ---------------------------------------------------------------- logs that are known
def known_runs(server: RedisServer) -> set[str]:
    [name] = server.command("KEYS", "*}:logs")
    return {run.decode() for run in server.command("ZRANGE", name, 0, -1)}


async def test_runs_whose_logs_have_expired_are_forgotten(
    redis_url: str, shared_redis: RedisServer
) -> None:
    async with open_door(redis_url, StoreOptions(log_ttl=0.0001)) as store:
        key, run_id = await running(store)
        await applied(store, ends(key, run_id))
        following = new_run()
        log = LogChange(following, entry(2, 1))
        await applied(store, replace(a_write(key), log=log, lease=TakeLease("two", LONG)))
        assert known_runs(shared_redis) == {following}


async def test_a_log_that_an_append_opens_is_known(store: Store, shared_redis: RedisServer) -> None:
    key, run_id = new_key(), new_run()
    await applied(store, replace(first_write(key), lease=TakeLease("one", LONG)))
    await append(store, Append(key, run_id, "one", entry(1, 1)))
    assert known_runs(shared_redis) == {run_id}
