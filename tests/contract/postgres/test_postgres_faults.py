"""PostgreSQL that crashes, hangs or loses connections: nothing acknowledged is lost, or doubled."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import asyncpg
import pytest
from tests.contract.door.writes import (
    LONG,
    OWNER,
    a_write,
    append,
    applied,
    entry,
    first_write,
    log_of,
    made,
    new_key,
    running,
    tag_of,
    whole,
)
from tests.support.postgres_server import PASSWORD, PostgresServer
from tests.support.proxies import LossyProxy, lossy_proxy
from tests.support.waiting import moment, wait_until

from passback.core.conversation.store import Amounts, Append, SpentUnder, Write
from passback.core.errors import StoreError, StoreUnavailable
from passback.core.messages import ConversationKey, RunId
from passback.stores.options import StoreOptions
from passback.stores.postgres import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


# ---------------------------------------------------------------- crashes
@pytest.mark.timeout(120)
async def test_acknowledged_writes_survive_a_crash_and_none_is_applied_twice(
    durable_postgres: PostgresServer,
) -> None:
    acknowledged: defaultdict[ConversationKey, list[bytes]] = defaultdict(list)
    is_over = False

    async def write_on(store: PostgresStore, key: ConversationKey) -> None:
        while not is_over:
            record = b"%d" % len(acknowledged[key])
            await _insist(store, replace(a_write(key), messages=(record,)))
            acknowledged[key].append(record)

    async with PostgresStore(durable_postgres.url()) as store:
        keys = [await made(store) for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for key in keys:
                tasks.start_soon(write_on, store, key)
            for crash in range(1, 4):
                while min(map(len, acknowledged.values()), default=0) < 10 * crash:
                    await moment()
                durable_postgres.kill()
                await anyio.to_thread.run_sync(durable_postgres.start)
            is_over = True
        for key in keys:
            assert list((await whole(store, key)).messages or ()) == acknowledged[key]


async def _insist(store: PostgresStore, write: Write) -> None:
    """Send a write until it is answered."""
    while True:
        try:
            assert await store.apply(write) is not None
        except StoreUnavailable:
            await moment()
        else:
            return


async def test_entries_that_were_acknowledged_survive_a_crash(
    durable_postgres: PostgresServer,
) -> None:
    async with PostgresStore(durable_postgres.url()) as store:
        key, run_id = await running(store)
        for seq in range(2, 50):
            await append(store, Append(key, run_id, "one", entry(1, seq)))
        durable_postgres.kill()
        durable_postgres.start()
        assert await log_of(store, key, run_id) == [entry(1, seq) for seq in range(1, 50)]
        [answer] = await append(store, Append(key, run_id, "one", entry(1, 50)))
        assert answer.held


async def test_a_store_opens_before_its_server_and_waits_for_none(
    durable_postgres: PostgresServer,
) -> None:
    durable_postgres.kill()
    async with PostgresStore(durable_postgres.url(), StoreOptions(timeout=1)) as store:
        for call in (store.check(), store.check(briefly=True), store.delete(new_key())):
            with pytest.raises(StoreUnavailable):
                await call
        durable_postgres.start()
        assert await store.check() == []


# ---------------------------------------------------------------- lost replies
@asynccontextmanager
async def losing(
    server: PostgresServer, database: str
) -> AsyncGenerator[tuple[LossyProxy, PostgresStore]]:
    """Give a store whose replies can be lost."""
    async with lossy_proxy(server.port) as proxy:
        url = server.url(database, port=proxy.port)
        async with PostgresStore(url) as store:
            await store.check()
            yield proxy, store


@pytest.mark.timeout(120)
async def test_a_write_whose_reply_is_lost_is_applied_once(
    shared_postgres: PostgresServer, database: str
) -> None:
    async with losing(shared_postgres, database) as (proxy, store):
        key, run_id = await running(store)
        count = 12
        for number in range(count):
            proxy.lose_replies()
            answer = await applied(store, replace(a_write(key), messages=(b"%d" % number,)))
            assert answer.version == number + 3
            proxy.lose_replies()
            [appended] = await append(store, Append(key, run_id, "one", entry(1, number + 2)))
            assert appended.held
            proxy.lose_replies()
            spent = SpentUnder(OWNER, "today", "lease", Amounts(number, 0, 0), number + 1)
            assert (await store.spend(spent)).tokens == number
        assert proxy.lost > 2 * count
        found = await whole(store, key)
        assert found.messages == tuple(b"%d" % number for number in range(count))
        entries = [entry(1, seq) for seq in range(1, count + 2)]
        assert await log_of(store, key, run_id) == entries


async def test_a_conversation_is_made_once_though_the_reply_is_lost(
    shared_postgres: PostgresServer, database: str
) -> None:
    async with losing(shared_postgres, database) as (proxy, store):
        for _ in range(10):
            proxy.lose_replies()
            write = replace(first_write(new_key()), messages=(b"one",))
            assert (await applied(store, write)).version == 1
            assert (await whole(store, write.key)).messages == (b"one",)
        assert proxy.lost >= 10


async def test_a_connection_that_says_nothing_is_given_up(
    shared_postgres: PostgresServer, database: str
) -> None:
    async with lossy_proxy(shared_postgres.port) as proxy:
        url = shared_postgres.url(database, port=proxy.port)
        async with PostgresStore(url, StoreOptions(timeout=1)) as store:
            key = await made(store)
            proxy.hold()
            with anyio.fail_after(10), pytest.raises(StoreUnavailable):
                await whole(store, key)
            proxy.go_on()
            assert (await whole(store, key)).version == 1


async def test_connections_that_say_nothing_are_not_tried_one_after_the_other(
    url: str, shared_postgres: PostgresServer
) -> None:
    async with PostgresStore(url, StoreOptions(timeout=5)) as store:
        key = await made(store)
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(whole, store, key)  # so that there are several
        shared_postgres.pause()
        try:
            assert (await whole(store, key)).version == 1
        finally:
            shared_postgres.resume()


async def test_connections_that_were_ended_are_replaced_without_an_error(
    store: PostgresStore, shared_postgres: PostgresServer, database: str
) -> None:
    key = await made(store)
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(whole, store, key)  # so that there are several
    assert shared_postgres.end_connections(database) >= 2
    await applied(store, a_write(key))
    assert (await whole(store, key)).version == 2


# ---------------------------------------------------------------- limits of the server
async def test_too_many_connections_make_it_unavailable_until_some_are_free(
    shared_postgres: PostgresServer, database: str
) -> None:
    role = f"limited_{database}"
    shared_postgres.run(
        f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 2",
        f"ALTER DATABASE {database} OWNER TO {role}",
        "SELECT 1",
    )
    url = shared_postgres.url(database, user=role)
    others = [await asyncpg.connect(url) for _ in range(2)]
    async with PostgresStore(url) as store:
        with pytest.raises(StoreUnavailable, match="no connection free"):
            await store.check()
        await others.pop().close()
        key = await made(store)
        await others.pop().close()
        async with anyio.create_task_group() as tasks:
            for _ in range(10):  # more at once than there are connections
                tasks.start_soon(whole, store, key)


async def test_a_store_uses_no_more_connections_than_it_may(
    url: str, shared_postgres: PostgresServer, database: str
) -> None:
    async with PostgresStore(url, StoreOptions(max_connections=3)) as store:
        key = await made(store)
        async with anyio.create_task_group() as tasks:
            for _ in range(30):
                tasks.start_soon(whole, store, key)
        counted = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'"
        [count] = shared_postgres.run(counted)
        assert count in (3, 4)  # and one for hints


@asynccontextmanager
async def locked(url: str, key: ConversationKey) -> AsyncGenerator[None]:
    """Hold the lock of a conversation, as a slow transaction does."""
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            lock = "SELECT 1 FROM pb.conversations WHERE tag = $1 FOR UPDATE"
            await other.execute(lock, tag_of(key))
            yield
    finally:
        await other.close()


Call = Callable[[PostgresStore, ConversationKey], Awaitable[object]]
WRITES: dict[str, Call] = {
    "apply": lambda store, key: store.apply(replace(a_write(key), messages=(b"late",))),
    "append": lambda store, key: store.append([Append(key, RunId("run"), "one")], lease=LONG),
    "delete": lambda store, key: store.delete(key),
}


@pytest.mark.parametrize("call", WRITES)
async def test_who_waits_for_a_lock_too_long_is_told_and_the_server_stops_waiting(
    url: str, shared_postgres: PostgresServer, database: str, call: str
) -> None:
    async with PostgresStore(url) as store:
        key = await made(store)
    async with PostgresStore(url, StoreOptions(timeout=0.5)) as store, locked(url, key):
        with anyio.fail_after(10), pytest.raises(StoreUnavailable):
            await WRITES[call](store, key)
        waits = f"SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = '{database}'"
        await wait_until(lambda: not shared_postgres.run(waits))
    async with PostgresStore(url) as store:
        assert (await whole(store, key)).message_count == 0


async def test_a_timeout_of_the_server_makes_it_unavailable(
    url: str, shared_postgres: PostgresServer, database: str
) -> None:
    async with PostgresStore(url) as store:
        key = await made(store)
    shared_postgres.run(f"ALTER DATABASE {database} SET statement_timeout = '1s'", "SELECT 1")
    async with PostgresStore(url) as store:
        async with locked(url, key):
            with anyio.fail_after(5), pytest.raises(StoreUnavailable, match="57014"):
                await store.apply(a_write(key))
        await applied(store, a_write(key))


async def test_a_cancelled_call_leaves_the_store_usable(url: str, store: PostgresStore) -> None:
    key = await made(store)
    async with locked(url, key):
        for _ in range(20):  # more than there are connections
            with anyio.move_on_after(0.02) as cancelled:
                await store.apply(replace(a_write(key), messages=(b"late",)))
            assert cancelled.cancelled_caught
        assert (await whole(store, key)).version == 1
    await applied(store, replace(a_write(key), messages=(b"one",)))


async def test_a_closed_store_is_unavailable(url: str) -> None:
    async with PostgresStore(url) as store:
        await made(store)
    with pytest.raises(StoreError, match="closed"):
        await store.delete(new_key())
