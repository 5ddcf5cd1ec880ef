"""Redis alone: lost replies, and keys that vanish or are of a foreign type."""

from collections.abc import AsyncGenerator

import anyio
import pytest
import redis
from tests.support.proxies import LossyProxy, lossy_proxy
from tests.support.redis_server import RedisServer
from tests.support.store_values import (
    CANCELLED,
    LONG,
    LOST,
    begin_run,
    change,
    ending,
    new_key,
    new_nonce,
    new_run,
    opening,
    take_over_run,
    texts,
    turn,
    user,
    waiting,
)
from tests.support.transcript_rules import said_in

from passback.core.changes import Change, LoadedConversation, Status
from passback.core.errors import (
    LeaseLost,
    StoreError,
    StoreUnavailable,
    UnknownRun,
)
from passback.core.messages import ConversationKey
from passback.core.ports import Store
from passback.core.posts import Receipt
from passback.stores.layout import conversation_tag
from passback.stores.open import open_store
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


@pytest.fixture
async def store(redis_url: str) -> AsyncGenerator[Store]:
    async with open_store(redis_url) as opened:
        yield opened


def keys_of(server: RedisServer, key: ConversationKey) -> set[str]:
    """The kinds of keys that a conversation has."""
    stem = f"pb:{{{conversation_tag(key)}}}:"
    found = [name.decode() for name in server.command("KEYS", "*")]
    assert all(name.startswith("pb:") for name in found)
    return {name.removeprefix(stem) for name in found if name.startswith(stem)}


# ---------------------------------------------------------------- lost replies
@pytest.fixture
async def proxy(shared_redis: RedisServer, redis_url: str) -> AsyncGenerator[LossyProxy]:
    async with lossy_proxy(shared_redis.port) as between:
        yield between


@pytest.fixture
async def lossy(proxy: LossyProxy) -> AsyncGenerator[Store]:
    """A store on a connection that loses replies when a test says so."""
    async with open_store(f"redis://127.0.0.1:{proxy.port}") as opened:
        await opened.ping()
        yield opened


@pytest.mark.parametrize("count", [1, 2])
async def test_a_write_whose_reply_is_lost_is_applied_once(
    lossy: Store, store: Store, proxy: LossyProxy, count: int
) -> None:
    key, run_id = new_key(), new_run()
    first = change(key, 0, user("hello"))

    proxy.lose_replies(count)
    held = await lossy.begin(first, run_id, opening(run_id), lease=LONG)
    assert held is not None
    proxy.lose_replies(count)
    assert await lossy.append([texts(held, 2, "a")], lease=LONG) == ["held"]
    proxy.lose_replies(count)
    assert not await lossy.commit(turn(held, 0, 3, say="said"), lease=0)
    proxy.lose_replies(count)
    closing = change(key, (await store.status(key)).version, user("closed"))
    assert await lossy.fail_lost(closing, held.run.run_id, (LOST,))
    proxy.lose_replies(count)
    assert await lossy.park(change(key, (await store.status(key)).version, user("parked")))
    following = await begin_run(store, key)
    proxy.lose_replies(count)
    await lossy.commit(ending(following, 0, 2, say="goodbye"), lease=LONG)

    assert proxy.lost == 6 * count
    loaded = await store.load(key)
    assert said_in(loaded.messages) == [
        "hello", "said", "closed", "parked", "goodbye",
    ]  # fmt: skip
    assert [str(logged.position) for logged in await store.read_log(held.run)] == [
        "1-1", "1-2", "2-1",
    ]  # fmt: skip
    assert len(await store.read_log(following.run)) == 2


