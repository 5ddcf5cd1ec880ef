"""Conversations in one SQLite file, or in memory: the store that needs no other program.

Several processes of one machine may share the file. A write that a client may act on is synced to
the disk before it is acknowledged. Batches of deltas are written without waiting for the disk: a
killed process loses neither, and a loss of power at most deltas, which a take-over removes anyway.
"""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio

from passback.core.budgets import Spending, Spent
from passback.core.changes import (
    CallClaim,
    Change,
    ClaimRequest,
    Commit,
    ConversationPage,
    ConversationPlace,
    Enqueue,
    EnqueueAnswer,
    Inbox,
    InboxPlace,
    Lease,
    LeaseState,
    LoadedConversation,
    LogWrite,
    Page,
    Status,
    WrittenTitle,
)
from passback.core.conversation_settings import ConversationSettings, dump_settings
from passback.core.errors import StoreError, StoreFull
from passback.core.events import START, Cursor, Logged, Position, RunEvent, RunFinished
from passback.core.messages import ConversationKey, OwnerId, RunId, RunRef
from passback.core.ports import Watch
from passback.core.posts import ReceiptName
from passback.stores.coordination import (
    LargeWrites,
    LogNotifications,
    LogWaiter,
    is_large,
    is_large_commit,
)
from passback.stores.layout import (
    PackedChange,
    conversation_tag,
    make_fence,
    milliseconds,
    pack_change,
    pack_claim,
    pack_commit,
    pack_enqueue,
    pack_entry,
    pack_spending,
    pack_title,
    pack_write,
    unpack_key,
    unpack_spent,
)
from passback.stores.options import StoreOptions
from passback.stores.sqlite import changes, leases, reads, rows
from passback.stores.sqlite.changes import RunChange
from passback.stores.sqlite.file import (
    Reserve,
    connect,
    prepare_file,
    refuse_full_disk,
    warn_of_others,
)
from passback.stores.sqlite.rows import Retention
from passback.stores.sqlite.thread import Job, SqliteThread, T

CLOSE_TIMEOUT = 5.0  # seconds
POLL_PAUSE = 0.1  # seconds between two checks for writes of other processes


LeaseRule: TypeAlias = Callable[
    [sqlite3.Connection, PackedChange, RunChange, Retention], int | None
]


