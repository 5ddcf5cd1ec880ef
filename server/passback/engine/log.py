"""The log of a run in the process that owns it, and the one writer that stores the logs of all
runs.

Events that may become void later (text, arguments) are visible to readers at once and stored within
a bound. Events on which clients act become visible only when the commit that makes them true has
succeeded (P3, P4).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic, time_ns
from typing import Protocol

import anyio

from passback.core.changes import Commit, Lease, LeaseState, LogWrite, OpenTurn, OpenTurns
from passback.core.errors import StoreError, StoreUnavailable
from passback.core.events import (
    START,
    Logged,
    Position,
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCallArguments,
    unwrap_event,
)
from passback.core.ids import new_message_id
from passback.core.messages import CallId, ConversationKey, Message, Owed, RunId, ToolMessage
from passback.core.state import State
from passback.core.text import copy_text
from passback.core.transcript import MessageT, recorded_message, unwrap_message
from passback.core.values import value
from passback.engine.ledger import Ledger
from passback.pacing import LARGE

logger = logging.getLogger(__name__)

# events of one run that are kept for readers in this process; trimmed at twice as many, so that
# each trim removes many at once
_EVENTS_IN_MEMORY = 5_000

_BACK_OFF_FACTOR = 10  # after a failed write, wait this many times longer

# flush text every 4th tick while no remote reader listens; uncommitted text is void after a
# crash anyway
_IDLE_FLUSH_TICKS = 4

# small and frequent events; no other post can depend on one of them
_PIECES = (TextDelta, ReasoningDelta, ToolCallArguments)


@value
class End:
    """The end of a run in its last commit: what the client owes then, and whether it was
    stopped early.
    """

    owed: tuple[Owed, ...]
    stopped_early: bool = False


def record_messages(
    key: ConversationKey, messages: Sequence[MessageT], run_id: RunId | None = None, /
) -> tuple[MessageT, ...]:
    """Return new messages as a conversation stores them.

    They have an id, and were written now, by the run or for it.
    """
    now, mint = current_milliseconds(), partial(new_message_id, key)
    return tuple(recorded_message(each, now, run_id or RunId(""), mint) for each in messages)


def current_milliseconds() -> int:
    """Return the time in milliseconds since 1970."""
    return time_ns() // 1_000_000


def elapsed_milliseconds(began: float, /) -> int:
    """Return the milliseconds since a time of `monotonic`, at least 1: 0 means unknown."""
    return max(1, round((monotonic() - began) * 1000))


class Follower(Protocol):
    """A reader of the log in the process that owns it."""

    position: Position
    """The last position that it has read."""


class RunLog:
    """One run's events under one lease, with any number of readers at positions of their own.

    Producers are the run and its sub-agents: what one of them appends during another one's commit
    is shown after that commit.

    Args:
        lease: the run's.
        opening: events that are stored already.
        writer: stores all others.
        on_lease: called when the lease is lost, or when the run is to be cancelled.
        continues: the store has events of the run from before this lease.

    Attributes:
        start: readers whose position is before it have to read the store first.
        ended: the last event is here.
        posts_wait: it ended while posts waited for it.
        abandoned: the lease is another worker's, or nobody's: readers go on from the store.
        followers: its readers in this process.
    """

    def __init__(
        self,
        lease: Lease,
        opening: Sequence[RunEvent],
        writer: "LogWriter",
        on_lease: Callable[[LeaseState], None],
        *,
        continues: bool = False,
    ) -> None:
        self.lease = lease
        self.run = lease.run
        self.start = Position(lease.epoch, 0) if continues else START
        self.ended = False
        self.posts_wait = False
        self.abandoned = False
        self.followers: list[Follower] = []
        self._held_at = monotonic()
        self._events = list(opening)
        self._numbered = len(self._events)  # events that were written or are in doubt
        self._in_doubt: list[Commit | LogWrite] = []  # one for each producer at most, and a write
        self._behind: list[RunEvent] = []  # what is shown when the commit in doubt is
        self._commits_in_doubt = 0
        # turns that are not committed, by the calls on which their agents work: how many events
        # were written before each
        self._open_turns: dict[tuple[CallId, ...], int] = {}
        self._step = 0
        self._writer = writer
        self._on_lease: Callable[[LeaseState], None] = on_lease
        self._writing = anyio.Lock(fast_acquire=True)
        self._followed = continues  # somebody may read it in another process
        self._is_pressing = False  # not only pieces wait to be written
        self._has_much = False  # much text was written for it
        self.listeners: set[Callable[[], object]] = set()
        """Called when there may be more to read, or the log is abandoned. They must not raise."""

    def append(self, events: Sequence[RunEvent]) -> None:
        """Show events at once; they are stored within the writer's delay, or by the next commit."""
        # what follows a commit in doubt may depend on it, so it is shown after the commit
        if self._commits_in_doubt:
            self._behind.extend(events)
            return
        self._events.extend(events)
        self._notify_listeners()
        for event in events:
            if not isinstance(event, _PIECES):
                self._is_pressing = True
        self._writer.mark_dirty(self)

    def begin_turn(self, events: Sequence[RunEvent], path: tuple[CallId, ...] = (), /) -> None:
        """Show events of a turn that is not committed: until it is, a take-over makes them void."""
        self._open_turns.setdefault(path, self._numbered)
        self.append(events)

    async def wait_for_store(self) -> None:
        """Wait while too much text is unstored: a model may produce it faster than a store takes
        it.
        """
        while self.is_large and not (self.abandoned or self._commits_in_doubt):
            if not await self._writer.write_large(self):
                await anyio.sleep(self._writer.pause)

    async def commit(
        self,
        append: tuple[Message, ...],
        events: tuple[RunEvent, ...],
        end: End | None = None,
        state: State | None = None,
        /,
    ) -> None:
        """Store messages together with the events that reveal them, then show the events.

        A write cannot be cancelled midway. `state` replaces the conversation's; None keeps it. If
        the store is unavailable, retry about as long as the lease lasts.

        Raises:
            LeaseLost: another worker owns the run; nothing was written or shown.
            StoreError: the outcome is unknown; the next commit settles it first.
        """
        self._step += 1
        if self._has_much:
            self._trim_events()
        write = self._waiting_events(events)
        owed, stopped_early = (end.owed, end.stopped_early) if end else ((), False)
        within = self._writer.tool_timeout if owed else None
        open_turns = self._close_turns(append, events)
        self._in_doubt.append(
            Commit(
                log=write,
                step=self._step,
                append=append,
                owed=owed,
                ends=end is not None,
                stopped_early=stopped_early,
                answer_within=within,
                state=state,
                open_turns=None if end else open_turns,
            )
        )
        self._commits_in_doubt += 1
        until = monotonic() + self._writer.lease
        while True:
            try:
                return await self.settle_writes()
            except StoreUnavailable:
                # after the lease has lapsed another worker may own the run
                if monotonic() >= until:
                    raise
            await anyio.sleep(self._writer.pause)

    async def settle_writes(self) -> None:
        """Send what is in doubt, again if it was sent before: every write is idempotent (P15).

        Drop what was to follow an end that turns out to be written. Raises as `commit` does. Not
        cancellable midway.
        """
        with anyio.move_on_after(self._writer.write_timeout, shield=True):
            async with self._writing:
                while self._in_doubt and not self.ended:
                    write = self._in_doubt[0]
                    if isinstance(write, LogWrite):
                        await self._writer.write(write)
                    else:
                        self.posts_wait = await self._writer.commit(write)
                        self._events[write.log.first - 1 - self.start.seq :] = write.log.events
                        self.ended = write.ends
                        self._commits_in_doubt -= 1
                    del self._in_doubt[0]
                    if not self._commits_in_doubt:
                        behind, self._behind = self._behind, []
                        if behind and not self.ended:
                            self.append(behind)
                    self._trim_events()
                    self._notify_listeners()
                return
        raise StoreUnavailable("the store does not answer in time", retry_after=1)

    @property
    def may_have_ended(self) -> bool:
        """Its end was sent and no answer came: the lease may be gone, and posts may wait."""
        return any(isinstance(write, Commit) and write.ends for write in self._in_doubt)

    def abandon(self) -> None:
        """Let readers go on from the store, because the lease is another worker's."""
        self.abandoned = True
        self._notify_listeners()

    def _close_turns(
        self, append: Sequence[Message], events: Sequence[RunEvent]
    ) -> OpenTurns | None:
        """Close the open turns of agents that say something or receive an answer, and of sub-agents
        whose calls are answered, however they ended.

        Return those that stay open beside the commit whose events were numbered last, or None.
        """
        for event in events:
            self._open_turns.pop(unwrap_event(event)[0], None)
        for message in append:
            path, inner = unwrap_message(message)
            self._open_turns.pop(path, None)
            if isinstance(inner, ToolMessage):
                call = (*path, inner.call_id)
                for each in [each for each in self._open_turns if each[: len(call)] == call]:
                    del self._open_turns[each]
        if not self._open_turns:
            return None
        epoch = self.lease.epoch
        turns = [OpenTurn(path, Position(epoch, seq)) for path, seq in self._open_turns.items()]
        return OpenTurns(Position(epoch, self._numbered), tuple(turns))

    def _waiting_events(self, revealed: tuple[RunEvent, ...] = ()) -> LogWrite:
        """Return the events that no write carries yet, and those that are shown only after it."""
        events = (*self._events[self._numbered - self.start.seq :], *self._behind, *revealed)
        self._behind.clear()
        self._is_pressing = False
        write = LogWrite(self.lease, self._numbered + 1, events)
        self._numbered += len(events)
        return write

    @property
    def is_urgent(self) -> bool:
        """A reader in another process may wait for what is not stored."""
        return self._followed or self._is_pressing or bool(self._in_doubt)

    @property
    def is_large(self) -> bool:
        """So much text waits to be written that other runs must not wait for it."""
        waiting = self._events[self._numbered - self.start.seq :]
        # each delta is counted here: by the class alone, and without a generator
        sizes = [len(event.text) for event in waiting if type(event) is TextDelta]
        return sum(sizes) > LARGE

    def take_write(self, *, large: bool = False) -> LogWrite | None:
        """Return what is to be stored, and hold the right to write it until `write_answered`; None:
        nothing.
        """
        try:
            self._writing.acquire_nowait()
        except anyio.WouldBlock:
            return None  # a commit is under way and carries the waiting events
        if not self._in_doubt and self._last_number > self._numbered:
            waiting = self._waiting_events()
            if large:
                self._has_much = True
                texts = [  # in memory of their own
                    TextDelta(copy_text(event.text)) if isinstance(event, TextDelta) else event
                    for event in waiting.events
                ]
                waiting = LogWrite(waiting.lease, waiting.first, tuple(texts))
            self._in_doubt.append(waiting)
        if self._in_doubt and isinstance(write := self._in_doubt[0], LogWrite):
            return write
        self._writing.release()
        return None

    def write_answered(self, answer: LeaseState | StoreError) -> None:
        """Handle the answer to the write that was taken. Mark the log again for what failed or is
        new.
        """
        if not isinstance(answer, StoreError):
            del self._in_doubt[0]
            self._trim_events()
            self._followed = answer == "followed"
        self._writing.release()
        if (self._in_doubt or self._last_number > self._numbered) and not self.abandoned:
            self._writer.mark_dirty(self)
        self.handle_lease(answer)

    def is_silent(self, seconds: float) -> bool:
        """Return whether the lease was not confirmed for `seconds`; each write confirms it."""
        return monotonic() - self._held_at >= seconds

    def handle_lease(self, answer: LeaseState | StoreError) -> None:
        """Notify the run if its lease is lost or if it is to be cancelled."""
        if isinstance(answer, StoreError):
            return
        self._held_at = monotonic()
        if answer in ("cancelled", "lost"):
            self._on_lease(answer)

    def detach(self) -> None:
        """Drop the reference to the ended run, so that its memory is freed without a garbage
        collection.
        """
        self._on_lease = lambda _state: None

    def events_after(self, after: Position) -> list[Logged]:
        """Return the events after a position that is not beyond the end."""
        epoch, first = self.lease.epoch, self._number_of(after)
        return [
            Logged(Position(epoch, number), event)
            for number, event in enumerate(self._events[first - self.start.seq :], first + 1)
        ]

    def is_beyond(self, position: Position) -> bool:
        """Return whether the log never had an event at this position."""
        return position > Position(self.lease.epoch, self._last_number)

    def _number_of(self, position: Position) -> int:
        """Return the number of the last event up to a position, which may be of an earlier run."""
        start = self.start
        is_here = position.epoch == self.lease.epoch and position > start
        return position.seq if is_here else start.seq

    @property
    def _last_number(self) -> int:
        """The number of the last event."""
        return self.start.seq + len(self._events)

    def _trim_events(self) -> None:
        """Forget stored events when they are many, or large and read by all; readers that are
        behind read the store.
        """
        if len(self._events) > 2 * _EVENTS_IN_MEMORY:
            self._forget_events(len(self._events) - _EVENTS_IN_MEMORY)
        elif self._has_much:
            start = self.start.seq
            read = [self._number_of(each.position) - start for each in self.followers]
            self._forget_events(min(read, default=len(self._events)))

    def _forget_events(self, most: int) -> None:
        in_doubt = (each.log if isinstance(each, Commit) else each for each in self._in_doubt)
        stored = self._numbered - sum(len(write.events) for write in in_doubt)
        forgotten = min(most, stored - self.start.seq)
        if forgotten > 0:
            del self._events[:forgotten]
            self.start = Position(self.lease.epoch, self.start.seq + forgotten)

    def _notify_listeners(self) -> None:
        for listener in tuple(self.listeners):
            listener()


