"""Clients of a raw service, and what such a service may answer."""

import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.models.http.raw_service import OK, Peer, posted, read

from passback.models.http.transport import Transport

A = OK + b"content-length: 1\r\n\r\na"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
SHORT = 0.05
LARGE = 1 << 26
"""More bytes than two sockets take."""


@asynccontextmanager
async def transport(
    trusted: ssl.SSLContext | None = None, *, most: int = 100, keep_alive: float = 30
) -> AsyncGenerator[Transport]:
    over = Transport(trusted, max_connections=most, keep_alive=keep_alive)
    try:
        yield over
    finally:
        await over.aclose()


def answers(*pieces: bytes) -> Callable[[Peer], Coroutine[Any, Any, None]]:
    """The same to every request."""

    async def handle(peer: Peer) -> None:
        while True:
            await peer.asked()
            await peer.send(*pieces)

    return handle


def once(*pieces: bytes) -> Callable[[Peer], Coroutine[Any, Any, None]]:
    """To one request; then the connection is closed."""

    async def handle(peer: Peer) -> None:
        await peer.asked()
        await peer.send(*pieces)

    return handle


async def silent(peer: Peer) -> None:
    await peer.left()


async def asked(over: Transport, url: str, **seconds: float) -> bytes:
    return await read(await over.handle_async_request(posted(url, b"{}", **seconds)))
