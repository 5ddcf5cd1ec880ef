"""Redis alone: keys that are deleted, vanish, or are of a foreign type or another layout."""

from collections.abc import Callable
from dataclasses import replace

import anyio
import pytest
from tests.contract.door.writes import (
    ALL,
    LONG,
    a_write,
    all_pages,
    append,
    applied,
    entry,
    first_write,
    leased,
    log_of,
    made,
    new_key,
    new_owner,
    new_run,
    running,
    tag_of,
    whole,
)
from tests.contract.redis.doors import key_name, open_door
from tests.support.redis_server import RedisServer

from passback.core.conversation.store import (
    WHOLE,
    Append,
    Appended,
    Due,
    Guard,
    LogChange,
    Query,
    QueueEntry,
    Store,
    TakeLease,
    Wanted,
    Write,
)
from passback.core.errors import ConfigurationError, StoreError
from passback.core.messages import ConversationKey, RunId
from passback.stores.layout import owner_tag
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


def parts_of(server: RedisServer, key: ConversationKey) -> set[str]:
    """Return the kinds of keys that a conversation has."""
    stem = key_name(key, "")
    found = [name.decode() for name in server.command("KEYS", "*")]
    assert all(name.startswith("pb:") for name in found)
    return {name.removeprefix(stem) for name in found if name.startswith(stem)}


def make_foreign(server: RedisServer, name: str) -> None:
    server.command("DEL", name)
    server.command("SET", name, "foreign")


# ---------------------------------------------------------------- deletion
async def test_deleting_leaves_no_key_behind(store: Store, shared_redis: RedisServer) -> None:
    key = await made(store, b"hello")
    for number in range(1, 4):
        await leased(store, key, new_run(), fence=f"{number}", epoch=number)
        log = LogChange(new_run(), entry(9 + number, 1), ends=True)
        waits = QueueEntry(new_run(), b"waits")
        await applied(store, replace(a_write(key), log=log, enqueue=waits, owes=True))
    assert parts_of(shared_redis, key) >= {"state", "messages", "logs"}

    assert await store.delete(key)

    assert shared_redis.command("KEYS", "*") == []


async def test_deleting_while_runs_begin_leaves_no_log_behind(
    store: Store, shared_redis: RedisServer
) -> None:
    key = new_key()
    for number in range(40):
        begins = replace(
            first_write(key),
            log=LogChange(new_run(), entry(1, 1)),
            lease=TakeLease(f"{number}", LONG),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.delete, key)  # it asks for the runs first
            tasks.start_soon(store.apply, begins)
        await store.delete(key)
    assert parts_of(shared_redis, key) == set()


# ---------------------------------------------------------------- what vanishes
async def test_a_run_whose_keys_vanish_is_fenced_and_nothing_is_made_anew(
    store: Store, shared_redis: RedisServer
) -> None:
    key, run_id = await made(store, b"hello"), new_run()
    await leased(store, key, run_id)
    shared_redis.command("DEL", key_name(key, "state"))

    assert await append(store, Append(key, run_id, "one", entry(1, 2))) == [Appended(held=False)]
    assert await store.apply(replace(a_write(key, Guard(fence="one")), messages=(b"late",))) is None
    assert (await whole(store, key)).version == 0

    log = LogChange(run_id, entry(1, 1, record=b"anew"))
    await applied(store, replace(first_write(key), messages=(b"anew",), log=log))
    assert (await whole(store, key)).messages == (b"anew",)
    assert await log_of(store, key, run_id) == [entry(1, 1, record=b"anew")]


async def test_a_log_that_vanishes_is_none(store: Store, shared_redis: RedisServer) -> None:
    key, run_id = await running(store)
    shared_redis.command("DEL", key_name(key, f"log:{run_id}"))
    assert await log_of(store, key, run_id) is None
    assert await log_of(store, key, None) is None


async def test_messages_that_vanish_are_noticed(store: Store, shared_redis: RedisServer) -> None:
    key = await made(store, b"one", b"two")
    shared_redis.command("LPOP", key_name(key, "messages"))
    for work in (
        store.apply(replace(a_write(key), messages=(b"late",))),
        store.read(key, ALL),
        store.read(key, Wanted(within=99)),
    ):
        with pytest.raises(StoreError, match="damaged"):
            await work
    assert (await store.read(key, Wanted())).version == 1


async def test_a_record_of_the_queue_that_vanishes_is_noticed(
    store: Store, shared_redis: RedisServer
) -> None:
    key, waits = await made(store), [new_run(), new_run()]
    for run_id in waits:
        await applied(store, replace(a_write(key), enqueue=QueueEntry(run_id, b"waits")))
    shared_redis.command("HDEL", key_name(key, "state"), f"queue:{waits[0]}")
    with pytest.raises(StoreError, match="damaged"):
        await store.read(key, Wanted(queue=True))
    assert len((await store.read(key, Wanted())).queue) == 2


