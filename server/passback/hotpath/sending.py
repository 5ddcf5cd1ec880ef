"""Sending without a task: a server's extension of ASGI, and its form for uvicorn.

Without it, by plain ASGI `send`, everything works: a stream then has a task that waits for its
client to disconnect, and each chunk takes a turn of the event loop.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from starlette.types import Scope

from passback.core.signals import Signal

if TYPE_CHECKING:  # every wire imports this module, and what serves no HTTP has no uvicorn
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

# Key in `scope["extensions"]` of a `SendNow`. Only a server that runs our application bare, without
# middleware, may set it.
SEND_NOW = "passback.send_now"


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


class Connection(Protocol):
    """A connection of the server, as the extension uses it.

    Attributes:
        left: set when the client has closed it, or it broke.
    """

    left: Signal

    def break_off(self) -> None:
        """Close it behind what was sent."""
        ...


class DirectSending:
    """The `SendNow` of one uvicorn response. It writes chunks without an ASGI message for each."""

    def __init__(self, connection: Connection, cycle: "RequestResponseCycle") -> None:
        self.left = connection.left
        self._connection = connection
        self._cycle = cycle
        self._write = cycle.transport.write

    @property
    def ready(self) -> bool:
        cycle = self._cycle
        return bool(cycle.chunked_encoding) and not (cycle.flow.write_paused or cycle.disconnected)

    async def begin(self, head: Awaitable[None], chunk: bytes, /) -> None:
        # uvicorn calls nothing but `write` of the transport to send a head
        cycle, transport = self._cycle, self._cycle.transport
        gathered: list[bytes] = []
        gathering: Any = _GatheringTransport(gathered.append)
        cycle.transport = gathering
        try:
            await head
        finally:
            cycle.transport = transport
        if gathered:  # else the client has disconnected
            assert cycle.chunked_encoding
            self._write(b"".join((*gathered, _encode_chunk(chunk))))

    def break_off(self) -> None:
        # otherwise uvicorn logs the missing end as a fault of the application
        self._cycle.disconnected = True
        self._connection.break_off()

    def drop(self) -> None:
        self._cycle.transport.abort()

    def send(self, chunk: bytes, /) -> None:
        self._write(_encode_chunk(chunk))


class _GatheringTransport(NamedTuple):
    """A substitute for a transport that gathers what is written."""

    write: Callable[[bytes], None]


def _encode_chunk(chunk: bytes) -> bytes:
    """Return a chunk in the chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(chunk), chunk)
