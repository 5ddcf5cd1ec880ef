"""Conversations in one SQLite file, or in memory: the store that needs no other program.

Several processes of one machine may share the file. What a client may act on is synced to the disk before it is
acknowledged; batches of mere deltas are written without waiting for the disk: a killed process loses neither, and
a loss of power at most deltas, which a take-over voids anyway.
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
    Enqueue,
    EnqueueAnswer,
    Inbox,
    Lease,
    LeaseState,
    Loaded,
    LogWrite,
    Page,
    Place,
    Status,
)
from passback.core.errors import StoreError, StoreFull
from passback.core.events import START, Logged, Position, RunEvent, RunFinished
from passback.core.messages import ConversationKey, OwnerId, RunId, RunRef
from passback.core.ports import Watch
from passback.core.posts import ReceiptName
from passback.stores.large import LargeWrites, is_large, is_large_commit
from passback.stores.layout import (
    PackedChange,
    fence,
    pack_change,
    pack_commit,
    pack_enqueue,
    pack_entry,
    pack_hold,
    pack_key,
    pack_owner,
    pack_spending,
    pack_write,
    tag,
    unpack_key,
    unpack_spent,
)
from passback.stores.notifications import LogNotifications, LogWaiter
from passback.stores.options import StoreOptions, milliseconds
from passback.stores.sqlite import changes, claims, leases, queue, reads, rows, spending
from passback.stores.sqlite.changes import Taking
from passback.stores.sqlite.reserve import Reserve, refuse_full_disk
from passback.stores.sqlite.rows import Retention
from passback.stores.sqlite.schema import connect, prepare_file, warn_of_others
from passback.stores.sqlite.thread import Job, SqliteThread, T

CLOSE_TIMEOUT = 5.0
POLL_PAUSE = 0.1  # seconds between two looks for what other processes have written


TakingRule: TypeAlias = Callable[[sqlite3.Connection, PackedChange, Taking, Retention], int | None]


class SqliteStore:
    """The `Store` on a file; `path` None keeps everything in memory, for tests and throw-away use."""

    def __init__(self, path: Path | None, options: StoreOptions | None = None) -> None:
        options = options or StoreOptions()
        self._path = path
        self._limits = Retention.of(options)
        opening = partial(connect, path, options.patience / 2)
        self._writer = SqliteThread(opening, "BEGIN IMMEDIATE", options.patience)
        self._reader = (
            self._writer if path is None else SqliteThread(opening, "BEGIN", options.patience)
        )
        self._threads = [self._writer] if path is None else [self._writer, self._reader]
        self._reserve = None if path is None else Reserve(path)
        self._is_released = False
        self._large = LargeWrites(options.patience)
        self._stack = AsyncExitStack()
        self._bells = LogNotifications()
        self._seen = -1
        self._looked = 0.0

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
        """Who waits for a file to change leaves no trace there."""
        return False

    async def check(self) -> Sequence[str]:
        if self._path is None:
            return ["The store is in memory: every conversation is gone when the server stops."]
        warnings = await anyio.to_thread.run_sync(warn_of_others, self._path)
        try:
            await self.ping()
        except StoreFull as error:  # what is there can be read, and deleted
            warnings.append(f"{error.message}: nothing new can be stored.")
        return warnings

    async def ping(self) -> None:
        await self._writer.run(rows.ping)
        if self._path is not None:
            await anyio.to_thread.run_sync(refuse_full_disk, self._path)

    # ------------------------------------------------------------ conversations
    async def status(self, key: ConversationKey, /) -> Status:
        name = tag(key)
        return await self._reader.run(lambda db: reads.status(db, name))

    async def load(
        self,
        key: ConversationKey,
        /,
        *,
        receipts: Collection[ReceiptName] = (),
        within: int | None = None,
    ) -> Loaded:
        name = tag(key)
        return await self._reader.run(lambda db: reads.load(db, name, receipts, within))

    async def page(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        name = tag(key)
        return await self._reader.run(lambda db: reads.page(db, name, start, limit))

    async def inbox(self, owner: OwnerId, /, *, after: Place | None = None, limit: int) -> Inbox:
        return await self._reader.run(lambda db: reads.inbox(db, owner, after, limit))

    async def park(self, change: Change, /) -> bool:
        packed = pack_change(change)
        return await self._write(
            packed.tag,
            lambda db: changes.park(db, packed, self._limits),
            large=is_large(packed.messages),
        )

    async def begin(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        taking = Taking(pack_key(change.key), run_id, pack_entry(events), milliseconds(lease))
        return await self._take(changes.begin, change, taking)

    async def take_over(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        taking = Taking(pack_key(change.key), run_id, pack_entry(events), milliseconds(lease))
        return await self._take(changes.take_over, change, taking)

    async def _take(self, rule: TakingRule, change: Change, taking: Taking) -> Lease | None:
        packed = pack_change(change)
        epoch = await self._write(
            packed.tag,
            lambda db: rule(db, packed, taking, self._limits),
            large=is_large((*packed.messages, *taking.records)),
        )
        if epoch is None:
            return None
        run = RunRef(change.key, RunId(taking.run_id))
        return Lease(run, epoch, fence(epoch, change.nonce))

    async def fail_lost(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /
    ) -> bool:
        packed = pack_change(change)
        taking = Taking(pack_key(change.key), run_id, pack_entry(events))
        return await self._write(
            packed.tag,
            lambda db: changes.fail_lost(db, packed, taking, self._limits),
            large=is_large(taking.records),
        )

    async def claim_call(self, hold: ClaimRequest, /, *, seconds: float) -> CallClaim | None:
        packed = pack_hold(hold, seconds)
        return await self._write(packed.tag, lambda db: claims.claim_call(db, packed))

    async def enqueue(self, entry: Enqueue, /) -> EnqueueAnswer:
        packed, key = pack_enqueue(entry), pack_key(entry.run.key)
        return await self._write(
            packed.tag, lambda db: queue.enqueue(db, packed, key, self._limits)
        )

    async def cancel(self, run: RunRef, finished: RunFinished, /) -> bool:
        name, ending = tag(run.key), pack_entry((finished,))
        return await self._write(
            name, lambda db: queue.cancel(db, name, run.run_id, ending, self._limits)
        )

    async def keep_followed(self, run: RunRef, /, *, seconds: float) -> None:
        name, time = tag(run.key), milliseconds(seconds)
        await self._writer.run(lambda db: leases.keep_followed(db, name, run.run_id, time))

    async def abandoned(self, limit: int, /, *, lease: float) -> Sequence[ConversationKey]:
        time = milliseconds(lease)
        found = await self._writer.run(lambda db: leases.abandoned(db, limit, time))
        return [unpack_key(key) for key in found]

    async def spend(self, what: Spending, /) -> Spent:
        packed = pack_spending(what)
        return unpack_spent(
            await self._writer.run(lambda db: spending.spend(db, packed), durable=True)
        )

    async def delete(self, key: ConversationKey, /) -> bool:
        name = tag(key)
        try:
            deleted = await self._write(name, lambda db: rows.delete(db, name))
        except StoreFull:
            if not await self._make_room():
                raise
            deleted = await self._write(name, lambda db: rows.delete(db, name))
        if self._reserve is not None and self._is_released:
            self._is_released = not await anyio.to_thread.run_sync(self._reserve.fill)
        return deleted

    async def _make_room(self) -> bool:
        """Give up the room that is kept for deletions. False: there is none."""
        if self._reserve is None or not await anyio.to_thread.run_sync(self._reserve.release):
            return False
        self._is_released = True
        return True

    # ------------------------------------------------------------ what the owner of a lease writes
    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        packed = [pack_write(w.lease, pack_entry(w.events, w.first)) for w in writes]
        append = partial(leases.append, lease=milliseconds(lease), limits=self._limits)
        jobs = [partial(append, write=write) for write in packed]
        try:
            if not is_large([write.entry.record for write in packed if write.entry]):
                return await self._writer.run_all(jobs)
            async with self._large.turn():
                return await self._writer.run_all(jobs, large=True)
        finally:
            for write in packed:
                self._bells.ring(write.tag)

    async def renew(
        self, held: Sequence[Lease], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        return await self.append([LogWrite(each, 1, ()) for each in held], lease=lease)

    async def commit(self, commit: Commit, /, *, lease: float) -> bool:
        if not is_large_commit(commit):
            return await self._commit(commit, lease)
        async with self._large.turn():
            return await self._commit(commit, lease, large=True)

    async def _commit(self, commit: Commit, lease: float, *, large: bool = False) -> bool:
        packed, time = pack_commit(commit), milliseconds(lease)
        owner = pack_owner(commit.log.lease.run.key.owner)
        return await self._write(
            packed.write.tag,
            lambda db: leases.commit(db, packed, owner, time, self._limits),
            large=large,
        )

    async def release(self, lease: Lease, /) -> bool:
        packed = pack_write(lease)
        return await self._write(packed.tag, lambda db: leases.release(db, packed))

    async def _write(self, name: str, job: Job[T], *, large: bool = False) -> T:
        try:
            return await self._writer.run(job, durable=True, large=large)
        finally:
            self._bells.ring(name)

    # ------------------------------------------------------------ logs
    async def read_log(
        self, run: RunRef, /, *, after: Position = START, limit: int = 1000
    ) -> Sequence[Logged]:
        name = tag(run.key)
        return await self._reader.run(lambda db: reads.log(db, name, run.run_id, after, limit))

    @asynccontextmanager
    async def watch(self, run: RunRef, /) -> AsyncGenerator[Watch]:
        bell = LogWaiter() if self._path is None else LogWaiter(self._look, POLL_PAUSE)
        with self._bells.hung(tag(run.key), bell):
            yield bell

    async def _look(self) -> None:
        """Find out, for all watchers together, whether another process has written."""
        time = anyio.current_time()
        if time - self._looked < POLL_PAUSE:
            return
        self._looked = time
        try:
            version = await self._reader.run(reads.data_version)
        except StoreError:
            return  # the reader, who reads the log next, is told
        if version != self._seen:
            self._seen = version
            self._bells.ring_all()
