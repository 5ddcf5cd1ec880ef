"""Servers that send exactly the bytes that a test gives them, and a socket that is none."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import httpx
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener
from typing_extensions import override

OK = b"HTTP/1.1 200 OK\r\n"


class Peer:
    """The server's side of one connection; `number` counts them from 1."""

    def __init__(self, stream: ByteStream, number: int) -> None:
        self.stream = stream
        self.number = number
        self._received = BufferedByteReceiveStream(stream)

    async def asked(self) -> bytes:
        """The next request, as it came; without its body's end if there is none."""
        head = await self._received.receive_until(b"\r\n\r\n", 1 << 20) + b"\r\n\r\n"
        _, found, rest = head.lower().partition(b"content-length: ")
        length = int(rest.partition(b"\r\n")[0]) if found else 0
        return head + await self._received.receive_exactly(length)

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            await self.stream.send(piece)

    async def left(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while True:
                await self._received.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


@dataclass
class RawService:
    """Where it is, and how many connections it had."""

    port: int = 0
    connections: int = 0
    peers: list[Peer] = field(default_factory=list)

    def url(self, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}/v1?a=b"


@asynccontextmanager
async def serving(
    handle: Callable[[Peer], Awaitable[None]],
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
) -> AsyncGenerator[RawService]:
    """A server on a free port; `handle` is called for each connection, which ends with it."""
    service = RawService()

    async def serve(stream: ByteStream) -> None:
        service.connections += 1
        async with stream:
            try:
                await handle(Peer(stream, service.connections))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.IncompleteRead):
                return

    multi = await anyio.create_tcp_listener(local_host=host)
    [plain] = multi.listeners
    service.port = plain.extra(SocketAttribute.local_port)
    listener = TLSListener(plain, tls, standard_compatible=False) if tls else plain
    with anyio.fail_after(10):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            yield service
            tasks.cancel_scope.cancel()


def posted(url: str, body: bytes = b"{}", **seconds: float) -> httpx.Request:
    """A request with these timeouts."""
    timeout = httpx.Timeout(None, **seconds).as_dict()
    return httpx.Request("POST", url, content=body, extensions={"timeout": timeout})


async def read(response: httpx.Response) -> bytes:
    """The whole body; the response is closed."""
    try:
        return b"".join([data async for data in response.stream])  # type: ignore[union-attr]  # httpx allows more
    finally:
        await response.aclose()


class Wire(asyncio.Transport):
    """Keeps what is written, and what else is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.paused = self.aborted = False

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def pause_reading(self) -> None:
        self.paused = True

    @override
    def resume_reading(self) -> None:
        self.paused = False

    @override
    def is_closing(self) -> bool:
        return self.aborted

    @override
    def abort(self) -> None:
        self.aborted = True
