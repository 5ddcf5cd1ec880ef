"""The SQLite file: its rights and its version, opened by many at once, and its end."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.contract.door.writes import (
    LONG,
    OVER,
    a_write,
    append,
    applied,
    entries,
    entry,
    log_of,
    made,
    new_key,
    running,
    whole,
)

from passback.core.conversation.store import Append, Wanted
from passback.core.errors import ConfigurationError, StoreError, StoreUnavailable
from passback.stores.options import StoreOptions
from passback.stores.sqlite import SqliteStore
from passback.stores.sqlite.file import (
    NETWORK_FILE_SYSTEMS,
    file_system_of,
    prepare_file,
)

pytestmark = pytest.mark.anyio

MOUNTS = """\
sysfs /sys sysfs rw 0 0
/dev/sda1 / ext4 rw 0 0
server:/shares /remote nfs4 rw 0 0
//nas/two\\040words /mnt/two\\040words cifs rw 0 0
/dev/sdb1 /remote/local xfs rw 0 0
broken
"""


def rights(*paths: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}


def read_folder(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


# ---------------------------------------------------------------- the file
async def test_conversations_and_logs_are_there_after_a_restart(path: Path) -> None:
    async with SqliteStore(path) as store:
        key, run_id = await running(store)
        before = await whole(store, key), await log_of(store, key, run_id)
    async with SqliteStore(path) as store:
        assert (await whole(store, key), await log_of(store, key, run_id)) == before
    assert before[1] == [entry(1, 1)]


async def test_only_the_owner_may_read_the_file(path: Path) -> None:
    previous = os.umask(0)
    try:
        async with SqliteStore(path) as store:
            await made(store)
            found = rights(path.parent, *path.parent.iterdir())
    finally:
        os.umask(previous)
    assert found == {
        "state": 0o700,
        "conversations.db": 0o600,
        "conversations.db-wal": 0o600,
        "conversations.db-shm": 0o600,
        "conversations.db-reserve": 0o600,
    }


@pytest.fixture
def foreign(path: Path) -> Path:
    """A file of somebody else's, where the store's would be."""
    path.parent.mkdir()
    path.write_text("not a database, but long enough to look at " * 100)
    path.chmod(0o644)
    return path


async def test_a_file_that_is_no_database_is_refused_and_keeps_its_mode(foreign: Path) -> None:
    with pytest.raises(ConfigurationError, match="NOTADB"):
        await SqliteStore(foreign).__aenter__()
    assert rights(foreign) == {foreign.name: 0o644}


@pytest.mark.parametrize("version", [14, 99])
async def test_a_file_of_another_version_is_refused(path: Path, version: int) -> None:
    async with SqliteStore(path):
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    advice = "use the passback that wrote it, or another file"
    with pytest.raises(ConfigurationError, match=f"schema version {version}, .*: {advice}"):
        await SqliteStore(path).__aenter__()


@pytest.mark.parametrize("version", [0, 7])
async def test_a_database_of_another_program_is_refused_and_left_alone(
    path: Path, version: int
) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
        db.execute(f"PRAGMA user_version = {version}")
        before = read_folder(path.parent)
        with pytest.raises(ConfigurationError, match="another program"):
            await SqliteStore(path).__aenter__()
        assert read_folder(path.parent) == before


async def test_a_path_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        await SqliteStore(tmp_path / "file" / "conversations.db").__aenter__()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/passback.db", "ext4"),
        ("/remote/me/passback.db", "nfs4"),
        ("/remote/local/passback.db", "xfs"),
        ("/remotes/passback.db", "ext4"),
        ("/mnt/two words/passback.db", "cifs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind
    assert (kind in NETWORK_FILE_SYSTEMS) == (kind in {"nfs4", "cifs"})
    assert file_system_of(Path(path), "") is None


# ---------------------------------------------------------------- opening
async def test_several_workers_may_open_a_new_file_at_once(path: Path) -> None:
    opened: list[SqliteStore] = []

    async def open_one() -> None:
        async with SqliteStore(path) as store:
            opened.append(store)
            await made(store)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(open_one)
    assert len(opened) == 8


async def test_a_new_file_that_another_process_holds_for_a_moment_is_waited_for(path: Path) -> None:
    prepare_file(path)
    opened = anyio.Event()

    async def open_it() -> None:
        async with SqliteStore(path) as store:
            await made(store)
            opened.set()

    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(open_it)
                await anyio.wait_all_tasks_blocked()
                assert not opened.is_set()
                other.execute("ROLLBACK")
                await opened.wait()


# ---------------------------------------------------------------- life and errors
async def test_a_closed_store_is_unavailable_and_can_be_opened_again(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable):
        await store.read(new_key(), Wanted())
    async with store:
        key, run_id = await running(store)
    with pytest.raises(StoreUnavailable):
        await store.append([Append(key, run_id, "one")], lease=LONG)
    async with store:
        assert (await append(store, Append(key, run_id, "one")))[0].held


async def test_what_was_begun_is_finished_before_the_store_closes(path: Path) -> None:
    held: list[bool] = []
    async with anyio.create_task_group() as tasks, SqliteStore(path) as store:
        key, run_id = await running(store)

        async def write(seq: int) -> None:
            held.append((await append(store, Append(key, run_id, "one", entry(1, seq))))[0].held)

        for seq in range(2, 52):
            tasks.start_soon(write, seq)
        await anyio.wait_all_tasks_blocked()
    assert held == [True] * 50
    async with SqliteStore(path) as store:
        assert await log_of(store, key, run_id) == entries(1, 1, 51)


async def test_a_cancelled_caller_leaves_the_others_their_answers(store: SqliteStore) -> None:
    key, run_id = await running(store)
    cancelled = anyio.CancelScope()

    async def write(scope: anyio.CancelScope, seq: int) -> None:
        with scope:
            await append(store, Append(key, run_id, "one", entry(1, seq)))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, anyio.CancelScope(), 2)
            tasks.start_soon(write, cancelled, 3)
            tasks.start_soon(write, anyio.CancelScope(), 4)
            await anyio.lowlevel.checkpoint()
            cancelled.cancel()
    assert await log_of(store, key, run_id) == entries(1, 1, 4)


async def test_a_file_locked_by_another_process_can_be_read_and_is_an_error_in_time(
    path: Path,
) -> None:
    async with SqliteStore(path, StoreOptions(timeout=1)) as store:
        key = await made(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as other, anyio.fail_after(5):
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="another process"):
                await store.apply(a_write(key))
            assert (await whole(store, key)).version == 1
            other.execute("ROLLBACK")
            await applied(store, a_write(key))


async def test_a_damaged_file_is_a_store_error(path: Path, store: SqliteStore) -> None:
    key, run_id = await running(store, milliseconds=OVER)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE entries")
    with pytest.raises(StoreError, match="SQLITE_ERROR"):
        await log_of(store, key, run_id)
    with pytest.raises(StoreError, match="SQLITE_ERROR"):
        await running(store)
