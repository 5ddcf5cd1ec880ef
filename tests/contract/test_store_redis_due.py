"""Redis alone: the index of due conversations, and the trimming of logs."""

from collections.abc import AsyncGenerator
from dataclasses import replace

import anyio
import pytest
import redis
from tests.support.redis_server import RedisServer
from tests.support.store_values import (
    CANCELLED,
    LONG,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_key,
    new_run,
    opening,
    take_over_run,
    texts,
    turn,
    user,
    waiting,
)

from passback.core.changes import Status
from passback.core.errors import CursorExpired, StoreError
from passback.core.events import START, Position
from passback.core.messages import ConversationKey, RunRef
from passback.core.ports import Store
from passback.stores.layout import conversation_tag, pack_key
from passback.stores.open import open_store
from passback.stores.options import StoreOptions
from passback.stores.redis import scripts

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

DUE = "pb:due"


@pytest.fixture
async def store(redis_url: str) -> AsyncGenerator[Store]:
    async with open_store(redis_url) as opened:
        yield opened


@pytest.fixture
async def cluster(redis_cluster_url: str) -> AsyncGenerator[Store]:
    async with open_store(redis_cluster_url) as opened:
        yield opened


def index(server: RedisServer) -> set[bytes]:
    return set(server.command("ZRANGE", DUE, 0, -1))


# ---------------------------------------------------------------- writes of the scripts
async def test_a_conversation_is_in_the_index_while_it_has_something_to_do(
    store: Store, shared_redis: RedisServer
) -> None:
    key = new_key()
    member = {pack_key(key)}
    await store.park(change(key, 0, user("hello")))
    assert index(shared_redis) == set()
    held = await begin_run(store, key)
    assert index(shared_redis) == member
    entry = waiting(key)
    await store.enqueue(entry)
    await store.commit(ending(held, 0, 2), lease=LONG)
    assert index(shared_redis) == member
    beginning = await begin_run(store, key)
    await store.release(beginning)
    await fail_lost_run(store, key)
    assert index(shared_redis) == member
    await store.cancel(entry.run, CANCELLED)
    last = await begin_run(store, key, lease=0)
    await fail_lost_run(store, key)
    assert index(shared_redis) == set()
    assert (await store.status(key)).run_id == last.run.run_id

    await begin_run(store, key)
    await store.delete(key)
    assert index(shared_redis) == set()


async def test_an_index_that_is_gone_is_written_again_by_the_queue_and_a_hand_over(
    store: Store, shared_redis: RedisServer
) -> None:
    key = new_key()
    held = await begin_run(store, key)
    shared_redis.command("DEL", DUE)
    await store.enqueue(waiting(key))
    assert index(shared_redis) == {pack_key(key)}
    shared_redis.command("DEL", DUE)
    await store.release(held)

    assert await store.take_due(9, lease=LONG) == [key]


async def test_an_index_of_a_foreign_type_is_an_error_and_nothing_is_half_written(
    store: Store, shared_redis: RedisServer
) -> None:
    held, new = await begin_run(store, new_key(), user("hello")), new_key()
    before = await store.load(held.run.key)
    shared_redis.command("DEL", DUE)
    shared_redis.command("SET", DUE, "foreign")

    with pytest.raises(StoreError, match="damaged"):
        await store.commit(ending(held, 0, 2, say="late"), lease=LONG)
    with pytest.raises(StoreError, match="damaged"):
        await store.enqueue(waiting(held.run.key))
    with pytest.raises(StoreError, match="damaged"):
        await store.release(held)
    with pytest.raises(StoreError, match="damaged"):
        await store.delete(held.run.key)
    with pytest.raises(StoreError, match="damaged"):
        await begin_run(store, new, user("new"))

    assert await store.load(held.run.key) == before
    assert await store.status(new) == Status()


# ---------------------------------------------------------------- a hint, which is looked into
async def test_entries_of_the_index_that_are_too_early_are_put_off(
    store: Store, shared_redis: RedisServer
) -> None:
    held = await begin_run(store, new_key(), lease=0)
    await store.renew([held], lease=LONG)

    assert await store.take_due(9, lease=1) == []

    score = float(shared_redis.command("ZSCORE", DUE, pack_key(held.run.key).decode()))
    seconds, _ = shared_redis.command("TIME")
    assert score / 1000 == pytest.approx(int(seconds) + LONG, abs=100)


@pytest.mark.nightly
@pytest.mark.parametrize("gone", ["ended", "deleted", "vanished"])
async def test_what_has_nothing_to_do_leaves_the_index_of_a_cluster(
    cluster: Store, shared_cluster: RedisServer, gone: str
) -> None:
    key = new_key()
    held = await begin_run(cluster, key, lease=0)
    if gone == "ended":
        await cluster.commit(ending(held, 0, 2), lease=LONG)
    elif gone == "deleted":
        await cluster.delete(key)
    else:
        shared_cluster.command("DEL", f"pb:{{{conversation_tag(key)}}}:state")
    assert index(shared_cluster) == {pack_key(key)}

    assert await cluster.take_due(9, lease=LONG) == []

    assert index(shared_cluster) == set()


async def test_foreign_entries_leave_the_index(store: Store, shared_redis: RedisServer) -> None:
    held = await begin_run(store, new_key(), lease=0)
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        client.zadd(DUE, {b"\xff\xfe": 0})

    assert await store.take_due(9, lease=LONG) == [held.run.key]

    assert index(shared_redis) == {pack_key(held.run.key)}


