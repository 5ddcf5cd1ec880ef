"""Lanes: how much the tests try, by the variable TEST_LANE.

`quick` is for who is writing: no program but Python, and stores in memory. `ci` is for a change
that is to land. `nightly` is for a proof: every kind of store, and many more examples.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pytest
from coverage import Coverage
from hypothesis import settings

if TYPE_CHECKING:
    from tests.support.postgres_server import PostgresServer
    from tests.support.redis_server import RedisServer

Lane: TypeAlias = Literal["quick", "ci", "nightly"]

LANES: Final[dict[str, Lane]] = {"quick": "quick", "ci": "ci", "nightly": "nightly"}
LANE: Final = LANES[os.environ.get("TEST_LANE") or "ci"]

_PERCENT: Final[dict[Lane, int]] = {"quick": 30, "ci": 100, "nightly": 2000}

_STORES: Final = {
    "sqlite": pytest.param("sqlite"),
    "redis": pytest.param("redis", marks=pytest.mark.redis),
    "postgres": pytest.param("postgres", marks=pytest.mark.postgres),
}


def examples(count: int) -> settings:
    """Try so many examples of a property in CI, fewer if quick, more in the nightly lane."""
    return settings(max_examples=max(1, count * _PERCENT[LANE] // 100))


def rounds(count: int, nightly: int) -> int:
    """Return the number of rounds of a long test that has so many in CI and in the nightly lane."""
    return nightly if LANE == "nightly" else count * _PERCENT[LANE] // 100


def choose_stores(metafunc: pytest.Metafunc) -> None:
    """Play a test that needs `store_kind` on each kind of store that workers can share.

    In CI that is Redis, or what the mark `stores` names, where the store is the subject or nobody
    would use Redis.
    """
    if "store_kind" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("stores")
    names = ("redis",) if mark is None else mark.args
    names = tuple(_STORES) if LANE == "nightly" else names
    metafunc.parametrize("store_kind", [_STORES[name] for name in names], scope="module")


def empty_store(kind: str, fixture: Callable[[str], Any], folder: Path) -> str:
    """Return the URL of an empty store of a kind; `fixture` gives the servers by their names."""
    match kind:
        case "redis":
            redis: RedisServer = fixture("shared_redis")
            redis.command("FLUSHALL")
            return redis.url
        case "postgres":
            postgres: PostgresServer = fixture("shared_postgres")
            postgres.clear()
            return postgres.url()
        case _:
            return f"sqlite:///{folder}/passback.db"


@pytest.fixture(autouse=True, scope="module")
def unmeasured(request: pytest.FixtureRequest) -> Iterator[None]:
    """Measure no coverage, neither here nor in started processes; with the mark `measured`, here.

    Measuring costs half a second for each process, and makes what runs some times slower. The
    server reaches its floors by the unit and contract tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        is_measured = request.node.get_closest_marker("measured") is not None
        measuring = None if is_measured else Coverage.current()
        if measuring is not None:
            measuring.stop()
        yield
        if measuring is not None:
            measuring.start()
