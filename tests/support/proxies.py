"""TCP proxies between clients and a server on this machine.

`cutting_proxy` breaks all connections at a call, `lossy_proxy` loses replies or delays them,
`counting_proxy` counts requests, and `frame_cutter` cuts answers at the events of their streams.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream
from typing_extensions import override

BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class Proxy:
    """Passes bytes on in both directions until one side ends.

    Attributes:
        port, url: where clients connect.
        targets: URLs of servers; a connection goes to the first that listens. A change holds for
            new connections.
        accepted: connections that clients made.
    """

    def __init__(self, *targets: str) -> None:
        self.targets: Sequence[str] = targets
        self.port = 0
        self.accepted = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, client: SocketStream) -> None:
        self.accepted += 1
        async with client:
            server = await self._connect()
            if server is None:
                return  # nobody is there, and so the connection ends
            async with server, anyio.create_task_group() as tasks:
                answer = Answer()
                scope = tasks.cancel_scope
                tasks.start_soon(_pump, self.requests(client, answer), server, scope)
                tasks.start_soon(_pump, self.replies(server, answer), client, scope)

    async def _connect(self) -> SocketStream | None:
        for target in self.targets:
            with suppress(OSError):
                return await anyio.connect_tcp("127.0.0.1", urlsplit(target).port or 0)
        return None

    async def requests(self, client: SocketStream, answer: "Answer") -> AsyncGenerator[bytes]:
        """Give the bytes that go to the server; the connection is cut at the end."""
        async for chunk in client:
            answer.begin()
            yield chunk

    async def replies(self, server: SocketStream, answer: "Answer") -> AsyncGenerator[bytes]:
        """Give the bytes that go to the client; the connection is cut at the end."""
        async for chunk in server:
            yield chunk


class Answer:
    """Counts the events of the answer to the newest request of a connection."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._block = b""
        self._frames = 0

    def end_of_frame(self, chunk: bytes, frames: int | None) -> int | None:
        """Return the place in the chunk behind the last of so many events, or None."""
        for place in range(len(chunk)):
            self._block += chunk[place : place + 1]
            if self._block.endswith(b"\n\n"):
                self._frames += b"data: " in self._block
                self._block = b""
                if self._frames == frames:
                    return place + 1
        return None


async def _pump(
    source: AsyncGenerator[bytes], sink: SocketStream, scope: anyio.CancelScope
) -> None:
    with suppress(*BROKEN):
        async with aclosing(source) as chunks:
            async for chunk in chunks:
                await sink.send(chunk)
    scope.cancel()


@asynccontextmanager
async def _listening(proxy: Proxy) -> AsyncGenerator[None]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        proxy.port = int(listener.extra(SocketAttribute.local_port))
        tasks.start_soon(listener.serve, proxy.serve)
        yield
        tasks.cancel_scope.cancel()


# ---------------------------------------------------------------- cut at a call
class CuttingProxy(Proxy):
    """Passes bytes on until `cut`, and new connections again after it."""

    def __init__(self, *targets: str) -> None:
        super().__init__(*targets)
        self._open: set[anyio.CancelScope] = set()

    def cut(self) -> None:
        """Break every connection, in the middle of whatever it carries."""
        for scope in self._open:
            scope.cancel()

    @override
    async def serve(self, client: SocketStream) -> None:
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            await super().serve(client)
        self._open.discard(scope)


@asynccontextmanager
async def cutting_proxy(target: str) -> AsyncGenerator[CuttingProxy]:
    """Listen on a free port in front of the server at the URL `target`."""
    proxy = CuttingProxy(target)
    async with _listening(proxy):
        yield proxy


# ---------------------------------------------------------------- replies that are lost, or late
class LossyProxy(Proxy):
    """Loses replies: the server has done what was asked, and the client cannot know.

    Attributes:
        lost: how many replies were lost.
    """

    def __init__(self, *targets: str) -> None:
        super().__init__(*targets)
        self.lost = 0
        self._to_lose = 0
        self._passes = anyio.Event()
        self._passes.set()

    def hold(self) -> None:
        """Pass nothing on, and lose nothing: the network is cut in two until `go_on`."""
        self._passes = anyio.Event()

    def go_on(self) -> None:
        """Pass on what was held, late."""
        self._passes.set()

    def lose_replies(self, count: int = 1) -> None:
        """Cut the connection instead of passing on each of the next replies."""
        self._to_lose = count

    @override
    async def requests(self, client: SocketStream, answer: Answer) -> AsyncGenerator[bytes]:
        async for chunk in client:
            await self._passes.wait()
            yield chunk

    @override
    async def replies(self, server: SocketStream, answer: Answer) -> AsyncGenerator[bytes]:
        async for chunk in server:
            await self._passes.wait()
            if self._to_lose:
                self._to_lose -= 1
                self.lost += 1
                return
            yield chunk


@asynccontextmanager
async def lossy_proxy(server_port: int) -> AsyncGenerator[LossyProxy]:
    """Listen on a free port in front of the server at `server_port`."""
    proxy = LossyProxy(f"http://127.0.0.1:{server_port}")
    async with _listening(proxy):
        yield proxy


# ---------------------------------------------------------------- requests that are counted
class CountingProxy(Proxy):
    """Counts the pieces in which requests arrive: a small one is one piece.

    Attributes:
        requests_seen: on all connections.
    """

    def __init__(self, *targets: str) -> None:
        super().__init__(*targets)
        self.requests_seen = 0

    @override
    async def requests(self, client: SocketStream, answer: Answer) -> AsyncGenerator[bytes]:
        async for chunk in client:
            self.requests_seen += 1
            yield chunk


@asynccontextmanager
async def counting_proxy(server_port: int) -> AsyncGenerator[CountingProxy]:
    """Listen on a free port in front of the server at `server_port`."""
    proxy = CountingProxy(f"http://127.0.0.1:{server_port}")
    async with _listening(proxy):
        yield proxy


# ---------------------------------------------------------------- cut at events
class FrameCutter(Proxy):
    """Cuts answers at the events of their streams, and loses answers whole.

    Attributes:
        frames: events that each answer may bring before it is cut; None: all.
        grows: each next answer may bring one more: what arrives together with a cut may never
            reach a reader.
        more: bytes of the next event that still pass.
        lost: answers that are still to be lost whole; the server has done what was asked.
        cuts: how often it cut.
    """

    def __init__(self, *targets: str) -> None:
        super().__init__(*targets)
        self.frames: int | None = None
        self.grows = False
        self.more = 0
        self.lost = 0
        self.cuts = 0

    @override
    async def replies(self, server: SocketStream, answer: Answer) -> AsyncGenerator[bytes]:
        async for chunk in server:
            if self.lost:
                self.lost -= 1
                self.cuts += 1
                return
            end = answer.end_of_frame(chunk, self.frames)
            if end is not None:
                self.cuts += 1
                if self.grows and self.frames is not None:
                    self.frames += 1
                yield chunk[: end + self.more]
                return
            yield chunk


@asynccontextmanager
async def frame_cutter(*targets: str) -> AsyncGenerator[FrameCutter]:
    """Listen on a free port in front of the servers at the URLs `targets`."""
    proxy = FrameCutter(*targets)
    async with _listening(proxy):
        yield proxy