async def test_a_damaged_conversation_is_not_in_the_way_of_the_others(
    store: Store, shared_redis: RedisServer
) -> None:
    damaged, healthy = [await begin_run(store, new_key(), lease=0) for _ in range(2)]
    shared_redis.command("DEL", f"pb:{{{conversation_tag(damaged.run.key)}}}:state")
    shared_redis.command("SET", f"pb:{{{conversation_tag(damaged.run.key)}}}:state", "foreign")

    assert await store.take_due(9, lease=LONG) == [healthy.run.key]
    assert await store.take_due(9, lease=LONG) == []
    assert pack_key(damaged.run.key) in index(shared_redis)


async def test_more_conversations_than_asked_for_wait_for_the_next_who_asks(store: Store) -> None:
    keys = [(await begin_run(store, new_key(), lease=0)).run.key for _ in range(5)]
    busy = [await begin_run(store, new_key(), lease=0) for _ in range(5)]
    await store.renew(busy, lease=LONG)

    assert await store.take_due(0, lease=LONG) == []
    found = [await store.take_due(2, lease=LONG) for _ in range(4)]

    assert [len(each) for each in found] == [2, 2, 1, 0]
    assert {key for each in found for key in each} == set(keys)


async def test_of_many_who_ask_at_once_one_gets_each(store: Store) -> None:
    keys = [(await begin_run(store, new_key(), lease=0)).run.key for _ in range(20)]
    found: list[ConversationKey] = []

    async def ask() -> None:
        found.extend(await store.take_due(3, lease=LONG))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask)

    assert len(found) == 20
    assert set(found) == set(keys)


async def test_a_run_that_begins_while_somebody_looks_stays_in_the_index(
    store: Store, shared_redis: RedisServer
) -> None:
    key = new_key()
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        client.zadd(DUE, {pack_key(key): 0})
        score, members = client.eval(scripts.DUE_TAKE.text, 1, DUE, 9, 1000)
        assert members == [pack_key(key)]
        await begin_run(store, key, lease=1)
        client.eval(scripts.DUE_SETTLE.text, 1, DUE, score, pack_key(key), -1)

    assert index(shared_redis) == {pack_key(key)}


# ---------------------------------------------------------------- the size of a log
@pytest.mark.parametrize("limit", [1, 200, 1000])
async def test_the_stored_size_of_a_log_is_its_size(
    redis_url: str, shared_redis: RedisServer, limit: int
) -> None:
    async with open_store(redis_url, options=StoreOptions(log_bytes=limit)) as store:
        key = new_key()
        before = await begin_run(store, key)
        entry = waiting(key)
        await store.enqueue(entry)
        await store.commit(ending(before, 0, 2), lease=LONG)
        run_id = entry.run.run_id
        beginning = replace(change(key, (await store.status(key)).version), dequeues=run_id)
        held = await store.begin(beginning, run_id, opening(run_id), lease=0)
        assert held is not None
        size_fits(shared_redis, held.run, limit)
        for round_ in range(3):
            for number in range(2, 30, 2):
                await store.append([texts(held, number, "a" * number, "b")], lease=0)
                size_fits(shared_redis, held.run, limit)
            await store.commit(turn(held, 0, 30, *opening(run_id)), lease=0)
            await store.append([texts(held, 31, *"abcdefgh" * round_)], lease=0)
            size_fits(shared_redis, held.run, limit)
            held = await take_over_run(store, key, lease=0)
            size_fits(shared_redis, held.run, limit)


async def test_a_claim_shows_the_gap_when_all_that_was_committed_has_been_trimmed(
    redis_url: str,
) -> None:
    async with open_store(redis_url, options=StoreOptions(log_bytes=300)) as store:
        key = new_key()
        held = await begin_run(store, key)
        await store.commit(turn(held, 0, 2, *opening(held.run.run_id)), lease=LONG)
        for number in range(3, 40):
            await store.append([texts(held, number, "void")], lease=0)
        seen = (await store.read_log(held.run, after=Position(1, 38)))[-1].position
        taken = await take_over_run(store, key)

        for place in (START, Position(1, 1)):
            with pytest.raises(CursorExpired):
                await store.read_log(held.run, after=place)
        for place in (Position(1, 2), Position(1, 20), seen):
            rest = await store.read_log(held.run, after=place)
            assert [each.position for each in rest] == [Position(taken.epoch, 1)]
        for one_by_one in (1, 2):
            with pytest.raises(CursorExpired):
                await store.read_log(held.run, limit=one_by_one)


def size_fits(server: RedisServer, run: RunRef, limit: int) -> None:
    """Check that the state's size is the log's, above the limit only if readers see no gap."""
    stem = f"pb:{{{conversation_tag(run.key)}}}"
    counted = int(server.command("HGET", f"{stem}:state", "log_bytes"))
    entries = server.command("XRANGE", f"{stem}:log:{run.run_id}", "-", "+")
    sizes = [len(fields[b"events"]) for _, fields in entries]
    assert counted == sum(sizes)
    assert counted <= limit or len(sizes) <= 2


async def test_an_unknown_run_cannot_be_kept_followed(store: Store) -> None:
    key = new_key()
    await store.keep_followed(RunRef(key, new_run()), seconds=9)

    assert await store.status(key) == Status()
