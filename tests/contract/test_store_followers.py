"""Text without remote readers is stored less often; what others may depend on is not (P3)."""

from collections.abc import Sequence
from typing import cast

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.ledgers import open_ledger
from tests.support.store_values import LONG, begin_run, new_key, texts

from passback.core.changes import Lease, LeaseState, LogWrite
from passback.core.errors import StoreError
from passback.core.events import Logged, Nested, Position, RunEvent, TextDelta, ToolCallStarted
from passback.core.messages import CallId
from passback.engine.ledger import Ledger
from passback.engine.log import LogWriter, RunLog

pytestmark = pytest.mark.anyio

SECONDS = 30
TICKS = 9
CALL = ToolCallStarted(CallId("c"), "pick", client=True)


@pytest.fixture
async def held(store: Ledger) -> Lease:
    return await begin_run(store, new_key())


@pytest.fixture
def writer(store: Ledger) -> LogWriter:
    return LogWriter(store, delay=0.001, lease=LONG, write_timeout=SECONDS)


def log_of(held: Lease, writer: LogWriter, *, continues: bool = False) -> RunLog:
    opening: list[RunEvent] = [TextDelta("stored")]
    return RunLog(held, opening, writer, lambda _: None, continues=continues)


def refusing(store: Ledger) -> tuple[Faults, LogWriter]:
    """A writer whose first write fails."""
    faults = Faults(store)
    faults.plan["append"] = ["refuse"]
    return faults, LogWriter(faults.store, delay=0.001, lease=LONG, write_timeout=SECONDS)


async def said(store: Ledger, held: Lease) -> list[RunEvent]:
    """Return the events that are stored behind the opening."""
    logged: list[Logged] = list(await store.read_log(held.run, after=Position(held.epoch, 1)))
    return [each.event for each in logged]


async def appended(store: Ledger, held: Lease, until: LeaseState) -> None:
    """Append text until the store says this."""
    state: LeaseState | StoreError | None = None
    with anyio.fail_after(SECONDS):
        while state != until:
            seq = (await store.status(held.run.key)).logged.seq + 1
            [state] = await store.append([texts(held, seq, "a")], lease=LONG)


@pytest.mark.redis
async def test_a_write_says_whether_somebody_waits_for_what_it_brings(redis_url: str) -> None:
    async with open_ledger(redis_url) as store, open_ledger(redis_url) as peer:
        assert store.sees_followers
        held = await begin_run(store, new_key())
        assert await store.append([texts(held, 2, "a")], lease=LONG) == ["held"]
        async with store.watch(held.run.key):
            seq = (await store.status(held.run.key)).logged.seq + 1
            assert await store.append([texts(held, seq, "a")], lease=LONG) == ["held"]
            async with peer.watch(held.run.key):
                await appended(store, held, "followed")
                assert await store.renew([held], lease=LONG) == ["held"]
            await appended(store, held, "held")
        await appended(store, held, "held")


async def test_text_that_nobody_waits_for_elsewhere_may_wait_itself(
    store: Ledger, writer: LogWriter, held: Lease
) -> None:
    log = log_of(held, writer)
    log.append([TextDelta("a")])
    await writer.flush(all_of_it=False)
    assert await said(store, held) == []
    await writer.flush()
    assert await said(store, held) == [TextDelta("a")]


@pytest.mark.parametrize("event", [CALL, Nested(CallId("p"), TextDelta("b"))])
async def test_what_another_post_may_depend_on_takes_the_text_before_it_along(
    store: Ledger, writer: LogWriter, held: Lease, event: RunEvent
) -> None:
    log = log_of(held, writer)
    log.append([TextDelta("a")])
    log.append([event])
    await writer.flush(all_of_it=False)
    assert await said(store, held) == [TextDelta("a"), event]
    log.append([TextDelta("c")])
    await writer.flush(all_of_it=False)
    assert len(await said(store, held)) == 2


@pytest.mark.redis
async def test_text_that_somebody_waits_for_elsewhere_is_not_held_back(redis_url: str) -> None:
    async with open_ledger(redis_url) as store, open_ledger(redis_url) as peer:
        held = await begin_run(store, new_key())
        log = log_of(
            held, writer := LogWriter(store, delay=0.001, lease=LONG, write_timeout=SECONDS)
        )
        async with peer.watch(held.run.key):
            with anyio.fail_after(SECONDS):
                while not log.is_urgent:
                    log.append([TextDelta("a")])
                    await writer.flush()
            log.append([TextDelta("b")])
            await writer.flush(all_of_it=False)
        assert (await said(store, held))[-1] == TextDelta("b")


class Ticks:
    """A store on which one run writes at each tick; notes whether another one did, too."""

    def __init__(self, store: Ledger, *, sees_followers: bool) -> None:
        self._store = store
        self.sees_followers = sees_followers
        self.pressing: RunLog | None = None
        self.waiting: RunLog | None = None
        self.wrote: list[bool] = []
        self.enough = anyio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        assert self.pressing
        assert self.waiting
        self.wrote.append(self.waiting.lease in [write.lease for write in writes])
        if len(self.wrote) == TICKS:
            self.enough.set()
        answers = await self._store.append(writes, lease=lease)
        self.waiting.append([TextDelta("word")])
        self.pressing.append([CALL])
        return answers


@pytest.mark.parametrize(
    ("sees_followers", "lease", "every"),
    [(True, LONG, 4), (False, LONG, 1), (True, 0.006, 3), (True, 0.002, 1)],
)
async def test_of_four_writes_one_has_the_text_that_nobody_waits_for(
    store: Ledger, *, sees_followers: bool, lease: float, every: int
) -> None:
    """Text waits at most half a lease, and only where the store knows its readers."""
    ticks = Ticks(store, sees_followers=sees_followers)
    writer = LogWriter(cast("Ledger", ticks), delay=0.001, lease=lease, write_timeout=SECONDS)
    ticks.pressing = log_of(await begin_run(store, new_key()), writer)
    ticks.waiting = log_of(await begin_run(store, new_key()), writer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        ticks.waiting.append([TextDelta("word")])
        ticks.pressing.append([CALL])
        with anyio.fail_after(SECONDS):
            await ticks.enough.wait()
        tasks.cancel_scope.cancel()
    assert ticks.wrote[:TICKS] == [number % every == 0 for number in range(1, TICKS + 1)]


async def test_what_was_not_stored_takes_all_along_when_it_is_sent_again(
    store: Ledger, held: Lease
) -> None:
    """Otherwise text of every run would wait four times as long behind a failure."""
    faults, writer = refusing(store)
    failing, waiting = log_of(held, writer), log_of(await begin_run(store, new_key()), writer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        failing.append([CALL])
        await faults.until("append", 1)
        waiting.append([TextDelta("word")])
        await faults.until("append", 2)
        tasks.cancel_scope.cancel()
    assert await said(store, waiting.lease) == [TextDelta("word")]


async def test_a_run_that_was_given_up_is_not_written_again_and_again(
    store: Ledger, held: Lease
) -> None:
    faults, writer = refusing(store)
    log = log_of(held, writer)
    log.append([CALL])
    log.abandon()
    assert not await writer.flush()
    assert await writer.flush()
    assert faults.calls["append"] == 1


async def test_a_run_that_was_taken_over_is_thought_to_have_readers_elsewhere(
    store: Ledger, writer: LogWriter, held: Lease
) -> None:
    log = log_of(held, writer, continues=True)
    log.append([TextDelta("a")])
    assert log.is_urgent
    await writer.flush(all_of_it=False)
    await writer.flush()
    log.append([TextDelta("b")])
    assert not log.is_urgent
