"""A thread that owns a SQLite connection and commits waiting jobs together (group commit)."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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

    def run_job(self, db: sqlite3.Connection) -> None:
        """Run the job so that its failure leaves the transaction to the others."""
        db.execute("SAVEPOINT job")
        try:
            with unpacking_records():
                self._result.append(self._job(db))
        except (PassbackError, sqlite3.Error) as error:
            if not db.in_transaction:
                raise  # SQLite has given up the whole transaction
            db.execute("ROLLBACK TO job")
            self._failure = store_error(error) if isinstance(error, sqlite3.Error) else error
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
    """Jobs that share a transaction; `done` has the error that rolled all of them back."""

    done: asyncio.Future[sqlite3.Error | None]
    tickets: list[_Ticket[Any]] = field(default_factory=list[_Ticket[Any]])
    durable: bool = False


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
        while batches := [*self._large, *filter(None, (self._waiting, self._running))]:
            await asyncio.wait([batch.done for batch in batches])
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
            batch = _Batch(asyncio.get_running_loop().create_future())
            if large:
                self._large.append(batch)
            else:
                self._waiting = batch
        batch.tickets.extend(tickets)
        batch.durable |= durable
        self._start_next()
        try:
            # the transaction goes on without its caller: others share it
            async with asyncio.timeout(self._timeout):
                error = await asyncio.shield(batch.done)
        except TimeoutError:
            raise StoreUnavailable("the store's disk does not answer", retry_after=1) from None
        if error is not None:
            raise store_error(error)

    def _start_next(self) -> None:
        if self._running or not self._executor or not self._db:
            return
        if self._large and (self._waiting is None or not self._large_ran_last):
            self._running, self._large_ran_last = self._large.popleft(), True
        elif self._waiting is not None:
            self._running, self._waiting = self._waiting, None
            self._large_ran_last = False
        else:
            return
        work = asyncio.get_running_loop().run_in_executor(
            self._executor, self._run_transaction, self._db, self._running
        )
        work.add_done_callback(self._finish_batch)

    def _finish_batch(self, work: asyncio.Future[sqlite3.Error | None]) -> None:
        batch, self._running = self._running, None
        # the next transaction runs while the callers of this one go on
        self._start_next()
        if batch is None:
            return
        error = work.exception()
        if error is not None:
            batch.done.set_exception(error)
        else:
            batch.done.set_result(work.result())

    def _run_transaction(self, db: sqlite3.Connection, batch: _Batch) -> sqlite3.Error | None:
        try:
            # only a durable batch waits for the disk: a killed process loses nothing of the others,
            # and a loss of power only what is not on the disk
            level = "FULL" if batch.durable else "NORMAL"
            if level != self._synchronous:
                db.execute(f"PRAGMA synchronous = {level}")
                self._synchronous = level
            db.execute(self._begin)
            for ticket in batch.tickets:
                ticket.run_job(db)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            return error
        else:
            return None
        finally:
            if db.in_transaction:
                db.rollback()