class LogWriter:
    """Stores the waiting events of all runs, one round trip per `delay` seconds; commits go at
    once.

    Text that no remote reader waits for is stored with every fourth round trip, if the store knows
    its readers.

    Attributes:
        lease: seconds of the leases that writes renew.
        pause: seconds between two attempts of a write that failed.
        write_timeout: seconds that a write may take. Stores bound their calls; this is for one that
            breaks that promise.
        tool_timeout: seconds for the client to answer what it owes at the end of a run; None: no
            limit.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        delay: float,
        lease: float,
        write_timeout: float,
        tool_timeout: float | None = None,
    ) -> None:
        self.write_timeout = write_timeout
        self.tool_timeout = tool_timeout
        self.lease = lease
        self.pause = delay * _BACK_OFF_FACTOR
        self._ledger = ledger
        self._delay = delay
        self._unhurried = 1
        if ledger.sees_followers:
            # a reader elsewhere takes it that within a lease all is stored
            self._unhurried = max(1, min(_IDLE_FLUSH_TICKS, int(lease / (2 * delay))))
        self._dirty: dict[RunLog, None] = {}
        self._wake = asyncio.Event()
        self._large: dict[RunLog, None] = {}
        self._large_wake = asyncio.Event()
        self._large_turn = anyio.Lock(fast_acquire=True)

    def mark_dirty(self, log: RunLog) -> None:
        """Have a log written with the next round trip."""
        if log not in self._dirty:  # else the writer is awake already
            self._dirty[log] = None
            self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run_large)
            written, ticks = True, 0
            while True:
                await self._wake.wait()
                await anyio.sleep(self._delay if written else self.pause)
                ticks += 1
                written = await self.flush(all_of_it=not written or ticks % self._unhurried == 0)

    async def _run_large(self) -> None:
        """Write the large texts that `flush` left out, one run after the other."""
        while True:
            await self._large_wake.wait()
            log = next(iter(self._large))
            del self._large[log]
            if not self._large:
                self._large_wake.clear()
            await self.write_large(log)

    async def write_large(self, log: RunLog) -> bool:
        """Write what waits of one run. False: it is to be written again, or is being written."""
        async with self._large_turn:  # what is written is in memory once more
            return await self._write_logs([log], large=True) and not log.is_large

    async def flush(self, *, all_of_it: bool = True) -> bool:
        """Write what waits, or only what is urgent. False: some of it has to be written again.

        Large texts are left to `_run_large`.
        """
        logs = [log for log in self._dirty if all_of_it or log.is_urgent]
        for log in logs:
            del self._dirty[log]
        if not self._dirty:
            self._wake.clear()
        if large := [log for log in logs if log.is_large]:
            self._large.update(dict.fromkeys(large))
            self._large_wake.set()
            logs = [log for log in logs if log not in self._large]
        return await self._write_logs(logs)

    async def _write_logs(self, logs: Sequence[RunLog], *, large: bool = False) -> bool:
        taken = [(log, write) for log in logs if (write := log.take_write(large=large)) is not None]
        answers: Sequence[LeaseState | StoreError] = [StoreError("not written")] * len(taken)
        try:
            answers = await self._append_writes([write for _, write in taken])
        except StoreError as error:
            answers = [error] * len(taken)
        finally:
            for (log, _), answer in zip(taken, answers, strict=True):
                log.write_answered(answer)
        failures = [answer for answer in answers if isinstance(answer, StoreError)]
        for failure in failures:
            logger.warning("log not stored: %s", failure.code, extra={"action": "log_delayed"})
        return not failures

    async def write(self, write: LogWrite) -> None:
        """Write one run's events now. Raises StoreError."""
        for answer in await self._append_writes([write]):
            if isinstance(answer, StoreError):
                raise answer

    async def _append_writes(self, writes: Sequence[LogWrite]) -> Sequence[LeaseState | StoreError]:
        return await self._ledger.append(writes, lease=self.lease) if writes else ()

    async def commit(self, commit: Commit) -> bool:
        return await self._ledger.commit(commit, lease=self.lease)
