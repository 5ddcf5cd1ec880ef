"""Several workers on one PostgreSQL: hints, guards under load, and locks that are in one order."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
import asyncpg
import pytest
from tests.contract.door.writes import (
    LONG,
    OVER,
    a_write,
    append,
    applied,
    entry,
    first_write,
    log_of,
    made,
    new_key,
    running,
    whole,
)
from tests.support.postgres_server import PostgresServer
from tests.support.proxies import counting_proxy

from passback.core.conversation.store import WHOLE, Amounts, Append, Guard, Query, SpentUnder
from passback.core.errors import StoreError, StoreFull
from passback.core.events import START
from passback.core.messages import ConversationKey, RunId
from passback.stores.postgres import RUNS_AT_ONCE, PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

LATE = 60  # seconds, for which no test waits
LISTENS = "query LIKE 'LISTEN%' OR query LIKE '%pg_notify%'"
"""What an administrator sees of a connection for hints."""


# ---------------------------------------------------------------- hints
async def test_a_reader_in_another_process_is_notified_of_each_write(
    store: PostgresStore, peer: PostgresStore
) -> None:
    key, run_id = await running(store)
    with anyio.fail_after(20):
        async with peer.watch(key) as watch:
            await applied(store, a_write(key))
            await watch.wait(LATE)
            await append(store, Append(key, run_id, "one", entry(1, 2)))
            await watch.wait(LATE)
            await store.delete(key)
            await watch.wait(LATE)


async def test_a_renewal_notifies_nobody(store: PostgresStore, peer: PostgresStore) -> None:
    (renewed, run_id), (written, other) = await running(store), await running(store)
    with anyio.fail_after(20):
        async with peer.watch(renewed) as silent, peer.watch(written) as watch:
            await append(store, Append(written, other, "one", entry(1, 2)))
            await watch.wait(LATE)  # they come in order: those of the beginning are there
            await silent.wait(0)
            await append(store, Append(renewed, run_id, "one"))
            await append(store, Append(written, other, "one", entry(1, 3)))
            await watch.wait(LATE)
            with anyio.move_on_after(0.01) as waited:
                await silent.wait(LATE)
            assert waited.cancelled_caught


async def test_one_connection_serves_all_watches_and_announcements(
    store: PostgresStore, shared_postgres: PostgresServer, database: str
) -> None:
    keys = [await made(store) for _ in range(20)]
    async with anyio.create_task_group() as tasks:
        for key in keys:
            tasks.start_soon(_watch_one_write, store, key)
    counted = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND ({LISTENS})"
    assert shared_postgres.run(counted) == [1]


async def _watch_one_write(store: PostgresStore, key: ConversationKey) -> None:
    async with store.watch(key) as watch:
        await applied(store, a_write(key))
        await watch.wait(LATE)


async def test_watchers_survive_a_lost_listener(
    store: PostgresStore, peer: PostgresStore, shared_postgres: PostgresServer, database: str
) -> None:
    key = await made(store)
    with anyio.fail_after(30):
        async with peer.watch(key) as watch:
            assert shared_postgres.end_connections(database, which=f"({LISTENS})") >= 1
            await watch.wait(LATE)  # something may have been missed
            await watch.wait(LATE)  # it listens again
            # the worker that writes has lost its connection, too
            await applied(store, a_write(key))
            while True:
                with anyio.move_on_after(1) as late:
                    await watch.wait(LATE)
                if not late.cancelled_caught:
                    break
                await applied(store, a_write(key))


# ---------------------------------------------------------------- round trips
Call = Callable[[PostgresStore, list[tuple[ConversationKey, RunId]], int], Awaitable[object]]
QUIET: dict[str, Call] = {
    "read": lambda store, runs, _: whole(store, runs[0][0]),
    "log": lambda store, runs, _: store.log(*runs[0], after=START, limit=9),
    "page": lambda store, runs, _: store.page(runs[0][0], WHOLE, limit=9),
    "query": lambda store, runs, _: store.query(Query(runs[0][0].owner, "all")),
    "due": lambda store, _, number: store.due(number, milliseconds=LONG),
    "spend": lambda store, runs, number: store.spend(
        SpentUnder(runs[0][0].owner, "today", "lease", Amounts(1, 1, 1), number)
    ),
}
LOUD: dict[str, Call] = {
    "apply": lambda store, runs, number: store.apply(
        replace(a_write(runs[0][0]), messages=(b"%d" % number,), fields={"title": b"title"})
    ),
    "append": lambda store, runs, number: store.append(
        [Append(*run, "one", entry(1, 4 - number)) for run in runs], lease=LONG
    ),
    "delete": lambda store, runs, number: store.delete(runs[-number][0]),
}


@pytest.mark.parametrize("name", [*QUIET, *LOUD])
async def test_each_call_is_one_round_trip(
    peer: PostgresStore, shared_postgres: PostgresServer, database: str, name: str
) -> None:
    runs, call = [await running(peer) for _ in range(10)], (QUIET | LOUD)[name]
    keys = [key for key, _ in runs]
    first, second = keys[-2:] if name == "delete" else (keys[0], keys[0])
    async with (
        counting_proxy(shared_postgres.port) as proxy,
        PostgresStore(shared_postgres.url(database, port=proxy.port)) as store,
        peer.watch(first) as watch,
        peer.watch(second) as next_watch,
    ):
        await watch.wait(0)  # a first hint comes with the connection
        await call(store, runs, 2)  # connects, and prepares the statement
        if name in LOUD:
            await watch.wait(LATE)  # it is announced
        await next_watch.wait(0)
        before = proxy.requests_seen
        await call(store, runs, 1)
        if name in LOUD:
            await next_watch.wait(LATE)
        assert proxy.requests_seen - before == (2 if name in LOUD else 1)


# ---------------------------------------------------------------- guards and locks
async def test_one_of_many_writes_on_a_version_is_applied(
    store: PostgresStore, peer: PostgresStore
) -> None:
    key = new_key()
    answers: list[object] = []

    async def write(worker: PostgresStore, version: int) -> None:
        answers.append(await worker.apply(a_write(key, Guard(version=version))))

    for version in range(6):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(write, store, version)
                tasks.start_soon(write, peer, version)
        assert len(answers) - answers.count(None) == version + 1
    assert (await whole(store, key)).version == 6


async def test_appends_to_the_same_runs_in_any_order_do_not_wait_for_each_other(
    store: PostgresStore, peer: PostgresStore, shared_postgres: PostgresServer, database: str
) -> None:
    runs = [await running(store) for _ in range(30)]

    async def fill(worker: PostgresStore, order: int) -> None:
        for seq in range(2, 22):
            appends = [Append(key, run_id, "one", entry(1, seq)) for key, run_id in runs[::order]]
            for answer in await append(worker, *appends):
                assert answer.held or order < 0  # the other one may be ahead

    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill, store, 1)
            tasks.start_soon(fill, peer, -1)
    for key, run_id in runs:
        assert await log_of(store, key, run_id) == [entry(1, seq) for seq in range(1, 22)]
    shared_postgres.end_connections(database)  # so that they report what they have counted
    counted = f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{database}'"
    assert shared_postgres.run(counted) == [0]


async def test_more_runs_than_one_call_takes_are_all_answered_in_order(
    store: PostgresStore,
) -> None:
    key, run_id = await running(store)
    count = RUNS_AT_ONCE + 2
    lost = Append(key, run_id, "another", entry(1, 2))
    answers = await append(store, *[lost] * (count - 1), Append(key, run_id, "one", entry(1, 2)))
    assert [answer.held for answer in answers] == [False] * (count - 1) + [True]


async def test_no_two_conversations_have_one_time(
    store: PostgresStore, peer: PostgresStore, shared_postgres: PostgresServer, database: str
) -> None:
    keys = [new_key() for _ in range(40)]

    async def touch(worker: PostgresStore, key: ConversationKey) -> None:
        await applied(worker, replace(first_write(key), touches=True))
        for _ in range(5):
            await applied(worker, replace(a_write(key), touches=True))

    async with anyio.create_task_group() as tasks:
        for number, key in enumerate(keys):
            tasks.start_soon(touch, (store, peer)[number % 2], key)
    page = await store.query(Query(keys[0].owner, "all"))
    times = {each.place.time for each in page.listed}
    assert len(times) == len(page.listed) == len(keys)
    # nor could they, if their clocks were one
    same = "UPDATE pb.conversations SET updated = (SELECT max(updated) FROM pb.conversations)"
    with pytest.raises(asyncpg.UniqueViolationError):
        shared_postgres.run(f"{same} RETURNING 1", database=database)


async def test_each_conversation_that_is_due_is_returned_to_one_worker(
    store: PostgresStore, peer: PostgresStore
) -> None:
    found: list[ConversationKey] = []

    async def take(worker: PostgresStore) -> None:
        while taken := await worker.due(1, milliseconds=LONG):
            found.extend(taken)

    async def take_all() -> None:
        async with anyio.create_task_group() as tasks:
            for worker in (store, peer) * 4:
                tasks.start_soon(take, worker)

    await take_all()  # nothing yet; but then there are connections
    runs = [await running(store, milliseconds=OVER) for _ in range(60)]
    await take_all()
    # whoever finds the rest locked has nothing to take for now
    found += await store.due(len(runs), milliseconds=LONG)
    assert len(found) == len(runs)
    assert set(found) == {key for key, _ in runs}


@pytest.mark.parametrize("code", ["40001", "40P01", "23505"])
async def test_a_write_that_is_in_the_way_of_another_is_repeated(
    store: PostgresStore, shared_postgres: PostgresServer, database: str, code: str
) -> None:
    key = await made(store)
    shared_postgres.run(
        "CREATE SEQUENCE tries",
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('tries') < 3 THEN RAISE EXCEPTION 'x' USING ERRCODE = '{code}'; END IF;"
        " RETURN new; END $$",
        "CREATE TRIGGER refuse BEFORE UPDATE ON pb.conversations"
        " FOR EACH ROW EXECUTE FUNCTION refuse()",
        "SELECT 1",
        database=database,
    )
    assert (await applied(store, a_write(key))).version == 2
    assert shared_postgres.run("SELECT last_value FROM tries", database=database) == [3]


async def test_an_error_of_one_run_stays_with_it(
    store: PostgresStore, shared_postgres: PostgresServer, database: str
) -> None:
    runs = [await running(store) for _ in range(3)]
    tag = (await store.query(Query(runs[1][0].owner, "all"))).listed[1].place.tag
    shared_postgres.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN IF new.tag = '{tag}' THEN RAISE EXCEPTION 'x' USING ERRCODE = '53100'; END IF;"
        " RETURN new; END $$",
        "CREATE TRIGGER refuse BEFORE INSERT ON pb.entries FOR EACH ROW EXECUTE FUNCTION refuse()",
        "SELECT 1",
        database=database,
    )
    appends = [Append(key, RunId(run_id), "one", entry(1, 2)) for key, run_id in runs]
    first, second, third = await store.append(appends, lease=LONG)
    assert isinstance(second, StoreFull)
    assert not isinstance(first, StoreError)
    assert not isinstance(third, StoreError)
    assert await log_of(store, *runs[1]) == [entry(1, 1)]
    assert await log_of(store, *runs[2]) == [entry(1, 1), entry(1, 2)]
