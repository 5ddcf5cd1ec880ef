"""Reading a run's log, live: from memory in the process that owns the run, from the store elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Self

from typing_extensions import override

from passback.core.errors import TRIMMED, CursorExpired, InvalidCursor
from passback.core.events import START, Logged, Position, Rewound, RunFinished
from passback.core.messages import RunRef
from passback.core.ports import Store, Take
from passback.engine.caretaker import Caretaker
from passback.engine.log import RunLog
from passback.engine.stored import BEYOND, StoredLog


class Reader(
    AsyncIterator[Sequence[Logged]], AbstractAsyncContextManager[AsyncIterator[Sequence[Logged]]]
):
    """Batches of what is ready after `position`, to the end of the run; to be read within its context.

    Args:
        take: is offered what a run of this process says while the reader waits.
        caretaker: is called for a conversation that nobody may be working on.
        log_of: finds the log of a run that goes on in this process.

    Attributes:
        position: behind which it goes on.
    """

    def __init__(
        self,
        store: Store,
        run: RunRef,
        position: Position,
        caretaker: Caretaker,
        log_of: Callable[[RunRef], RunLog | None],
        /,
        *,
        take: Take | None,
    ) -> None:
        self.position = position
        self._take = take
        self._run = run
        self._log_of = log_of
        self._stored = StoredLog(store, run, caretaker)
        self._log: RunLog | None = None
        self._ready: Sequence[Logged] = ()  # what is older than the log in memory
        self._ended = False
        self._joined: Position | None = None  # where it began when all before that had been read

    @override
    async def __aenter__(self) -> Self:
        """Find the run.

        Raises:
            UnknownRun: there is no such run, or its log has expired.
            InvalidCursor: the position is beyond the log's end.
            CursorExpired: what follows the position was trimmed.
        """
        found = False
        try:
            await self._open(self._log_of(self._run))
            found = True
        finally:
            if not found:
                await self.__aexit__()
        return self

    @override
    async def __aexit__(self, *exc: object) -> None:
        if self._log is not None:
            self._log.followers.remove(self)
        await self._stored.aclose()

    async def _open(self, log: RunLog | None) -> None:
        if log is None or self.position.epoch > log.lease.epoch:
            # there is no log here, or its run was taken over, which this worker will learn
            await self._stored.find(self.position)
            return
        if log.is_beyond(self.position):
            raise InvalidCursor(BEYOND)
        self._log = log
        log.followers.append(self)
        if self.position < log.start:
            self._ready = await self._stored.older(self.position, log.start)
            self._joined = None if self._ready else log.start

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
            self.position = found[-1].position
        self._ended = isinstance(batch[-1].event, RunFinished)
        return batch

    def _relevant(self, batch: Sequence[Logged]) -> Sequence[Logged]:
        """Return what is not the news that something was void of which this reader has seen nothing.

        Raises CursorExpired: what is void has to be said again, and the log has lost it.
        """
        rewound = [logged.event.to for logged in batch if isinstance(logged.event, Rewound)]
        if not rewound:
            return batch
        if START in rewound:
            raise CursorExpired(TRIMMED)
        seen = [self.position, *(logged.position for logged in batch)]
        return [
            logged
            for logged, before in zip(batch, seen, strict=False)
            if not (isinstance(logged.event, Rewound) and before <= logged.event.to)
        ]

    async def _next(self) -> Sequence[Logged]:
        """What is ready, or will be; nothing at the end."""
        while (log := self._log) is not None:
            if log.abandoned:
                log.followers.remove(self)
                self._log = None
            elif self.position < log.start != self._joined:
                if older := await self._older(log):
                    return older
                self._joined = log.start
            elif (batch := log.read(self.position)) or log.ended:
                return batch
            else:
                await self._growth(log)
        return await self._stored.next(self.position)

    async def _older(self, log: RunLog) -> Sequence[Logged]:
        """What the store has of the time before the log in memory begins."""
        batch, self._ready = self._ready, ()
        return batch or await self._stored.older(self.position, log.start)

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
                batch = log.read(self.position)
                if batch and self._take(batch):
                    self.position = batch[-1].position
                    return
        except Exception as error:  # noqa: BLE001  # the run must not break on its reader
            waiter.set_exception(error)
        else:
            waiter.set_result(None)