@pytest.mark.parametrize("count", [1, 2])
async def test_a_queue_and_a_hand_over_whose_replies_are_lost_are_written_once(
    lossy: Store, store: Store, proxy: LossyProxy, count: int
) -> None:
    key = new_key()
    held = await begin_run(store, key, user("hello"))
    goes, stays = waiting(key, "goes"), waiting(key, "stays")

    for entry in (goes, stays):
        proxy.lose_replies(count)
        assert await lossy.enqueue(entry) == "queued"
    proxy.lose_replies(count)
    assert await lossy.cancel(goes.run, CANCELLED)
    proxy.lose_replies(count)
    assert await lossy.release(held)
    proxy.lose_replies(count)
    taken = await take_over_run(lossy, key)
    proxy.lose_replies(count)
    assert await lossy.commit(ending(taken, 0, 2), lease=LONG)
    proxy.lose_replies(count)
    await lossy.keep_followed(taken.run, seconds=9)

    status = await store.status(key)
    assert proxy.lost == 7 * count
    assert (status.queued, status.attempt, status.followed) == ((stays.run.run_id,), 1, False)
    assert [str(logged.position) for logged in await store.read_log(goes.run)] == ["2-1", "4-1"]
    assert [str(logged.position) for logged in await store.read_log(held.run)] == [
        "1-1", "5-1", "5-2",
    ]  # fmt: skip


async def test_replies_that_are_always_lost_are_an_error(lossy: Store, proxy: LossyProxy) -> None:
    proxy.lose_replies(100)

    with anyio.fail_after(5), pytest.raises(StoreUnavailable):
        await lossy.status(new_key())

    assert proxy.lost == 3


async def test_twenty_runs_are_appended_in_one_round_trip(
    store: Store, shared_redis: RedisServer
) -> None:
    leases = [await begin_run(store, new_key()) for _ in range(20)]
    await store.renew(leases, lease=LONG)
    writes = [texts(held, 2, "a", "b", "c") for held in leases]
    with redis.Redis(port=shared_redis.port, protocol=2) as observer:
        first, second = reads(observer), reads(observer)
        assert await store.append(writes, lease=LONG) == ["held"] * 20
        third = reads(observer)

    own = second - first
    assert third - second - own == 1


@pytest.mark.parametrize("queue", [0, 1])
async def test_a_begin_and_a_commit_are_one_round_trip_each(
    store: Store, shared_redis: RedisServer, queue: int
) -> None:
    key, run_id = new_key(), new_run()
    warm = await begin_run(store, key)
    await store.enqueue(waiting(key))  # the server knows the scripts after this
    await store.commit(ending(warm, 0, 2), lease=LONG)
    await store.delete(key)
    first = change(key, (await store.status(key)).version, user("hello"))
    with redis.Redis(port=shared_redis.port, protocol=2) as observer:
        before = reads(observer)
        held = await store.begin(first, run_id, opening(run_id), lease=LONG)
        begun_at = reads(observer)
        assert held is not None
        for _ in range(queue):
            await store.enqueue(waiting(key))
        queued_at = reads(observer)
        assert await store.commit(ending(held, 0, 2, say="hello"), lease=LONG) == bool(queue)
        after = reads(observer)

    own = 1  # the observer's own
    assert begun_at - before - own == 1
    assert queued_at - begun_at - own == queue
    assert after - queued_at - own == 1


def reads(observer: redis.Redis) -> int:
    """Return how often the server has read from its clients."""
    return int(observer.info("stats")["total_reads_processed"])


async def test_forgotten_scripts_are_sent_again(store: Store, shared_redis: RedisServer) -> None:
    first, second = await begin_run(store, new_key()), await begin_run(store, new_key())
    shared_redis.command("SCRIPT", "FLUSH")

    states = await store.append([texts(held, 2, "a") for held in (first, second)], lease=LONG)

    assert states == ["held", "held"]
    assert len(await store.read_log(second.run)) == 2
    await store.commit(ending(first, 0, 3), lease=LONG)


async def test_one_connection_serves_more_callers_than_there_are_connections(
    redis_url: str,
) -> None:
    async with open_store(redis_url, options=StoreOptions(max_connections=1)) as store:
        keys = [new_key() for _ in range(50)]
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for key in keys:
                    tasks.start_soon(begin_run, store, key)
        assert all([(await store.status(key)).running for key in keys])


async def test_all_watches_share_one_connection(store: Store, shared_redis: RedisServer) -> None:
    runs = [(await begin_run(store, new_key())).run.key for _ in range(20)]
    with anyio.fail_after(5):
        async with store.watch(runs[0]), store.watch(runs[1]), store.watch(runs[2]) as watch:
            await watch.wait()
            listeners = shared_redis.listeners()

    assert listeners == 1