class SqliteStore:
    """The `Store` on a file; without `path` in memory, for tests and throw-away use."""

    def __init__(self, path: Path | None, options: StoreOptions | None = None) -> None:
        options = options or StoreOptions()
        self._path = path
        self._retention = Retention.from_options(options)
        # half the time, so that a file in use is told from a disk that hangs
        opening = partial(connect, path, options.timeout / 2)
        self._writer = SqliteThread(opening, "BEGIN IMMEDIATE", options.timeout)
        # a database in memory belongs to one connection
        self._reader = (
            self._writer if path is None else SqliteThread(opening, "BEGIN", options.timeout)
        )
        self._threads = [self._writer] if path is None else [self._writer, self._reader]
        self._reserve = None if path is None else Reserve(path)
        self._is_released = False
        self._large_writes = LargeWrites(options.timeout)
        self._stack = AsyncExitStack()
        self._notifications = LogNotifications()
        self._data_version = -1
        self._last_poll = 0.0

    async def __aenter__(self) -> "SqliteStore":
        """Raises ConfigurationError when the file cannot be used."""
        if self._path is not None:
            await anyio.to_thread.run_sync(prepare_file, self._path)
        async with AsyncExitStack() as stack:
            for thread in self._threads:
                await thread.open()
                stack.push_async_callback(thread.close)
            self._stack = stack.pop_all()
        if self._reserve is not None:
            await anyio.to_thread.run_sync(self._reserve.fill)
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
            await self._stack.aclose()

    @property
    def location(self) -> str:
        return "memory:" if self._path is None else f"sqlite:///{self._path.absolute()}"

    @property
    def sees_followers(self) -> bool:
        """False: a process that waits for the file to change leaves no trace in it."""
        return False

    async def check(self) -> Sequence[str]:
        if self._path is None:
            return ["The store is in memory: every conversation is gone when the server stops."]
        warnings = await anyio.to_thread.run_sync(warn_of_others, self._path)
        try:
            await self.ping()
        except StoreFull as error:  # stored conversations can be read, and deleted
            warnings.append(f"{error.message}: nothing new can be stored.")
        return warnings

    async def ping(self) -> None:
        await self._writer.run(rows.test_write)
        if self._path is not None:
            await anyio.to_thread.run_sync(refuse_full_disk, self._path)

    async def status(self, key: ConversationKey, /) -> Status:
        tag = conversation_tag(key)
        return await self._reader.run(lambda db: reads.read_status(db, tag))

    async def load(
        self,
        key: ConversationKey,
        /,
        *,
        receipts: Collection[ReceiptName] = (),
        within: int | None = None,
    ) -> LoadedConversation:
        tag = conversation_tag(key)
        return await self._reader.run(lambda db: reads.load_conversation(db, tag, receipts, within))

    async def page(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        tag = conversation_tag(key)
        return await self._reader.run(lambda db: reads.read_page(db, tag, start, limit))

    async def inbox(
        self, owner: OwnerId, /, *, after: InboxPlace | None = None, limit: int
    ) -> Inbox:
        return await self._reader.run(lambda db: reads.read_inbox(db, owner, after, limit))

    async def conversations(
        self,
        owner: OwnerId,
        /,
        *,
        after: ConversationPlace | None = None,
        limit: int,
        search: str = "",
    ) -> ConversationPage:
        return await self._reader.run(
            lambda db: reads.read_conversations(db, owner, after, limit, search)
        )

    async def rename(self, key: ConversationKey, title: str, /) -> bool:
        tag = conversation_tag(key)
        return await self._writer.run(
            lambda db: changes.rename_conversation(db, tag, title), durable=True
        )

    async def configure(self, key: ConversationKey, settings: ConversationSettings, /) -> bool:
        tag, record = conversation_tag(key), dump_settings(settings)
        return await self._writer.run(
            lambda db: changes.configure_conversation(db, tag, record), durable=True
        )

    async def write_title(self, written: WrittenTitle, /) -> bool:
        packed = pack_title(written)
        return await self._writer.run(lambda db: changes.write_title(db, packed), durable=True)

    async def park(self, change: Change, /) -> bool:
        packed = pack_change(change)
        return await self._run_write(
            packed.tag,
            lambda db: changes.park_change(db, packed, self._retention),
            large=is_large(packed.messages),
        )

    async def begin(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        run = RunChange(run_id, pack_entry(events), milliseconds(lease))
        return await self._take_lease(changes.begin_run, change, run)

    async def take_over(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        run = RunChange(run_id, pack_entry(events), milliseconds(lease))
        return await self._take_lease(changes.take_over, change, run)

    async def _take_lease(self, rule: LeaseRule, change: Change, run: RunChange) -> Lease | None:
        packed = pack_change(change)
        epoch = await self._run_write(
            packed.tag,
            lambda db: rule(db, packed, run, self._retention),
            large=is_large((*packed.messages, *run.records)),
        )
        if epoch is None:
            return None
        reference = RunRef(change.key, RunId(run.run_id))
        return Lease(reference, epoch, make_fence(epoch, change.nonce))

    async def fail_lost(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /
    ) -> bool:
        packed = pack_change(change)
        run = RunChange(run_id, pack_entry(events))
        return await self._run_write(
            packed.tag,
            lambda db: changes.fail_lost(db, packed, run, self._retention),
            large=is_large(run.records),
        )

    async def claim_call(self, request: ClaimRequest, /, *, seconds: float) -> CallClaim | None:
        packed = pack_claim(request, seconds)
        return await self._run_write(packed.tag, lambda db: changes.claim_call(db, packed))

    async def enqueue(self, entry: Enqueue, /) -> EnqueueAnswer:
        packed = pack_enqueue(entry)
        return await self._run_write(
            packed.tag, lambda db: changes.enqueue_post(db, packed, self._retention)
        )

    async def cancel(self, run: RunRef, finished: RunFinished, /) -> bool:
        tag, ending = conversation_tag(run.key), pack_entry((finished,))
        return await self._run_write(
            tag, lambda db: changes.cancel_run(db, tag, run.run_id, ending, self._retention)
        )

    async def keep_followed(self, run: RunRef, /, *, seconds: float) -> None:
        tag, time = conversation_tag(run.key), milliseconds(seconds)
        await self._writer.run(lambda db: leases.keep_followed(db, tag, run.run_id, time))

    async def take_due(self, limit: int, /, *, lease: float) -> Sequence[ConversationKey]:
        time = milliseconds(lease)
        found = await self._writer.run(lambda db: leases.take_due(db, limit, time))
        return [unpack_key(key) for key in found]

    async def spend(self, spending: Spending, /) -> Spent:
        packed = pack_spending(spending)
        return unpack_spent(
            await self._writer.run(lambda db: leases.add_spending(db, packed), durable=True)
        )

    async def delete(self, key: ConversationKey, /) -> bool:
        tag = conversation_tag(key)
        try:
            deleted = await self._run_write(tag, lambda db: rows.delete_conversation(db, tag))
        except StoreFull:
            if self._reserve is None or not await anyio.to_thread.run_sync(self._reserve.release):
                raise
            self._is_released = True
            deleted = await self._run_write(tag, lambda db: rows.delete_conversation(db, tag))
        if self._reserve is not None and self._is_released:
            self._is_released = not await anyio.to_thread.run_sync(self._reserve.fill)
        return deleted

    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        packed = [pack_write(w.lease, pack_entry(w.events, w.first)) for w in writes]
        append = partial(leases.append_events, lease=milliseconds(lease), retention=self._retention)
        jobs = [partial(append, write=write) for write in packed]
        large = is_large([write.entry.record for write in packed if write.entry])
        try:
            async with self._large_writes.hold_lock(large):
                return await self._writer.run_all(jobs, large=large)
        finally:
            for write in packed:
                self._notifications.notify(write.tag)

    async def renew(
        self, held: Sequence[Lease], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        return await self.append([LogWrite(each, 1, ()) for each in held], lease=lease)

    async def commit(self, commit: Commit, /, *, lease: float) -> bool:
        large = is_large_commit(commit)
        async with self._large_writes.hold_lock(large):
            packed, time = pack_commit(commit), milliseconds(lease)
            return await self._run_write(
                packed.write.tag,
                lambda db: leases.commit_turn(db, packed, time, self._retention),
                large=large,
            )

    async def release(self, lease: Lease, /) -> bool:
        packed = pack_write(lease)
        return await self._run_write(packed.tag, lambda db: leases.release_lease(db, packed))

    async def _run_write(self, tag: str, job: Job[T], *, large: bool = False) -> T:
        try:
            return await self._writer.run(job, durable=True, large=large)
        finally:
            self._notifications.notify(tag)

    async def read_log(
        self, run: RunRef, /, *, after: Position = START, limit: int = 1000
    ) -> Sequence[Logged]:
        tag = conversation_tag(run.key)
        return await self._reader.run(lambda db: reads.read_log(db, tag, run.run_id, after, limit))

    async def next_run(self, key: ConversationKey, /, *, after: Position) -> Cursor | None:
        tag = conversation_tag(key)
        return await self._reader.run(lambda db: reads.find_next_run(db, tag, after))

    @asynccontextmanager
    async def watch(self, key: ConversationKey, /) -> AsyncGenerator[Watch]:
        waiter = LogWaiter() if self._path is None else LogWaiter(self._poll_file, POLL_PAUSE)
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
