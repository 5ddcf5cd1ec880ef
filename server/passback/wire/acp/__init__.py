"""The Agent Client Protocol, version 1: the agent in an editor, by stdio or a WebSocket at `/acp`.

A session is a conversation, shared with every other wire. `passback acp` serves one editor by
standard input and output (`serve_client`).
"""

from dataclasses import dataclass
from importlib.util import find_spec

from passback.core.errors import Unauthenticated
from passback.core.messages import OwnerId
from passback.http.answers import may_list
from passback.http.wires import Services, Wire, WireType
from passback.setting_forms import CURRENCY, TEXT, setting
from passback.streams.jsonrpc import Channel
from passback.streams.sockets import Socket, SocketEndpoint
from passback.wire.acp.connection import Connection

PATH = "/acp"
LINE_BYTES = 64 * 1024 * 1024  # of a message by stdio: the process is the editor's own


@dataclass(frozen=True, slots=True)
class AcpSettings:
    """The settings of this wire."""

    acp_key: str = setting(
        "",
        TEXT,
        "the API key by which the editor of `passback acp` authenticates, where keys are set",
        secret=True,
        rare=True,
    )
    acp_currency: str = setting(
        "USD", CURRENCY, "the currency of the prices, as editors are told it with costs", rare=True
    )


def build(services: Services, settings: AcpSettings = AcpSettings(), /) -> Wire:
    async def serve(socket: Socket) -> None:
        await socket.accept()
        await Connection(services, SocketClient(socket), settings.acp_currency).serve()

    # without the package no WebSockets are served
    routes = [] if find_spec("websockets") is None else [SocketEndpoint(PATH, serve, services)]
    return Wire(routes=routes, late_keys=frozenset({PATH}))


WIRE = WireType(build, AcpSettings)


class SocketClient:
    """An editor with a WebSocket. Its key came with the handshake, or comes by `authenticate`."""

    may_start_programs = False  # it is on another machine, or a page in a browser

    def __init__(self, socket: Socket, /) -> None:
        self._socket = socket
        self.needs_key = socket.owner is None
        self.frame_bytes = socket.services.limits.socket_bytes
        self.send = socket.send
        self.receive = socket.receive
        self.wait_until_sent = socket.wait_until_sent

    @property
    def owner(self) -> OwnerId | None:
        return self._socket.owner

    @property
    def may_list(self) -> bool:
        return may_list(self._socket.scope)

    def authenticate(self, key: str | None, /) -> None:
        if self.needs_key:
            if key is None:
                raise Unauthenticated("_meta.apiKey: the API key is missing")
            self._socket.present_key(key)


class StdioClient:
    """The editor that has started this process."""

    # whoever started the process can read its store, and start programs
    may_list = may_start_programs = True

    def __init__(self, channel: Channel, services: Services, key: str, /) -> None:
        self.owner = channel.owner
        self.needs_key = channel.owner is None
        self.frame_bytes = LINE_BYTES
        self.send = channel.send
        self.receive = channel.receive
        self.wait_until_sent = channel.wait_until_sent
        self._resolve_key = services.resolve_key
        self._key = key

    def authenticate(self, key: str | None, /) -> None:
        if self.needs_key:
            given = key or self._key
            if not given:
                raise Unauthenticated("PASSBACK_ACP_KEY is not set, and _meta has no apiKey")
            self.owner = self._resolve_key(given)


async def serve_client(
    services: Services, channel: Channel, /, *, settings: AcpSettings | None = None
) -> None:
    """Serve the editor that has started this process, until it leaves or the server stops."""
    given = settings or AcpSettings()
    client = StdioClient(channel, services, given.acp_key)
    await Connection(services, client, given.acp_currency).serve()
