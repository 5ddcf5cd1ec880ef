"""The product with the chat socket on a real port, in the process of the test, and its clients."""

import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

import anyio
import uvicorn
from tests.support.socket_site import QuietServer, listening_socket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from passback.agent import Agent
from passback.app import Application
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.runs import Runs
from passback.http.protocol import BoundedHttpProtocol, OpenConnections
from passback.http.socket_protocol import BoundedSocketProtocol
from passback.session import ContextHolder
from passback.settings import load_settings

Json: TypeAlias = dict[str, Any]
ANYBODY = OwnerId("anonymous")
SECONDS = 30


@dataclass(slots=True)
class ChatSite:
    """A served application.

    Attributes:
        url: for HTTP.
        application: what is served.
    """

    url: str
    application: Application
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def runs(self) -> Runs:
        return self.application.backend.runs

    async def create(self, owner: OwnerId = ANYBODY) -> str:
        """Create a session, and return its id."""
        session_id = f"session_{next(self.numbers)}"
        await self.runs.create(ConversationKey(owner, ConversationId(session_id)))
        return session_id

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncGenerator["PlainChat"]:
        """Connect a client with a plain WebSocket."""
        async with plain_client(self.url, **options) as client:
            yield client

    @asynccontextmanager
    async def subscribed(self, session_id: str, **sent: Any) -> AsyncGenerator["PlainChat"]:
        """Connect a client that follows a session."""
        async with self.client() as client:
            ack = await client.call("session:subscribe", session_id=session_id, **sent)
            assert ack == {"status": "ok"}, ack
            yield client


class PlainChat:
    """A client with a plain WebSocket.

    Attributes:
        received: the events that came while the client waited for an ack.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.received: list[Json] = []
        self._ids = itertools.count(1)

    async def emit(self, event: str, **data: Any) -> None:
        await self.connection.send(json.dumps({"event": event, "data": data}))

    async def call(self, event: str, **data: Any) -> Json:
        """Send an event, and return its ack."""
        frame_id = str(next(self._ids))
        await self.connection.send(json.dumps({"event": event, "data": data, "id": frame_id}))
        while (frame := await self._next_frame())["event"] != "ack":
            self.received.append(frame)
        assert frame["id"] == frame_id
        ack: Json = frame["data"]
        return ack

    async def next(self) -> Json:
        """Return the next event."""
        return self.received.pop(0) if self.received else await self._next_frame()

    async def _next_frame(self) -> Json:
        with anyio.fail_after(SECONDS):
            frame: Json = json.loads(await self.connection.recv())
            return frame

    def waiting(self) -> list[Json]:
        """Return the events that came before the last ack and were not read."""
        events, self.received = self.received, []
        return events

    async def rest(self) -> list[Json]:
        """Return the events up to the end of the connection."""
        events = self.waiting()
        with suppress(ConnectionClosed):
            while True:
                events.append(await self._next_frame())
        return events

    async def until(self, name: str) -> list[Json]:
        """Return the events up to one with this name."""
        events = [await self.next()]
        while events[-1]["event"] != name:
            events.append(await self.next())
        return events

    async def chat(self) -> list[Json]:
        """Return the events of the next chat, to its end."""
        return await self.until("chat:end")


@asynccontextmanager
async def plain_client(url: str, **options: Any) -> AsyncGenerator[PlainChat]:
    """Connect a client with a plain WebSocket to the server at a URL."""
    address = url.replace("http", "ws", 1) + "/ws"
    async with connect(address, compression=None, **options) as connection:
        yield PlainChat(connection)


@asynccontextmanager
async def chat_site(
    *agents: Agent, settings: Mapping[str, str] | None = None
) -> AsyncGenerator[ChatSite]:
    """Serve agents with all wires, with a store in memory."""
    given = {"store": "memory:", "model": "demo", **(settings or {})}
    loaded = load_settings({f"PASSBACK_{name.upper()}": text for name, text in given.items()})
    application = Application(loaded, *agents)
    connections = OpenConnections(loaded.limits.connections, loaded.timing.send_timeout)
    http = partial(
        BoundedHttpProtocol, connections=connections, takes_socket=application.takes_socket
    )
    protocol = partial(BoundedSocketProtocol, connections=connections, bodies=application.bodies)
    config = uvicorn.Config(
        application.asgi,
        http=cast("Any", http),
        ws=cast("Any", protocol),
        ws_max_size=loaded.limits.socket_bytes,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    server = QuietServer(config)

    @asynccontextmanager
    async def serve() -> AsyncGenerator[ChatSite]:
        with listening_socket() as listening:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with application.running(), anyio.create_task_group() as tasks:
                tasks.start_soon(partial(server.serve, sockets=[listening]))
                try:
                    yield ChatSite(url, application)
                finally:
                    with anyio.CancelScope(shield=True):
                        await application.drain()
                    server.should_exit = True

    # in a task of its own: what a test raises is not to come out as a group of errors
    served = await ContextHolder(serve()).open()
    try:
        yield served.value
    finally:
        await served.close()
