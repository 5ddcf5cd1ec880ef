"""A TCP proxy that cuts answers at the events of their streams, and loses answers whole."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import anyio.abc


class FrameCutter:
    """Between clients and a server on the loopback address.

    Attributes:
        url: where clients connect.
        target: the server's own URL; another one holds for new connections.
        frames: events that each answer may bring before it is cut; None: all.
        more: bytes of the next event that still pass.
        lost: answers that are still to be lost whole; the server has done what was asked.
        cuts: how often it cut.
        accepted: connections that clients made.
    """

    def __init__(self, target: str, url: str) -> None:
        self.url = url
        self.target = target
        self.frames: int | None = None
        self.more = 0
        self.lost = 0
        self.cuts = 0
        self.accepted = 0

    async def serve(self, client: anyio.abc.ByteStream) -> None:
        self.accepted += 1
        target = urlsplit(self.target)
        assert target.port is not None
        async with client:
            try:
                server = await anyio.connect_tcp("127.0.0.1", target.port)
            except OSError:
                return  # the server is away, and so the connection ends
            async with server, anyio.create_task_group() as tasks:
                answer = _Answer(self)
                tasks.start_soon(_ask, client, server, answer, tasks.cancel_scope)
                tasks.start_soon(_reply, client, server, answer, tasks.cancel_scope)


class _Answer:
    """What has been passed of the answer to the newest request of a connection."""

    def __init__(self, cutter: FrameCutter) -> None:
        self._cutter = cutter
        self.begin()

    def begin(self) -> None:
        self._block = b""
        self._frames = 0

    def passed(self, chunk: bytes) -> tuple[bytes, bool]:
        """What of the bytes is passed on, and whether the connection is cut then."""
        cutter = self._cutter
        if cutter.lost:
            cutter.lost -= 1
            cutter.cuts += 1
            return b"", True
        for place in range(len(chunk)):
            self._block += chunk[place : place + 1]
            if self._ends_last_frame():
                cutter.cuts += 1
                return chunk[: place + 1 + cutter.more], True
        return chunk, False

    def _ends_last_frame(self) -> bool:
        if not self._block.endswith(b"\n\n"):
            return False
        self._frames += b"data: " in self._block
        self._block = b""
        return self._frames == self._cutter.frames


async def _ask(
    client: anyio.abc.ByteStream,
    server: anyio.abc.ByteStream,
    answer: _Answer,
    scope: anyio.CancelScope,
) -> None:
    try:
        async for chunk in client:
            answer.begin()
            await server.send(chunk)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    scope.cancel()


async def _reply(
    client: anyio.abc.ByteStream,
    server: anyio.abc.ByteStream,
    answer: _Answer,
    scope: anyio.CancelScope,
) -> None:
    try:
        async for chunk in server:
            passes, is_cut = answer.passed(chunk)
            await client.send(passes)
            if is_cut:
                break
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    scope.cancel()


@asynccontextmanager
async def frame_cutter(target: str) -> AsyncGenerator[FrameCutter]:
    """Listen on a free port in front of the server at `target`."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        cutter = FrameCutter(target, f"http://127.0.0.1:{port}")
        tasks.start_soon(listener.serve, cutter.serve)
        yield cutter
        tasks.cancel_scope.cancel()
