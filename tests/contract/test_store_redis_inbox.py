"""Redis's index of owed calls is a hint: readers clear it, and lose nothing by that."""

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
import redis
from tests.support.redis_server import RedisServer
from tests.support.store_values import (
    LONG,
    answer,
    asking,
    begin_run,
    ending,
    user,
)

from passback.core.changes import Lease
from passback.core.errors import LeaseLost, StoreUnavailable
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.ports import Store
from passback.core.transcript import owed_answers
from passback.stores.layout import conversation_tag
from passback.stores.open import open_store
from passback.stores.options import StoreOptions
from passback.stores.redis import indexes, scripts
from passback.stores.redis.scripts import KeyNames

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

ANN = OwnerId("ann")
INDEX = KeyNames("pb", one_server=True).inbox(ANN)
TURN = asking("a")


@pytest.fixture
async def store(redis_url: str) -> AsyncGenerator[Store]:
    async with open_store(redis_url) as opened:
        yield opened


def key_of(name: str) -> ConversationKey:
    return ConversationKey(ANN, ConversationId(name))


def member(name: str) -> bytes:
    return f"{conversation_tag(key_of(name))}{name}".encode()


def index(server: RedisServer) -> set[bytes]:
    return set(server.command("ZRANGE", INDEX, 0, -1))


async def hands_back(store: Store, name: str, held: Lease | None = None) -> Lease:
    held = held or await begin_run(store, key_of(name), user("go"))
    end = replace(ending(held, 0, 2), append=(TURN,), owed=owed_answers([TURN]))
    await store.commit(end, lease=LONG)
    return held


async def listed(store: Store) -> list[str]:
    return [each.key.id for each in (await store.inbox(ANN, limit=1000)).owing]


async def test_only_a_run_that_hands_back_is_added_to_the_index(
    store: Store, shared_redis: RedisServer
) -> None:
    held = await begin_run(store, key_of("talks"), user("hi"))
    await store.commit(ending(held, 0, 2), lease=LONG)
    assert index(shared_redis) == set()
    await hands_back(store, "owes")
    assert index(shared_redis) == {member("owes")}


async def test_reading_the_inbox_clears_the_index_of_conversations_that_owe_nothing(
    store: Store, shared_redis: RedisServer
) -> None:
    for name in ("owes", "runs", "done", "deleted"):
        await hands_back(store, name)
    await begin_run(store, key_of("runs"), answer("a"))
    done = await begin_run(store, key_of("done"), answer("a"))
    await store.commit(ending(done, 0, 2), lease=LONG)
    await store.delete(key_of("deleted"))

    assert await listed(store) == ["owes"]

    assert index(shared_redis) == {member("owes"), member("runs")}


async def test_an_entry_that_is_added_during_a_read_stays(
    store: Store, shared_redis: RedisServer
) -> None:
    """It is written before the commit, and dropped only under the score that was seen."""
    await hands_back(store, "one")
    [(_, before)] = shared_redis_scores(shared_redis)
    held = await begin_run(store, key_of("one"), answer("a"))
    await store.commit(ending(held, 0, 2), lease=LONG)
    # one who looks now sees that nothing is owed; before it drops the entry, this run hands back
    await hands_back(store, "one")
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        client.eval(scripts.INDEX_REMOVE.text, 1, INDEX, 0, member("one"), before)

    assert await listed(store) == ["one"]


def shared_redis_scores(server: RedisServer) -> list[tuple[bytes, str]]:
    with redis.Redis(port=server.port, protocol=2) as client:
        return [
            (name, f"{score:.0f}") for name, score in client.zrange(INDEX, 0, -1, withscores=True)
        ]


async def test_a_hand_back_that_was_noted_and_not_written_is_cleared(
    store: Store, shared_redis: RedisServer
) -> None:
    held = await begin_run(store, key_of("one"), user("go"))
    await store.delete(key_of("one"))
    with pytest.raises(LeaseLost):
        await hands_back(store, "one", held)
    assert index(shared_redis) == {member("one")}
    assert await listed(store) == []
    assert index(shared_redis) == set()


@pytest.mark.parametrize("damage", ["foreign type", "unreadable"])
async def test_a_damaged_conversation_is_not_in_the_way_of_the_others(
    store: Store, shared_redis: RedisServer, damage: str
) -> None:
    await hands_back(store, "damaged")
    await hands_back(store, "healthy")
    state = f"pb:{{{conversation_tag(key_of('damaged'))}}}:state"
    if damage == "unreadable":
        shared_redis.command("HSET", state, "owed", "{")
    else:
        shared_redis.command("DEL", state)
        shared_redis.command("SET", state, "foreign")

    assert await listed(store) == ["healthy"]
    assert member("damaged") in index(shared_redis)


async def test_a_very_long_index_is_looked_at_in_parts(
    store: Store, shared_redis: RedisServer
) -> None:
    """A page whose look ended too early is empty and has a `next`."""
    count = indexes.ROUNDS * indexes.ENTRIES_PER_ROUND
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        stale = {member(f"stale {number}"): number + 1 for number in range(2 * count)}
        client.zadd(INDEX, stale)
    held = {name: await begin_run(store, key_of(name), user("go")) for name in ("runs", "owes")}
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        client.zadd(INDEX, {member("runs"): 1})
    await hands_back(store, "owes", held["owes"])

    page = await store.inbox(ANN, limit=9)
    assert (page.owing, page.next is None) == ((), False)
    while not page.owing:
        page = await store.inbox(ANN, after=page.next, limit=9)
    assert [each.key.id for each in page.owing] == ["owes"]
    assert index(shared_redis) == {member("runs"), member("owes")}


async def test_each_hand_back_looks_at_some_others_where_very_many_are(
    store: Store, shared_redis: RedisServer
) -> None:
    """An index that nobody lists does not grow for ever."""
    stale = {member(f"stale {number}"): number + 1 for number in range(indexes.INBOX_ROOM + 5)}
    with redis.Redis(port=shared_redis.port, protocol=2) as client:
        client.zadd(INDEX, stale)
    for number in range(10):
        await hands_back(store, f"owes {number}")
    assert len(index(shared_redis)) <= indexes.INBOX_ROOM + 10
    assert {member(f"owes {number}") for number in range(10)} <= index(shared_redis)


async def test_an_index_expires_with_the_conversations(
    redis_url: str, shared_redis: RedisServer
) -> None:
    async with open_store(redis_url, options=StoreOptions(ttl=60)) as brief:
        await hands_back(brief, "one")
    assert shared_redis.command("PTTL", INDEX) > 60_000
    async with open_store(redis_url) as lasting:
        await hands_back(lasting, "two")
    assert shared_redis.command("PTTL", INDEX) == -1


async def test_a_store_that_is_away_is_an_error_and_not_an_empty_inbox(
    own_redis: RedisServer,
) -> None:
    options = StoreOptions(timeout=0.5)
    async with open_store(own_redis.url, options=options) as store:
        own_redis.stop()
        with pytest.raises(StoreUnavailable):
            await store.inbox(ANN, limit=9)
