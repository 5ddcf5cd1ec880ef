"""A connection of the HTTP protocol without a socket, whose timers ring when a test says so."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.config import Config
from uvicorn.server import ServerState

from passback.http.protocol import BoundedHttpProtocol, OpenConnections

Bytes: TypeAlias = "bytes | bytearray | memoryview[Any]"

REQUEST = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


class Written(asyncio.Transport):
    """A connection on which nobody is; what was written to it, one by one.

    Attributes:
        unread: bytes that count as not read by the client.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []
        self.unread = 0
        self.closed = False
        self.aborted = False

    @property
    def text(self) -> bytes:
        return b"".join(self.parts)

    @override
    def write(self, data: Bytes) -> None:
        self.parts.append(bytes(data))

    @override
    def get_write_buffer_size(self) -> int:
        return self.unread

    @override
    def is_closing(self) -> bool:
        return self.closed or self.aborted

    @override
    def close(self) -> None:
        self.closed = True

    @override
    def abort(self) -> None:
        self.aborted = True

    @override
    def write_eof(self) -> None: ...

    @override
    def pause_reading(self) -> None: ...

    @override
    def resume_reading(self) -> None: ...


class Clock:
    """The event loop, with timers that ring only when a test says so."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers: list[tuple[float, asyncio.TimerHandle]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self._loop.time(), callback, args, self._loop)
        self._timers.append((delay, timer))
        return timer

    @property
    def set_to(self) -> list[float]:
        """The seconds of the timers that will ring."""
        return [delay for delay, timer in self._timers if not timer.cancelled()]

    def ring(self, delay: float) -> None:
        """Let those ring that were set to so many seconds."""
        due = [timer for seconds, timer in self._timers if seconds == delay]
        self._timers = [one for one in self._timers if one[0] != delay]
        for timer in due:
            if not timer.cancelled():
                timer._run()


def asked(
    app: ASGIApp,
    request: bytes = REQUEST,
    clock: Clock | None = None,
    *,
    connections: OpenConnections | None = None,
    state: ServerState | None = None,
    sends_directly: bool = True,
) -> tuple[BoundedHttpProtocol, Written]:
    """A connection on which something, mostly a site's stream, was just asked for."""
    config = Config(app, lifespan="off", log_config=None)
    config.load()
    loop = cast("asyncio.AbstractEventLoop", clock) if clock else None
    connection = BoundedHttpProtocol(
        config,
        state or ServerState(),
        {},
        loop,
        connections=connections,
        sends_directly=sends_directly,
    )
    written = Written()
    connection.connection_made(written)
    if request:
        connection.data_received(request)
    return connection, written
