"""A WebSocket by hand: any bytes go out, and frames are read as they come."""

import socket
import struct
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

SECONDS = 20
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_KEY = b"dGhlIHNhbXBsZSBub25jZQ=="

HANDSHAKE: Mapping[str, str] = {
    "Host": "127.0.0.1",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": _KEY.decode(),
}


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A frame of the server."""

    opcode: int
    content: bytes

    @property
    def close(self) -> tuple[int, str]:
        """The code and the reason of a close frame."""
        assert self.opcode == CLOSE, self
        return struct.unpack("!H", self.content[:2])[0], self.content[2:].decode()


def head(path: str, headers: Mapping[str, str | None] | None = None) -> bytes:
    """Return a handshake. A header with None is left out."""
    lines = [f"{n}: {text}" for n, text in {**HANDSHAKE, **(headers or {})}.items() if text]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode("latin-1")


def frame(opcode: int, content: bytes = b"", *, last: bool = True, masked: bool = True) -> bytes:
    """Return a frame of a client."""
    first, size, bit = (0x80 if last else 0) | opcode, len(content), 0x80 if masked else 0
    if size < 126:
        start = struct.pack("!BB", first, bit | size)
    elif size < 1 << 16:
        start = struct.pack("!BBH", first, bit | 126, size)
    else:
        start = struct.pack("!BBQ", first, bit | 127, size)
    return start + (b"\0\0\0\0" if masked else b"") + content  # a mask of zeros changes nothing


class RawSocket:
    """A connection on which anything may be sent."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._received = BufferedByteReceiveStream(stream)
        self.headers: Mapping[str, str] = {}  # of the answer, in lower case

    async def send(self, content: bytes) -> bool:
        """Send it; False if the server has closed the connection."""
        try:
            await self.stream.send(content)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    async def answer(self) -> tuple[int, bytes]:
        """Return the status and the body of the answer to the handshake."""
        text = (await self._received.receive_until(b"\r\n\r\n", 1 << 16)).decode("latin-1")
        first, *lines = text.lower().split("\r\n")
        self.headers = dict(line.split(": ", 1) for line in lines if line)
        size = int(self.headers.get("content-length", "0"))
        body = await self._received.receive_exactly(size) if size else b""
        return int(first.split(" ")[1]), body

    async def frame(self) -> RawFrame:
        """Return the next frame of the server."""
        first, size = await self._received.receive_exactly(2)
        assert first & 0x70 == 0, "no extension was agreed on"
        if size == 126:
            (size,) = struct.unpack("!H", await self._received.receive_exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._received.receive_exactly(8))
        return RawFrame(first & 15, await self._received.receive_exactly(size) if size else b"")

    async def close_frame(self) -> tuple[int, str]:
        """Return code and reason of the next close frame; other frames are passed over."""
        while (found := await self.frame()).opcode != CLOSE:
            pass
        return found.close

    async def end(self) -> None:
        """Wait until the server has closed the connection."""
        with suppress(anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await self._received.receive()


@asynccontextmanager
async def connected(url: str, *, small: bool = False) -> AsyncGenerator[RawSocket]:
    """Connect; with `small`, what is not read stays with the server."""
    place = urlsplit(url)
    assert place.hostname is not None
    with anyio.fail_after(SECONDS):
        async with await anyio.connect_tcp(place.hostname, place.port or 0) as stream:
            if small:
                raw = stream.extra(SocketAttribute.raw_socket)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            yield RawSocket(stream)


@asynccontextmanager
async def opened(
    url: str, path: str, headers: Mapping[str, str | None] | None = None, *, small: bool = False
) -> AsyncGenerator[RawSocket]:
    """Connect, and open a WebSocket."""
    async with connected(url, small=small) as one:
        await one.send(head(path, headers))
        status, body = await one.answer()
        assert status == 101, (status, body)
        yield one
