"""A new SQLite file is opened by many at once."""

import sqlite3
from pathlib import Path

import anyio
import pytest
from tests.support.store_values import begin_run, new_key

from passback.stores.sqlite import SqliteStore
from passback.stores.sqlite.file import prepare_file

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "conversations.db"


async def test_several_workers_may_open_a_new_file_at_once(path: Path) -> None:
    opened: list[SqliteStore] = []

    async def open_one() -> None:
        async with SqliteStore(path) as store:
            opened.append(store)
            await begin_run(store, new_key())

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(open_one)

    assert len(opened) == 8


async def test_a_new_file_that_another_process_holds_for_a_moment_is_waited_for(path: Path) -> None:
    prepare_file(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            opened = anyio.Event()

            async def open_it() -> None:
                async with SqliteStore(path) as store:
                    await begin_run(store, new_key())
                    opened.set()

            tasks.start_soon(open_it)
            await anyio.wait_all_tasks_blocked()
            assert not opened.is_set()
            other.execute("ROLLBACK")
            await opened.wait()
    other.close()
