"""Redis alone: writes are one round trip each, survive lost replies, and share connections."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

import anyio
import pytest
from tests.contract.door.writes import (
    ALL,
    LONG,
    a_write,
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
    whole,
)
from tests.contract.redis.doors import open_door
from tests.support.proxies import LossyProxy, lossy_proxy
from tests.support.redis_server import RedisServer

from passback.core.conversation.store import (
    Amounts,
    Append,
    Appended,
    Due,
    Guard,
    LogChange,
    Query,
    QueueEntry,
    RenewLease,
    SpentUnder,
    Store,
    TakeLease,
    Write,
)
from passback.core.errors import StoreUnavailable
from passback.core.ids import conversation_tag

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


# ---------------------------------------------------------------- lost replies
@pytest.fixture
async def proxy(shared_redis: RedisServer, redis_url: str) -> AsyncGenerator[LossyProxy]:
    del redis_url  # it empties the server
    async with lossy_proxy(shared_redis.port) as between:
        yield between


@pytest.fixture
async def lossy(proxy: LossyProxy) -> AsyncGenerator[Store]:
    """A store on a connection that loses replies when a test says so."""
    async with open_door(f"redis://127.0.0.1:{proxy.port}") as opened:
        await opened.check(briefly=True)
        yield opened


@pytest.mark.promise("P15")
@pytest.mark.parametrize("count", [1, 2])
async def test_a_write_whose_reply_is_lost_is_applied_once(
    lossy: Store, store: Store, proxy: LossyProxy, count: int
) -> None:
    key, run_id = new_key(), new_run()
    fenced, log = Guard(fence="one"), LogChange(run_id, entry(1, 3))
    begins = replace(
        first_write(key),
        messages=(b"hello",),
        log=LogChange(run_id, entry(1, 1)),
        lease=TakeLease("one", LONG),
        enqueue=QueueEntry(new_run(), b"waits"),
    )
    writes = [
        begins,
        replace(a_write(key, fenced), messages=(b"said",), log=log, lease=RenewLease(LONG)),
        replace(a_write(key, fenced), lease="release"),
        replace(a_write(key, Guard(lease_over=True)), lease="end", messages=(b"closed",)),
    ]
    for number, write in enumerate(writes):
        proxy.lose_replies(count)
        assert (await applied(lossy, write)).version == 1 + number
        if number == 0:
            proxy.lose_replies(count)
            assert await append(lossy, Append(key, run_id, "one", entry(1, 2))) == [Appended(True)]

    assert proxy.lost == 5 * count
    found = await whole(store, key)
    assert (found.version, found.messages) == (4, (b"hello", b"said", b"closed"))
    assert len(found.queue) == 1
    assert await log_of(store, key, run_id) == [entry(1, number) for number in (1, 2, 3)]


async def test_replies_that_are_always_lost_are_an_error(lossy: Store, proxy: LossyProxy) -> None:
    proxy.lose_replies(100)
    with anyio.fail_after(5), pytest.raises(StoreUnavailable):
        await lossy.read(new_key(), ALL)
    assert proxy.lost == 3


# ---------------------------------------------------------------- round trips
class Reads:
    """Counts how often the server has read from its clients, beside what the counting costs."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._count()
        self._own = -self._count() + self._count()

    def _count(self) -> int:
        stats: dict[str, int] = self._server.command("INFO", "stats")
        return stats["total_reads_processed"]

    async def of(self, operation: Callable[[], Awaitable[object]]) -> int:
        before = self._count()
        assert await operation() is not None
        return self._count() - before - self._own


