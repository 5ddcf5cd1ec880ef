"""What a connection to a server is for those who keep and use it; it knows nothing of the package `mcp`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pydantic import JsonValue

from passback.core.messages import ToolResult


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


class Session(Protocol):
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


Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[Session]]
"""Raises Lost on entering and on leaving, also in place of what went wrong inside."""
