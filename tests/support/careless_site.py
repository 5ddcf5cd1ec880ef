"""A foreign web site with empty pages, which answers and remembers whatever a page requests."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc

MAX_HEAD = 65536  # bytes
SECONDS = 30  # that a request may take to come

_PAGE = b"<!doctype html><title>elsewhere</title><body>elsewhere"
_SCRIPT = b"globalThis.read = 'a script';"
_BODIES = {
    "script": ("text/javascript", _SCRIPT),
    "module": ("text/javascript", b"export const read = 'a module';"),
    "worker": ("text/javascript", _SCRIPT),
    "stylesheet": ("text/css", b"body { --read: 'a style'; }"),
    "event source": ("text/event-stream", b"data: read\n\n"),
}
_SHARED = (
    "Access-Control-Allow-Origin: {origin}\r\nAccess-Control-Allow-Credentials: true\r\n"
    "Access-Control-Allow-Methods: GET, POST, DELETE\r\n"
    "Access-Control-Allow-Headers: content-type, idempotency-key\r\n"
)


@dataclass(eq=False, slots=True)
class CarelessSite:
    """A site at `port` of this machine, under any name.

    Attributes:
        port: where it listens.
        ways: the `way` of each query that it was asked with, preflights aside.
        paths: all that was asked for.
    """

    port: int
    ways: set[str] = field(default_factory=set[str])
    paths: list[str] = field(default_factory=list[str])

    def url(self, host: str) -> str:
        return f"http://{host}:{self.port}"

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(SECONDS):
                try:
                    await self._answer(stream)
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return  # a browser opens connections before it needs them

    async def _answer(self, stream: anyio.abc.SocketStream) -> None:
        head, _, body = await self._read_head(stream)
        request, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = request.split(" ")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        missing = int(headers.get("content-length", "0")) - len(body)
        while missing > 0:
            missing -= len(await stream.receive())
        self.paths.append(target)
        way = parse_qs(urlsplit(target).query).get("way", [""])[0]
        if method != "OPTIONS":
            self.ways.add(way)
        kind, content = _BODIES.get(way, ("text/html", _PAGE))
        shared = _SHARED.format(origin=headers.get("origin", "*"))
        answer = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
        await stream.send(f"{answer}{shared}Connection: close\r\n\r\n".encode() + content)

    @staticmethod
    async def _read_head(stream: anyio.abc.SocketStream) -> tuple[bytes, bytes, bytes]:
        read = b""
        while b"\r\n\r\n" not in read and len(read) < MAX_HEAD:
            read += await stream.receive()
        return read.partition(b"\r\n\r\n")


@asynccontextmanager
async def careless_site() -> AsyncGenerator[CarelessSite]:
    """Open the site on a free port of loopback; it is closed on leaving."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port: int = listener.extra(anyio.abc.SocketAttribute.local_port)
        site = CarelessSite(port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, site.serve)
            yield site
            tasks.cancel_scope.cancel()
