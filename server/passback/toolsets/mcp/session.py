"""What is heard of a connection beside its answers."""

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
class Described:
    """A tool as its server describes it: nothing of it is checked yet.

    Args:
        read_only: it says that it changes nothing.
        repeatable: it says that a second equal call changes nothing more.
    """

    name: str
    description: str
    schema: JsonValue
    read_only: bool = False
    repeatable: bool = False


class Lost(Exception):
    """The connection is over; the text says why, in words of ours."""


class Forgotten(Lost):
    """The server knows this connection no more, and so has not done what it was asked."""


class McpSession(Protocol):
    """One connection, from its first answer to its end."""

    @property
    def instructions(self) -> str:
        """What the server says of the use of its tools: nothing of it is checked yet."""
        ...

    async def tools(self, most: int, /) -> Sequence[Described]:
        """All tools; when there are more than `most`, some of the rest may be missing.

        Raises:
            Lost: the connection is over.
        """
        ...

    async def call(
        self, name: str, arguments: Mapping[str, JsonValue], tell: Callable[[str], None], /
    ) -> ToolResult:
        """Ask for a call; when this is cancelled, the server is told so. A refusal is a result with `is_error`.

        `tell` hears how far the call is, as often as the server says it.

        Raises:
            Forgotten: it was not made.
            Lost: nobody knows whether it was made.
        """
        ...

    async def news(self) -> None:
        """Return when the tools may have changed.

        Raises:
            Lost: the connection is over.
        """
        ...

    def leave(self) -> None:
        """Say that it is over; its context is about to be left."""
        ...


Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[McpSession]]
"""Raises Lost on entering and on leaving, also in place of what went wrong inside."""


MESSAGE_BYTES = 4 * 1024 * 1024
"""The largest message that is read from a server."""


_LAST_LINES = 5


class LastWords:
    """The last lines that a process has said of itself: why it failed, mostly.

    Args:
        secrets: what is not shown of them.
    """

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self._lines: deque[bytes] = deque(maxlen=_LAST_LINES)

    def clear(self) -> None:
        self._lines.clear()

    def hear(self, lines: Iterable[bytes]) -> None:
        self._lines.extend(line for line in lines if line.strip())

    def shown(self) -> tuple[str, ...]:
        """Return the lines as people may see them."""
        return tuple(shown_line(line, self._secrets) for line in self._lines)


class MessageStream:
    """Shared by a transport, that notices things, and by those who wait for them."""

    def __init__(self, last_words: LastWords) -> None:
        self.last_words = last_words
        self.refusal: str | None = None
        """What the last request was refused with, for want of a better reason."""
        self.over = False
        """Whether nothing more will come."""
        self._forgotten = False
        self._end: str | None = None
        self._stirred = anyio.Event()

    @property
    def end(self) -> str | None:
        """Why nothing more will come, where somebody said it."""
        return self._end

    def finish(self, reason: str) -> None:
        """Say that nothing more will come, and why; what is said later is only a consequence."""
        if not self.over:
            self._end = reason
        self.close()

    def close(self) -> None:
        """Say that nothing more will come; the reason is found elsewhere."""
        self.over = True
        self._stirred.set()

    def forget(self) -> None:
        """Say that the server knows the connection no more."""
        self._forgotten = True
        self.finish("the server has forgotten it")

    def change(self) -> None:
        """Say that the tools may have changed."""
        self._stirred.set()

    async def news(self) -> None:
        """Raises Lost when nothing more will come."""
        if not self.over:
            await self._stirred.wait()
        self._stirred = anyio.Event()
        if self.over:
            raise self.lost()

    def lost(self) -> Lost:
        return (Forgotten if self._forgotten else Lost)(self._end or "the connection was closed")
