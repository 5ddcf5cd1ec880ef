"""Redis's indexes are hints: they do not grow, and readers clear them."""

from dataclasses import replace
from typing import Literal

import anyio
import pytest
import redis
from tests.contract.door.writes import (
    LONG,
    OVER,
    a_write,
    append,
    applied,
    due_keys,
    first_write,
    keys_in,
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
    Due,
    Guard,
    Query,
    QueueEntry,
    RenewLease,
    Store,
    TakeLease,
    Wanted,
)
from passback.core.errors import StoreUnavailable
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.stores.options import StoreOptions
from passback.stores.redis.indexes import TIES
from passback.stores.redis.records import due_member, index_member
from passback.stores.redis.scripts import LONGEST_RUN, KeyNames, Scripts

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

ANN = OwnerId("ann")
NAMES = KeyNames("pb", one_server=True)
SCRIPTS = Scripts(StoreOptions())
TTL = 60_000  # milliseconds
KEPT = StoreOptions(ttl=TTL / 1000)

Index = Literal["all", "owing"]
INDEXES: dict[Index, str] = {"all": NAMES.all(ANN), "owing": NAMES.owing(ANN)}


def key_of(name: str) -> ConversationKey:
    return ConversationKey(ANN, ConversationId(name))


def members(server: RedisServer, index: str) -> set[bytes]:
    return set(server.command("ZRANGE", index, 0, -1))


def indexed(*names: str) -> set[bytes]:
    return {index_member(key_of(name)) for name in names}


def add_stale(server: RedisServer, index: str, count: int) -> None:
    with redis.Redis(port=server.port, protocol=2) as client:
        client.zadd(index, {index_member(key_of(f"stale {n}")): n + 1 for n in range(count)})


async def make(store: Store, *names: str) -> None:
    for name in names:
        await applied(store, replace(first_write(key_of(name)), owes=True))


async def listed(store: Store, index: Index) -> list[str]:
    return [key.id for key in await keys_in(store, Query(ANN, index))]


# ---------------------------------------------------------------- due conversations
async def test_a_conversation_is_in_the_index_while_it_has_something_to_do(
    store: Store, shared_redis: RedisServer
) -> None:
    key, fenced = await made(store), Guard(fence="one")
    assert members(shared_redis, "pb:due") == set()
    await leased(store, key, new_run())
    await applied(store, replace(a_write(key), enqueue=QueueEntry(new_run())))
    ends = replace(a_write(key, fenced), lease="end", due=Due(queued=LONG))
    await applied(store, ends)
    assert members(shared_redis, "pb:due") == {due_member(key)}
    await applied(store, replace(a_write(key), due=Due()))
    assert members(shared_redis, "pb:due") == set()
    await leased(store, key, new_run())
    assert members(shared_redis, "pb:due") == {due_member(key)}
    await store.delete(key)
    assert members(shared_redis, "pb:due") == set()


async def test_an_index_that_is_gone_is_written_again(
    store: Store, shared_redis: RedisServer
) -> None:
    key, _ = await running(store)
    shared_redis.command("DEL", "pb:due")
    await applied(store, replace(a_write(key), due=Due(queued=LONG)))
    assert members(shared_redis, "pb:due") == {due_member(key)}
    shared_redis.command("DEL", "pb:due")
    await applied(store, replace(a_write(key, Guard(fence="one")), lease="release"))
    assert await due_keys(store) == {key}


async def test_entries_that_are_too_early_are_put_off(
    store: Store, shared_redis: RedisServer
) -> None:
    key, run_id = await running(store, milliseconds=OVER)
    await append(store, Append(key, run_id, "one"), lease=LONG)

    assert await store.due(9, milliseconds=1) == []

    score = float(shared_redis.command("ZSCORE", "pb:due", due_member(key).decode()))
    seconds, _ = shared_redis.command("TIME")
    assert score == pytest.approx(int(seconds) * 1000 + LONG, abs=100_000)


async def test_a_lease_that_a_write_makes_shorter_is_found(store: Store) -> None:
    key, _ = await running(store)
    assert await due_keys(store) == set()
    shorter = replace(a_write(key, Guard(fence="one")), lease=RenewLease(OVER))
    await applied(store, shorter)
    assert await due_keys(store) == {key}


async def test_entries_without_a_meaning_leave_the_index(
    store: Store, shared_redis: RedisServer
) -> None:
    key, _ = await running(store, milliseconds=OVER)
    stale = [b"\xff\xfe", b"9", b"x:y", due_member(new_key())]
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        client.zadd("pb:due", dict.fromkeys(stale, 0))

    assert await due_keys(store) == {key}

    assert members(shared_redis, "pb:due") == {due_member(key)}


