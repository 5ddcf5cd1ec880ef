"""Reading a run's log, live: from memory in the process that owns the run, from the store elsewhere."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from time import monotonic
from typing import Self

from typing_extensions import override

from passback.core.changes import Status
from passback.core.errors import InvalidCursor, UnknownRun
from passback.core.events import Failed, Logged, Position, Rewound, RunFinished
from passback.core.messages import RunRef
from passback.core.ports import Store, Take, Watch
from passback.engine.caretaker import Caretaker
from passback.engine.log import RunLog

GONE = Failed("run_not_found", "the conversation was deleted during this run")

ATTENDED_SECONDS = 10.0
"""For how long a reader in another process counts as present; it says so in half that time."""


_GROWTHS = 2
"""So many writes to a log bring all that its readers had seen before: one may have been under way."""

_SOON, _LATER = 0.05, 0.4
"""Seconds between two looks for them."""

_AT_ONCE = 1000
"""Events that are read from the store at once."""


class Reader(AsyncIterator[Sequence[Logged]]):
    """Batches of what is ready after `position`, to the end of the run. To be closed, by leaving its context.

    Args:
        take: is offered what a run of this process says while the reader waits.
        caretaker: is called for a conversation that nobody may be working on.
    """

    def __init__(
        self,
        store: Store,
        run: RunRef,
        position: Position,
        take: Take | None,
        caretaker: Caretaker,
    ) -> None:
        self._store = store
        self._run = run
        self._position = position
        self._take = take
        self._exits = AsyncExitStack()
        self._caretaker = caretaker
        self._log: RunLog | None = None
        self._watch: Watch | None = None
        self._ready: Sequence[Logged] = ()
        self._ended = False
        self._caught_up = False
        self._attended = 0.0
        self._joined: Position | None = (
            None  # where the log in memory began when all before it had been read
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._log is not None:
            self._log.followers -= 1
        await self._exits.aclose()

    async def open(self, log: RunLog | None) -> Self:
        """Find the run.

        Raises:
            UnknownRun: there is no such run, or its log has expired.
            InvalidCursor: the position is beyond the log's end.
            CursorExpired: what follows the position was trimmed.
        """
        if log is not None:
            if log.is_beyond(self._position):
                raise InvalidCursor("the cursor is beyond the end of its run")
            self._log = log
            log.followers += 1
        if log is None or self._position < log.start:
            self._ready = await self._store.read_log(self._run, after=self._position)
        if log is None and not self._ready:
            await self._check_position()
        return self

    async def _check_position(self) -> None:
        """A reader may be ahead of what another worker has stored, but not for long, and not of a run's end."""
        if await self._is_on_its_way():
            return
        before = self._position._replace(seq=max(0, self._position.seq - 1))
        last = await self._store.read_log(self._run, after=before)
        if not last or last[0].position != self._position:
            raise InvalidCursor("the cursor is beyond the end of its run")

    async def _is_on_its_way(self) -> bool:
        """Whether the log goes on behind the position, or will: the worker that is to write it may be gone.

        Raises:
            InvalidCursor: the worker has written since, and what the reader claims to have seen was not in it.
        """
        growths, end, pause = 0, Position(sys.maxsize, 0), _SOON
        until = monotonic() + self._caretaker.lease
        while growths < _GROWTHS and monotonic() < until:
            status = await self._store.status(self._run.key)
            running = status.running and status.run_id == self._run.run_id
            if not running or self._position.epoch > status.committed.epoch:
                # it may have been taken over and have ended meanwhile
                return bool(await self._store.read_log(self._run, after=self._position, limit=1))
            tail = await self._store.read_log(self._run, after=status.committed)
            last = tail[-1].position if tail else status.committed
            if status.lapsed or last >= self._position:
                return True
            growths += last > end
            end = last
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LATER)
        raise InvalidCursor("the cursor is beyond the end of its run")

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Sequence[Logged]:
        if self._ended:
            raise StopAsyncIteration
        batch: Sequence[Logged] = ()
        while not batch:
            found = await self._next()
            if not found:
                raise StopAsyncIteration
            batch = self._relevant(found)
            self._position = found[-1].position
        self._ended = isinstance(batch[-1].event, RunFinished)
        return batch

    def _relevant(self, batch: Sequence[Logged]) -> Sequence[Logged]:
        """Without the news that something was void of which this reader has seen nothing."""
        if not any(isinstance(logged.event, Rewound) for logged in batch):
            return batch
        seen = [self._position, *(logged.position for logged in batch)]
        return [
            logged
            for logged, before in zip(batch, seen, strict=False)
            if not (isinstance(logged.event, Rewound) and before <= logged.event.to)
        ]

    async def _next(self) -> Sequence[Logged]:
        """What is ready, or will be; nothing at the end."""
        while (log := self._log) is not None:
            if log.abandoned:
                log.followers -= 1
                self._log = None
            elif self._position < log.start != self._joined:
                if older := await self._older(log):
                    return older
                self._joined = log.start
            elif (batch := log.read(self._position)) or log.ended:
                return batch
            else:
                await self._growth(log)
        return await self._from_store()

    async def _older(self, log: RunLog) -> Sequence[Logged]:
        """What the store has of the time before the log in memory begins."""
        batch, self._ready = self._ready, ()
        batch = batch or await self._store.read_log(self._run, after=self._position)
        return [logged for logged in batch if logged.position <= log.start]

    # ---------------------------------------------------------------- in the process of the run
    async def _growth(self, log: RunLog) -> None:
        """Wait until the log has something that is not taken at once."""
        waiter = asyncio.get_running_loop().create_future()
        listener = partial(self._on_growth, log, waiter)
        log.listeners.add(listener)
        try:
            await waiter
        finally:
            log.listeners.discard(listener)

    def _on_growth(self, log: RunLog, waiter: "asyncio.Future[None]") -> None:
        """Called by the run, at each of its steps: what is taken here costs no second task's turn of the event loop."""
        if waiter.done():
            return
        try:
            if self._take is not None and not (log.abandoned or log.ended):
                batch = log.read(self._position)
                if batch and self._take(batch):
                    self._position = batch[-1].position
                    return
        except Exception as error:  # noqa: BLE001  # the run must not break on its reader
            waiter.set_exception(error)
        else:
            waiter.set_result(None)

    # ---------------------------------------------------------------- elsewhere
    async def _from_store(self) -> Sequence[Logged]:
        batch, self._ready = self._ready, ()
        if batch:
            return batch
        if self._watch is None:
            self._watch = await self._exits.enter_async_context(self._store.watch(self._run))
        while True:
            if self._caught_up:
                await self._watch.wait()
            if batch := await self._stored():
                self._caught_up = len(batch) < _AT_ONCE
                await self._attend(None)
                return batch
            self._caught_up = True
            status = await self._store.status(self._run.key)
            waits = self._run.run_id in status.queued
            if not waits and not (status.running and status.run_id == self._run.run_id):
                return (
                    await self._stored()
                )  # what came before the status: a run that is over has its whole log
            if status.lapsed or (waits and not status.running and not status.owed):
                await self._caretaker.look_after(self._run.key)
            await self._attend(status)

    async def _stored(self) -> Sequence[Logged]:
        try:
            return await self._store.read_log(self._run, after=self._position, limit=_AT_ONCE)
        except UnknownRun:
            return [Logged(Position(self._position.epoch + 1, 1), RunFinished(GONE))]

    async def _attend(self, status: Status | None) -> None:
        """Now and then, let the worker of a run that ends with its last reader know of this one."""
        if monotonic() < self._attended:
            return
        status = status or await self._store.status(self._run.key)
        if not status.running or status.run_id != self._run.run_id:
            return  # it waits for its turn, or is over
        self._attended = monotonic() + ATTENDED_SECONDS / 2
        if status.tethered:
            await self._store.attend(self._run, seconds=ATTENDED_SECONDS)
