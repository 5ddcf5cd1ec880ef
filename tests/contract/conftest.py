"""The stores that the contract suite runs on."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.lanes import LANE
from tests.support.ledgers import open_ledger
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


@pytest.fixture
async def store(store_url: str, store_kind: str) -> AsyncGenerator[Ledger]:
    repeats = store_kind == "repeated"
    async with Ledger(RepeatingStore()) if repeats else open_ledger(store_url) as opened:
        yield opened


@pytest.fixture
async def peer(store: Ledger, store_url: str) -> AsyncGenerator[Ledger]:
    """Open the same store as another worker does: through connections of its own."""
    async with open_ledger(store_url) as opened:
        yield opened


@pytest.fixture
def own_redis(tmp_path: Path, redis_kind: RedisKind) -> Iterator[RedisServer]:
    """A server that a test may break."""
    with redis_server(tmp_path, kind=redis_kind) as server:
        yield server
