"""Stores that are open, in memory and in a file."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from tests.support.ledgers import open_ledger

from passback.engine.ledger import Ledger


@pytest.fixture
async def memory() -> AsyncGenerator[Ledger]:
    async with open_ledger("memory:") as store:
        yield store


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Ledger]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"
    async with open_ledger(url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_blocks_the_loop() -> Generator[None]:
    """A call of ours that blocks the event loop is an error there."""
    with blockbuster_ctx("passback") as watch:
        # the measuring of coverage has a lock of its own
        watch.functions["threading.Lock.acquire"].can_block_in("coverage/collector.py", "lock_data")
        yield
