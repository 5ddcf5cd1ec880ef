"""Random conversations: the record, the transcript, the owed calls and the logs keep promises.

The environment variable LIFE_MOVES says how many moves there are at least, on each store.
"""

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.conversation_steps import STEPS, ConversationStep, end, message
from tests.contract.random_conversation import conversation
from tests.contract.random_operations import Pick
from tests.support.lanes import rounds
from tests.support.ledgers import open_ledger

from passback.engine.ledger import Ledger

if TYPE_CHECKING:
    from tests.support.postgres_server import PostgresServer
    from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio

COUNT = int(os.environ.get("LIFE_MOVES") or rounds(600, nightly=20_000))
MIN_STEPS = 20  # of one conversation, at least


KINDS = [
    pytest.param("memory"),
    pytest.param("sqlite"),
    pytest.param("redis", marks=pytest.mark.redis),
    # in CI, test_store_random.py has it among its stores
    pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.nightly]),
]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that may have conversations of others."""
    match request.param:
        case "redis":
            redis: RedisServer = request.getfixturevalue("shared_redis")
            return redis.url
        case "postgres":
            postgres: PostgresServer = request.getfixturevalue("shared_postgres")
            return postgres.url()
        case "sqlite":
            return f"sqlite:///{tmp_path}/lives.db"
        case _:
            return "memory:"


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Ledger]:
    async with open_ledger(url) as store:
        yield store


@pytest.mark.timeout(300 + COUNT / 5)  # a failure is made small before it is shown
@given(
    moves=st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 10**9)),
        min_size=MIN_STEPS,
        max_size=2 * MIN_STEPS,
    )
)
@settings(
    max_examples=-(-COUNT // MIN_STEPS), deadline=None, suppress_health_check=list(HealthCheck)
)
@pytest.mark.promise("P2", "P3", "P5", "P6", "P8", "P9", "P10")
async def test_promises_hold_after_each_step(
    store: Ledger, moves: list[tuple[ConversationStep, int]]
) -> None:
    async with conversation(store) as one:
        for move, number in [(message, 0), *moves]:
            await move(one, Pick(number))
            await one.settle()
            await one.check()
        await end(one)
        await one.check()
        await one.check_logs()
