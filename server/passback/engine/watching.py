"""Read a conversation live: its runs one after the other, whoever begins them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Self

from typing_extensions import override

from passback.core.changes import Status
from passback.core.conversation.store import Watch
from passback.core.conversation.tree import NO_MESSAGE
from passback.core.errors import (
    TRIMMED,
    CursorExpired,
    InvalidCursor,
    UnknownConversation,
    UnknownRun,
)
from passback.core.events import (
    START,
    Cursor,
    Logged,
    Position,
    Rewound,
    RunFinished,
    RunQueued,
)
from passback.core.messages import ConversationKey, RunRef
from passback.core.runs import RunBatch, TakeBatch, TakeRunBatch, TellSwitch
from passback.engine.ledger import Ledger
from passback.engine.reader import BEYOND_END, Reader


class ConversationReader(
    AsyncIterator[RunBatch], AbstractAsyncContextManager[AsyncIterator[RunBatch]]
):
    """Iterates over what is said in a conversation after a position. Use it as a context manager.

    Args:
        store: has the conversation.
        key: the conversation.
        after: the last event that the reader has seen; a position alone: from the start of its
            run. None: from the start of the run that goes on, or else from now.
        follow: reads a run from a position to its end, and offers its batches.
        status: returns the conversation's status; raises UnknownConversation.
        recover: called for a conversation that no worker may own.
        quiet: seconds after which a silent conversation is looked at, in case a hint was lost.
            Such readers may be many.
        take: is offered the events of a run of this process while the reader waits.
        tell_switch: awaited when another branch is read, as in `Runs.watch`.
        waits: whether a conversation that does not exist is waited for.
    """

    _watch: Watch

    def __init__(
        self,
        ledger: Ledger,
        key: ConversationKey,
        after: Cursor | Position | None,
        /,
        *,
        follow: Callable[[RunRef, Position, TakeBatch | None], Reader],
        status: Callable[[ConversationKey], Awaitable[Status]],
        recover: Callable[[ConversationKey], Awaitable[None]],
        quiet: float = 20.0,
        take: TakeRunBatch | None = None,
        tell_switch: TellSwitch | None = None,
        waits: bool = False,
    ) -> None:
        self._ledger = ledger
        self._key = key
        self._after = after
        self._follow = follow
        self._status = status
        self._recover = recover
        self._quiet = quiet
        self._take = take
        self._tell_switch = tell_switch
        self._waits = waits and after is None
        self._position = START
        # the end of the branch that is read, and the number of all messages; None: a run may have
        # changed both
        self._branch: tuple[int, int] | None = None
        self._begun_epoch = 0  # of the last run that was seen and has begun
        self._version: int | None = None  # when no run was found
        self._reader: Reader | None = None
        self._is_next = False  # the run that is read was found by what it says next
        self._watching = AsyncExitStack()

    @override
    async def __aenter__(self) -> Self:
        """Find the place to begin.

        Raises:
            UnknownConversation: there is no such conversation.
            InvalidCursor: it never had the event `after`.
            CursorExpired: its logs have lost events that come after it.
        """
        async with AsyncExitStack() as undone:
            undone.push_async_exit(self._watching)
            # before the first look, so that no hint is missed
            self._watch = await self._watching.enter_async_context(self._ledger.watch(self._key))
            try:
                await self._find_place(await self._status(self._key))
                self._waits = False
            except UnknownConversation:
                if not self._waits:
                    raise
                self._branch = (NO_MESSAGE, 0)
            undone.pop_all()
        return self

    async def _find_place(self, status: Status) -> None:
        after, run_id = self._after, status.run_id
        self._begun_epoch = status.logged.epoch
        if isinstance(after, Cursor):
            self._position = after.position
            try:
                run = RunRef(self._key, after.run_id)
                await self._open(run, after.position)
                if await self._is_queued(run, after.position):
                    await self._close_run()  # others may come before it
            except UnknownRun:
                self._refuse_unless_last(status, is_last_run=after.run_id == run_id)
        elif after is not None:
            await self._find_position(after, status)
        elif status.running and run_id is not None:
            await self._open(RunRef(self._key, run_id), START)
        else:
            self._position = status.logged
            self._branch = (status.tree.leaf, status.stored)

    async def _is_queued(self, run: RunRef, position: Position) -> bool:
        """Return whether a run was put into the queue at a position."""
        if position.seq != 1:
            return False
        following = await self._ledger.read_log(run, after=position._replace(seq=0), limit=1)
        return bool(following) and isinstance(following[0].event, RunQueued)

    async def _find_position(self, after: Position, status: Status) -> None:
        """Find the run that has a position, and begin at its start; behind a void position, at the
        event that says so.
        """
        self._position = after
        before = after._replace(seq=max(0, after.seq - 1))
        found = await self._ledger.next_run(self._key, after=before)
        if found is not None and (found.position.epoch == after.epoch or after == START):
            run = RunRef(self._key, found.run_id)
            await self._open(run, after)  # which checks the position
            await self._close_run()
            await self._open(run, START)
        elif (run_of_void := await self._find_void(after)) is not None:
            await self._open(run_of_void, after)
        else:
            self._refuse_unless_last(status, is_last_run=True)

    async def _find_void(self, after: Position) -> RunRef | None:
        """Return the run in which a take-over made a position void."""
        found = await self._ledger.next_run(self._key, after=Position(after.epoch, 0))
        if found is None:
            return None
        run = RunRef(self._key, found.run_id)
        following = await self._ledger.read_log(run, after=after, limit=1)
        event = following[0].event if following else None
        return run if isinstance(event, Rewound) and event.to < after else None

    def _refuse_unless_last(self, status: Status, *, is_last_run: bool) -> None:
        """Return if no event follows the position: then nothing is lost with an expired log."""
        if self._position > status.logged:
            raise InvalidCursor(BEYOND_END)
        if status.running or not is_last_run or self._position != status.logged:
            raise CursorExpired(TRIMMED)

    @override
    async def __aexit__(self, *exc: object) -> None:
        await self._close_run()
        await self._watching.aclose()

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> RunBatch:
        """Return the next events of a run.

        Raises:
            CursorExpired: the logs have lost the next events.
        """
        while True:
            reader = self._reader or await self._open_next()
            batch: Sequence[Logged] | None = await anext(reader, None)
            if batch is not None:
                if self._is_next and isinstance(batch[0].event, RunQueued):
                    # what it says later may come behind other runs that wait longer
                    batch = batch[:1]
                    await self._close_run()
                # a batch that was taken is never a run's last
                self._position = batch[-1].position
                # no status has one that was taken out of the queue
                if any(not isinstance(each.event, RunQueued | RunFinished) for each in batch):
                    self._begun_epoch = self._position.epoch
                return RunBatch(reader.run, batch)
            await self._close_run()

    async def _open_next(self) -> Reader:
        """Open the next run once there is one. Raises StopAsyncIteration with the conversation."""
        while True:
            status = await self._ledger.status(self._key)
            self._waits = self._waits and status.version == 0
            # a conversation that is made anew under this id counts from the start
            is_gone = status.version == 0 or status.logged.epoch < self._begun_epoch
            if is_gone and not self._waits:
                raise StopAsyncIteration
            if status.version != self._version:
                found = await self._ledger.next_run(self._key, after=self._position)
                if found is not None:
                    reader = await self._open(RunRef(self._key, found.run_id), self._position)
                    self._is_next = True
                    return reader
                if status.logged > self._position:  # of a run whose log has expired since
                    raise CursorExpired(TRIMMED)
                self._version = status.version
                await self._notice_switch(status)
            # nobody else begins a queued run whose conversation is idle
            if status.lapsed or (status.queued and not status.running and not status.owed):
                await self._recover(self._key)
            await self._watch.wait(self._quiet)

    async def _notice_switch(self, status: Status) -> None:
        """Tell of another branch, if no run goes on, which would tell of it by itself."""
        leaf, stored = status.tree.leaf, status.stored
        # a run leaves the branch that was written last
        known, count = self._branch or (stored - 1, stored)
        self._branch = (leaf, stored)
        is_grown = leaf >= count and status.tree.position(known) is not None
        is_other = leaf != known and not is_grown and not status.running
        if is_other and self._tell_switch is not None:
            await self._tell_switch(status)

    async def _open(self, run: RunRef, position: Position) -> Reader:
        take, self._is_next, self._branch = self._take, False, None
        offer: TakeBatch | None = None if take is None else lambda batch: take(RunBatch(run, batch))
        self._reader = await self._follow(run, position, offer).__aenter__()
        return self._reader

    async def _close_run(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.__aexit__()
