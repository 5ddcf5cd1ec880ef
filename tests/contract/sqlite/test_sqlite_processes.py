"""Processes on one file that are killed: what was acknowledged is there, once (P8, P10, P15).

This module is also their program: `python -m tests.contract.sqlite.test_sqlite_processes`, then
`post FILE NAME POSTS` or `write FILE`.
"""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.contract.door.writes import ALL, LONG, a_write, applied, entry, log_of
from tests.support.waiting import moment

from passback.core.conversation.store import (
    Append,
    Found,
    Guard,
    LogChange,
    Store,
    TakeLease,
    Write,
)
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId
from passback.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

LEASE = 500  # milliseconds
ROOT = Path(__file__).parents[3]


def key_of(name: str) -> ConversationKey:
    return ConversationKey(OwnerId("owner"), ConversationId(name))


KEY = key_of("shared")


def acknowledge(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


# ---------------------------------------------------------------- a process that posts
async def post_all(path: str, name: str, posts: int) -> None:
    """Post messages one by one, in turn with others; print each when it is acknowledged."""
    async with SqliteStore(Path(path)) as store:
        for number in range(posts):
            text = f"{name}-{number}"
            while not await begin(store, text):
                await recover(store)
                await moment()
            acknowledge(text)
            await finish(store, text)


async def begin(store: Store, text: str) -> bool:
    """Write a message and take the lease, unless somebody has it; sent twice, as after a fault."""
    found = await store.read(KEY, ALL)
    if found.lease is not None:
        return False
    write = Write(
        KEY,
        f"begin:{text}",
        Guard(version=found.version),
        messages=(text.encode(),),
        log=LogChange(RunId(text), entry(epoch_of(found), 1)),
        lease=TakeLease(text, LEASE),
        touches=True,
    )
    answers = [await store.apply(write), await store.apply(write)]
    assert answers[0] == answers[1] or answers[0] is None
    return answers[0] is not None


def epoch_of(found: Found) -> int:
    """Return a number that grows with each lease."""
    return found.version + 1


async def finish(store: Store, fence: str) -> None:
    """Answer the last message under a lease, if it is held still."""
    found = await store.read(KEY, ALL)
    assert found.messages is not None
    asked, seq = found.messages[-1].decode(), found.lease.seq + 1 if found.lease else 0
    run_id, epoch = RunId(asked), found.version
    [answer] = await store.append([Append(KEY, run_id, fence, entry(epoch, seq))], lease=LEASE)
    assert not isinstance(answer, Exception)
    ends = Write(
        KEY,
        f"end:{asked}",
        Guard(fence=fence),
        messages=(f"re:{asked}".encode(),),
        log=LogChange(run_id, entry(epoch, seq + 1, record=b"the end"), ends=True),
        lease="end",
    )
    if answer.held and await store.apply(ends) is not None:
        await store.apply(ends)


async def recover(store: Store) -> None:
    """Go on where nobody works any more."""
    for key in await store.due(9, milliseconds=LEASE):
        assert key == KEY
        found = await store.read(KEY, ALL)
        assert found.messages is not None
        run_id, fence = RunId(found.messages[-1].decode()), f"again:{found.version}"
        takes = replace(
            a_write(KEY, Guard(version=found.version, lease_over=True)),
            id=fence,
            log=LogChange(run_id, entry(epoch_of(found), 1)),
            lease=TakeLease(fence, LEASE),
        )
        if await store.apply(takes) is not None:
            await finish(store, fence)


# ---------------------------------------------------------------- a process that writes
async def write_on(path: str) -> None:
    """Append to four conversations, and write messages; print each when it is acknowledged."""

    async def write(name: str) -> None:
        key, run_id = key_of(name), RunId(f"run-{name}")
        begins = Write(key, "begin", Guard(version=0), log=LogChange(run_id, entry(1, 1)))
        await applied(store, replace(begins, lease=TakeLease("fence", LONG)))
        for number in range(1, 10**6):
            seq = 2 * number
            await store.append([Append(key, run_id, "fence", entry(1, seq))], lease=LONG)
            acknowledge("log", name, seq)
            turn = a_write(key, Guard(fence="fence"))
            log = LogChange(run_id, entry(1, seq + 1))
            await applied(store, replace(turn, messages=(b"%d" % number,), log=log))
            acknowledge("messages", name, number)

    async with SqliteStore(Path(path)) as store, anyio.create_task_group() as tasks:
        for name in ("a", "b", "c", "d"):
            tasks.start_soon(write, name)


# ---------------------------------------------------------------- the tests
@contextmanager
def process(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.contract.sqlite.test_sqlite_processes"]
    command += map(str, arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as started:
        try:
            yield started
        finally:
            started.kill()


def acknowledged(process: subprocess.Popen[str], lines: int | None = None) -> list[str]:
    """Return the next lines, or all until its end."""
    assert process.stdout is not None
    if lines is None:
        return process.stdout.read().splitlines()
    return [process.stdout.readline().strip() for _ in range(lines)]


@pytest.mark.promise("P8", "P10", "P15")
@pytest.mark.parametrize("lines", [1, 6, 21])
async def test_posts_of_two_processes_are_answered_once_though_one_is_killed(
    tmp_path: Path, lines: int
) -> None:
    path = tmp_path / "conversations.db"
    with ExitStack() as stack:
        killed, other = [stack.enter_context(process("post", path, name, 40)) for name in "ab"]
        posted = acknowledged(killed, lines)
        killed.send_signal(signal.SIGKILL)
        posted += acknowledged(killed)
        others = acknowledged(other)
        assert other.wait(20) == 0

    assert len(others) == 40
    async with SqliteStore(path) as store:
        with anyio.fail_after(20):
            while (found := await store.read(KEY, ALL)).lease is not None:
                await recover(store)
        assert found.messages is not None
        record = [each.decode() for each in found.messages]
        asked = record[::2]
        assert record[1::2] == [f"re:{text}" for text in asked]
        assert len(set(asked)) == len(asked)
        for name, texts in (("a", posted), ("b", others)):
            theirs = [text for text in asked if text.startswith(f"{name}-")]
            # the last one may have been stored and not acknowledged
            assert theirs[: len(texts)] == texts
            assert len(theirs) <= len(texts) + 1
        for text in asked:
            log = await log_of(store, KEY, RunId(text))
            assert log is not None
            ends = [each.record == b"the end" for each in log]
            assert ends == [False] * (len(log) - 1) + [True]


@pytest.mark.parametrize("lines", [5, 60, 301])
async def test_a_killed_writer_has_lost_nothing_that_was_acknowledged(
    tmp_path: Path, lines: int
) -> None:
    path = tmp_path / "conversations.db"
    newest: dict[tuple[str, str], int] = {}
    with process("write", path) as writer:
        for line in acknowledged(writer, lines):
            kind, name, acknowledged_last = line.split()
            newest[kind, name] = int(acknowledged_last)
        writer.send_signal(signal.SIGKILL)

    async with SqliteStore(path) as store:
        for (kind, name), number in newest.items():
            found = await store.read(key_of(name), ALL)
            log = await log_of(store, key_of(name), RunId(f"run-{name}"))
            assert log is not None
            assert [each.position.seq for each in log] == list(range(1, len(log) + 1))
            assert found.lease is not None
            assert found.lease.seq == len(log)
            assert found.messages is not None
            assert found.message_count == len(found.messages)
            assert (len(log) if kind == "log" else found.message_count) >= number
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["post", file, name, posts]:
            anyio.run(post_all, file, name, int(posts))
        case ["write", file]:
            anyio.run(write_on, file)
        case _:
            sys.exit("Usage: post FILE NAME POSTS, or write FILE")
