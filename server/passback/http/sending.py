"""Sending without a task: the server's own way out, and a signal that it stops."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol

from starlette.types import Scope


class Signal:
    """Set once, or never.

    Attributes:
        is_set: whether it has happened.
    """

    __slots__ = ("_listeners", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._listeners: set[Callable[[], object]] = set()

    def set(self) -> None:
        self.is_set = True
        for listener in tuple(self._listeners):
            listener()

    def telling(self, listener: Callable[[], object], /) -> AbstractContextManager[None]:
        """While the context is open, call `listener` when it happens, or on entering if it has; it must not raise."""
        return _Telling(self, self._listeners, listener)


class _Telling:
    # no generator: each response is in two for all its life
    __slots__ = ("_listener", "_listeners", "_signal")

    def __init__(
        self, signal: Signal, listeners: set[Callable[[], object]], listener: Callable[[], object]
    ) -> None:
        self._signal = signal
        self._listeners = listeners
        self._listener = listener

    def __enter__(self) -> None:
        if self._signal.is_set:
            self._listener()
        self._listeners.add(self._listener)

    def __exit__(self, *_: object) -> None:
        self._listeners.discard(self._listener)


SEND_NOW = "passback.send_now"
"""Its key in `scope["extensions"]`. Only a server that runs our application bare, without middleware, may give it."""

BODY_CAME = "passback.body_came"
"""A key beside it: the whole body of the request is there, and no reading of it waits."""


class SendNow(Protocol):
    """The server's own way to a client. It drops one that does not read in time by itself, which is to leave."""

    @property
    def ready(self) -> bool:
        """Whether the answer has begun, the client is there, and the connection's buffer has room."""
        ...

    @property
    def left(self) -> Signal:
        """The client has closed the connection, or it broke."""
        ...

    async def begin(self, head: Awaitable[None], chunk: bytes, /) -> None:
        """Begin the answer: send the head, as `head` does when it is awaited, together with a first part of the body."""
        ...

    def send(self, chunk: bytes, /) -> None:
        """Send a part of the body at once. Only while it is `ready`; not empty."""
        ...

    def break_off(self) -> None:
        """Close the connection behind what was sent, without an end of the answer: the client sees that it broke."""
        ...

    def drop(self) -> None:
        """Close the connection now: what the client has not read is lost."""
        ...


def send_now(scope: Scope, /) -> SendNow | None:
    """The server's, if it has one."""
    extension: SendNow | None = scope.get("extensions", {}).get(SEND_NOW)
    return extension


def forget_send_now(scope: Scope, /) -> None:
    """When the request is over: the way to send knows its request, which would stay until cycles are looked for."""
    scope.get("extensions", {}).pop(SEND_NOW, None)
