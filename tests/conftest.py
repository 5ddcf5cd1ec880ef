"""Settings, marks and fixtures of all tests."""

from collections.abc import Iterator

import pytest
from coverage import Coverage
from hypothesis import settings
from tests.support.lanes import LANE
from tests.support.postgres_server import QUICK, PostgresServer, postgres_server
from tests.support.redis_server import RedisServer, redis_cluster, redis_server

# how long one example takes says nothing on a machine that does other things too
settings.register_profile("quick", deadline=None, max_examples=30)
settings.register_profile("ci", deadline=None)
settings.register_profile("nightly", deadline=None, max_examples=2000)
settings.load_profile(LANE)

_LONGEST_FIRST = ("faults", "browser", "e2e", "attacks", "model", "contract", "unit/toolsets")
"""Folders of files that take long: begun last, one of them would be waited for alone."""

_NOT_QUICK = frozenset({"redis", "postgres", "browser", "node", "nightly"})
"""Marks of tests that the quick lane leaves out."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "promise(*ids): holds to promises of tests/requirements.py")
    config.addinivalue_line("markers", "nightly: only in the nightly lane")
    config.addinivalue_line("markers", "measured: its own process counts for the coverage")
    config.addinivalue_line("markers", "stores(*kinds): the kinds of store it is played on in CI")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not _is_in_lane(item)]
    items[:] = [item for item in items if _is_in_lane(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items.sort(key=_rank)


def pytest_sessionfinish() -> None:
    # a process that takes long to end is killed, and what it has measured would be lost with it
    if (measuring := Coverage.current()) is not None:
        measuring.save()


def _is_in_lane(item: pytest.Item) -> bool:
    marks = {mark.name for mark in item.iter_markers()}
    if LANE != "quick":
        return LANE == "nightly" or "nightly" not in marks
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    is_in_memory = parameters.get("store_kind", "memory") == "memory"
    return is_in_memory and marks.isdisjoint(_NOT_QUICK)


def _rank(item: pytest.Item) -> int:
    name = item.nodeid.removeprefix("tests/")
    found = (place for place, folder in enumerate(_LONGEST_FIRST) if name.startswith(folder))
    return next(found, len(_LONGEST_FIRST))


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


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests."""
    with postgres_server(*QUICK) as server:
        yield server


@pytest.fixture
def postgres_url(shared_postgres: PostgresServer) -> str:
    """An empty database."""
    shared_postgres.clear()
    return shared_postgres.url()
