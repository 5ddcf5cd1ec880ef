"""Conversations in one SQLite file: the store that needs no other program.

Several processes of one machine may share the file. A write that a client may act on is synced to
the disk before it is acknowledged. Batches of deltas are written without waiting for the disk: a
killed process loses neither, and a loss of power at most deltas, which a take-over removes anyway.
"""

import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from passback.core.conversation.store import (
    Amounts,
    Append,
    Appended,
    Applied,
    Found,
    LogPage,
    Query,
    QueryPage,
    Span,
    SpentUnder,
    TakeLease,
    Wanted,
    Watch,
    Write,
)
from passback.core.errors import StoreError, StoreFull
from passback.core.events import Position
from passback.core.ids import ConversationTag, conversation_tag
from passback.core.messages import ConversationKey, RunId
from passback.pacing import LargeWrites as LargeWrites
from passback.stores.coordination import LogNotifications, LogWaiter, is_large
from passback.stores.options import StoreOptions
from passback.stores.sqlite import reads, writes
from passback.stores.sqlite.file import (
    Reserve,
    connect,
    prepare_file,
    refuse_full_disk,
    warn_of_others,
)
from passback.stores.sqlite.tables import Retention
from passback.stores.sqlite.thread import Job, SqliteThread, T

CLOSE_TIMEOUT = 5.0  # seconds
POLL_PAUSE = 0.1  # seconds between two checks for writes of other processes


class SqliteStore:
    """The `Store` on a file."""

    def __init__(self, path: Path, options: StoreOptions | None = None) -> None:
        options = options or StoreOptions()
        self._path = path
        self._retention = Retention.from_options(options)
        # half the time, so that a file in use is told from a disk that hangs
        opening = partial(connect, path, options.timeout / 2)
        self._writer = SqliteThread(opening, "BEGIN IMMEDIATE", options.timeout)
        self._reader = SqliteThread(opening, "BEGIN", options.timeout)
        self._sweeper = writes.Sweeper()
        self._reserve = Reserve(path)
        self._is_released = False
        self._stack = AsyncExitStack()
        self._notifications = LogNotifications()
        self._data_version = -1
        self._last_poll = 0.0

    async def __aenter__(self) -> "SqliteStore":
        """Raises ConfigurationError when the file cannot be used."""
        await anyio.to_thread.run_sync(prepare_file, self._path)
        async with AsyncExitStack() as stack:
            for thread in (self._writer, self._reader):
                await thread.open()
                stack.push_async_callback(thread.close)
            self._stack = stack.pop_all()
        await anyio.to_thread.run_sync(self._reserve.fill)
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
            await self._stack.aclose()

    @property
    def location(self) -> str:
        return f"sqlite:///{self._path.absolute()}"

    @property
    def sees_followers(self) -> bool:
        """False: a process that waits for the file to change leaves no trace in it."""
        return False

    async def check(self, /, *, briefly: bool = False) -> Sequence[str]:
        if briefly:
            await self._try_write()
            return []
        warnings = await anyio.to_thread.run_sync(warn_of_others, self._path)
        try:
            await self._try_write()
        except StoreFull as error:  # stored conversations can be read, and deleted
            warnings.append(f"{error.message}: nothing new can be stored.")
        return warnings

    async def _try_write(self) -> None:
        await self._writer.run(writes.test_write)
        await anyio.to_thread.run_sync(refuse_full_disk, self._path)

    async def read(self, key: ConversationKey | ConversationTag, wanted: Wanted, /) -> Found:
        by_tag = isinstance(key, str)
        tag = key if isinstance(key, str) else conversation_tag(key)
        return await self._reader.run(
            lambda db: reads.read_conversation(db, tag, wanted, with_key=by_tag)
        )

    async def apply(self, write: Write, /) -> Applied | None:
        tag, is_taken = conversation_tag(write.key), isinstance(write.lease, TakeLease)

        def job(db: sqlite3.Connection) -> Applied | None:
            applied = writes.apply_write(db, tag, write, self._retention)
            if applied is not None and is_taken:
                # a new run is the occasion to delete what has expired: no task does it
                self._sweeper.sweep(db)
            return applied

        return await self._run_write(tag, job, large=is_large(_records(write)))

    async def append(
        self, appends: Sequence[Append], /, *, lease: int
    ) -> Sequence[Appended | StoreError]:
        tags = [conversation_tag(each.key) for each in appends]
        append = partial(writes.append_entry, lease=lease, retention=self._retention)
        jobs = [
            partial(append, tag=tag, append=each) for tag, each in zip(tags, appends, strict=True)
        ]
        large = is_large([each.entry.record for each in appends if each.entry])
        try:
            return await self._writer.run_all(jobs, large=large)
        finally:
            for tag in tags:
                self._notifications.notify(tag)

    async def _run_write(self, tag: str, job: Job[T], *, large: bool = False) -> T:
        try:
            return await self._writer.run(job, durable=True, large=large)
        finally:
            self._notifications.notify(tag)

    async def log(
        self, key: ConversationKey, run_id: RunId | None, /, *, after: Position, limit: int
    ) -> LogPage | None:
        tag = conversation_tag(key)
        return await self._reader.run(lambda db: reads.read_log(db, tag, run_id, after, limit))

    async def page(
        self, key: ConversationKey, spans: Sequence[Span], /, *, limit: int
    ) -> Sequence[bytes]:
        tag = conversation_tag(key)
        return await self._reader.run(lambda db: reads.read_page(db, tag, spans, limit))

    async def due(self, limit: int, /, *, milliseconds: int) -> Sequence[ConversationKey]:
        return await self._writer.run(lambda db: writes.take_due(db, limit, milliseconds))

    async def query(self, query: Query, /) -> QueryPage:
        return await self._reader.run(lambda db: reads.query_conversations(db, query))

    async def spend(self, spent: SpentUnder, /) -> Amounts:
        return await self._writer.run(lambda db: writes.add_spent(db, spent), durable=True)

    async def delete(self, key: ConversationKey, /) -> bool:
        tag = conversation_tag(key)
        job = partial(writes.delete_conversation, tag=tag)
        try:
            deleted = await self._run_write(tag, job)
        except StoreFull:
            if not await anyio.to_thread.run_sync(self._reserve.release):
                raise
            self._is_released = True
            deleted = await self._run_write(tag, job)
        if self._is_released:
            self._is_released = not await anyio.to_thread.run_sync(self._reserve.fill)
        return deleted

    @asynccontextmanager
    async def watch(self, key: ConversationKey, /) -> AsyncGenerator[Watch]:
        waiter = LogWaiter(self._poll_file, POLL_PAUSE)
        with self._notifications.registered(conversation_tag(key), waiter):
            yield waiter

    async def _poll_file(self) -> None:
        """Notify all watchers if another process has written to the file."""
        time = anyio.current_time()
        if time - self._last_poll < POLL_PAUSE:
            return
        self._last_poll = time
        try:
            version = await self._reader.run(reads.data_version)
        except StoreError:
            return  # the watcher reads the log next, and meets the error there
        if version != self._data_version:
            self._data_version = version
            self._notifications.notify_all()


def _records(write: Write) -> list[bytes]:
    """Return the records of a write."""
    records = [*write.messages, *write.runs.values()]
    records += [each for each in (write.head, *write.fields.values()) if each is not None]
    if write.enqueue is not None:
        records.append(write.enqueue.record)
    if write.log is not None and write.log.entry is not None:
        records.append(write.log.entry.record)
    return records
