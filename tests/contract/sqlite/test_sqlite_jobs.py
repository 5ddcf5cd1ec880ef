"""Jobs in one transaction of SQLite: independent, unless the transaction itself is lost."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator

import pytest
from anyio.lowlevel import checkpoint

from passback.core.errors import LeaseLost, StoreError, StoreFull, StoreUnavailable
from passback.stores.sqlite.thread import Job, SqliteThread, store_error

pytestmark = pytest.mark.anyio


def make_thread(timeout: float = 5) -> SqliteThread:
    def connect() -> sqlite3.Connection:
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        db.execute("CREATE TABLE numbers (number INTEGER UNIQUE)")
        return db

    return SqliteThread(connect, "BEGIN IMMEDIATE", timeout)


@pytest.fixture
async def thread() -> AsyncGenerator[SqliteThread]:
    opened = make_thread()
    await opened.open()
    yield opened
    await opened.close()


def writing(number: int, error: Exception | None = None) -> Job[int]:
    """A job that writes first, and may fail then."""

    def job(db: sqlite3.Connection) -> int:
        db.execute("INSERT INTO numbers VALUES (?)", (number,))
        if error is not None:
            raise error
        return number

    return job


def written(db: sqlite3.Connection) -> list[int]:
    return [row[0] for row in db.execute("SELECT number FROM numbers ORDER BY number")]


async def test_whatever_a_job_raises_undoes_its_own_writes_alone(thread: SqliteThread) -> None:
    unreadable, lost = KeyError("hunter2"), LeaseLost("another's")

    answers = await thread.run_all(
        [writing(1), writing(2, unreadable), writing(1), writing(3, lost), writing(4)]
    )

    assert [answers[0], answers[3], answers[4]] == [1, lost, 4]
    assert [type(answers[1]), type(answers[2])] == [StoreError, StoreError]
    assert await thread.run(written) == [1, 4]


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyError("hunter2"), StoreError),
        (LeaseLost("another's"), LeaseLost),
        (AssertionError("a mistake"), AssertionError),
    ],
)
async def test_a_job_alone_that_raises_undoes_its_writes(
    thread: SqliteThread, error: Exception, raised: type[Exception]
) -> None:
    with pytest.raises(raised):
        await thread.run(writing(1, error), durable=True)
    assert await thread.run(written) == []
    assert await thread.run(writing(1)) == 1


async def test_a_caller_that_waits_too_long_gets_an_error_and_its_job_is_done() -> None:
    released = threading.Event()

    def held_up(_: sqlite3.Connection) -> None:
        assert released.wait(5)

    thread = make_thread(timeout=0.1)
    await thread.open()
    slow = asyncio.create_task(thread.run(held_up))
    await checkpoint()
    waiting = asyncio.create_task(thread.run(writing(1)))
    for task in (slow, waiting):
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await task
    released.set()
    while await thread.run(written) != [1]:
        await checkpoint()
    await thread.close()


async def test_only_a_durable_batch_waits_for_the_disk(thread: SqliteThread) -> None:
    def synchronous(db: sqlite3.Connection) -> int:
        found: int = db.execute("PRAGMA synchronous").fetchone()[0]
        return found

    normal, full = 1, 2
    assert [await thread.run(synchronous, durable=each) for each in (True, False, True)] == [
        full,
        normal,
        full,
    ]
    callers = [thread.run(synchronous, durable=each) for each in (False, True, False)]
    assert await asyncio.gather(*callers) == [normal, full, full]


async def test_a_lost_transaction_is_the_failure_of_all_its_jobs(thread: SqliteThread) -> None:
    await thread.run(writing(1))

    def give_up(db: sqlite3.Connection) -> None:
        db.execute("INSERT OR ROLLBACK INTO numbers VALUES (1)")

    with pytest.raises(StoreError, match="CONSTRAINT"):
        await thread.run_all([writing(2), give_up, writing(3)])

    assert await thread.run(written) == [1]


async def test_large_jobs_and_the_small_ones_together_take_turns(thread: SqliteThread) -> None:
    done: list[str] = []

    def noting(name: str) -> Job[None]:
        return lambda _: done.append(name)

    def held_up(_: sqlite3.Connection) -> None:
        assert all_are_there.wait(5)

    all_are_there = threading.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(thread.run(held_up))
        await checkpoint()
        for name in ("large 1", "large 2", "large 3"):
            tasks.create_task(thread.run(noting(name), durable=True, large=True))
        for name in ("small 1", "small 2"):
            tasks.create_task(thread.run(noting(name)))
        await checkpoint()
        all_are_there.set()
    assert done == ["large 1", "small 1", "small 2", "large 2", "large 3"]


async def test_a_large_job_that_undoes_its_transaction_undoes_no_small_one(
    thread: SqliteThread,
) -> None:
    def give_up(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO numbers VALUES (2)")
        db.execute("INSERT OR ROLLBACK INTO numbers VALUES (2)")

    failed, *small = await asyncio.gather(
        thread.run(give_up, large=True),
        *(thread.run(writing(number)) for number in (1, 3)),
        return_exceptions=True,
    )
    assert isinstance(failed, StoreError)
    assert small == [1, 3]
    assert await thread.run(written) == [1, 3]


async def test_a_thread_that_closes_ends_the_large_jobs_that_wait(thread: SqliteThread) -> None:
    jobs = [asyncio.create_task(thread.run(writing(n), large=True)) for n in range(3)]
    await checkpoint()
    await thread.close()
    assert await asyncio.gather(*jobs) == [0, 1, 2]


def test_a_full_disk_is_an_error_of_its_own() -> None:
    db = sqlite3.connect(":memory:")
    db.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as full:
        db.executescript("CREATE TABLE a (b); CREATE TABLE c (d);")
    db.close()

    assert isinstance(store_error(full.value), StoreFull)
