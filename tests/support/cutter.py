"""A TCP proxy between a client and a server, which cuts their connections when a test says so."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio
import anyio.abc


class Cutter:
    """Passes bytes on until `cut`, and new connections again after it."""

    def __init__(self, target: str, url: str) -> None:
        self.url = url
        self.accepted = 0
        self._target = urlsplit(target)
        self._open: set[anyio.CancelScope] = set()

    def cut(self) -> None:
        """Break every connection, in the middle of whatever it carries."""
        for scope in self._open:
            scope.cancel()

    async def serve(self, client: anyio.abc.ByteStream) -> None:
        assert self._target.hostname is not None
        assert self._target.port is not None
        self.accepted += 1
        async with client:
            with anyio.CancelScope() as scope, suppress(OSError, anyio.BrokenResourceError):
                self._open.add(scope)
                async with await anyio.connect_tcp(
                    self._target.hostname, self._target.port
                ) as server:
                    await _carry(client, server)
            self._open.discard(scope)


async def _carry(client: anyio.abc.ByteStream, server: anyio.abc.ByteStream) -> None:
    """Pass bytes on in both directions, until one side ends."""
    async with anyio.create_task_group() as tasks:

        async def pump(source: anyio.abc.ByteStream, sink: anyio.abc.ByteStream) -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for chunk in source:
                    await sink.send(chunk)
            tasks.cancel_scope.cancel()

        tasks.start_soon(pump, client, server)
        tasks.start_soon(pump, server, client)


@asynccontextmanager
async def cutting_proxy(target: str) -> AsyncGenerator[Cutter]:
    """Listen on a free port in front of the server at `target`, a URL such as http://127.0.0.1:8000."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        cutter = Cutter(target, f"http://127.0.0.1:{port}")
        tasks.start_soon(listener.serve, cutter.serve)
        yield cutter
        tasks.cancel_scope.cancel()
