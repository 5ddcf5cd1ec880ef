"""Redis's list of an owner's conversations is a hint: it does not grow, and readers clear it."""

from collections.abc import AsyncGenerator

import pytest
import redis
from tests.support.redis_server import RedisServer
from tests.support.store_values import (
    LONG,
    begin_run,
    change,
    ending,
    new_nonce,
    take_over_run,
    user,
    waiting,
)

from passback.core.changes import Change
from passback.core.errors import StoreError, StoreUnavailable
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.ports import Store
from passback.stores.layout import conversation_tag
from passback.stores.open import open_store
from passback.stores.options import StoreOptions
from passback.stores.redis import indexes, scripts
from passback.stores.redis.scripts import KeyNames

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

ANN = OwnerId("ann")
LIST = KeyNames("pb", one_server=True).conversations(ANN)
TTL = 60_000  # milliseconds
KEPT = StoreOptions(ttl=TTL / 1000)


@pytest.fixture
async def store(redis_url: str) -> AsyncGenerator[Store]:
    async with open_store(redis_url) as opened:
        yield opened


@pytest.fixture
async def cluster(redis_cluster_url: str) -> AsyncGenerator[Store]:
    async with open_store(redis_cluster_url) as opened:
        yield opened


def key_of(name: str) -> ConversationKey:
    return ConversationKey(ANN, ConversationId(name))


def member(name: str) -> bytes:
    return f"{conversation_tag(key_of(name))}{name}".encode()


def members(server: RedisServer) -> set[bytes]:
    return set(server.command("ZRANGE", LIST, 0, -1))


def names(server: RedisServer) -> list[str]:
    """Return the ids in the list, the oldest first."""
    return [each[32:].decode() for each in server.command("ZRANGE", LIST, 0, -1)]


def add_stale(server: RedisServer, count: int, score: int = 1) -> None:
    with redis.Redis(port=server.port, protocol=2) as client:
        client.zadd(LIST, {member(f"stale {n}"): score + n for n in range(count)})


async def park(store: Store, *names: str) -> None:
    for name in names:
        assert await store.park(Change(key_of(name), new_nonce(), 0, (user("hi"),), title=name))


async def listed(store: Store, search: str = "") -> list[str]:
    page = await store.conversations(ANN, limit=1000, search=search)
    return [each.key.id for each in page.conversations]


async def test_the_list_is_written_with_the_conversation(
    store: Store, shared_redis: RedisServer
) -> None:
    await park(store, "parked")
    await begin_run(store, key_of("runs"), user("go"), lease=0)
    await begin_run(store, key_of("other"), user("go"))
    assert names(shared_redis) == ["parked", "runs", "other"]
    assert await store.enqueue(waiting(key_of("runs"))) == "queued"
    assert names(shared_redis) == ["parked", "other", "runs"]
    await store.enqueue(waiting(key_of("parked")))  # refused: nothing runs
    await take_over_run(store, key_of("runs"))
    first = Change(key_of("last"), new_nonce(), 0, (user("hi"),))
    assert await store.park(first)
    await store.rename(key_of("runs"), "title")
    assert names(shared_redis) == ["parked", "other", "runs", "last"]
    score = shared_redis.command("ZSCORE", LIST, member("runs").decode())
    updated = shared_redis.command("HGET", state(key_of("runs")), "updated")
    assert float(score) == float(updated)
    await park(store, "newest")
    assert await store.park(first)  # a repeat
    assert names(shared_redis)[-2:] == ["last", "newest"]
    for name in ("parked", "runs", "other", "last", "newest"):
        await store.delete(key_of(name))
    assert members(shared_redis) == set()


def state(key: ConversationKey) -> str:
    return f"pb:{{{conversation_tag(key)}}}:state"


@pytest.mark.parametrize("search", ["", "o"])
async def test_reading_the_list_clears_it_of_conversations_that_are_gone(
    store: Store, shared_redis: RedisServer, search: str
) -> None:
    await park(store, "one", "evicted", "two")
    shared_redis.command("DEL", state(key_of("evicted")))
    add_stale(shared_redis, 3)
    assert await listed(store, search) == ["two", "one"]
    # one that was listed within a minute may be about to be written
    assert members(shared_redis) == {member("one"), member("two"), member("evicted")}


async def test_an_entry_that_is_listed_again_during_a_read_stays(
    store: Store, shared_redis: RedisServer
) -> None:
    add_stale(shared_redis, 1)
    await park(store, "stale 0")
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        client.eval(scripts.INDEX_REMOVE.text, 1, LIST, 0, member("stale 0"), 1)
    assert await listed(store) == ["stale 0"]


@pytest.mark.parametrize("damage", ["foreign type", "unreadable"])
@pytest.mark.parametrize("search", ["", "a"])
async def test_a_damaged_conversation_is_not_in_the_way_of_the_others(
    store: Store, shared_redis: RedisServer, damage: str, search: str
) -> None:
    await park(store, "a healthy one", "damaged", "another")
    if damage == "unreadable":
        shared_redis.command("HSET", state(key_of("damaged")), "owed", "{")
    else:
        shared_redis.command("DEL", state(key_of("damaged")))
        shared_redis.command("SET", state(key_of("damaged")), "foreign")
    assert await listed(store, search) == ["another", "a healthy one"]
    assert member("damaged") in members(shared_redis)
    with pytest.raises(StoreError):
        await store.status(key_of("damaged"))