async def test_each_operation_is_one_round_trip(store: Store, shared_redis: RedisServer) -> None:
    owner = new_owner()
    runs = [await running(store, owner=owner) for _ in range(20)]
    key, run_id = runs[0]
    new = new_key(owner)
    makes = replace(first_write(new), messages=(b"one",), owes=True, due=Due(after=LONG))
    commits = Write(
        key,
        "commit",
        Guard(fence="one"),
        messages=(b"said",),
        log=LogChange(run_id, entry(1, 3), ends=True),
        lease="end",
        owes=True,
        enqueue=QueueEntry(new_run(), b"waits"),
    )
    appends = [Append(each, run, "one", entry(1, 2)) for each, run in runs]
    spent = SpentUnder(owner, "today", "lease", Amounts(1, 2, 3), 1)
    operations: list[Callable[[], Awaitable[object]]] = [
        lambda: store.append(appends, lease=LONG),
        lambda: store.apply(makes),
        lambda: store.apply(commits),
        lambda: store.read(key, ALL),
        lambda: store.log(key, run_id, after=entry(1, 1).position, limit=9),
        lambda: store.spend(spent),
    ]
    for operation in operations:  # the server knows the scripts after this
        await operation()
    await store.delete(new)
    reads = Reads(shared_redis)
    assert [await reads.of(operation) for operation in operations] == [1] * len(operations)

    assert await log_of(store, key, run_id) == [entry(1, 1), entry(1, 2), entry(1, 3)]


async def test_a_page_of_an_index_is_read_in_two_round_trips(
    store: Store, shared_redis: RedisServer
) -> None:
    owner = new_owner()
    for _ in range(20):
        await made(store, owner=owner)
    assert len((await store.query(Query(owner, "all"))).listed) == 20
    assert await Reads(shared_redis).of(lambda: store.query(Query(owner, "all"))) == 2


async def test_forgotten_scripts_are_sent_again(store: Store, shared_redis: RedisServer) -> None:
    runs = [await running(store) for _ in range(2)]
    shared_redis.command("SCRIPT", "FLUSH")
    answers = await append(store, *(Append(*run, "one", entry(1, 2)) for run in runs))
    assert answers == [Appended(True)] * 2
    shared_redis.command("SCRIPT", "FLUSH")
    await applied(store, a_write(runs[0][0]))
    assert await log_of(store, *runs[1]) == [entry(1, 1), entry(1, 2)]


async def test_more_runs_than_one_script_writes_are_appended_at_once(store: Store) -> None:
    runs = [await running(store) for _ in range(70)]
    answers = await append(store, *(Append(*run, "one", entry(1, 2)) for run in runs))
    assert answers == [Appended(True)] * 70
    for run in (runs[0], runs[63], runs[64], runs[69]):
        assert await log_of(store, *run) == [entry(1, 1), entry(1, 2)]


# ---------------------------------------------------------------- hints
async def test_all_watches_share_one_connection(store: Store, shared_redis: RedisServer) -> None:
    keys = [await made(store) for _ in range(3)]
    with anyio.fail_after(5):
        async with store.watch(keys[0]), store.watch(keys[1]), store.watch(keys[2]) as watch:
            await watch.wait(0)
            assert shared_redis.listeners() == 1


async def test_hints_come_back_after_the_connection_broke(
    store: Store, shared_redis: RedisServer
) -> None:
    key = await made(store)
    channel = f"pb:{conversation_tag(key)}"
    async with store.watch(key) as watch:
        shared_redis.command("CLIENT", "KILL", "TYPE", "PUBSUB")
        with anyio.fail_after(5):
            await watch.wait()
            while shared_redis.command("PUBSUB", "NUMSUB", channel)[1] == 0:
                await anyio.lowlevel.checkpoint()


async def test_who_watches_in_another_process_is_seen(store: Store, redis_url: str) -> None:
    assert store.sees_followers
    key, run_id = await running(store)
    async with open_door(redis_url) as other, store.watch(key):
        alone = Append(key, run_id, "one", entry(1, 2))
        assert await append(store, alone) == [Appended(True)]
        assert await append(other, replace(alone, entry=entry(1, 3))) == [Appended(True, True)]
        async with other.watch(key):
            assert await append(store, replace(alone, entry=entry(1, 4))) == [Appended(True, True)]
            # what is there already publishes nothing
            assert await append(store, replace(alone, entry=entry(1, 4))) == [Appended(True)]


async def test_a_cluster_does_not_see_who_watches(cluster: Store) -> None:
    assert not cluster.sees_followers
    key, run_id = await made(cluster), new_run()
    await leased(cluster, key, run_id)
    async with cluster.watch(key) as watch:
        assert await append(cluster, Append(key, run_id, "one", entry(1, 2))) == [Appended(True)]
        with anyio.fail_after(5):
            await watch.wait()
