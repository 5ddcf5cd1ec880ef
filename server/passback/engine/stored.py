"""The log of a run as the store has it, for readers in a process that does not own the run."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from time import monotonic

import anyio

from passback.core.changes import Status
from passback.core.errors import InvalidCursor, UnknownRun
from passback.core.events import Failed, Logged, Position, RunFinished
from passback.core.messages import RunRef
from passback.core.ports import Store, Watch
from passback.engine.caretaker import Caretaker

GONE = Failed("run_not_found", "the conversation was deleted during this run")

ATTENDED_SECONDS = 10.0
"""For how long a reader in another process counts as present; it says so in half that time."""

_SIGNS = 3
"""So many signs of life, and a worker has stored all that its readers had seen before.

The first may be a write that was under way; before the next one, which has it all, the lease may be renewed.
"""

_LOOK = 0.25
"""Seconds after which a sign of life is looked for again: a lease is renewed without a hint."""

_AT_ONCE = 1000
"""Events that are read at once."""


class StoredLog:
    """One reader's view of it. To be closed.

    What no commit has made true is shown only after a sign of life that the run's worker gave since the reader came: if
    the worker is gone, it is void. A post that is repeated after its worker's death gets the good answer alone.

    Args:
        caretaker: is called for a conversation that nobody may be working on.
    """

    def __init__(self, store: Store, run: RunRef, caretaker: Caretaker) -> None:
        self._store = store
        self._run = run
        self._caretaker = caretaker
        self._exits = AsyncExitStack()
        self._watch: Watch | None = None
        self._first: Status | None = None  # as it was when the reader came
        self._alive = False  # there was a sign of life, or none is needed
        self._caught_up = False
        self._attended = 0.0

    async def aclose(self) -> None:
        await self._exits.aclose()

    # ---------------------------------------------------------------- entering
    async def find(self, position: Position) -> None:
        """Make sure that a reader may have got to a position, which may be ahead of what the run's worker has stored.

        Raises:
            UnknownRun: there is no such run, or its log has expired.
            InvalidCursor: nothing was ever said there.
            CursorExpired: what follows the position was trimmed.
        """
        signs, seen = 0, None  # how many, and the last one
        while True:
            status = await self._status()
            if await self._has(position):
                return
            signs += seen not in {None, status.expires}
            seen = status.expires
            if (
                not self._goes_on(status)
                or position.epoch > status.committed.epoch
                or signs == _SIGNS
            ):
                raise InvalidCursor("the cursor is beyond the end of its run")
            if status.lapsed:
                return  # its worker is gone, and may have shown more than it stored
            await self._pause()

    async def _has(self, position: Position) -> bool:
        """Whether a position is one of the log, or the log goes on behind it."""
        if await self._store.read_log(self._run, after=position, limit=1):
            return True
        before = position._replace(seq=max(0, position.seq - 1))
        last = await self._store.read_log(self._run, after=before, limit=1)
        return bool(last) and last[0].position == position

    # ---------------------------------------------------------------- reading
    async def older(self, position: Position, end: Position) -> Sequence[Logged]:
        """What there is between a position and another one at which the log of this process begins."""
        batch = await self._store.read_log(self._run, after=position)
        return [logged for logged in batch if logged.position <= end]

    async def next(self, position: Position) -> Sequence[Logged]:
        """What follows a position, as soon as there is something; nothing: the run is over, and all of it was read."""
        while True:
            if self._caught_up:
                await self._pause()
            status = None if self._alive else await self._status()
            batch = await self._stored(position)
            if status is not None and not self._alive:
                batch = [logged for logged in batch if logged.position <= status.committed]
            self._caught_up = len(batch) < _AT_ONCE
            if batch:
                await self._attend(status)
                return batch
            status = await self._status()
            waits = self._run.run_id in status.queued
            if not waits and not self._goes_on(status):
                # what came before the status: a run that is over has its whole log
                return await self._stored(position)
            if status.lapsed or (waits and not status.running and not status.owed):
                await self._caretaker.look_after(self._run.key)
            await self._attend(status)

    async def _stored(self, position: Position) -> Sequence[Logged]:
        try:
            return await self._store.read_log(self._run, after=position, limit=_AT_ONCE)
        except UnknownRun:
            return [Logged(Position(position.epoch + 1, 1), RunFinished(GONE))]

    # ---------------------------------------------------------------- the run's worker
    def _goes_on(self, status: Status) -> bool:
        return status.running and status.run_id == self._run.run_id

    async def _status(self) -> Status:
        status = await self._store.status(self._run.key)
        self._first = self._first or status
        self._alive = not self._goes_on(status) or status.expires != self._first.expires
        return status

    async def _pause(self) -> None:
        """Wait until the log may have grown, or there may be a sign of life that is needed."""
        if self._watch is None:
            self._watch = await self._exits.enter_async_context(self._store.watch(self._run))
            return  # what came before the watch gave no hint
        with anyio.move_on_after(None if self._alive else _LOOK):
            await self._watch.wait()

    async def _attend(self, status: Status | None) -> None:
        """Now and then, let the worker of a run that ends with its last reader know of this one."""
        if monotonic() < self._attended:
            return
        status = status or await self._store.status(self._run.key)
        if not self._goes_on(status):
            return  # it waits for its turn, or is over
        self._attended = monotonic() + ATTENDED_SECONDS / 2
        if status.tethered:
            await self._store.attend(self._run, seconds=ATTENDED_SECONDS)
