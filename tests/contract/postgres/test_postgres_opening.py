"""Opening the PostgreSQL store: its tables, the settings of its server, and its password."""

import logging
import sys
import traceback
from dataclasses import replace

import anyio
import pytest
from tests.contract.door.writes import applied, first_write, made, new_key, whole
from tests.support.postgres_server import PASSWORD, PostgresServer

from passback.core.conversation.store import Wanted
from passback.core.errors import ConfigurationError, StoreError, StoreUnavailable
from passback.stores.open import open_store
from passback.stores.options import StoreOptions
from passback.stores.postgres import PostgresStore
from passback.stores.postgres.link import check_server, store_error

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


async def test_many_workers_make_the_tables_at_once(
    url: str, shared_postgres: PostgresServer, database: str
) -> None:
    key = new_key()
    answers: list[object] = []

    async def begin() -> None:
        async with PostgresStore(url) as store:
            await store.check()
            answers.append(await store.apply(replace(first_write(key), head=b"head")))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(begin)
    assert len(answers) - answers.count(None) == 1
    assert shared_postgres.run("SELECT version FROM pb.layout", database=database) == [1]


async def test_tables_of_another_version_are_refused(
    url: str, shared_postgres: PostgresServer, database: str
) -> None:
    async with PostgresStore(url) as store:
        await store.check()
    shared_postgres.run("UPDATE pb.layout SET version = 7 RETURNING 1", database=database)
    async with PostgresStore(url) as store:
        with pytest.raises(ConfigurationError, match=r"version 7.* has 1: use"):
            await store.check()


async def test_a_schema_with_tables_of_another_program_is_refused(
    url: str, shared_postgres: PostgresServer, database: str
) -> None:
    make = "CREATE TABLE public.messages (id int)"
    shared_postgres.run(make, "SELECT 1", database=database)
    async with PostgresStore(url, StoreOptions(prefix="public")) as store:
        with pytest.raises(ConfigurationError, match=r"'public'.*an empty schema"):
            await store.check()
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    assert shared_postgres.run(tables, database=database) == ["messages"]


async def test_a_user_without_rights_is_told_what_is_needed(
    shared_postgres: PostgresServer, database: str
) -> None:
    role = f"reader_{database}"
    shared_postgres.run(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'", "SELECT 1")
    url = shared_postgres.url(database, user=role)
    async with PostgresStore(url) as store:
        with pytest.raises(ConfigurationError, match="right to create a schema"):
            await store.check()
    # an administrator may make the schema instead
    shared_postgres.run(f"CREATE SCHEMA pb AUTHORIZATION {role}", "SELECT 1", database=database)
    async with PostgresStore(url) as store:
        await store.check(briefly=True)


async def test_stores_of_two_prefixes_share_a_database(url: str) -> None:
    key, other = new_key(), StoreOptions(prefix="Other:1.x-y")
    async with PostgresStore(url) as one, PostgresStore(url, other) as two:
        await applied(one, replace(first_write(key), head=b"one"))
        assert (await whole(two, key)).version == 0
        await applied(two, replace(first_write(key), head=b"two"))
        assert (await whole(one, key)).head == b"one"


def test_a_prefix_that_postgresql_would_cut_is_refused() -> None:
    PostgresStore("postgresql:///main", StoreOptions(prefix="p" * 63))
    with pytest.raises(ConfigurationError, match="at most 63"):
        PostgresStore("postgresql:///main", StoreOptions(prefix="p" * 64))


# ---------------------------------------------------------------- settings of the server
async def test_settings_that_weaken_a_promise_are_named(
    url: str, store: PostgresStore, shared_postgres: PostgresServer, database: str
) -> None:
    [warning] = await store.check()
    assert "fsync off" in warning
    assert await store.check(briefly=True) == ()
    late = f"ALTER DATABASE {database} SET synchronous_commit = off"
    shared_postgres.run(late, "SELECT 1")
    async with PostgresStore(url) as store:
        _, warning = await store.check()
    assert "synchronous_commit off" in warning


async def test_a_server_that_takes_no_writes_is_refused(
    url: str, store: PostgresStore, shared_postgres: PostgresServer, database: str
) -> None:
    key = await made(store)
    read_only = f"ALTER DATABASE {database} SET default_transaction_read_only = on"
    shared_postgres.run(read_only, "SELECT 1")
    async with PostgresStore(url) as late:
        with pytest.raises(ConfigurationError, match="takes no writes"):
            await late.check()
    shared_postgres.end_connections(database)
    # a store that was open before, as after a failover, waits for better times
    with pytest.raises(StoreUnavailable, match="takes no writes"):
        await store.check(briefly=True)
    assert (await whole(store, key)).version == 1
    with pytest.raises(ConfigurationError, match="takes no writes"):
        await store.check()


def test_an_old_server_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="PostgreSQL 12 is too old"):
        check_server(12, read_only=False)
    check_server(13, read_only=False)


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        ("53100", "StoreFull", "disk"),
        ("53300", "StoreUnavailable", "connection"),
        ("57P03", "StoreUnavailable", "57P03"),
        ("TimeoutError", "StoreUnavailable", "TimeoutError"),
        ("42P05", "StoreError", "PgBouncer"),
        ("XX001", "StoreError", "XX001"),
    ],
)
def test_errors_of_postgresql_are_errors_of_a_store(code: str, kind: str, text: str) -> None:
    error = store_error(code)
    assert type(error).__name__ == kind
    assert text in error.message


# ---------------------------------------------------------------- passwords
@pytest.mark.parametrize(
    ("port", "options"),
    [(0, ""), (0, "?sslmode=hunter2"), (0, "?port=hunter2"), (99999, ""), (1, "")],
)
async def test_a_password_is_never_shown(
    shared_postgres: PostgresServer, port: int, options: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = shared_postgres.url(port=port, options=options).replace(PASSWORD, "hunter2")
    async with PostgresStore(url, StoreOptions(timeout=1)) as store:
        with pytest.raises((StoreError, ConfigurationError)) as failed:
            await store.read(new_key(), Wanted())
        async with store.watch(new_key()):  # the listener meets the same, and logs it
            pass
        shown = [
            *traceback.format_exception(failed.value),
            caplog.text,
            store.location,
            repr(store),
        ]
    assert not any("hunter2" in text for text in shown)


async def test_a_wrong_password_is_not_tried_again(url: str) -> None:
    async with PostgresStore(url.replace(PASSWORD, "hunter2")) as store:
        with pytest.raises(StoreError, match="refuses the user") as failed:
            await store.check()
    assert type(failed.value) is StoreError


def test_the_way_to_install_the_driver_is_told_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'passback\[postgres\]'"):
        open_store("postgresql://host/main")
