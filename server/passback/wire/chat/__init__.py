"""The chat socket: Socket.IO and plain WebSockets, with turns that grow, and routes under `/api`.

A session is a conversation, shared with every other wire. The protocol is served where the extra
`passback[chat]` is installed.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from logging import DEBUG

from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire, WireType
from passback.streams.sockets import SocketEndpoint
from passback.wire.chat.feeds import Feeds
from passback.wire.chat.plain import PlainTransport
from passback.wire.chat.rest import build_rest
from passback.wire.chat.socketio import PATH, SocketIoTransport

_PLAIN_PATH = "/ws"
_PACKAGES = ("socketio", "websockets")  # of the extra


def build(services: Services, /) -> Wire:
    if any(find_spec(name) is None for name in _PACKAGES):
        return Wire(routes=[])
    rest, feeds = build_rest(services), Feeds(services.runs)
    plain = PlainTransport(services, feeds)
    socketio = SocketIoTransport(services, feeds)

    @asynccontextmanager
    async def running() -> AsyncGenerator[None]:
        async with feeds.running(), socketio.running():
            yield

    sockets = [
        SocketEndpoint(_PLAIN_PATH, plain.serve, services),
        SocketEndpoint(PATH, socketio.serve, services),
        Endpoint(PATH, socketio.poll, methods=["GET", "POST"], query=None, log_level=DEBUG),
    ]
    return replace(
        rest,
        routes=[*rest.routes, *sockets],
        late_keys=frozenset({_PLAIN_PATH, PATH}),
        running=running,
    )


WIRE = WireType(build)
