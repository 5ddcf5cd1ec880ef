"""The same random operations on all stores give the same answers, the same record and the same logs."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.conversations import LONG, answer, asking, new_key, new_nonce, new_run, user

from passback.core.changes import Change, Commit, Lease, LogWrite, Status
from passback.core.errors import PassbackError
from passback.core.events import (
    START,
    Completed,
    Failed,
    Position,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
)
from passback.core.messages import CallId, ConversationKey, Message, RunId, RunRef, ToolSpec
from passback.core.ports import Store
from passback.core.transcript import Answer, owed
from passback.stores.open import open_store

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

CALLS = [CallId("a"), CallId("b")]
LOST = RunFinished(Failed("lost", "the worker died", retryable=True))


@pytest.fixture
async def all_stores(
    tmp_path: Path, redis_url: str, redis_cluster_url: str
) -> AsyncGenerator[list[Store]]:
    urls = ["memory:", f"sqlite:///{tmp_path}/random.db", redis_url, redis_cluster_url]
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_store(url)) for url in urls]


@dataclass
class Walk:
    """One conversation's history as its writers know it, and what all stores answered."""

    stores: list[Store]
    key: ConversationKey = field(default_factory=new_key)
    messages: tuple[Message, ...] = ()
    leases: list[Lease] = field(default_factory=list[Lease])
    runs: list[RunRef] = field(default_factory=list[RunRef])
    sent: list[Callable[[Store], Awaitable[object]]] = field(default_factory=list)
    logged: int = 1
    step: int = 0
    replayed: bool = False

    async def ask(self, operation: Callable[[Store], Awaitable[object]]) -> object:
        """Run an operation on every store; the answers are one."""
        answers = await asyncio.gather(*(outcome(operation, store) for store in self.stores))
        assert answers == answers[:1] * len(answers)
        return answers[0]

    async def send(self, operation: Callable[[Store], Awaitable[object]]) -> object:
        """A write, which may be sent again later."""
        self.sent.append(operation)
        return await self.ask(operation)

    async def status(self) -> Status:
        status = await self.ask(lambda store: store.status(self.key))
        assert isinstance(status, Status)
        return status


async def outcome(operation: Callable[[Store], Awaitable[object]], store: Store) -> object:
    try:
        return await operation(store)
    except PassbackError as error:
        return type(error), error.message


# ---------------------------------------------------------------- the operations
Operation = Callable[[Walk, int], Awaitable[None]]
BATCHES: list[tuple[Message, ...]] = [
    (),
    (user("hello"),),
    (asking("a"),),
    (asking("a", "b"), answer("a")),
    (answer("b"),),
]


def a_change(walk: Walk, status: Status, pick: int) -> Change:
    batch = BATCHES[pick % len(BATCHES)]
    stale = pick % 7 == 6
    known = {CALLS[pick % 2]: Answer(f"{pick:064x}", RunId("r") if pick % 3 else None)}
    tools = (ToolSpec(f"tool{pick}", "", {"type": "object"}),) if pick % 4 == 0 else None
    return Change(
        walk.key,
        new_nonce(),
        status.version + stale,
        batch,
        known if pick % 2 else {},
        owed((*walk.messages, *batch)),
        tools,
    )


async def park(walk: Walk, pick: int) -> None:
    change = a_change(walk, await walk.status(), pick)
    if await walk.send(lambda store: store.park(change)) is True:
        walk.messages += change.append


async def begin(walk: Walk, pick: int) -> None:
    change, run_id = a_change(walk, await walk.status(), pick), new_run()
    opening: tuple[RunEvent, ...] = (RunStarted(run_id), *[TextDelta("x")] * (pick % 3))
    lease = 0 if pick % 5 == 0 else LONG
    held = await walk.send(lambda store: store.begin(change, run_id, opening, lease=lease))
    if isinstance(held, Lease):
        walk.messages += change.append
        walk.leases.append(held)
        walk.runs.append(held.run)
        walk.logged, walk.step = len(opening), 0


def a_lease(walk: Walk, pick: int) -> Lease | None:
    """Mostly the newest."""
    return (
        walk.leases[-1 - (pick % len(walk.leases) if pick % 4 == 0 else 0)] if walk.leases else None
    )