async def test_more_than_asked_for_wait_for_the_next_who_asks(store: Store) -> None:
    keys = [(await running(store, milliseconds=OVER))[0] for _ in range(5)]
    busy = [await running(store, milliseconds=OVER) for _ in range(5)]
    await append(store, *(Append(*run, "one") for run in busy), lease=LONG)

    assert await store.due(0, milliseconds=LONG) == []
    found = [await store.due(2, milliseconds=LONG) for _ in range(4)]

    assert [len(each) for each in found] == [2, 2, 1, 0]
    assert {key for each in found for key in each} == set(keys)


async def test_one_who_takes_for_no_time_gets_each_once(store: Store) -> None:
    keys = [(await running(store, milliseconds=OVER))[0] for _ in range(3)]
    busy, run_id = await running(store, milliseconds=OVER)
    await append(store, Append(busy, run_id, "one"), lease=LONG)
    for _ in range(2):
        found = await store.due(9, milliseconds=0)
        assert (len(found), set(found)) == (3, set(keys))


async def test_of_many_who_ask_at_once_one_gets_each(store: Store) -> None:
    keys = [(await running(store, milliseconds=OVER))[0] for _ in range(20)]
    found: list[ConversationKey] = []

    async def ask() -> None:
        found.extend(await store.due(3, milliseconds=LONG))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask)

    assert len(found) == 20
    assert set(found) == set(keys)


async def test_a_run_that_begins_while_somebody_looks_stays_in_the_index(
    store: Store, shared_redis: RedisServer
) -> None:
    key = await made(store)
    member = due_member(key)
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        client.zadd("pb:due", {member: 0})
        score, taken = client.eval(SCRIPTS.due.text.decode(), 1, "pb:due", 9, 1000, 0)
        assert taken == [member]
        await applied(store, replace(a_write(key), lease=TakeLease("one", 1000)))
        client.eval(SCRIPTS.due.text.decode(), 1, "pb:due", 0, 0, score, member, "")
    assert members(shared_redis, "pb:due") == {member}


# ---------------------------------------------------------------- conversations of an owner
@pytest.mark.parametrize("index", INDEXES)
async def test_reading_an_index_clears_it_of_conversations_that_are_gone(
    store: Store, shared_redis: RedisServer, index: Index
) -> None:
    await make(store, "one", "evicted", "two")
    shared_redis.command("DEL", key_name(key_of("evicted"), "state"))
    add_stale(shared_redis, INDEXES[index], 3)
    assert sorted(await listed(store, index)) == ["one", "two"]
    assert members(shared_redis, INDEXES[index]) == indexed("one", "two")


async def test_an_entry_that_is_written_again_during_a_read_stays(
    store: Store, shared_redis: RedisServer
) -> None:
    add_stale(shared_redis, INDEXES["all"], 1)
    await make(store, "stale 0")
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        [member] = indexed("stale 0")
        client.eval(SCRIPTS.remove.text.decode(), 1, INDEXES["all"], 0, member, 1)
    assert await listed(store, "all") == ["stale 0"]


@pytest.mark.parametrize("index", INDEXES)
async def test_an_unreadable_conversation_is_listed_as_such(
    store: Store, shared_redis: RedisServer, index: Index
) -> None:
    await make(store, "healthy", "unreadable", "another")
    shared_redis.command("HSET", key_name(key_of("unreadable"), "state"), "count", "many")
    page = await store.query(Query(ANN, index))
    found = {each.key.id: each.found and each.found.version for each in page.listed}
    assert found == {"healthy": 1, "unreadable": None, "another": 1}


@pytest.mark.parametrize("index", INDEXES)
async def test_a_very_long_index_is_looked_at_in_parts(
    store: Store, shared_redis: RedisServer, index: Index
) -> None:
    """A page may be empty and have a `next`."""
    await make(store, "one")
    name = INDEXES[index]
    if index == "all":  # the newest are first
        shared_redis.command("ZADD", name, 1, next(iter(indexed("one"))).decode())
        with redis.Redis(port=shared_redis.port, protocol=2) as client:
            client.zadd(name, dict.fromkeys(indexed(*(f"stale {n}" for n in range(9))), 9))
    else:
        add_stale(shared_redis, name, 40)
    limit = 2
    page = await store.query(Query(ANN, index, limit=limit))
    assert (page.listed, page.next is None) == ((), False)
    assert await listed(store, index) == ["one"]
    assert members(shared_redis, name) == indexed("one")


