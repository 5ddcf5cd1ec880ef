"""SQLite alone: the file, its rights, its version, and a killed writer."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from tests.support.store_values import (
    CANCELLED,
    LONG,
    begin_run,
    change,
    ending,
    new_key,
    texts,
    user,
    waiting,
)
from tests.support.waiting import moment

from passback.core.changes import Lease
from passback.core.errors import (
    ConfigurationError,
    StoreError,
    StoreUnavailable,
    UnknownRun,
)
from passback.core.events import RunStarted
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId, RunRef
from passback.core.posts import Receipt
from passback.stores.options import StoreOptions
from passback.stores.sqlite import SqliteStore
from passback.stores.sqlite.file import NETWORK_FILE_SYSTEMS, file_system_of

pytestmark = pytest.mark.anyio

MOUNTS = """\
sysfs /sys sysfs rw 0 0
/dev/sda1 / ext4 rw 0 0
server:/shares /remote nfs4 rw 0 0
//nas/two\\040words /mnt/two\\040words cifs rw 0 0
/dev/sdb1 /remote/local xfs rw 0 0
broken
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "conversations.db"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    async with SqliteStore(path) as opened:
        yield opened


def rights(*paths: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}


# ---------------------------------------------------------------- the file
async def test_conversations_and_logs_are_there_after_a_restart(path: Path) -> None:
    async with SqliteStore(path) as store:
        held = await begin_run(store, new_key(), user("hello"))
        await store.commit(ending(held, 0, 2, say="hi"), lease=LONG)
        before = await store.load(held.run.key), await store.read_log(held.run)

    async with SqliteStore(path) as store:
        assert (await store.load(held.run.key), await store.read_log(held.run)) == before


async def test_only_the_owner_may_read_the_file(path: Path) -> None:
    previous = os.umask(0)
    try:
        async with SqliteStore(path) as store:
            await begin_run(store, new_key())
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
    path.write_text("not a database")
    path.chmod(0o644)
    return path


async def test_a_foreign_file_keeps_its_mode(foreign: Path) -> None:
    with pytest.raises(ConfigurationError):
        async with SqliteStore(foreign):
            pass
    assert rights(foreign) == {foreign.name: 0o644}


async def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    async with SqliteStore(path):
        pass
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(ConfigurationError, match="version 99"):
        await SqliteStore(path).__aenter__()


async def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (a)")
    db.close()

    with pytest.raises(ConfigurationError, match="another program"):
        await SqliteStore(path).__aenter__()

    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    db.close()


@pytest.fixture
def text_file(path: Path) -> Path:
    path.parent.mkdir()
    path.write_text("not a database, but long enough to look at " * 100)
    return path


async def test_a_file_that_is_no_database_is_refused(text_file: Path) -> None:

    with pytest.raises(ConfigurationError, match="NOTADB"):
        await SqliteStore(text_file).__aenter__()


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


# ---------------------------------------------------------------- life
async def test_a_closed_store_is_unavailable_and_can_be_opened_again(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable):
        await store.status(new_key())
    async with store:
        held = await begin_run(store, new_key())
    with pytest.raises(StoreUnavailable):
        await store.renew([held], lease=LONG)
    async with store:
        assert await store.renew([held], lease=LONG) == ["held"]


async def test_what_was_begun_is_finished_before_the_store_closes(path: Path) -> None:
    states: list[object] = []

    async def write(store: SqliteStore, held: Lease, first: int) -> None:
        states.append(await store.append([texts(held, first, "a")], lease=LONG))

    async with anyio.create_task_group() as tasks, SqliteStore(path) as store:
        held = await begin_run(store, new_key())
        for first in range(2, 52):
            tasks.start_soon(write, store, held, first)
        await anyio.wait_all_tasks_blocked()

    assert states == [["held"]] * 50
    async with SqliteStore(path) as store:
        assert len(await store.read_log(held.run)) == 51


async def test_a_cancelled_caller_leaves_the_others_their_answers(store: SqliteStore) -> None:
    held = await begin_run(store, new_key())

    async def write(scope: anyio.CancelScope, first: int) -> None:
        with scope:
            await store.append([texts(held, first, "a")], lease=LONG)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            cancelled = anyio.CancelScope()
            tasks.start_soon(write, anyio.CancelScope(), 2)
            tasks.start_soon(write, cancelled, 3)
            tasks.start_soon(write, anyio.CancelScope(), 4)
            await anyio.lowlevel.checkpoint()
            cancelled.cancel()

    assert len(await store.read_log(held.run)) == 4


# ---------------------------------------------------------------- errors
async def test_a_file_locked_by_another_process_is_an_error_in_time(path: Path) -> None:
    async with SqliteStore(path, StoreOptions(timeout=1)) as store:
        held = await begin_run(store, new_key())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with anyio.fail_after(5):
            with pytest.raises(StoreUnavailable):
                await store.commit(ending(held, 0, 2), lease=LONG)
            assert (await store.status(held.run.key)).running
            other.execute("ROLLBACK")
            other.close()
            await store.commit(ending(held, 0, 2), lease=LONG)


