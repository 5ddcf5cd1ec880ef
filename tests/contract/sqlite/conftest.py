"""What SQLite alone has: its file, its threads, and several processes on it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.support.lanes import LANE

from passback.stores.sqlite import SqliteStore

collect_ignore_glob = ["test_*.py"] if LANE == "quick" else []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "conversations.db"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    async with SqliteStore(path) as opened:
        yield opened