@pytest.mark.parametrize("index", INDEXES)
async def test_conversations_of_the_same_time_are_listed_once_each(
    store: Store, shared_redis: RedisServer, index: Index
) -> None:
    """Servers of a cluster may give the same microsecond."""
    names = [f"{number}" for number in range(TIES)]
    await make(store, *names)
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        client.zadd(INDEXES[index], dict.fromkeys(indexed(*names), 7))
    for limit in (1, 3, TIES):
        found = await keys_in(store, Query(ANN, index, limit=limit))
        assert len(found) == TIES
        assert {key.id for key in found} == set(names)


# ---------------------------------------------------------------- growth
@pytest.mark.parametrize("index", INDEXES)
async def test_conversations_whose_time_is_over_leave_an_index_with_the_next_entry(
    redis_url: str, shared_redis: RedisServer, index: Index
) -> None:
    name, lifetime = INDEXES[index], 24 * 3600 * 1000 + LONGEST_RUN
    async with open_door(redis_url, KEPT) as store:
        await make(store, "lives")
        [member] = indexed("lives")
        score = float(shared_redis.command("ZSCORE", name, member.decode()))
        shared_redis.command("ZADD", name, f"{score - 1000 * lifetime + 60e6:.0f}", "in time")
        add_stale(shared_redis, name, 50)
        await make(store, "one")
        assert members(shared_redis, name) == {*indexed("lives", "one"), b"in time"}
        assert lifetime - 30_000 < shared_redis.command("PTTL", name) <= lifetime
    async with open_door(redis_url) as lasting:
        add_stale(shared_redis, name, 3)
        await make(lasting, "two")
    assert shared_redis.command("PTTL", name) == -1
    assert len(members(shared_redis, name)) == 7


@pytest.mark.parametrize("index", INDEXES)
async def test_a_store_that_is_away_is_an_error_and_not_an_empty_index(
    own_redis: RedisServer, index: Index
) -> None:
    async with open_door(own_redis.url, StoreOptions(timeout=0.5)) as store:
        await make(store, "one")
        own_redis.stop()
        with pytest.raises(StoreUnavailable):
            await store.query(Query(ANN, index))
        with pytest.raises(StoreUnavailable):
            await store.due(9, milliseconds=0)


# ---------------------------------------------------------------- a Cluster
@pytest.mark.parametrize("gone", ["ended", "deleted", "vanished"])
async def test_what_has_nothing_to_do_leaves_the_index_of_a_cluster(
    cluster: Store, shared_cluster: RedisServer, gone: str
) -> None:
    key, _ = await running(cluster, milliseconds=OVER)
    if gone == "ended":
        await applied(cluster, replace(a_write(key), lease="end", due=Due()))
    elif gone == "deleted":
        await cluster.delete(key)
    else:
        shared_cluster.command("DEL", key_name(key, "state"))
    assert members(shared_cluster, "pb:due") == {due_member(key)}

    assert await due_keys(cluster) == set()

    assert members(shared_cluster, "pb:due") == set()


@pytest.mark.parametrize("change", ["release", "end"])
async def test_a_lease_that_ends_is_looked_at_in_a_cluster(
    cluster: Store, change: Literal["release", "end"]
) -> None:
    key, fenced = await made(cluster), Guard(fence="one")
    await applied(cluster, replace(a_write(key), due=Due(after=0)))
    await leased(cluster, key, new_run())
    assert await due_keys(cluster) == set()
    await applied(cluster, replace(a_write(key, fenced), lease=change))
    assert await due_keys(cluster) == {key}


@pytest.mark.parametrize("index", INDEXES)
async def test_a_cluster_indexes_conversations_beside_them(
    cluster: Store, shared_cluster: RedisServer, index: Index
) -> None:
    await make(cluster, "one", "deleted", "evicted", "last")
    assert await cluster.delete(key_of("deleted"))
    assert not await cluster.delete(key_of("never"))
    shared_cluster.command("DEL", key_name(key_of("evicted"), "state"))
    found = await listed(cluster, index)
    assert found == (["last", "one"] if index == "all" else ["one", "last"])
    # it is indexed before it is written: only what was so for a minute counts as gone
    assert members(shared_cluster, INDEXES[index]) == indexed("one", "evicted", "last")


async def test_what_a_cluster_is_about_to_write_stays_in_its_index(
    cluster: Store, shared_cluster: RedisServer
) -> None:
    write = replace(a_write(key_of("one"), Guard(version=7)), touches=True, owes=True)
    assert await cluster.apply(write) is None
    for index, name in INDEXES.items():
        add_stale(shared_cluster, name, 1)
        assert await listed(cluster, index) == []
        assert members(shared_cluster, name) == indexed("one")
    assert (await cluster.read(key_of("one"), Wanted())).version == 0