# ---------------------------------------------------------------- foreign keys
Make = Callable[[ConversationKey, RunId], Write]
COMMIT: Make = lambda key, run_id: replace(  # noqa: E731
    a_write(key, Guard(fence="one")),
    messages=(b"late",),
    log=LogChange(run_id, entry(1, 2), ends=True),
    lease="end",
    due=Due(),
    owes=True,
    touches=True,
    head=b"late",
)


@pytest.mark.parametrize("part", ["messages", "logs", "log"])
async def test_a_key_of_a_foreign_type_is_an_error_and_nothing_is_half_written(
    store: Store, shared_redis: RedisServer, part: str
) -> None:
    key, run_id = await made(store, b"hello"), new_run()
    await leased(store, key, run_id)
    make_foreign(shared_redis, key_name(key, f"log:{run_id}" if part == "log" else part))
    before = shared_redis.command("HGETALL", key_name(key, "state"))

    with pytest.raises(StoreError, match="damaged"):
        await store.apply(COMMIT(key, run_id))

    assert shared_redis.command("HGETALL", key_name(key, "state")) == before
    if part == "log":
        [answer] = await store.append([Append(key, run_id, "one", entry(1, 2))], lease=LONG)
        assert type(answer) is StoreError
    elif part == "messages":
        with pytest.raises(StoreError, match="damaged"):
            await store.page(key, WHOLE, limit=9)


@pytest.mark.parametrize("index", ["due", "conversations", "inbox"])
async def test_an_index_of_a_foreign_type_is_an_error_and_nothing_is_half_written(
    store: Store, shared_redis: RedisServer, index: str
) -> None:
    owner = new_owner()
    key, run_id = await running(store, owner=owner)
    before, new = await whole(store, key), new_key(owner)
    make_foreign(shared_redis, "pb:due" if index == "due" else f"pb:{index}:{owner_tag(owner)}")

    first = replace(first_write(new), lease=TakeLease("one", LONG), owes=True)
    works = [store.apply(COMMIT(key, run_id)), store.apply(first), store.delete(key)]
    if index == "due":
        works += [store.apply(replace(a_write(key), due=Due(after=1)))]
    for work in works:
        with pytest.raises(StoreError, match="damaged"):
            await work

    assert await whole(store, key) == before
    assert await log_of(store, key, run_id) == [entry(1, 1)]
    assert (await whole(store, new)).version == 0
    # what has nothing to do with the indexes goes on
    assert await append(store, Append(key, run_id, "one", entry(1, 2))) == [Appended(True)]
    await applied(store, replace(a_write(key), messages=(b"one",)))


# ---------------------------------------------------------------- another layout
@pytest.mark.parametrize("changed", [("HDEL",), ("HSET", "13")])
async def test_a_conversation_of_another_layout_is_refused(
    own_redis: RedisServer, changed: tuple[str, ...]
) -> None:
    options, owner = StoreOptions(prefix="own"), new_owner()
    async with open_door(own_redis.url, options) as store, open_door(own_redis.url) as other:
        key = await made(store, b"one", owner=owner)
        await store.check()
        verb, *value = changed
        own_redis.command(verb, key_name(key, "state").replace("pb", "own", 1), "layout", *value)

        with pytest.raises(ConfigurationError, match="'own' are of another version"):
            await store.check()
        with pytest.raises(StoreError, match="is of another version of passback"):
            await whole(store, key)
        [listed] = (await store.query(Query(owner, "all"))).listed
        assert (listed.key, listed.found) == (key, None)
        await other.check()


async def test_the_list_of_all_has_the_tags_of_those_that_cannot_be_read(
    own_redis: RedisServer,
) -> None:
    async with open_door(own_redis.url) as store:
        keys = [await made(store, b"one") for _ in range(4)]
        own_redis.command("HSET", key_name(keys[0], "state"), "layout", "13")
        other = own_redis.command("HGET", key_name(keys[3], "state"), "key").decode()
        own_redis.command("HSET", key_name(keys[1], "state"), "key", other)
        own_redis.command("HDEL", key_name(keys[2], "state"), "version")
        [page] = await all_pages(store, Query(new_owner(), "stored"))
        assert [each.key for each in page.listed] == [keys[3]]
        assert set(page.unnamed) == {tag_of(keys[0]), tag_of(keys[1])}


@pytest.mark.nightly
async def test_a_conversation_of_another_layout_is_refused_in_a_cluster(
    cluster: Store, shared_cluster: RedisServer
) -> None:
    key = await made(cluster)
    await cluster.check()
    shared_cluster.command("HDEL", key_name(key, "state"), "layout")
    with pytest.raises(ConfigurationError, match="another version"):
        await cluster.check()


@pytest.mark.parametrize("foreign", [("SET", "foreign"), ("HSET", "seq", "3")])
async def test_a_damaged_conversation_is_no_other_layout(
    own_redis: RedisServer, foreign: tuple[str, ...]
) -> None:
    verb, *value = foreign
    own_redis.command(verb, key_name(new_key(), "state"), *value)
    async with open_door(own_redis.url) as store:
        await store.check()
