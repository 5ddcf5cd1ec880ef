"""HTTP by hand: any bytes go out, and only well-formed answers are accepted."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

SECONDS = 30
"""Limit for all answers of a connection, however busy the machine is."""
HOST = b"Host: 127.0.0.1\r\n"
_MOST = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Response:
    """One answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """A connection to a server, on which anything may be sent."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)

    async def send(self, content: bytes) -> None:
        """Send it, or as much of it as the server takes."""
        with suppress(anyio.BrokenResourceError):  # the server has seen enough
            await self._stream.send(content)

    async def response(self, *, has_body: bool = True) -> Response | None:
        """The next answer, without those that announce it; None at the end of the connection."""
        while True:
            try:
                head = await self._received.receive_until(b"\r\n\r\n", _MOST)
            except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.EndOfStream):
                assert self._received.buffer == b"", self._received.buffer[:200]
                return None
            response = await self._read(head.decode("latin-1"), has_body)
            if response.status >= 200:
                return response

    async def rest(self) -> list[Response]:
        """Return all bytes to the end of the connection."""
        found: list[Response] = []
        while (response := await self.response()) is not None:
            found.append(response)
        return found

    async def _read(self, head: str, has_body: bool) -> Response:
        first, *lines = head.split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = {
            name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)
        }
        length = int(headers.get("content-length", "0")) if has_body else 0
        if has_body and headers.get("transfer-encoding") == "chunked":
            body = await self._read_chunks()
        else:
            body = await self._received.receive_exactly(length) if length else b""
        return Response(int(status), headers, body)

    async def _read_chunks(self) -> bytes:
        body = b""
        while size := int(await self._received.receive_until(b"\r\n", 20), 16):
            body += await self._received.receive_exactly(size)
            assert await self._received.receive_exactly(2) == b"\r\n"
        assert await self._received.receive_exactly(2) == b"\r\n"
        return body


@asynccontextmanager
async def connected(url: str, *, seconds: float = SECONDS) -> AsyncGenerator[Connection]:
    """A connection that has said nothing yet."""
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    with anyio.fail_after(seconds):
        async with await anyio.connect_tcp(place.hostname, place.port) as stream:
            yield Connection(stream)


async def answers_to(url: str, content: bytes) -> list[Response]:
    """Send it on a connection of its own, and read all answers."""
    async with connected(url) as connection:
        await connection.send(content)
        return await connection.rest()