async def test_hints_come_back_after_the_connection_broke(
    store: Store, shared_redis: RedisServer
) -> None:
    held = await begin_run(store, new_key())
    channel = f"pb:{conversation_tag(held.run.key)}"
    async with store.watch(held.run.key) as watch:
        shared_redis.command("CLIENT", "KILL", "TYPE", "PUBSUB")
        with anyio.fail_after(5):
            await watch.wait()
            while shared_redis.command("PUBSUB", "NUMSUB", channel)[1] == 0:
                await anyio.lowlevel.checkpoint()


# ---------------------------------------------------------------- deletion
async def test_deleting_leaves_no_key_behind(store: Store, shared_redis: RedisServer) -> None:
    key = new_key()
    await store.park(Change(key, new_nonce(), 0, receipts={"call:c": Receipt("ab" * 32)}))
    for _ in range(3):
        held = await begin_run(store, key, user("hello"))
        await store.commit(ending(held, 0, 2), lease=LONG)
    await begin_run(store, key)
    assert await store.enqueue(waiting(key)) == "queued"

    assert await store.delete(key)

    assert keys_of(shared_redis, key) == set()


async def test_deleting_while_runs_begin_leaves_no_log_behind(
    store: Store, shared_redis: RedisServer
) -> None:
    key = new_key()
    for _ in range(40):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin_run, store, key)
            tasks.start_soon(store.delete, key)
        held = await store.status(key)
        if held.running and held.run_id:
            await store.delete(key)

    assert keys_of(shared_redis, key) == set()


# ---------------------------------------------------------------- damage from outside
async def test_a_run_whose_keys_vanish_is_fenced_and_nothing_is_made_anew(
    store: Store, shared_redis: RedisServer
) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    shared_redis.command("DEL", f"pb:{{{conversation_tag(held.run.key)}}}:state")

    assert await store.append([texts(held, 2, "late")], lease=LONG) == ["lost"]
    with pytest.raises(LeaseLost):
        await store.commit(ending(held, 0, 2, say="late"), lease=LONG)
    assert await store.load(held.run.key) == LoadedConversation(Status())

    await store.park(change(held.run.key, 0, user("anew")))
    assert (await store.load(held.run.key)).messages == (user("anew"),)


@pytest.mark.parametrize("part", ["messages", "receipts", "queue", "runs", "log"])
async def test_a_key_of_a_foreign_type_is_an_error_and_nothing_is_half_written(
    store: Store, shared_redis: RedisServer, part: str
) -> None:
    key = new_key()
    held = await begin_run(store, key, user("hello"))
    name = f"log:{held.run.run_id}" if part == "log" else part
    shared_redis.command("DEL", f"pb:{{{conversation_tag(key)}}}:{name}")
    shared_redis.command("SET", f"pb:{{{conversation_tag(key)}}}:{name}", "foreign")
    state = f"pb:{{{conversation_tag(key)}}}:state"
    before = shared_redis.command("HGETALL", state)

    with pytest.raises(StoreError, match="damaged"):
        await store.commit(ending(held, 0, 2, say="late"), lease=LONG)

    assert shared_redis.command("HGETALL", state) == before


async def test_lost_messages_are_noticed(store: Store, shared_redis: RedisServer) -> None:
    key = new_key()
    held = await begin_run(store, key, user("hello"))
    shared_redis.command("DEL", f"pb:{{{conversation_tag(key)}}}:messages")

    with pytest.raises(StoreError, match="damaged"):
        await store.commit(ending(held, 0, 2, say="late"), lease=LONG)


async def test_an_expired_log_is_unknown(store: Store, shared_redis: RedisServer) -> None:
    held = await begin_run(store, new_key())
    shared_redis.command("DEL", f"pb:{{{conversation_tag(held.run.key)}}}:log:{held.run.run_id}")

    with pytest.raises(UnknownRun):
        await store.read_log(held.run)
