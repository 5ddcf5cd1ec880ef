"""Random operations give the same answers, records and logs on all stores.

The nightly lane has a Cluster and the newest Redis among them.
The environment variable STORE_OPERATIONS says how many operations there are at least.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.random_operations import OPERATIONS, Operation, Pick, RandomOperations, begin
from tests.support.lanes import LANE, rounds
from tests.support.ledgers import open_ledger

from passback.engine.ledger import Ledger
from passback.stores.options import StoreOptions

if TYPE_CHECKING:
    from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.anyio, pytest.mark.redis, pytest.mark.postgres]

COUNT = int(os.environ.get("STORE_OPERATIONS") or rounds(1000, nightly=50_000))
ROOMS = {"large": StoreOptions(), "small": StoreOptions(log_bytes=400)}
STEPS = 25  # of one conversation, at least


@pytest.fixture(params=ROOMS)
async def all_stores(
    request: pytest.FixtureRequest, tmp_path: Path, redis_url: str, postgres_url: str
) -> AsyncGenerator[list[Ledger]]:
    urls = ["memory:", f"sqlite:///{tmp_path}/random.db", redis_url, postgres_url]
    if LANE == "nightly":
        newest: RedisServer = request.getfixturevalue("newest_redis")
        newest.command("FLUSHALL")
        urls += [newest.url, request.getfixturevalue("redis_cluster_url")]
    options = ROOMS[request.param]
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_ledger(url, options=options)) for url in urls]


@pytest.mark.timeout(300 + COUNT / 10)  # a failure is made small before it is shown
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 10**9)),
        min_size=STEPS,
        max_size=2 * STEPS,
    )
)
@settings(
    max_examples=-(-COUNT // (STEPS * len(ROOMS))),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@pytest.mark.promise("P15")
async def test_all_stores_answer_the_same_operations_alike(
    all_stores: list[Ledger], steps: list[tuple[Operation, int]]
) -> None:
    walk = RandomOperations(all_stores)
    await begin(walk, Pick(0))
    for operation, number in steps:
        await operation(walk, Pick(number))
    await walk.finish()