@pytest.mark.parametrize("search", ["", "one"])
async def test_a_very_long_list_is_looked_at_in_parts(
    store: Store, shared_redis: RedisServer, search: str
) -> None:
    """A page whose look ended too early is empty and has a `next`."""
    await park(store, "one")
    [entry] = (await store.conversations(ANN, limit=1)).conversations
    count = indexes.ROUNDS * indexes.ENTRIES_PER_ROUND
    add_stale(shared_redis, count + 1, score=entry.place.updated + 1)
    page = await store.conversations(ANN, limit=9, search=search)
    assert (page.conversations, page.next is None) == ((), False)
    while not page.conversations:
        page = await store.conversations(ANN, limit=9, search=search, after=page.next)
    assert (page.conversations, page.next) == ((entry,), None)
    assert members(shared_redis) >= {member("stale 0"), member("one")}  # they are too new


# ---------------------------------------------------------------- growth
async def test_conversations_whose_time_is_over_leave_the_list_with_each_post(
    redis_url: str, shared_redis: RedisServer
) -> None:
    async with open_store(redis_url, options=KEPT) as store:
        await park(store, "lives")
        score = float(shared_redis.command("ZSCORE", LIST, member("lives").decode()))
        lifetime = 1000 * (TTL + indexes.LONGEST_RUN)
        shared_redis.command("ZADD", LIST, f"{score - lifetime + 60e6:.0f}", "just in time")
        add_stale(shared_redis, 50)
        await park(store, "one")
        assert len(members(shared_redis)) == 50 + 3 - 20
        held = await begin_run(store, key_of("two"), user("go"))
        await store.enqueue(waiting(key_of("two")))
        await store.commit(ending(held, 0, 2), lease=LONG)
    expected = {member("lives"), member("one"), member("two"), b"just in time"}
    assert members(shared_redis) == expected


async def test_without_a_time_to_live_nothing_leaves_the_list(
    store: Store, shared_redis: RedisServer
) -> None:
    add_stale(shared_redis, 3)
    await park(store, "one")
    assert len(members(shared_redis)) == 4


async def test_a_list_expires_after_its_conversations(
    redis_url: str, shared_redis: RedisServer
) -> None:
    async with open_store(redis_url, options=KEPT) as brief:
        await park(brief, "one")
        lifetime = TTL + indexes.LONGEST_RUN
        assert lifetime - 30_000 < shared_redis.command("PTTL", LIST) <= lifetime
    async with open_store(redis_url) as lasting:
        await park(lasting, "two")
    assert shared_redis.command("PTTL", LIST) == -1


async def test_a_foreign_key_in_the_place_of_a_list_refuses_posts_and_half_writes_nothing(
    store: Store, shared_redis: RedisServer
) -> None:
    await begin_run(store, key_of("runs"), user("go"))
    shared_redis.command("DEL", LIST)
    shared_redis.command("SET", LIST, "foreign")
    before = await store.load(key_of("runs"))
    for work in (
        store.park(change(key_of("one"), 0, user("hi"))),
        store.enqueue(waiting(key_of("runs"))),
        store.delete(key_of("runs")),
    ):
        with pytest.raises(StoreError):
            await work
    assert await store.load(key_of("runs")) == before
    assert (await store.status(key_of("one"))).version == 0


# ---------------------------------------------------------------- a Cluster
async def test_a_cluster_lists_conversations_beside_them(
    cluster: Store, shared_cluster: RedisServer
) -> None:
    await park(cluster, "parked", "deleted", "evicted")
    held = await begin_run(cluster, key_of("runs"), user("go"), lease=0)
    await cluster.enqueue(waiting(key_of("runs")))
    await park(cluster, "last")
    await take_over_run(cluster, held.run.key)
    assert await cluster.delete(key_of("deleted"))
    assert not await cluster.delete(key_of("never"))
    shared_cluster.command("DEL", state(key_of("evicted")))

    assert await listed(cluster) == ["last", "runs", "parked"]
    assert await listed(cluster, "par") == ["parked"]
    assert await cluster.rename(key_of("parked"), "other")
    assert await listed(cluster, "par") == []
    assert names(shared_cluster) == ["parked", "evicted", "runs", "last"]


async def test_what_a_cluster_is_about_to_write_stays_in_its_list(
    cluster: Store, shared_cluster: RedisServer
) -> None:
    """It is listed before it is written; only what was so for a minute counts as gone."""
    assert not await cluster.park(change(key_of("one"), 7, user("refused")))
    add_stale(shared_cluster, 1)
    assert await listed(cluster) == []
    assert names(shared_cluster) == ["one"]


async def test_a_store_that_is_away_is_an_error_and_not_an_empty_list(
    own_redis: RedisServer,
) -> None:
    async with open_store(own_redis.url, options=StoreOptions(timeout=0.5)) as store:
        own_redis.stop()
        with pytest.raises(StoreUnavailable):
            await store.conversations(ANN, limit=9)
