"""Sending without a task: the server's extension for it, and a signal with listeners."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol

from starlette.types import Scope


class Signal:
    """An event that happens once or never, and calls its listeners.

    Attributes:
        is_set: it has happened.
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
        """Return a context in which `listener` is called when the event happens.

        It is called on entering if the event has happened already. It must not raise.
        """
        return _Subscription(self, self._listeners, listener)


class _Subscription:
    # a class, not a generator, to save memory: each response is in two contexts all its life
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


# Keys in `scope["extensions"]`.
# A `SendNow`. Only a server that runs our application bare, without middleware, may set it.
SEND_NOW = "passback.send_now"
# The whole body of the request has arrived: reading it does not wait.
BODY_RECEIVED = "passback.body_came"


class SendNow(Protocol):
    """A server's extension to write to a client without awaiting.

    The server itself drops a client that does not read in time. `left` is then set.
    """

    @property
    def ready(self) -> bool:
        """The answer has begun, the client is connected, and the connection's buffer has room."""
        ...

    @property
    def left(self) -> Signal:
        """Set when the client has closed the connection, or it broke."""
        ...

    async def begin(self, head: Awaitable[None], chunk: bytes, /) -> None:
        """Begin the answer: await `head`, which sends its head, and send both it and `chunk`."""
        ...

    def send(self, chunk: bytes, /) -> None:
        """Send a part of the body, which is not empty, at once. Allowed only while `ready`."""
        ...

    def break_off(self) -> None:
        """Close the connection behind what was sent, without ending the answer.

        The client then sees that the answer is incomplete.
        """
        ...

    def drop(self) -> None:
        """Abort the connection. What the client has not read is lost."""
        ...


def send_now(scope: Scope, /) -> SendNow | None:
    """Return the server's extension, or None if it has none."""
    extension: SendNow | None = scope.get("extensions", {}).get(SEND_NOW)
    return extension


def forget_send_now(scope: Scope, /) -> None:
    """Remove the extension from the scope of a request that has ended."""
    # it refers to its request, so both would stay in memory until the collector looks for cycles
    scope.get("extensions", {}).pop(SEND_NOW, None)
