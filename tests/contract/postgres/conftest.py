"""PostgreSQL servers and databases for the tests of what only its store has."""

from collections.abc import AsyncGenerator, Iterator

import pytest
from tests.support.lanes import LANE
from tests.support.postgres_server import PostgresServer, postgres_server

from passback.stores.postgres import PostgresStore

collect_ignore_glob = ["test_*.py"] if LANE == "quick" else []


@pytest.fixture
def database(shared_postgres: PostgresServer) -> Iterator[str]:
    """The name of an empty database."""
    name = shared_postgres.new_database()
    yield name
    shared_postgres.run(f"DROP DATABASE {name} WITH (FORCE)", "SELECT 1")


@pytest.fixture
def url(shared_postgres: PostgresServer, database: str) -> str:
    return shared_postgres.url(database)


@pytest.fixture
async def store(url: str) -> AsyncGenerator[PostgresStore]:
    async with PostgresStore(url) as opened:
        yield opened


@pytest.fixture
async def peer(store: PostgresStore, url: str) -> AsyncGenerator[PostgresStore]:
    """Open the same store as another worker does: through connections of its own."""
    async with PostgresStore(url) as opened:
        yield opened


@pytest.fixture
def durable_postgres() -> Iterator[PostgresServer]:
    """A server that a test may break, and that waits for its disk."""
    with postgres_server() as server:
        yield server
