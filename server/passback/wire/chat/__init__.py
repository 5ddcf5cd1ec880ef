"""The chat socket: Socket.IO and plain WebSockets, with turns that grow, and routes under `/api`.

A session is a conversation, shared with every other wire. The protocol's Socket.IO is served where
the extra `passback[chat]` is installed.
"""

from dataclasses import replace

from passback.http.wires import Services, Wire, WireType
from passback.streams.sockets import SocketEndpoint
from passback.wire.chat.feeds import Feeds
from passback.wire.chat.plain import PlainTransport
from passback.wire.chat.rest import build_rest

PLAIN_PATH = "/ws"


def build(services: Services, /) -> Wire:
    rest, feeds = build_rest(services), Feeds(services.runs)
    plain = PlainTransport(services, feeds)
    return replace(
        rest,
        routes=[*rest.routes, SocketEndpoint(PLAIN_PATH, plain.serve, services)],
        late_keys=frozenset({PLAIN_PATH}),
        running=feeds.running,
    )


WIRE = WireType(build)