def some_events(walk: Walk, pick: int) -> tuple[int, tuple[RunEvent, ...]]:
    """Those that follow; that writes are sent again is for `repeat`."""
    return walk.logged + 1, tuple(TextDelta(f"{pick}-{i}") for i in range(pick % 4))


async def append(walk: Walk, pick: int) -> None:
    lease = a_lease(walk, pick)
    if lease is None:
        return
    first, events = some_events(walk, pick)
    writes = [LogWrite(lease, first, events)]
    seconds = 0 if pick % 5 == 0 else LONG
    if await walk.send(lambda store: store.append(writes, lease=seconds)) != ["lost"]:
        walk.logged = max(walk.logged, first + len(events) - 1)


async def commit(walk: Walk, pick: int) -> None:
    lease = a_lease(walk, pick)
    if lease is None:
        return
    first, events = some_events(walk, pick)
    ends = pick % 4 == 0
    events += (RunFinished(Completed()),) if ends else ()
    batch = BATCHES[pick % 3]
    turn = Commit(
        LogWrite(lease, first, events), walk.step, batch, owed((*walk.messages, *batch)), ends
    )
    known = await walk.status()
    await walk.send(lambda store: store.commit(turn, lease=LONG))
    if await walk.status() != known:
        walk.messages += batch
        walk.logged, walk.step = max(walk.logged, first + len(events) - 1), walk.step + 1


async def renew(walk: Walk, pick: int) -> None:
    leases = walk.leases[-2:]
    await walk.ask(lambda store: store.renew(leases, lease=0 if pick % 2 else LONG))


async def reap(walk: Walk, pick: int) -> None:
    status = await walk.status()
    change, run_id = a_change(walk, status, pick), status.run_id or RunId("none")
    if await walk.send(lambda store: store.reap(change, run_id, LOST)) is True:
        walk.messages += change.append


async def cancel(walk: Walk, pick: int) -> None:
    if walk.runs:
        run = walk.runs[-1 - pick % min(2, len(walk.runs))]
        await walk.send(lambda store: store.cancel(run))


async def delete(walk: Walk, pick: int) -> None:
    if pick % 3 == 0 and await walk.ask(lambda store: store.delete(walk.key)) is True:
        walk.messages = ()


async def repeat(walk: Walk, pick: int) -> None:
    """What was sent before arrives once more; it may be as old as the conversation."""
    if walk.sent:
        known = await walk.status()
        await walk.ask(walk.sent[-1 - pick % min(6, len(walk.sent))])
        if (await walk.status()).version != known.version:
            walk.replayed = True
            await read_record(walk)


async def read(walk: Walk, pick: int) -> None:
    await walk.ask(lambda store: store.page(walk.key, start=pick % 5, limit=pick % 4))
    for run in walk.runs[-2:]:
        await read_log(walk, run, Position(pick % 3, pick % 6))


async def read_log(walk: Walk, run: RunRef, after: Position) -> None:
    await walk.ask(lambda store: store.read_log(run, after=after))


OPERATIONS: list[Operation] = [
    *[park, begin, append, append, append, commit, commit, commit, repeat, repeat, repeat, repeat],
    *[renew, reap, cancel, delete, read],
]


async def read_record(walk: Walk) -> None:
    loaded = await walk.ask(lambda store: store.load(walk.key, calls=CALLS))
    messages = getattr(loaded, "messages", None)
    assert isinstance(messages, tuple)
    walk.messages = messages


@pytest.mark.timeout(300)  # a failure is made small before it is shown
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 419)), min_size=10, max_size=40
    )
)
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_all_stores_answer_the_same_operations_alike(
    all_stores: list[Store], steps: list[tuple[Operation, int]]
) -> None:
    walk = Walk(all_stores)
    await begin(walk, pick=1)
    for operation, pick in steps:
        await operation(walk, pick)

    known = walk.messages
    await read_record(walk)
    assert walk.messages == known
    if not walk.replayed:
        assert (await walk.status()).owed == owed(walk.messages)
    for run in walk.runs:
        await read_log(walk, run, START)
