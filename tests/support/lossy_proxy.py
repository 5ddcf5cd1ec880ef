"""A TCP proxy that loses replies: the server has done what was asked, and the client cannot know."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc


class LossyProxy:
    """Between clients and a server on the loopback address; `port` is where clients connect."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.lost = 0
        self._server_port = server_port
        self._to_lose = 0
        self._passes = anyio.Event()
        self._passes.set()

    def hold(self) -> None:
        """Pass nothing on, and lose nothing: the network is cut in two until `go_on`."""
        self._passes = anyio.Event()

    def go_on(self) -> None:
        """What was held comes late."""
        self._passes.set()

    def lose_replies(self, count: int = 1) -> None:
        """Instead of passing on each of the next replies, cut its connection."""
        self._to_lose = count

    async def handle(self, client: anyio.abc.SocketStream) -> None:
        async with client:
            try:
                server = await anyio.connect_tcp("127.0.0.1", self._server_port)
            except OSError:
                return  # the server is away, and so the connection ends
            async with server:
                await self._carry(client, server)

    async def _carry(self, client: anyio.abc.SocketStream, server: anyio.abc.SocketStream) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_requests, client, server, tasks.cancel_scope)
            try:
                async for reply in server:
                    await self._passes.wait()
                    if self._to_lose:
                        self._to_lose -= 1
                        self.lost += 1
                        break
                    await client.send(reply)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            tasks.cancel_scope.cancel()

    async def _pass_requests(
        self,
        client: anyio.abc.SocketStream,
        server: anyio.abc.SocketStream,
        scope: anyio.CancelScope,
    ) -> None:
        try:
            async for request in client:
                await self._passes.wait()
                await server.send(request)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()


@asynccontextmanager
async def lossy_proxy(server_port: int) -> AsyncGenerator[LossyProxy]:
    proxy = LossyProxy(server_port)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        proxy.port = int(listener.extra(anyio.abc.SocketAttribute.local_port))
        tasks.start_soon(listener.serve, proxy.handle)
        yield proxy
        tasks.cancel_scope.cancel()
