"""What all tests share."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.support.redis_server import RedisServer, redis_cluster, redis_server

# how long one example takes says nothing on a machine that does other things too
settings.register_profile("passback", deadline=None)
settings.load_profile("passback")


_LONGEST_FIRST = ("faults", "browser", "e2e", "attacks", "contract")
"""Folders whose files take long, in a few tests: begun last, one of them would be waited for alone."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "promise(*ids): holds to promises of tests/requirements.py")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {folder: place for place, folder in enumerate(_LONGEST_FIRST)}

    def rank(item: pytest.Item) -> int:
        folder = item.nodeid.removeprefix("tests/").partition("/")[0]
        return ranks.get(folder, len(ranks))

    items.sort(key=rank)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One redis-server for all tests; what it keeps is not cleared between them."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def newest_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """As `shared_redis`: one server of the newest kind."""
    with redis_server(tmp_path_factory.mktemp("newest"), kind="newest") as server:
        yield server


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis Cluster for all tests; what it keeps is not cleared between them."""
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as server:
        yield server


@pytest.fixture
def redis_url(shared_redis: RedisServer) -> str:
    """An empty Redis."""
    shared_redis.command("FLUSHALL")
    return shared_redis.url


@pytest.fixture
def redis_cluster_url(shared_cluster: RedisServer) -> str:
    """An empty Redis Cluster."""
    shared_cluster.command("FLUSHALL")
    return shared_cluster.cluster_url
