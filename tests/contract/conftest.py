"""The stores that the contract suite runs on."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from tests.support.redis_server import RedisServer, redis_server

from passback.core.ports import Store
from passback.stores.open import open_store

SHARED = [
    "sqlite",
    pytest.param("redis", marks=pytest.mark.redis),
    pytest.param("cluster", marks=pytest.mark.redis),
]
ALL = ["memory", *SHARED]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that needs a `peer` or does `damage` runs on the stores that others can reach too, the rest on all."""
    if "store_kind" in metafunc.fixturenames:
        kinds = ALL if {"peer", "damage"}.isdisjoint(metafunc.fixturenames) else SHARED
        metafunc.parametrize("store_kind", kinds)


@pytest.fixture
def store_url(store_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
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


@pytest.fixture
async def store(store_url: str) -> AsyncGenerator[Store]:
    async with open_store(store_url) as opened:
        yield opened


@pytest.fixture
async def peer(store: Store, store_url: str) -> AsyncGenerator[Store]:
    """What another worker uses: the same conversations through connections of its own."""
    async with open_store(store_url) as opened:
        yield opened


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that a test may break."""
    with redis_server(tmp_path) as server:
        yield server
