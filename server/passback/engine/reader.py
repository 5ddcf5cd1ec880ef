"""Read a run's log live: from memory in the process that owns the run, from the store elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from time import monotonic
from typing import Self, TypeAlias

import anyio
from typing_extensions import override

from passback.core.changes import Status
from passback.core.conversation.store import Watch
from passback.core.errors import TRIMMED, CursorExpired, InvalidCursor, UnknownRun
from passback.core.events import START, Failed, Logged, Position, Rewound, RunFinished
from passback.core.messages import ConversationKey, RunRef
from passback.core.runs import TakeBatch
from passback.engine.ledger import Ledger
from passback.engine.log import RunLog

CONVERSATION_DELETED = Failed("run_not_found", "the conversation was deleted during this run")

BEYOND_END = "the cursor is beyond the end of its run"

# seconds that a reader in another process counts as present; it renews that after half of them
FOLLOWED_SECONDS = 10.0

# writes after which a log holds all that its readers had seen before: one may have been under way
_WRITES_TO_CATCH_UP = 2

# seconds between two looks for a sign of life: renewing a lease sends no notification
_LOOK_INTERVAL = 0.4

_READ_LIMIT = 1000  # events of one read


_Watching: TypeAlias = AbstractAsyncContextManager[Watch]


class StoredLog:
    """One reader's view of a stored log. Close it after use.

    Uncommitted events are shown only after a sign of life of the run's worker since the reader
    came: if the worker is gone, they are void. A post that is repeated after its worker's death
    gets the good answer alone.

    Args:
        recover: called for a conversation that no worker may own.
        lease: seconds after which a silent worker counts as lost.
    """

    def __init__(
        self,
        ledger: Ledger,
        run: RunRef,
        recover: Callable[[ConversationKey], Awaitable[None]],
        lease: float,
    ) -> None:
        self._ledger = ledger
        self._run = run
        self._recover = recover
        self._lease = lease
        self._watching: _Watching | None = None
        self._watch: Watch | None = None
        self._first: Status | None = None  # as it was when the reader came
        self._newest: Status | None = None
        self._alive = False  # there was a sign of life, or none is needed
        self._ready: Sequence[Logged] = ()
        self._caught_up = False
        self._attended = 0.0

    async def aclose(self) -> None:
        if self._watching is not None:
            await self._watching.__aexit__(None, None, None)

    async def check_position(self, position: Position) -> None:
        """Check that a reader may have reached a position, which may be ahead of what is stored.

        Raises:
            UnknownRun: there is no such run, or its log has expired.
            InvalidCursor: the log never had this position.
            CursorExpired: what follows the position was trimmed.
        """
        status = await self._read_status()
        batch = await self._ledger.read_log(self._run, after=position, limit=_READ_LIMIT)
        self._ready = self._visible_events(batch, status)
        if batch:
            return
        lifetime = status.lease_expires + 1000 * self._lease
        growths, end = 0, status.logged
        while self._goes_on(status) and status.logged < position:
            # a worker that writes has written it by then, and one that only renews its lease has
            # nothing to write
            stored_all = growths == _WRITES_TO_CATCH_UP or status.lease_expires >= lifetime
            if stored_all or position.epoch > status.logged.epoch:
                raise InvalidCursor(BEYOND_END)
            if status.lapsed:
                return  # its worker is gone, and may have shown more than it stored
            await self._wait_for_growth()
            status = await self._read_status()
            growths += status.logged > end
            end = status.logged
        # the log of an ended run has the position, or goes on after it
        ended = not self._goes_on(status)
        before = position._replace(seq=max(0, position.seq - 1))
        if ended and not any(
            logged.position >= position
            for logged in await self._ledger.read_log(self._run, after=before, limit=_READ_LIMIT)
        ):
            raise InvalidCursor(BEYOND_END)

    async def read_older(self, position: Position, end: Position) -> Sequence[Logged]:
        """Return the events between a position and `end`, where the log in memory begins."""
        batch = await self._ledger.read_log(self._run, after=position)
        return [logged for logged in batch if logged.position <= end]

    async def next_batch(self, position: Position) -> Sequence[Logged]:
        """Return the events after a position once there are some; empty: the run is over and all
        were read.
        """
        while True:
            batch, status = await self._look_once(position)
            if batch:
                return batch
            status = status or await self._read_status()
            waits = self._run.run_id in status.queued
            if not waits and not self._goes_on(status):
                # what came before the status: a run that is over has its whole log
                return await self._read_stored(position)
            # nobody else begins a queued run whose conversation is idle
            if status.lapsed or (waits and not status.running and not status.owed):
                await self._recover(self._run.key)
            if not waits:
                await self._keep_followed()

    async def _look_once(self, position: Position) -> tuple[Sequence[Logged], Status | None]:
        """Return the events that may be shown, and the status if it had to be read."""
        batch, self._ready = self._ready, ()
        if batch:
            return batch, None
        if self._caught_up:
            await self._wait_for_growth()
        status = None if self._alive else await self._read_status()
        # the hint that brought the sign of life comes once: what it announced is read now
        if status is None or self._alive or position < status.committed:
            batch = self._visible_events(await self._read_stored(position), status)
        self._caught_up = len(batch) < _READ_LIMIT
        if batch and not isinstance(batch[-1].event, RunFinished):
            await self._keep_followed()
        return batch, status

    def _visible_events(self, batch: Sequence[Logged], status: Status | None) -> Sequence[Logged]:
        if self._alive or status is None:
            return batch
        return [logged for logged in batch if logged.position <= status.committed]

    async def _read_stored(self, position: Position) -> Sequence[Logged]:
        try:
            return await self._ledger.read_log(self._run, after=position, limit=_READ_LIMIT)
        except UnknownRun:
            return [Logged(Position(position.epoch + 1, 1), RunFinished(CONVERSATION_DELETED))]

    def _goes_on(self, status: Status) -> bool:
        return status.running and status.run_id == self._run.run_id

    async def _read_status(self) -> Status:
        self._newest = status = await self._ledger.status(self._run.key)
        self._first = first = self._first or status
        signed = not status.lapsed and status.lease_expires > first.lease_expires
        self._alive = self._alive or signed or not self._goes_on(status)
        return status

    async def _wait_for_growth(self) -> None:
        """Wait until the log may have grown, or a needed sign of life may have come."""
        if self._watch is None:
            watching = self._ledger.watch(self._run.key)
            self._watch = await watching.__aenter__()
            self._watching = watching
            return  # what came before the watch gave no hint
        with anyio.move_on_after(None if self._alive else _LOOK_INTERVAL):
            await self._watch.wait()

    async def _keep_followed(self) -> None:
        """Tell the worker of a run with `cancel_on_disconnect` now and then that this reader
        follows it.
        """
        if monotonic() < self._attended:
            return
        status = self._newest
        if status is None or not self._goes_on(status):
            status = await self._read_status()
        if not self._goes_on(status):
            return  # it waits for its turn, or is over
        self._attended = monotonic() + FOLLOWED_SECONDS / 2
        if status.cancel_on_disconnect:
            await self._ledger.keep_followed(self._run, seconds=FOLLOWED_SECONDS)


class Reader(
    AsyncIterator[Sequence[Logged]], AbstractAsyncContextManager[AsyncIterator[Sequence[Logged]]]
):
    """Iterates over batches of ready events after `position`, to the end of the run. Use it as a
    context manager.

    Args:
        stored: the run's log in the store.
        run: the run.
        position: events after it are read.
        log_of: returns the log of a run that goes on in this process.
        take: is offered the events of a run of this process while the reader waits.

    Attributes:
        run: the run.
        position: the position after which it goes on.
    """

    def __init__(
        self,
        stored: StoredLog,
        run: RunRef,
        position: Position,
        log_of: Callable[[RunRef], RunLog | None],
        /,
        *,
        take: TakeBatch | None,
    ) -> None:
        self.position = position
        self._take = take
        self.run = run
        self._log_of = log_of
        self._stored = stored
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
        log, found = self._log_of(self.run), False
        try:
            if log is None or self.position.epoch > log.lease.epoch:
                # there is no log here, or its run was taken over, which this worker will learn
                await self._stored.check_position(self.position)
            elif log.is_beyond(self.position):
                raise InvalidCursor(BEYOND_END)
            else:
                self._log = log
                log.followers.append(self)
                if self.position < log.start:
                    self._ready = await self._stored.read_older(self.position, log.start)
                    self._joined = None if self._ready else log.start
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

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Sequence[Logged]:
        """Return the next events, without the rewinds of events that this reader has not seen.

        Raises:
            CursorExpired: what is void has to be shown again, and the log has lost it.
        """
        if self._ended:
            raise StopAsyncIteration
        batch: Sequence[Logged] = ()
        while not batch:
            batch = await self._next_events()
            if not batch:
                raise StopAsyncIteration
            last = batch[-1].position
            rewound = [logged.event.to for logged in batch if isinstance(logged.event, Rewound)]
            if START in rewound:
                raise CursorExpired(TRIMMED)
            if rewound:
                seen = [self.position, *(logged.position for logged in batch)]
                batch = [
                    logged
                    for logged, before in zip(batch, seen, strict=False)
                    if not (isinstance(logged.event, Rewound) and before <= logged.event.to)
                ]
            self.position = last
        self._ended = isinstance(batch[-1].event, RunFinished)
        return batch

    async def _next_events(self) -> Sequence[Logged]:
        """Return the next events once there are some; empty at the end."""
        while (log := self._log) is not None:
            if log.abandoned:
                log.followers.remove(self)
                self._log = None
            elif self.position < log.start != self._joined:
                older, self._ready = self._ready, ()
                if older or (older := await self._stored.read_older(self.position, log.start)):
                    return older
                self._joined = log.start
            elif (batch := log.events_after(self.position)) or log.ended:
                return batch
            else:
                # until there are events that `take` does not accept at once
                waiter = asyncio.get_running_loop().create_future()
                listener = partial(self._on_growth, log, waiter)
                log.listeners.add(listener)
                try:
                    await waiter
                finally:
                    log.listeners.discard(listener)
        return await self._stored.next_batch(self.position)

    def _on_growth(self, log: RunLog, waiter: "asyncio.Future[None]") -> None:
        """Offer new events to `take`; called by the run at each of its steps.

        Events that are taken here need no second task to be scheduled.
        """
        if waiter.done():
            return
        try:
            if self._take is not None and not (log.abandoned or log.ended):
                batch = log.events_after(self.position)
                if batch and self._take(batch):
                    self.position = batch[-1].position
                    return
        except Exception as error:  # noqa: BLE001  # the run must not break on its reader
            waiter.set_exception(error)
        else:
            waiter.set_result(None)
