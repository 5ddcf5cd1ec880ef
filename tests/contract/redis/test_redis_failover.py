"""Sentinels replace a killed master: what the replica has is kept, what it lacks is noticed."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from tests.contract.door.writes import (
    ALL,
    LONG,
    OVER,
    a_write,
    append,
    applied,
    entries,
    entry,
    first_write,
    log_of,
    new_key,
    new_run,
    running,
    whole,
)
from tests.contract.redis.doors import open_door
from tests.support.redis_server import RedisKind
from tests.support.sentinels import QUORUM, SERVICE, Failover, failover
from tests.support.waiting import pause

from passback.core.conversation.store import (
    Append,
    Appended,
    Guard,
    LogChange,
    RenewLease,
    Store,
    TakeLease,
)
from passback.core.errors import StoreUnavailable
from passback.core.messages import ConversationKey, RunId
from passback.stores.options import StoreOptions

pytestmark = [pytest.mark.anyio, pytest.mark.redis, pytest.mark.nightly, pytest.mark.timeout(180)]

T = TypeVar("T")

SHORT_TIMEOUT = StoreOptions(timeout=0.2)
"""Less than a failover takes, so that it is noticed."""
USABLE = 30.0
"""Seconds within which the store is there again; on an idle machine it is one."""
FENCED = Guard(fence="one")


@pytest.fixture
async def servers(tmp_path: Path, redis_kind: RedisKind) -> AsyncGenerator[Failover]:
    async with failover(tmp_path, redis_kind) as servers:
        yield servers


@pytest.fixture
async def store(servers: Failover) -> AsyncGenerator[Store]:
    async with open_door(servers.url) as store:
        yield store


@pytest.fixture
async def quick_store(servers: Failover) -> AsyncGenerator[Store]:
    async with open_door(servers.url, SHORT_TIMEOUT) as store:
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
class Writer:
    """Writes a run's log one event after the other.

    Attributes:
        last: the number of the last event that was acknowledged.
        refused: whether a write was not.
        held: whether the lease was, at last.
    """

    key: ConversationKey
    run_id: RunId
    last: int = 1
    refused: bool = False
    held: bool = True

    async def go_on(self, store: Store, enough: anyio.Event) -> None:
        """Write until it is enough, then end the run."""
        while not enough.is_set():
            self.held = (await insisted(lambda: self._append(store))).held
            if not self.held:
                return
            self.last += 1
            await pause(0.002)
        log = LogChange(self.run_id, entry(1, self.last + 1), ends=True)
        end = replace(a_write(self.key, FENCED), log=log, lease="end", messages=(b"said",))
        await insisted(lambda: store.apply(end))

    async def _append(self, store: Store) -> Appended:
        given = Append(self.key, self.run_id, "one", entry(1, self.last + 1))
        try:
            [answer] = await store.append([given], lease=LONG)
        except StoreUnavailable as error:
            answer = error
        if isinstance(answer, Exception):
            self.refused = True
            raise answer
        return answer


@pytest.mark.promise("P6", "P15")
async def test_writers_go_on_after_a_failover_and_what_was_replicated_is_there_once(
    store: Store, quick_store: Store, servers: Failover
) -> None:
    writers = [Writer(*await running(store)) for _ in range(8)]
    silent, silent_run = await running(store)
    enough, settled = anyio.Event(), list[int]()
    async with anyio.create_task_group() as tasks:
        for writer in writers:
            tasks.start_soon(writer.go_on, quick_store, enough)
        while any(writer.last < 10 for writer in writers):
            await pause(0.01)
        settled += [writer.last for writer in writers]
        await servers.replicated()
        servers.master.stop()
        await servers.promoted()
        await insisted(lambda: store.check(briefly=True))
        async with store.watch(silent) as watch:
            # only now somebody writes to this run: the hint comes from the new master
            await append(store, Append(silent, silent_run, "one", entry(1, 2)))
            with anyio.fail_after(USABLE):
                await watch.wait()
        enough.set()

    assert all(writer.refused for writer in writers)
    for writer, replicated in zip(writers, settled, strict=True):
        log = await log_of(store, writer.key, writer.run_id)
        assert log is not None
        assert log == entries(1, 1, len(log))
        assert len(log) >= replicated
        if writer.held:
            assert len(log) == writer.last + 1
            assert (await whole(store, writer.key)).messages == (b"said",)


# ---------------------------------------------------------------- the Sentinels
async def test_no_sentinel_is_forgotten_when_many_connections_look_for_the_master_at_once(
    store: Store, servers: Failover
) -> None:
    first, *others = servers.sentinels
    first.command("SENTINEL", "REMOVE", SERVICE)
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(running, store)
    first.command("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", servers.master.port, QUORUM)
    for other in others:
        other.stop()
    servers.master.command("CLIENT", "KILL", "TYPE", "normal")
    await pause(0.1)  # a connection that has noticed its end asks for the master before it is used

    assert (await store.read(new_key(), ALL)).version == 0


# ---------------------------------------------------------------- lost writes
@pytest.mark.promise("P5", "P10")
async def test_a_writer_whose_last_writes_were_lost_in_a_failover_has_lost_its_lease(
    store: Store, servers: Failover
) -> None:
    talker, talk = await running(store)
    caller, call = await running(store)
    kept = Append(talker, talk, "one", entry(1, 2))
    assert await append(store, kept, lease=OVER) == [Appended(True)]
    await servers.replicated()
    await servers.cut()
    lost = Append(talker, talk, "one", entry(1, 3))
    assert await append(store, lost) == [Appended(True)]
    turn = replace(a_write(caller, FENCED), messages=(b"lost",), lease=RenewLease(LONG))
    await applied(store, replace(turn, log=LogChange(call, entry(1, 2))))
    late, late_run = new_key(), new_run()
    begins = replace(first_write(late), lease=TakeLease("one", LONG))
    await applied(store, replace(begins, log=LogChange(late_run, entry(1, 1))))
    servers.master.stop()
    await servers.promoted()
    await insisted(lambda: store.check(briefly=True))

    gap = Append(talker, talk, "one", entry(1, 4))
    assert await append(store, gap) == [Appended(held=False)]
    turn = replace(a_write(caller, FENCED), messages=(b"gap",), lease=RenewLease(LONG))
    assert await store.apply(replace(turn, log=LogChange(call, entry(1, 3)))) is None
    assert await append(store, Append(late, late_run, "one")) == [Appended(held=False)]
    assert await log_of(store, late, late_run) is None
    assert (await whole(store, caller)).messages == ()
    log = LogChange(talk, entry(2, 1), void_after=entry(1, 1).position)
    takes = replace(a_write(talker, Guard(lease_over=True)), lease=TakeLease("two", LONG), log=log)
    await applied(store, takes)
    assert await log_of(store, talker, talk) == [entry(1, 1), entry(2, 1)]
