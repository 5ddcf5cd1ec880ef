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
    ToolBegan,
    ToolCallEnded,
    ToolProgressed,
    innermost_event,
)
from passback.core.messages import CallId, ChildMessage, Location, Message, RunRef, ToolSpec
from passback.core.permissions import LastingIndex
from passback.core.shared_state import RunState
from passback.core.state import State
from passback.core.text import replace_surrogates
from passback.core.values import value
from passback.engine.agents import AgentSpec
from passback.engine.log import End, elapsed_milliseconds
from passback.engine.spending import Meter
from passback.engine.toolbox import ServerCall, Toolbox


class Journal(Protocol):
    """Record of a loop: the `RunLog`, or the part of it that belongs to a sub-agent."""

    @property
    def run(self) -> RunRef: ...

    def append(self, events: Sequence[RunEvent], /) -> None:
        """Show events at once; a take-over may make them void."""
        ...

    def begin_turn(self, events: Sequence[RunEvent], path: tuple[CallId, ...] = (), /) -> None:
        """Show events of a turn that is not committed: until it is, a take-over makes them void.

        `path`: the calls on which that agent works, below the one whose journal this is, outermost
        first.
        """
        ...

    async def wait_for_store(self) -> None:
        """Wait while more text is unstored than one run may hold in memory."""
        ...

    async def commit(
        self,
        append: tuple[Message, ...],
        events: tuple[RunEvent, ...],
        end: End | None = None,
        state: State | None = None,
        /,
    ) -> None:
        """Store messages together with the events that reveal them, then show the events.

        Raises:
            StoreError: the store failed.
        """
        ...


@value
class Origin:
    """The start of a sub-agent: an agent, and for a fork the transcript of its caller.

    Args:
        spec: the agent's.
        toolbox: its tools.
        messages: the caller's transcript up to the message that makes the call (forks only).
        seen: the same, as the model sees it.
        extra_prompt: returns the extra prompt of the run that is forked; None: this is no fork.
    """

    spec: AgentSpec
    toolbox: Toolbox
    messages: Sequence[Message] = ()
    seen: Sequence[Message] = ()
    extra_prompt: Callable[[], Awaitable[str]] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class CallContext(ServerCall):
    """The context of a sub-agent's call, beside what the toolbox needs.

    Attributes:
        show: `Journal.append` of the calling loop.
        begin_turn: `Journal.begin_turn` of the calling loop.
        write: like `Journal.commit`, of the calling loop, which keeps the conversation's state.
        transcript: the messages of this call so far.
        declared: the client's tools.
        answered: whether somebody answers questions, as in `ToolSources`.
        leaving: returns whether the run is to be left to another worker.
        taken_over: another worker had worked on this call, and was lost.
        depth: depth of nested agents.
        meter: counts the usage of the run.
        lasting: permissions that people gave or denied for good.
        origin: returns what a fork of the calling agent begins with; None: the caller is a fork
            itself.
        limiters: limit the sub-agents that work at once, by depth; each is made when first needed.
        shared: the shared state of the run.
    """

    show: Callable[[Sequence[RunEvent]], None] = field(kw_only=True)
    begin_turn: Callable[[Sequence[RunEvent], tuple[CallId, ...]], None] = field(kw_only=True)
    write: Callable[[Sequence[Message], Sequence[RunEvent]], Awaitable[None]] = field(kw_only=True)
    meter: Meter = field(kw_only=True)
    origin: Callable[[], Origin | None] = field(kw_only=True)
    limiters: dict[int, anyio.CapacityLimiter] = field(kw_only=True)
    shared: RunState = field(kw_only=True)
    transcript: tuple[Message, ...] = ()
    declared: Sequence[ToolSpec] = ()
    answered: bool | None = None
    leaving: Callable[[], bool] = bool
    taken_over: bool = False
    depth: int = 0
    lasting: LastingIndex = field(default_factory=LastingIndex)


class ChildJournal:
    """The journal of a sub-agent. Its end does not end the run: `outcome` has it."""

    def __init__(self, context: CallContext, opening: Sequence[Message]) -> None:
        self.outcome: Outcome | None = None
        self._context = context
        self._opening = tuple(opening)

    @property
    def run(self) -> RunRef:
        return self._context.run

    def append(self, events: Sequence[RunEvent], /) -> None:
        self._context.show(self._nested_events(events))

    def begin_turn(self, events: Sequence[RunEvent], path: tuple[CallId, ...] = (), /) -> None:
        call_id = self._context.call_id
        self._context.begin_turn(self._nested_events(events), (call_id, *path))

    async def wait_for_store(self) -> None:
        """Return at once: a sub-agent's text is not counted as the run's."""

    async def commit(
        self,
        append: tuple[Message, ...],
        events: tuple[RunEvent, ...],
        end: End | None = None,
        _state: State | None = None,
        /,
    ) -> None:
        """Store and show as `Journal.commit` does.

        The end of client calls is not shown before the run hands them back (P4).
        """
        call_id = self._context.call_id
        messages = tuple(ChildMessage(call_id, each) for each in (*self._opening, *append))
        # the run announces that client calls are complete only when it hands them back (P4)
        if end is not None:
            events = tuple(e for e in events if not isinstance(innermost_event(e), ToolCallEnded))
        shown = tuple(event for event in events if not isinstance(event, RunFinished))
        self._opening = ()
        await self._context.write(messages, self._nested_events(shown))
        self.outcome = next((e.outcome for e in events if isinstance(e, RunFinished)), None)

    def _nested_events(self, events: Sequence[RunEvent]) -> tuple[RunEvent, ...]:
        return tuple(Nested(self._context.call_id, event) for event in events)


def nest_event(path: Sequence[CallId], event: RunEvent, /) -> RunEvent:
    """Return an event of a sub-agent on the calls `path` as readers of the run see it."""
    for call_id in reversed(path):
        event = Nested(call_id, event)
    return event


_PROGRESS_INTERVAL = 0.05  # seconds between two events of one call; earlier ones are dropped

_PROGRESS_LENGTH = 1000  # characters of one progress event


class Progress:
    """Report the beginning and the progress of one call to readers, until the call has ended.

    Make it, begin it and end it in the event loop's thread; call it in any thread.
    """

    def __init__(self, journal: Journal, call_id: CallId) -> None:
        self._journal = journal
        self._call_id = call_id
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._last = -_PROGRESS_INTERVAL
        self._began: float | None = None
        self._ended = False

    def begin(self, locations: Sequence[Location]) -> None:
        """Report that the tool begins to work; only the first time counts."""
        if self._ended or self._began is not None:
            return
        self._began = monotonic()
        self._journal.append([ToolBegan(self._call_id, tuple(locations))])

    def end(self) -> int:
        """Drop all later progress; return how long the tool worked, 0 if it did not begin."""
        self._ended = True
        return 0 if self._began is None else elapsed_milliseconds(self._began)

    def __call__(self, words: str, /) -> None:
        now = monotonic()
        if self._ended or now - self._last < _PROGRESS_INTERVAL:
            return
        self._last = now
        # tools may report from threads of their own; the journal belongs to the event loop's
        if get_ident() == self._thread:
            self._append_event(str(words))
        else:
            self._loop.call_soon_threadsafe(self._append_event, str(words))

    def _append_event(self, words: str) -> None:
        if not self._ended:
            self._journal.append(
                [ToolProgressed(self._call_id, replace_surrogates(words[:_PROGRESS_LENGTH]))]
            )
