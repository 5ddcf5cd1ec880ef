"""Reading a run's log, live: from memory in the process that owns the run, from the store elsewhere."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Self

from typing_extensions import override

from passback.core.errors import UnknownRun
from passback.core.events import Failed, Logged, Position, RunFinished
from passback.core.messages import RunRef
from passback.core.ports import Store, Watch
from passback.engine.log import RunLog

GONE = Failed("run_not_found", "the conversation was deleted during this run")


class Reader(AsyncIterator[Sequence[Logged]]):
    """Batches of what is ready after `position`, to the end of the run.

    Args:
        exits: closes the watch that is opened when the run is another process's.
        revive: called for a run whose lease is over, so that it gets its end.
    """

    def __init__(
        self,
        store: Store,
        run: RunRef,
        position: Position,
        exits: AsyncExitStack,
        revive: Callable[[RunRef], Awaitable[None]],
    ) -> None:
        self._store = store
        self._run = run
        self._position = position
        self._exits = exits
        self._revive = revive
        self._log: RunLog | None = None
        self._watch: Watch | None = None
        self._ready: Sequence[Logged] = ()
        self._ended = False

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
        while log is not None:  # all in this coroutine, because it runs for each delta
            if log.abandoned:
                log = self._log = None
            elif (batch := log.read(self._position)) or log.ended:
                break
            else:
                await log.grown()
        else:
            batch = await self._from_store()
        if not batch:
            raise StopAsyncIteration
        self._position = batch[-1].position
        self._ended = isinstance(batch[-1].event, RunFinished)
        return batch

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
