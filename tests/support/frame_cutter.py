"""A TCP proxy that cuts each connection in the middle of its answer, so that a client gets on by some frames only."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio
import anyio.abc

_END = b"\n\n"
_FRAME = b"id: "
_DONE = b"data: [DONE]"


class FrameCutter:
    """Passes `frames` frames with an id of a connection on, then `extra` bytes of the next, and cuts.

    What has its `[DONE]` among these frames, or fewer of them, is not cut. Each next connection gets one frame more: what
    arrives together with a cut may never reach a reader. A connection goes to the first of the targets that listens.
    """

    def __init__(self, targets: Sequence[str], url: str, frames: int) -> None:
        self.url = url
        self.frames = frames
        self.extra = 0
        self.cuts = 0
        self._targets = targets

    async def serve(self, client: anyio.abc.ByteStream) -> None:
        async with (
            client,
            await self._connect() as server,
            anyio.create_task_group() as tasks,
        ):

            async def up() -> None:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async for chunk in client:
                        await server.send(chunk)
                tasks.cancel_scope.cancel()

            tasks.start_soon(up)
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._down(server, client)
            tasks.cancel_scope.cancel()

    async def _connect(self) -> anyio.abc.ByteStream:
        for target in self._targets:
            parts = urlsplit(target)
            assert parts.hostname is not None
            assert parts.port is not None
            with suppress(OSError):
                return await anyio.connect_tcp(parts.hostname, parts.port)
        raise AssertionError(f"none of {self._targets} listens")

    async def _down(self, server: anyio.abc.ByteStream, client: anyio.abc.ByteStream) -> None:
        sent = seen = b""
        async for chunk in server:
            seen += chunk
            place = self._place(seen)
            passed = seen if place is None else seen[:place]
            await client.send(passed[len(sent) :])
            sent = passed
            if place is not None:
                self.cuts += 1
                self.frames += 1
                return

    def _place(self, seen: bytes) -> int | None:
        """Where these bytes of a connection are cut; None where they are not, yet."""
        end = 0
        for _ in range(self.frames):
            start = seen.find(_FRAME, end)
            end = seen.find(_END, start) + len(_END)
            if start < 0 or end < len(_END) or _DONE in seen[start:end]:
                return None
        place = end + self.extra
        return place if len(seen) >= place else None


@asynccontextmanager
async def frame_cutter(*targets: str, frames: int = 1_000_000) -> AsyncGenerator[FrameCutter]:
    """Listen on a free port in front of the servers at `targets`, URLs such as http://127.0.0.1:8000."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        cutter = FrameCutter(targets, f"http://127.0.0.1:{port}", frames)
        tasks.start_soon(listener.serve, cutter.serve)
        yield cutter
        tasks.cancel_scope.cancel()
