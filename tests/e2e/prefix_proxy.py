"""A proxy that serves a server below a path of its own, which it strips from each request."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream

_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


@asynccontextmanager
async def prefixed(url: str, prefix: str) -> AsyncGenerator[str]:
    """Give the URL of the server behind the proxy; `prefix` is such as `/agents`."""
    target = urlsplit(url)
    outside, inside = f" {prefix}/".encode(), b" /"

    async def relay(client: SocketStream) -> None:
        assert target.hostname is not None
        assert target.port is not None
        async with (
            client,
            await anyio.connect_tcp(target.hostname, target.port) as server,
            anyio.create_task_group() as ways,
        ):
            ways.start_soon(_pump, server, client, b"", b"")
            await _pump(client, server, outside, inside)
            ways.cancel_scope.cancel()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, relay)
        port = listener.extra(SocketAttribute.local_port)
        yield f"http://127.0.0.1:{port}{prefix}"
        tasks.cancel_scope.cancel()


async def _pump(source: SocketStream, target: SocketStream, old: bytes, new: bytes) -> None:
    """Pass bytes on; a head comes in one piece, and begins with its only `old`."""
    with suppress(*_GONE):
        async for chunk in source:
            await target.send(chunk.replace(old, new, 1) if old else chunk)
