"""Servers that send exactly the bytes that a test gives them, and proxies of HTTP."""

import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener
from tests.unit.models.openai_chat.chat_service import AB_STOP

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


ANSWER = CHUNKED + chunk(AB_STOP) + chunk(b"")
"""A complete answer."""

LARGE = 1 << 26
"""More bytes than the buffers of two sockets hold."""


class Peer:
    """The server's side of one connection; `number` counts them from 1."""

    def __init__(self, stream: ByteStream, number: int) -> None:
        self.stream = stream
        self.number = number
        self.received = BufferedByteReceiveStream(stream)

    async def request(self) -> bytes:
        """Return the bytes of the next request."""
        head = await self.received.receive_until(b"\r\n\r\n", 1 << 20) + b"\r\n\r\n"
        _, found, rest = head.lower().partition(b"content-length: ")
        length = int(rest.partition(b"\r\n")[0]) if found else 0
        return head + await self.received.receive_exactly(length)

    async def wait_closed(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while True:
                await self.received.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


Handle: TypeAlias = Callable[[Peer], Awaitable[None]]


def answers(*pieces: bytes) -> Callable[[Peer], Coroutine[Any, Any, None]]:
    """Send the same answer to every request."""

    async def handle(peer: Peer) -> None:
        while True:
            await peer.request()
            for piece in pieces:
                await peer.stream.send(piece)

    return handle


def once(*pieces: bytes) -> Callable[[Peer], Coroutine[Any, Any, None]]:
    """Answer one request; then the connection is closed."""

    async def handle(peer: Peer) -> None:
        await peer.request()
        for piece in pieces:
            await peer.stream.send(piece)

    return handle


@dataclass
class RawService:
    """The port of a server, and the number of its connections."""

    port: int = 0
    connections: int = 0

    def url(self, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}/v1"


@asynccontextmanager
async def serving(
    handle: Handle, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncGenerator[RawService]:
    """Run a server on a free port; each connection ends with its `handle`."""
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


@dataclass
class Proxy:
    """A proxy that leads to one service under any name.

    Attributes:
        heads: the first lines and headers of its requests.
        password: the required `user:password`; empty for none.
    """

    service: RawService
    password: str = ""
    heads: list[bytes] = field(default_factory=list[bytes])

    async def handle(self, peer: Peer) -> None:
        request = await peer.request()
        head = request.partition(b"\r\n\r\n")[0]
        self.heads.append(head)
        basic = b"Basic " + b64encode(self.password.encode())
        if self.password and basic not in head:
            await peer.stream.send(b"HTTP/1.1 407 Who\r\ncontent-length: 0\r\n\r\n")
            return
        async with await anyio.connect_tcp("127.0.0.1", self.service.port) as onward:
            if request.startswith(b"CONNECT "):
                await peer.stream.send(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                await onward.send(request)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass_on, onward, peer.stream, tasks.cancel_scope)
                tasks.start_soon(self._pass_on, peer.stream, onward, tasks.cancel_scope)

    async def _pass_on(
        self, source: ByteStream, sink: ByteStream, connection: anyio.CancelScope
    ) -> None:
        try:
            while True:
                await sink.send(await source.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            connection.cancel()
