"""Sentinels replace a killed master: what the replica has is kept, what it lacks is noticed."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from tests.support.redis_server import RedisKind
from tests.support.sentinels import QUORUM, SERVICE, Failover, failover
from tests.support.store_values import (
    FINISHED,
    LONG,
    begin_run,
    ending,
    new_key,
    read_events,
    take_over_run,
    texts,
    turn,
    user,
)
from tests.support.transcript_rules import said_in
from tests.support.waiting import pause

from passback.core.changes import Lease, LeaseState, LogWrite
from passback.core.errors import LeaseLost, StoreUnavailable, UnknownRun
from passback.core.events import Position, Rewound, TextDelta
from passback.core.ports import Store
from passback.stores.open import open_store
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.redis, pytest.mark.nightly, pytest.mark.timeout(180)]

T = TypeVar("T")

SHORT_TIMEOUT = StoreOptions(timeout=0.2)
"""Less than a failover takes, so that it is noticed."""
USABLE = 30.0
"""Seconds within which the store is there again; on an idle machine it is one."""


@pytest.fixture
async def servers(tmp_path: Path, redis_kind: RedisKind) -> AsyncGenerator[Failover]:
    async with failover(tmp_path, redis_kind) as servers:
        yield servers


@pytest.fixture
async def store(servers: Failover) -> AsyncGenerator[Store]:
    async with open_store(servers.url) as store:
        yield store


@pytest.fixture
async def quick_store(servers: Failover) -> AsyncGenerator[Store]:
    async with open_store(servers.url, options=SHORT_TIMEOUT) as store:
        yield store


async def insisted(operation: Callable[[], Awaitable[T]]) -> T:
    """The same again until the store is there."""
    with anyio.fail_after(USABLE):
        while True:
            try:
                return await operation()
            except StoreUnavailable:
                await pause(0.02)


# ---------------------------------------------------------------- replicated writes
@dataclass(slots=True)
class Talk:
    """A run's log that is written one event after the other.

    Attributes:
        last: the number of the last event that was acknowledged.
        refused: whether a write was not.
        state: what the lease was at last.
    """

    held: Lease
    last: int = 1
    refused: bool = False
    state: LeaseState = "held"

    async def go_on(self, store: Store, enough: anyio.Event) -> None:
        """Write until it is enough, then end the run."""
        while not enough.is_set():
            self.state = await self._append(store, texts(self.held, self.last + 1, "word"))
            if self.state != "held":
                return
            self.last += 1
            await pause(0.002)
        end = ending(self.held, 0, self.last + 1, "said")
        await insisted(lambda: store.commit(end, lease=LONG))

    async def _append(self, store: Store, write: LogWrite) -> LeaseState:
        async def append() -> LeaseState:
            try:
                [answer] = await store.append([write], lease=LONG)
            except StoreUnavailable as error:
                answer = error
            if isinstance(answer, Exception):
                self.refused = True
                raise answer
            return answer

        return await insisted(append)


@pytest.mark.promise("P6", "P15")
async def test_writers_go_on_after_a_failover_and_what_was_replicated_is_there_once(
    store: Store, quick_store: Store, servers: Failover
) -> None:
    talks = [Talk(await begin_run(store, new_key(), user("hello"))) for _ in range(8)]
    silent = await begin_run(store, new_key(), user("hello"))
    enough = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for talk in talks:
            tasks.start_soon(talk.go_on, quick_store, enough)
        while any(talk.last < 10 for talk in talks):
            await pause(0.01)
        settled = {talk.held.run: talk.last for talk in talks}
        await servers.replicated()
        servers.master.stop()
        await servers.promoted()
        await insisted(store.ping)
        async with store.watch(silent.run.key) as watch:
            # only now somebody writes to this run: the hint comes from the new master
            await store.append([texts(silent, 2, "word")], lease=LONG)
            with anyio.fail_after(USABLE):
                await watch.wait()
        enough.set()

    assert all(talk.refused for talk in talks)
    for talk in talks:
        run = talk.held.run
        log = await store.read_log(run)
        assert [each.position.seq for each in log] == list(range(1, len(log) + 1))
        if talk.state == "held":
            assert len(log) == talk.last + 1
            assert [each.event for each in log[1:]] == [TextDelta("word")] * (talk.last - 1) + [
                FINISHED
            ]
            said_last = (await store.load(run.key)).messages[-1]
            assert said_in([said_last]) == ["said"]
        assert len(log) >= settled[run]


# ---------------------------------------------------------------- the Sentinels
async def test_no_sentinel_is_forgotten_when_many_connections_look_for_the_master_at_once(
    store: Store, servers: Failover
) -> None:
    first, *others = servers.sentinels
    first.command("SENTINEL", "REMOVE", SERVICE)
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(begin_run, store, new_key())
    first.command("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", servers.master.port, QUORUM)
    for other in others:
        other.stop()
    servers.master.command("CLIENT", "KILL", "TYPE", "normal")
    await pause(0.1)  # a connection that has noticed its end asks for the master before it is used

    assert (await store.status(new_key())).version == 0


# ---------------------------------------------------------------- lost writes
@pytest.mark.promise("P5", "P10")
async def test_a_writer_whose_last_writes_were_lost_in_a_failover_has_lost_its_lease(
    store: Store, servers: Failover
) -> None:
    talker = await begin_run(store, new_key(), user("hello"))
    caller = await begin_run(store, new_key(), user("hello"))
    assert await store.append([texts(talker, 2, "kept")], lease=0) == ["held"]
    await servers.replicated()
    await servers.cut()
    assert await store.append([texts(talker, 3, "lost")], lease=LONG) == ["held"]
    await store.commit(turn(caller, 1, 2, TextDelta("lost"), say="lost"), lease=LONG)
    late = await begin_run(store, new_key(), user("lost"))
    servers.master.stop()
    await servers.promoted()
    await insisted(store.ping)

    assert await store.append([texts(talker, 4, "gap")], lease=LONG) == ["lost"]
    with pytest.raises(LeaseLost):
        await store.commit(turn(caller, 2, 3, TextDelta("gap"), say="gap"), lease=LONG)
    assert await store.renew([late], lease=LONG) == ["lost"]
    with pytest.raises(UnknownRun):
        await store.read_log(late.run)
    assert (await store.load(caller.run.key)).messages == (user("hello"),)
    await take_over_run(store, talker.run.key)
    assert await read_events(store, talker.run, after=Position(1, 3)) == [
        ("2-1", Rewound(Position(1, 1)))
    ]
