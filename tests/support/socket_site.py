"""A site with the WebSockets of `echo_wire`, on a real port, in the process of the test."""

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import anyio
import uvicorn
from tests.support.echo_wire import echo_wire
from tests.support.logged_runs import LoggedRuns
from tests.support.waiting import wait_until
from typing_extensions import override

from passback.core.messages import OwnerId
from passback.core.signals import Signal
from passback.http.gate import Access, resolve_key
from passback.http.open_sockets import OpenSockets
from passback.http.protocol import BoundedHttpProtocol, OpenConnections
from passback.http.site import build_site, socket_matcher
from passback.http.socket_protocol import BoundedSocketProtocol
from passback.http.wires import PartialBodies, RequestLimits, Services

KEY = "the-key-of-alice"
OTHER_KEY = "the-key-of-bob"
OWN = {"Authorization": f"Bearer {KEY}"}
ACCESS = Access(keys={KEY: OwnerId("alice"), OTHER_KEY: OwnerId("bob")})


@dataclass(slots=True)
class SocketSite:
    """How a site is served; `url` and `services` are there while it is.

    Attributes:
        direct: the server sends without a task where it can.
        has_link: the application gets the server's side of a WebSocket.
    """

    access: Access = ACCESS
    limits: RequestLimits = field(default_factory=lambda: RequestLimits(send_seconds=60))
    sockets: OpenSockets = field(default_factory=OpenSockets)
    bodies: PartialBodies = field(default_factory=PartialBodies)
    connections: OpenConnections = field(default_factory=OpenConnections)
    ping: float = 60
    pong_timeout: float = 60
    direct: bool = True
    has_link: bool = True
    stopping: Signal = field(default_factory=Signal)
    url: str = ""
    state: Any = None

    @property
    def ws(self) -> str:
        """The address for WebSockets."""
        return self.url.replace("http", "ws", 1)

    @asynccontextmanager
    async def served(self) -> AsyncGenerator["SocketSite"]:
        services = Services(
            LoggedRuns(),
            self.stopping,
            self.limits,
            self.bodies,
            sockets=self.sockets,
            resolve_key=partial(resolve_key, self.access),
        )
        wires = [echo_wire(services)]
        config = uvicorn.Config(
            self._without_link(build_site(wires, self.access)),
            http=cast(
                "Any",
                partial(
                    BoundedHttpProtocol,
                    connections=self.connections,
                    sends_directly=self.direct,
                    takes_socket=socket_matcher(wires),
                ),
            ),
            ws=cast(
                "Any",
                partial(
                    BoundedSocketProtocol,
                    connections=self.connections,
                    bodies=self.bodies,
                    sends_directly=self.direct,
                ),
            ),
            ws_max_size=self.limits.socket_bytes,
            ws_ping_interval=self.ping,
            ws_ping_timeout=self.pong_timeout,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        server = QuietServer(config)
        self.state = server.server_state
        with listening_socket() as listening:
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(server.serve, sockets=[listening]))
                try:
                    yield self
                finally:
                    self.stopping.set()
                    server.should_exit = True

    def _without_link(self, app: Any) -> Any:
        if self.has_link:
            return app

        async def serve(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "extensions": {}}, receive, send)

        return serve

    async def until_idle(self) -> None:
        """Wait until no WebSocket is open, and no connection."""
        await wait_until(
            lambda: not (self.sockets.count or self.state.connections or self.state.tasks)
        )


def listening_socket() -> socket.socket:
    """Listen at a free port, as `passback serve` does."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class QuietServer(uvicorn.Server):
    """A server that leaves the signals alone."""

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # they are those of the tests
