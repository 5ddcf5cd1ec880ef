"""How much the tests try, which the variable TEST_LANE says.

`quick` is for who is writing: no program but Python, and stores in memory. `ci` is for a change that is to land. `nightly`
is for a proof: every kind of store, and many more examples.
"""

import os
from typing import Final, Literal, TypeAlias

import pytest
from hypothesis import settings

Lane: TypeAlias = Literal["quick", "ci", "nightly"]

LANES: Final[dict[str, Lane]] = {"quick": "quick", "ci": "ci", "nightly": "nightly"}
LANE: Final = LANES[os.environ.get("TEST_LANE") or "ci"]

_PERCENT: Final[dict[Lane, int]] = {"quick": 30, "ci": 100, "nightly": 2000}

_STORES: Final = {
    "sqlite": pytest.param("sqlite"),
    "redis": pytest.param("redis", marks=pytest.mark.redis),
}


def examples(count: int) -> settings:
    """Try so many examples of a property in CI, fewer in the quick lane and more in the nightly one."""
    return settings(max_examples=max(1, count * _PERCENT[LANE] // 100))


def rounds(count: int, nightly: int) -> int:
    """Return the number of rounds of a long test that has so many in CI and in the nightly lane."""
    return nightly if LANE == "nightly" else count * _PERCENT[LANE] // 100


def choose_stores(metafunc: pytest.Metafunc) -> None:
    """Play a test that needs `store_kind` on each kind of store that workers can share.

    In CI that is Redis, or what the mark `stores` names, where the store is the subject or nobody would use Redis.
    """
    if "store_kind" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("stores")
    names = ("redis",) if mark is None else mark.args
    names = tuple(_STORES) if LANE == "nightly" else names
    metafunc.parametrize("store_kind", [_STORES[name] for name in names], scope="module")
