"""The door of server tools: what a toolset is, and what a call of one of its tools is told."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from passback.core.messages import CallId, RunRef, ToolCall, ToolResult, ToolSpec
from passback.core.permissions import Permission


def _unheard(_words: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a server tool is called from; the model cannot see it. Its `repr` names the call, and shows no data.

    Attributes:
        run: the run, with its conversation and that one's owner.
        call_id: the call.
        deps: what the agent's author gave to `Agent(deps=...)`.
        progress: tells readers how far the call is, in a few words; what it is told too often is left out.
        data: the structured data that was posted last in the conversation; None: there was none.
    """

    run: RunRef
    call_id: CallId
    deps: object = field(default=None, repr=False)
    progress: Callable[[str], None] = field(default=_unheard, repr=False)
    data: JsonValue = field(default=None, repr=False)


@runtime_checkable
class Toolset(Protocol):
    """Server tools only: a client tool has no Toolset."""

    async def specs(self) -> Sequence[ToolSpec]: ...

    def is_read_only(self, name: str, /) -> bool:
        """Whether all calls of this tool may run together with others: it changes nothing."""
        ...

    def is_repeatable(self, name: str, /) -> bool:
        """Whether a call may be made again when it is not known whether its first attempt was made."""
        ...

    def permission(self, call: ToolCall, /) -> Permission:
        """Whether the tool's author lets the model make a call; the rules of agent and server go before."""
        ...

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult | None:
        """Run a tool. A failure is a result with `is_error`, also bad arguments and a deadline that passed.

        None: it is a sub-agent, and its client owes something. The call is made again when that is answered.
        """
        ...


@runtime_checkable
class ReadOnlyCalls(Protocol):
    """What a toolset may be besides: one with tools of which some calls change nothing, and others do."""

    async def is_read_only_call(self, call: ToolCall, /) -> bool:
        """Whether a call may run together with others, and be made again, by its arguments; never raises."""
        ...


@runtime_checkable
class Instructing(Protocol):
    """What a toolset may be besides: one whose tools come from a server that says how they are to be used."""

    @property
    def name(self) -> str:
        """Of the server, as the model is told it."""
        ...

    @property
    def instructions(self) -> str:
        """The server's own words, of bounded length, as they are; none: the empty text."""
        ...


@runtime_checkable
class Concurrent(Protocol):
    """What a toolset may be besides: one with calls that run together with others although they may change something."""

    def is_concurrent(self, name: str, /) -> bool:
        """Whether calls of this tool run together with each other and with read-only ones."""
        ...


@runtime_checkable
class Connected(Protocol):
    """What a toolset may be besides: one that has connections or processes, which live as long as its application."""

    @property
    def name(self) -> str:
        """What to show people; no secret in it."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Own them until the context is left; entering begins to connect, and does not wait for it."""
        ...

    async def ready(self) -> Sequence[str]:
        """Wait, a bounded time, until it is known whether the tools can be used; gives warnings about them.

        Raises:
            ToolsetUnavailable: with a sentence that says why not; `specs` has none of the tools until they can be.
        """
        ...
