"""A thread that owns a SQLite connection and commits waiting jobs together (group commit)."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from passback.core.errors import PassbackError, StoreError, StoreFull, StoreUnavailable
from passback.stores.layout import unpacking_records

T = TypeVar("T")
Job: TypeAlias = Callable[[sqlite3.Connection], T]
Begin: TypeAlias = Literal["BEGIN", "BEGIN IMMEDIATE"]


def store_error(error: sqlite3.Error, /) -> StoreError:
    """Return the StoreError for an error of SQLite."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable("the store's file is in use by another process", retry_after=1)
        case sqlite3.SQLITE_FULL:
            return StoreFull("the disk or the store's file is full")
        case _:
            return StoreError(f"the store's file cannot be used: {name}")


class _Ticket(Generic[T]):
    """A job and, once it was attempted, its result or error."""

    def __init__(self, job: Job[T]) -> None:
        self._job = job
        self._result: list[T] = []
        self._failure: PassbackError | None = None

    def run_job(self, db: sqlite3.Connection, *, alone: bool) -> None:
        """Run the job so that its failure leaves the transaction to the others, if there are any.

        `alone`: there are none, and the transaction is its own.
        """
        if not alone:
            db.execute("SAVEPOINT job")
        try:
            with unpacking_records():
                self._result.append(self._job(db))
        except (PassbackError, sqlite3.Error) as error:
            if not db.in_transaction:
                raise  # SQLite has given up the whole transaction
            db.execute("ROLLBACK" if alone else "ROLLBACK TO job")
            self._failure = store_error(error) if isinstance(error, sqlite3.Error) else error
        if not alone:
            db.execute("RELEASE job")

    def get_result(self) -> T:
        if self._failure is not None:
            raise self._failure
        return self._result[0]

    def get_result_or_error(self) -> T | StoreError:
        """Return what `get_result` does, or the StoreError that it would raise."""
        return self._failure if isinstance(self._failure, StoreError) else self.get_result()


@dataclass(slots=True)
class _Batch:
    """Jobs that share a transaction, and their callers.

    Each caller's future is done when the transaction is; it has the error that rolled all back.
    """

    tickets: list[_Ticket[Any]] = field(default_factory=list[_Ticket[Any]])
    callers: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])
    durable: bool = False

    def finish(self, error: BaseException | None) -> None:
        for caller in self.callers:
            if caller.done():
                continue  # it was cancelled, or has no more time
            if error is None:
                caller.set_result(None)
            else:
                caller.set_exception(error)


class SqliteThread:
    """A runner of jobs on one connection, in their order.

    A job is a function of the connection. An error that it raises rolls back its own writes and
    reaches its caller alone. While one transaction runs, the jobs of the next one gather. A large
    job has a transaction of its own; where both wait, large jobs and batches of small ones take
    turns.

    Args:
        connect: opens the connection, in the thread.
        begin: how a transaction starts: `BEGIN` for reads, `BEGIN IMMEDIATE` for writes.
        timeout: seconds until the caller of a job gets StoreUnavailable.
    """

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], begin: Begin, timeout: float
    ) -> None:
        self._timeout = timeout
        self._connect = connect
        self._begin = begin
        self._executor: ThreadPoolExecutor | None = None
        self._db: sqlite3.Connection | None = None
        self._open = False
        self._synchronous = ""
        self._waiting: _Batch | None = None
        self._large: deque[_Batch] = deque()
        self._running: _Batch | None = None
        self._large_ran_last = False
        self._idle: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Raises what `connect` raises."""
        executor = ThreadPoolExecutor(1, thread_name_prefix="passback-sqlite")
        self._executor = executor
        self._synchronous = ""
        try:
            self._db = await asyncio.get_running_loop().run_in_executor(executor, self._connect)
            self._open = True
        finally:
            if not self._open:
                executor.shutdown(wait=False)

    async def close(self) -> None:
        """Refuse new jobs, finish those that wait, then close the connection."""
        self._open = False
        if self._running is not None:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        if self._executor and self._db:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._db.close)
            self._executor.shutdown(wait=False)
        self._executor = self._db = None

    async def run(self, job: Job[T], *, durable: bool = False, large: bool = False) -> T:
        """Run a job in the next transaction.

        `durable`: it is on the disk before this returns. `large`: it writes so much that others
        must not wait for it in one transaction.

        Raises:
            StoreError: the transaction failed. Errors of the job are raised, too.
        """
        ticket = _Ticket(job)
        await self._run_batch([ticket], durable=durable, large=large)
        return ticket.get_result()

    async def run_all(self, jobs: Sequence[Job[T]], *, large: bool = False) -> list[T | StoreError]:
        """Run jobs in the next transaction; a job that fails alone has its error as its answer.

        Raises:
            StoreError: the transaction failed, nothing of any job was written.
        """
        tickets = [_Ticket(job) for job in jobs]
        await self._run_batch(tickets, large=large)
        return [ticket.get_result_or_error() for ticket in tickets]

    async def _run_batch(
        self, tickets: Sequence[_Ticket[T]], *, durable: bool = False, large: bool
    ) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        batch = None if large else self._waiting
        if batch is None:
            batch = _Batch()
            if large:
                self._large.append(batch)
            else:
                self._waiting = batch
        loop = asyncio.get_running_loop()
        caller = loop.create_future()
        batch.tickets.extend(tickets)
        batch.callers.append(caller)
        batch.durable |= durable
        self._start_next()
        # the transaction goes on without its caller: others share it
        timer = loop.call_later(self._timeout, _give_up, caller)
        try:
            await caller
        except sqlite3.Error as error:
            raise store_error(error) from None
        finally:
            timer.cancel()

    def _start_next(self) -> None:
        if self._running or not self._executor or not self._db:
            return
        if self._large and (self._waiting is None or not self._large_ran_last):
            self._running, self._large_ran_last = self._large.popleft(), True
        elif self._waiting is not None:
            self._running, self._waiting = self._waiting, None
            self._large_ran_last = False
        else:
            if self._idle is not None and not self._idle.done():
                self._idle.set_result(None)
            return
        loop = asyncio.get_running_loop()

        def call_loop(work: Future[None]) -> None:
            if not loop.is_closed():  # it may not have waited for a disk that hangs
                loop.call_soon_threadsafe(self._finish_batch, work)

        # without a future of asyncio's: this is on the path of each read and write
        work = self._executor.submit(self._run_transaction, self._db, self._running)
        work.add_done_callback(call_loop)

    def _finish_batch(self, work: Future[None]) -> None:
        batch, self._running = self._running, None
        # the next transaction runs while the callers of this one go on
        self._start_next()
        if batch is not None:
            batch.finish(work.exception())

    def _run_transaction(self, db: sqlite3.Connection, batch: _Batch) -> None:
        try:
            # only a durable batch waits for the disk: a killed process loses nothing of the others,
            # and a loss of power only what is not on the disk
            level = "FULL" if batch.durable else "NORMAL"
            if level != self._synchronous:
                db.execute(f"PRAGMA synchronous = {level}")
                self._synchronous = level
            db.execute(self._begin)
            alone = len(batch.tickets) == 1
            for ticket in batch.tickets:
                ticket.run_job(db, alone=alone)
            if db.in_transaction:
                db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.rollback()


def _give_up(caller: "asyncio.Future[None]") -> None:
    if not caller.done():
        message = "the store's disk does not answer"
        caller.set_exception(StoreUnavailable(message, retry_after=1))
