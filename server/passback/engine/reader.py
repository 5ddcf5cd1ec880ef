"""Reading a run's log, live: from memory in the process that owns the run, from the store elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Self

from typing_extensions import override

from passback.core.errors import UnknownRun
from passback.core.events import Failed, Logged, Position, RunFinished
from passback.core.messages import RunRef
from passback.core.ports import Store, Take, Watch
from passback.engine.log import RunLog

GONE = Failed("run_not_found", "the conversation was deleted during this run")


class Reader(AsyncIterator[Sequence[Logged]]):
    """Batches of what is ready after `position`, to the end of the run. To be closed, by leaving its context.

    Args:
        take: is offered what a run of this process says while the reader waits.
        revive: called for a run whose lease is over, so that it gets its end.
    """

    def __init__(
        self,
        store: Store,
        run: RunRef,
        position: Position,
        take: Take | None,
        revive: Callable[[RunRef], Awaitable[None]],
    ) -> None:
        self._store = store
        self._run = run
        self._position = position
        self._take = take
        self._exits = AsyncExitStack()
        self._revive = revive
        self._log: RunLog | None = None
        self._watch: Watch | None = None
        self._ready: Sequence[Logged] = ()
        self._ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._exits.aclose()

    async def open(self, log: RunLog | None) -> Self:
        """Find the run.

        Raises:
            UnknownRun: there is no such run, or its log has expired.
        """
        self._log = log
        if log is None:
            self._ready = await self._store.read_log(self._run, after=self._position)
        return self

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Sequence[Logged]:
        if self._ended:
            raise StopAsyncIteration
        log, batch = self._log, self._ready
        while log is not None:
            if log.abandoned:
                log = self._log = None
            elif (batch := log.read(self._position)) or log.ended:
                break
            else:
                await self._growth(log)
        else:
            batch = await self._from_store()
        if not batch:
            raise StopAsyncIteration
        self._position = batch[-1].position
        self._ended = isinstance(batch[-1].event, RunFinished)
        return batch

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

    async def _from_store(self) -> Sequence[Logged]:
        batch, self._ready = self._ready, ()
        if batch:
            return batch
        if self._watch is None:
            self._watch = await self._exits.enter_async_context(self._store.watch(self._run))
        while True:
            # the status is read before the log: a run that is over then has its whole log
            status = await self._store.status(self._run.key)
            try:
                batch = await self._store.read_log(self._run, after=self._position)
            except UnknownRun:
                return [Logged(Position(self._position.epoch + 1, 1), RunFinished(GONE))]
            if batch:
                return batch
            if not status.running or status.run_id != self._run.run_id:
                return ()
            if status.lapsed:
                await self._revive(self._run)
            else:
                await self._watch.wait()
