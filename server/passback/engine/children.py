"""Nested runs: sub-agents that work on a call, and the progress that tools report."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from time import monotonic
from typing import Protocol

import anyio

from passback.core.events import (
    Nested,
    Outcome,
    RunEvent,
    RunFinished,
    ToolCallEnded,
    ToolProgressed,
    innermost,
)
from passback.core.messages import CallId, ChildMessage, Message, RunRef, ToolSpec
from passback.core.permissions import Lasting
from passback.core.state import State
from passback.core.text import mended
from passback.core.values import value
from passback.engine.agents import AgentSpec
from passback.engine.log import End
from passback.engine.spending import Meter
from passback.engine.toolbox import ServerCall, Toolbox


class Journal(Protocol):
    """Where a loop writes down what happens: `RunLog`, or that part of it which is a sub-agent's."""

    @property
    def run(self) -> RunRef: ...

    def append(self, events: Sequence[RunEvent], /) -> None:
        """Show events at once; a take-over may make them void."""
        ...

    def begin_turn(self, events: Sequence[RunEvent], path: tuple[CallId, ...] = (), /) -> None:
        """Show that an agent begins to say what it has not committed: until it commits, a take-over makes that void.

        `path`: the calls on which that agent works, below the one whose journal this is, outermost first.
        """
        ...

    async def room(self) -> None:
        """Wait while more text is not stored than one run may have in memory."""
        ...

    async def commit(
        self,
        append: tuple[Message, ...],
        events: tuple[RunEvent, ...],
        end: End | None = None,
        state: State | None = None,
        /,
    ) -> None:
        """Store messages together with the events that reveal them, then show those. Raises StoreError."""
        ...


@value
class Origin:
    """What a sub-agent begins with: an agent, and of a fork all that the model of the calling one was shown.

    Args:
        spec: the agent's.
        toolbox: its tools.
        messages: the transcript of the agent that is forked, up to the message that makes the call.
        seen: the same, as its model is shown it.
        told: what its model is told in this run only; None: this is no fork.
    """

    spec: AgentSpec
    toolbox: Toolbox
    messages: Sequence[Message] = ()
    seen: Sequence[Message] = ()
    told: Callable[[], Awaitable[str]] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class CallContext(ServerCall):
    """What the call of a sub-agent needs beside what the toolbox does.

    Attributes:
        show: as `Journal.append`, of the calling loop.
        begin_turn: as `Journal.begin_turn`, of the calling loop.
        write: as `Journal.commit`, of the calling loop, which keeps the conversation's state.
        transcript: what was said in this call before.
        declared: the client's tools.
        leaving: whether the run is to be left to another worker.
        taken_over: whether another worker was at this call, and was lost.
        depth: how many agents call each other.
        meter: counts what the run spends.
        lasting: what people have answered for good.
        origin: what a fork of the calling agent begins with; None: it is a fork itself.
        limiters: how many sub-agents of the run work at once, by their depth; one is made when it is first needed.
    """

    show: Callable[[Sequence[RunEvent]], None] = field(kw_only=True)
    begin_turn: Callable[[Sequence[RunEvent], tuple[CallId, ...]], None] = field(kw_only=True)
    write: Callable[[Sequence[Message], Sequence[RunEvent]], Awaitable[None]] = field(kw_only=True)
    meter: Meter = field(kw_only=True)
    origin: Callable[[], Origin | None] = field(kw_only=True)
    limiters: dict[int, anyio.CapacityLimiter] = field(kw_only=True)
    transcript: tuple[Message, ...] = ()
    declared: Sequence[ToolSpec] = ()
    leaving: Callable[[], bool] = bool
    taken_over: bool = False
    depth: int = 0
    lasting: Lasting = field(default_factory=Lasting)


class ChildJournal:
    """A sub-agent's part of a run. Its end is not the run's: `outcome` has it."""

    def __init__(self, context: CallContext, opening: Sequence[Message]) -> None:
        self.outcome: Outcome | None = None
        self._context = context
        self._opening = tuple(opening)

    @property
    def run(self) -> RunRef:
        return self._context.run

    def append(self, events: Sequence[RunEvent], /) -> None:
        self._context.show(self._nested(events))

    def begin_turn(self, events: Sequence[RunEvent], path: tuple[CallId, ...] = (), /) -> None:
        call_id = self._context.call_id
        self._context.begin_turn(self._nested(events), (call_id, *path))

    async def room(self) -> None:
        """As `Journal.room`. What a sub-agent says is no text of the run's."""

    async def commit(
        self,
        append: tuple[Message, ...],
        events: tuple[RunEvent, ...],
        end: End | None = None,
        _state: State | None = None,
        /,
    ) -> None:
        """As `Journal.commit`. That calls of the client are complete is not said before the run hands them back (P4)."""
        messages = self._within((*self._opening, *append))
        if end is not None:
            events = tuple(e for e in events if not isinstance(innermost(e), ToolCallEnded))
        told = tuple(event for event in events if not isinstance(event, RunFinished))
        self._opening = ()
        await self._context.write(messages, self._nested(told))
        self.outcome = next((e.outcome for e in events if isinstance(e, RunFinished)), None)

    def _within(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(ChildMessage(self._context.call_id, message) for message in messages)

    def _nested(self, events: Sequence[RunEvent]) -> tuple[RunEvent, ...]:
        return tuple(Nested(self._context.call_id, event) for event in events)


def nested(path: Sequence[CallId], event: RunEvent, /) -> RunEvent:
    """An event as readers of the run see it, if a sub-agent that works on the calls `path` says it."""
    for call_id in reversed(path):
        event = Nested(call_id, event)
    return event


_SHORTEST = 0.05
"""Seconds between two of a call's words; what comes sooner is left out."""

_LONGEST = 1000
"""Characters that are told at once."""


class Progress:
    """Tells readers of one call, until it has ended. To be made where the event loop runs; called anywhere."""

    def __init__(self, journal: Journal, call_id: CallId) -> None:
        self._journal = journal
        self._call_id = call_id
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._last = -_SHORTEST
        self._ended = False

    def end(self) -> None:
        """Tell nothing more."""
        self._ended = True

    def __call__(self, words: str, /) -> None:
        now = monotonic()
        if self._ended or now - self._last < _SHORTEST:
            return
        self._last = now
        if get_ident() == self._thread:
            self._tell(str(words))
        else:
            self._loop.call_soon_threadsafe(self._tell, str(words))

    def _tell(self, words: str) -> None:
        if not self._ended:
            self._journal.append([ToolProgressed(self._call_id, mended(words[:_LONGEST]))])
