"""A TCP proxy that cuts answers at the events of their streams, and loses answers whole."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio
import anyio.abc


class FrameCutter:
    """Between clients and a server on the loopback address.

    Attributes:
        url: where clients connect.
        targets: URLs of servers: a connection goes to the first that listens; others hold for new connections.
        frames: events that each answer may bring before it is cut; None: all.
        grows: each next answer may bring one more: what arrives together with a cut may never reach a reader.
        more: bytes of the next event that still pass.
        lost: answers that are still to be lost whole; the server has done what was asked.
        cuts: how often it cut.
        accepted: connections that clients made.
    """

    def __init__(self, targets: Sequence[str], url: str) -> None:
        self.url = url
        self.targets = targets
        self.frames: int | None = None
        self.grows = False
        self.more = 0
        self.lost = 0
        self.cuts = 0
        self.accepted = 0

    async def serve(self, client: anyio.abc.ByteStream) -> None:
        self.accepted += 1
        async with client:
            server = await self._connected()
            if server is None:
                return  # nobody is there, and so the connection ends
            async with server, anyio.create_task_group() as tasks:
                answer = _Answer(self)
                tasks.start_soon(_ask, client, server, answer, tasks.cancel_scope)
                tasks.start_soon(_reply, client, server, answer, tasks.cancel_scope)

    async def _connected(self) -> anyio.abc.ByteStream | None:
        for target in self.targets:
            port = urlsplit(target).port
            assert port is not None
            with suppress(OSError):
                return await anyio.connect_tcp("127.0.0.1", port)
        return None


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
                if cutter.grows and cutter.frames is not None:
                    cutter.frames += 1
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
async def frame_cutter(*targets: str) -> AsyncGenerator[FrameCutter]:
    """Listen on a free port in front of the servers at `targets`."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        cutter = FrameCutter(targets, f"http://127.0.0.1:{port}")
        tasks.start_soon(listener.serve, cutter.serve)
        yield cutter
        tasks.cancel_scope.cancel()
