"""The interface of server tools: `Toolset`, its optional protocols, and the context of a call."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from pydantic import JsonValue

from passback.core.messages import CallId, Location, RunRef, ToolCall, ToolResult, ToolSpec
from passback.core.permissions import Permission
from passback.core.shared_state import CallState


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context of a server tool's call, invisible to the model. Its `repr` shows no data.

    Attributes:
        run: the run, with its conversation and owner.
        call_id: the call.
        deps: the value of `Agent(deps=...)`.
        progress: reports progress to readers, in a few words; reports that come too fast are
            dropped.
        data: the structured data that was posted last in the conversation; None if there is none.
        state: the state that the conversation's server tools share with its clients.
        begin: says that the tool begins to work, and which files the call is about. It is called by
            a toolset that is a `BeginsCalls`, on the event loop; only the first time counts.
    """

    run: RunRef
    call_id: CallId
    deps: object = field(default=None, repr=False)
    progress: Callable[[str], None] = field(default=lambda _words: None, repr=False)
    data: JsonValue = field(default=None, repr=False)
    begin: Callable[[Sequence[Location]], None] = field(default=lambda _locations: None, repr=False)
    state: CallState = field(default_factory=CallState, repr=False)


@runtime_checkable
class Toolset(Protocol):
    """A set of server tools. Client tools have no Toolset."""

    async def specs(self) -> Sequence[ToolSpec]: ...

    def is_read_only(self, name: str, /) -> bool:
        """Return whether calls of this tool change nothing, so that they may run beside others."""
        ...

    def is_repeatable(self, name: str, /) -> bool:
        """Return whether a call may be repeated if it is unknown whether it was made before."""
        ...

    def permission(self, call: ToolCall, /) -> Permission:
        """Return the author's permission for a call; the rules of agent and server come first."""
        ...

    async def call(self, call: ToolCall, context: ToolContext, /) -> ToolResult | None:
        """Run a tool. Failures, bad arguments and timeouts are results with `is_error`.

        Returns None if the tool is a sub-agent whose client owes an answer. The call is made again
        when the answer has come.
        """
        ...


@runtime_checkable
class ReadOnlyCalls(Protocol):
    """Optional protocol of a toolset with tools of which only some calls change something."""

    async def is_read_only_call(self, call: ToolCall, /) -> bool:
        """Return whether this call may run beside others and be repeated; never raises."""
        ...


@runtime_checkable
class Instructing(Protocol):
    """Optional protocol of a toolset whose server gives instructions for the use of its tools."""

    @property
    def name(self) -> str:
        """The server's name, as the model is shown it."""
        ...

    @property
    def instructions(self) -> str:
        """The server's own words, unchanged, of bounded length; empty if there are none."""
        ...


@runtime_checkable
class Concurrent(Protocol):
    """Optional protocol of a toolset with calls that change something and run beside others."""

    def is_concurrent(self, name: str, /) -> bool:
        """Return whether calls of this tool run beside each other and beside read-only ones."""
        ...


@runtime_checkable
class BeginsCalls(Protocol):
    """Optional protocol of a toolset that calls `ToolContext.begin` when a tool begins to work.

    A call of any other toolset begins when the toolset is called.
    """

    begins_calls: Literal[True]


@runtime_checkable
class ConnectedToolset(Protocol):
    """Optional protocol of a toolset with connections or processes, which live with the app."""

    @property
    def name(self) -> str:
        """A name for people; no secret in it."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Hold the connections until the context is left.

        Entering begins to connect, without waiting.
        """
        ...

    async def ready(self) -> Sequence[str]:
        """Wait, with a time limit, until the state of the tools is known; return warnings.

        Raises:
            ToolsetUnavailable: says why they cannot be used. `specs` lists none of the tools until
                they can.
        """
        ...


class ServerTools(ConnectedToolset, Toolset, Protocol):
    """The tools of a server, which are there while the connection to it is."""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """An MCP server that a client names: a program that serves by standard input and output.

    Attributes:
        name: chosen by the client.
        command: the program and its arguments; no shell reads them.
        env: variables beside the few that every program needs. Never shown: they have secrets.
        cwd: the folder that it runs in; empty: that of this process.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, hash=False)
    cwd: str = ""


class MakeServerTools(Protocol):
    """Makes a toolset of an MCP server that a client names; it is connected while it runs.

    Whoever may name one runs any program as the user of this process.
    """

    def __call__(self, server: ToolServer, /, taken: Collection[str] = ()) -> ServerTools:
        """Return the toolset. Its tools are named `<name>__<tool>`, after the server.

        Tools that only read, by the server's own word, need no permission; for others a person is
        asked.

        Args:
            server: its name is changed where it is not a legal one, and numbered if another server
                has it.
            taken: the names of the other servers of the conversation.

        Raises:
            ConfigurationError: the command is empty, or a text has half of a surrogate pair.
        """
        ...
