"""The stores that the contract suite runs on."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest
from tests.support.lanes import LANE
from tests.support.ledgers import open_ledger
from tests.support.postgres_server import CLEAR, PostgresServer
from tests.support.redis_server import RedisKind, RedisServer, redis_server
from typing_extensions import override

from passback.core.conversation.store import (
    Amounts,
    Append,
    Appended,
    Applied,
    SpentUnder,
    Write,
)
from passback.core.errors import StoreError
from passback.engine.ledger import Ledger
from passback.stores.memory import MemoryStore
from passback.stores.postgres import PostgresStore

OpenLedger: TypeAlias = Callable[[int], AbstractAsyncContextManager[Ledger]]

collect_ignore_glob = ["test_sqlite_*.py", "test_store_sqlite.py"] if LANE == "quick" else []

REDIS_KINDS: list[RedisKind] = ["redis", "newest"] if LANE == "nightly" else ["redis"]

# the kind of the store, and that of the Redis server where there is one
MEMORY = [
    pytest.param("memory", "redis", id="memory"),
    pytest.param("repeated", "redis", id="repeated"),
]
SHARED = [
    pytest.param("sqlite", "redis", id="sqlite"),
    pytest.param("redis", "redis", id="redis", marks=pytest.mark.redis),
    pytest.param("postgres", "redis", id="postgres", marks=pytest.mark.postgres),
]
if LANE == "nightly":
    SHARED += [
        pytest.param("redis", "newest", id="newest", marks=pytest.mark.redis),
        pytest.param("cluster", "redis", id="cluster", marks=pytest.mark.redis),
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that needs a `peer` or does `damage` on shared stores only, the rest on all.

    What only Redis has is tried on each kind of server; `all_stores` has all of them at once.
    """
    if "store_kind" in metafunc.fixturenames:
        alone = {"peer", "damage"}.isdisjoint(metafunc.fixturenames)
        kinds = [*MEMORY, *SHARED] if alone else SHARED
        metafunc.parametrize(("store_kind", "redis_kind"), kinds)
    elif "redis_kind" in metafunc.fixturenames and "all_stores" not in metafunc.fixturenames:
        metafunc.parametrize("redis_kind", REDIS_KINDS)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """A backend whose scope lets connections be a module's."""
    return "asyncio"


@pytest.fixture
def redis_kind() -> RedisKind:
    """The URL of a store for tests that do not choose one."""
    return "redis"


@pytest.fixture
def shared_redis(
    redis_kind: RedisKind, shared_redis: RedisServer, request: pytest.FixtureRequest
) -> RedisServer:
    """The server of this kind."""
    if redis_kind == "redis":
        return shared_redis
    newest: RedisServer = request.getfixturevalue("newest_redis")
    return newest


@pytest.fixture
def store_url(
    store_kind: str, redis_kind: RedisKind, request: pytest.FixtureRequest, tmp_path: Path
) -> str:
    """The URL of an empty store."""
    match store_kind:
        case "redis":
            return str(request.getfixturevalue("redis_url"))
        case "cluster":
            return str(request.getfixturevalue("redis_cluster_url"))
        case "postgres":
            request.getfixturevalue("empty_postgres")
            server: PostgresServer = request.getfixturevalue("shared_postgres")
            return server.url()
        case "sqlite":
            return f"sqlite:///{tmp_path}/conversations.db"
        case _:
            return "memory:"


class RepeatingStore(MemoryStore):
    """A store to which each write is sent twice: the first answer is lost (P15)."""

    @override
    async def apply(self, write: Write, /) -> Applied | None:
        await super().apply(write)
        return await super().apply(write)

    @override
    async def append(
        self, appends: Sequence[Append], /, *, lease: int
    ) -> Sequence[Appended | StoreError]:
        await super().append(appends, lease=lease)
        return await super().append(appends, lease=lease)

    @override
    async def spend(self, spent: SpentUnder, /) -> Amounts:
        await super().spend(spent)
        return await super().spend(spent)


@pytest.fixture(scope="module")
async def postgres_stores(
    shared_postgres: PostgresServer,
) -> AsyncGenerator[Sequence[PostgresStore]]:
    """The stores of two workers, for all tests of a module.

    A process of PostgreSQL that is new takes longer than a test: it plans each statement once.
    """
    url = shared_postgres.url()
    async with PostgresStore(url) as one, PostgresStore(url) as other:
        await one.check(briefly=True)  # the tables are there
        yield one, other


@pytest.fixture(scope="module")
async def postgres_admin(
    postgres_stores: Sequence[PostgresStore], shared_postgres: PostgresServer
) -> AsyncGenerator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(shared_postgres.url())
    yield connection
    await connection.close()


@pytest.fixture
async def empty_postgres(
    postgres_stores: Sequence[PostgresStore],
    postgres_admin: "asyncpg.Connection[asyncpg.Record]",
) -> Sequence[PostgresStore]:
    """`postgres_stores` on empty tables."""
    await postgres_admin.execute(CLEAR)
    return postgres_stores


@pytest.fixture
def opens(store_kind: str, store_url: str, request: pytest.FixtureRequest) -> OpenLedger:
    """Open the empty store, as one worker (0) or as another (1) does."""
    match store_kind:
        case "postgres":
            stores: Sequence[PostgresStore] = request.getfixturevalue("empty_postgres")
            return lambda worker: nullcontext(Ledger(stores[worker]))
        case "repeated":
            return lambda _: Ledger(RepeatingStore())
        case _:
            return lambda _: open_ledger(store_url)


@pytest.fixture
async def store(opens: OpenLedger) -> AsyncGenerator[Ledger]:
    async with opens(0) as opened:
        yield opened


@pytest.fixture
async def peer(store: Ledger, opens: OpenLedger) -> AsyncGenerator[Ledger]:
    """Open the same store as another worker does: through connections of its own."""
    async with opens(1) as opened:
        yield opened


@pytest.fixture
def own_redis(tmp_path: Path, redis_kind: RedisKind) -> Iterator[RedisServer]:
    """A server that a test may break."""
    with redis_server(tmp_path, kind=redis_kind) as server:
        yield server
