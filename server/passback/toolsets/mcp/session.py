"""The session protocol of MCP toolsets, and the state that transports and sessions share."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import anyio
from pydantic import JsonValue

from passback.core.messages import ToolResult
from passback.toolsets.mcp.targets import shown_line


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool as its server describes it, unchecked.

    Args:
        read_only: the server claims that the tool changes nothing.
        repeatable: the server claims that a second equal call changes nothing more.
    """

    name: str
    description: str
    schema: JsonValue
    read_only: bool = False
    repeatable: bool = False


class ConnectionLost(Exception):
    """The connection is over; the text says why, and has nothing of the server's own text."""


class SessionForgotten(ConnectionLost):
    """The server does not know the session any more, so it has not carried out the request."""


class McpSession(Protocol):
    """One connection, from the first answer to its end."""

    @property
    def instructions(self) -> str:
        """The server's text on the use of its tools, unchecked."""
        ...

    async def list_tools(self, most: int, /) -> Sequence[ToolDescription]:
        """Return all tools; beyond the first `most`, some may be missing.

        Raises:
            ConnectionLost: the connection is over.
        """
        ...

    async def call(
        self, name: str, arguments: Mapping[str, JsonValue], send_progress: Callable[[str], None], /
    ) -> ToolResult:
        """Call a tool and return its result; a refusal is a result with `is_error`.

        Cancelling this cancels the call at the server. `send_progress` gets each progress message.

        Raises:
            SessionForgotten: the call was not carried out.
            ConnectionLost: nobody knows whether the call was carried out.
        """
        ...

    async def wait_for_change(self) -> None:
        """Wait until the tools may have changed.

        Raises:
            ConnectionLost: the connection is over.
        """
        ...

    def close(self) -> None:
        """Mark the connection as over, before its context is left."""
        ...


Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[McpSession]]
"""Raises ConnectionLost on entering and on leaving; it also replaces any exception from inside."""

MESSAGE_BYTES = 4 * 1024 * 1024  # the largest message that is read from a server

_RECENT_LINES = 5


class RecentOutput:
    """The last lines that a process wrote to standard error: mostly the reason of a failure.

    Args:
        secrets: texts that are replaced when the lines are shown.
    """

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self._lines: deque[bytes] = deque(maxlen=_RECENT_LINES)

    def clear(self) -> None:
        """Drop all lines."""
        self._lines.clear()

    def extend(self, lines: Iterable[bytes]) -> None:
        """Add lines; blank ones are skipped."""
        self._lines.extend(line for line in lines if line.strip())

    def shown(self) -> tuple[str, ...]:
        """Return the lines without secrets and control characters."""
        return tuple(shown_line(line, self._secrets) for line in self._lines)


class MessageStream:
    """The state of one connection: a transport reports to it, a session waits for it."""

    def __init__(self, recent_output: RecentOutput) -> None:
        self.recent_output = recent_output
        self.refusal: str | None = None
        """The status that refused the last request: used as a reason if there is no better."""
        self.over = False
        """True once no more messages can come."""
        self._session_dropped = False
        self._end: str | None = None
        self._changed = anyio.Event()

    @property
    def end(self) -> str | None:
        """The reason for the end, if one was reported."""
        return self._end

    def finish(self, reason: str) -> None:
        """Mark the connection as over for this reason; a later one is ignored as a consequence."""
        if not self.over:
            self._end = reason
        self.close()

    def close(self) -> None:
        """Mark the connection as over without a reason."""
        self.over = True
        self._changed.set()

    def drop_session(self) -> None:
        """Mark the connection as over because the server does not know its session any more."""
        self._session_dropped = True
        self.finish("the server has forgotten it")

    def notify_change(self) -> None:
        """Wake the waiter: the tools may have changed."""
        self._changed.set()

    async def wait_for_change(self) -> None:
        """Wait until the tools may have changed. Raises ConnectionLost if that cannot be."""
        if not self.over:
            await self._changed.wait()
        self._changed = anyio.Event()
        if self.over:
            raise self.lost()

    def lost(self) -> ConnectionLost:
        """Return the exception for the end of this connection."""
        return (SessionForgotten if self._session_dropped else ConnectionLost)(
            self._end or "the connection was closed"
        )