async def test_a_damaged_file_is_a_store_error(path: Path, store: SqliteStore) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE messages")
    db.close()

    with pytest.raises(StoreError):
        await store.park(change(new_key(), 0, user("hello")))
    with pytest.raises(StoreError):
        await store.load((await begin_run(store, new_key())).run.key)


# ---------------------------------------------------------------- time
async def test_logs_and_conversations_expire(path: Path) -> None:
    lasting, brief = new_key(), new_key()
    async with SqliteStore(path, StoreOptions(log_ttl=0.001)) as store:
        held = await begin_run(store, lasting, user("hello"))
        await store.commit(ending(held, 0, 2), lease=LONG)
    async with SqliteStore(path, StoreOptions(ttl=0.001)) as store:
        await store.park(change(brief, 0, user("hello")))
    db = sqlite3.connect(path)
    async with SqliteStore(path) as store:
        await until_gone(store, brief)
        await begin_run(store, new_key())
    kept = db.execute("SELECT count(*) FROM conversations").fetchone()
    entries = db.execute("SELECT count(*) FROM entries").fetchone()
    db.close()

    assert kept == (2,)
    assert entries == (1,)


async def until_gone(store: SqliteStore, key: ConversationKey) -> None:
    with anyio.fail_after(5):
        while (await store.status(key)).version:
            await moment()


async def test_posts_that_wait_do_not_expire(path: Path) -> None:
    async with SqliteStore(path, StoreOptions(ttl=0.001)) as store:
        held = await begin_run(store, new_key())
        entry = waiting(held.run.key)
        await store.enqueue(entry)
        assert await store.commit(ending(held, 0, 2), lease=LONG)
        for _ in range(20):
            assert (await store.status(held.run.key)).queued

        assert await store.cancel(entry.run, CANCELLED)

        await until_gone(store, held.run.key)


async def test_an_expired_conversation_leaves_nothing_to_the_next_of_its_name(path: Path) -> None:
    key = new_key()
    async with SqliteStore(path, StoreOptions(ttl=0.001)) as store:
        old = await begin_run(store, key, user("old"), lease=0)
        receipts = {"key:k": Receipt("ab" * 32)}
        await store.enqueue(gone := waiting(key, receipts=receipts))
        await store.cancel(gone.run, CANCELLED)
        await store.commit(ending(old, 0, 2), lease=0)
        await until_gone(store, key)
        assert await store.take_due(9, lease=0) == []

        held = await begin_run(store, key, user("new"))

        loaded = await store.load(key, receipts=["key:k"])
        assert (loaded.messages, loaded.receipts, loaded.queue) == ((user("new"),), {}, ())
        assert (await store.read_log(held.run))[0].position == (1, 1)
        for run in (old.run, gone.run):
            with pytest.raises(UnknownRun):
                await store.read_log(run)


# ---------------------------------------------------------------- kill -9
WRITER = """
import sys
from pathlib import Path
import anyio
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.stores.sqlite import SqliteStore
from tests.support.store_values import begin_run, change, texts, turn, user

async def write(number, store):
    key = ConversationKey(OwnerId("owner"), ConversationId(str(number)))
    held = await begin_run(store, key, user("go"))
    for step in range(10**6):
        first = 2 + 2 * step
        await store.append([texts(held, first, "a")], lease=60)
        print("log", number, held.run.run_id, first, flush=True)
        events = texts(held, 1, "b").events
        await store.commit(turn(held, step, first + 1, *events, say=str(step)), lease=60)
        print("turn", number, held.run.run_id, step, flush=True)

async def main():
    async with SqliteStore(Path(sys.argv[1])) as store, anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(write, number, store)

anyio.run(main)
"""


@pytest.mark.parametrize("lines", [5, 60, 301])
async def test_a_killed_writer_has_lost_nothing_that_was_acknowledged(
    path: Path, lines: int
) -> None:
    acknowledged = killed_after(path, lines)

    async with SqliteStore(path) as store:
        for kind, number, run_id, count in acknowledged:
            key = ConversationKey(OwnerId("owner"), ConversationId(number))
            if kind == "turn":
                loaded = await store.load(key)
                assert loaded.status.message_count == len(loaded.messages) >= 2 + count
            else:
                log = await store.read_log(RunRef(key, RunId(run_id)), limit=10**6)
                assert [logged.position.seq for logged in log] == list(range(1, len(log) + 1))
                assert len(log) >= count
                assert log[0].event == RunStarted(RunId(run_id))
    assert integrity(path) == [("ok",)]


def killed_after(path: Path, lines: int) -> set[tuple[str, str, str, int]]:
    """Return the newest that a killed writer had acknowledged, by kind and conversation."""
    newest: dict[tuple[str, str, str], int] = {}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as writer:
        assert writer.stdout is not None
        for _ in range(lines):
            kind, number, run_id, count = writer.stdout.readline().split()
            newest[kind, number, run_id] = int(count)
        writer.send_signal(signal.SIGKILL)
    return {(*what, count) for what, count in newest.items()}


def integrity(path: Path) -> list[tuple[str]]:
    db = sqlite3.connect(path)
    found: list[tuple[str]] = db.execute("PRAGMA integrity_check").fetchall()
    db.close()
    return found
