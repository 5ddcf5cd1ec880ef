"""The chat socket as Socket.IO, by polling and by WebSocket. The library is python-socketio.

What clients send is checked before the library reads it: it logs a traceback for each packet that
it cannot read, and leaves the connection open.

Beyond what the library documents, this module uses the following; `tests/unit/wire/
test_chat_library.py` checks each of it, and `pyproject.toml` has an upper bound of both packages.

    AsyncServer.environ[ENGINE_ID]      the `environ` of a client's first request, until its
                                        `disconnect` was handled; its `asgi.scope` is what that
                                        request came with, also while it polls
    AsyncServer.manager.eio_sid_from_sid(SID, "/")      a client's ENGINE_ID
    AsyncServer.eio.sockets[ENGINE_ID]  its connection, with
        .queue                          an asyncio.Queue without a bound, read by whichever
                                        transport it has; what was sent is told to `join`
        .upgraded                       it has a WebSocket
    AsyncServer.eio.disconnect(ENGINE_ID)
    engineio.packet.Packet, MESSAGE, NOOP       what goes into the queue; NOOP ends a poll
    async_handlers=False                events of a client are handled one after the other
    16 packets in a payload             more are an error in its log, and no answer
"""

import asyncio
import importlib
import json
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple, cast
from urllib.parse import parse_qs

import anyio
import anyio.abc
from pydantic import JsonValue
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from passback.core.errors import BadRequest, PassbackError, ShuttingDown
from passback.core.messages import OwnerId
from passback.http.answers import error_answer, known_owner, request_id, write_json
from passback.http.body import parse_json, read_body
from passback.http.requests import validate_model
from passback.http.wires import Services
from passback.streams.sockets import TOO_SLOW, Socket
from passback.wire.chat.connection import Ack, Connection
from passback.wire.chat.feeds import Feeds
from passback.wire.chat.outgoing import Outgoing, refusal, refusal_data
from passback.wire.chat.posted import Auth

logger = logging.getLogger(__name__)

PATH: Final = "/socket.io/"
KEYLESS_BYTES: Final = 16 * 1024  # of a payload, before the key has come
_FINAL_SECONDS: Final = 2  # in which a client that is ended may poll what it has not read
MOST_PACKETS: Final = 16  # in one payload: the library takes no more
_HOLDER_KEY: Final = "passback.chat"
_RESERVED: Final = frozenset({"connect", "disconnect", "connect_error", "*"})
_SEPARATOR: Final = "\x1e"
_CLOSE: Final = "1"
_PONG: Final = "3"
# what may follow the type: a namespace, the number for an ack, and JSON
_PACKET: Final = re.compile(r"(?:(/[^,?]{0,128})(?:,|\Z))?([0-9]{0,15})(?=[^0-9]|\Z)", re.ASCII)

# its own loggers would write what clients send
_quiet_logger = logging.getLogger("passback.wire.chat.library")
_quiet_logger.setLevel(logging.CRITICAL + 1)


class SentPacket(NamedTuple):
    """A packet of a client, as far as the check needs it.

    Attributes:
        is_event: it is an event, for a handler.
        ack: the number for an ack of the event; empty if it wants none.
        refusal: why its JSON, which the library could read, is refused.
    """

    is_event: bool = False
    ack: str = ""
    refusal: BadRequest | None = None


def check_packet(text: str, /, *, depth: int) -> SentPacket:
    """Check that the library can read a packet.

    Raises:
        BadRequest: it cannot, or the packet is one that no client sends here.
    """
    if text in {_CLOSE, _PONG, "2probe", "5"}:  # the probe of an upgrade, a pong, the upgrade
        return SentPacket()
    if text[:1] != "4" or text[1:2] not in {"0", "1", "2"}:
        raise BadRequest("this is no packet of Socket.IO that this server takes")
    kind, rest = text[1], text[2:]
    found = _PACKET.match(rest)
    if found is None:
        raise BadRequest("the namespace or the number of a packet is malformed")
    namespace, number, content = found[1], found[2], rest[found.end() :]
    if kind == "2":
        if namespace not in {None, "/"}:
            raise BadRequest("an event is one of the main namespace")
        return _check_event(content, number, depth)
    data = _parse(content, depth) if content else None
    if number or not (data is None or isinstance(data, dict)):
        raise BadRequest("the payload of a connection is an object")
    return SentPacket()


def _check_event(content: str, number: str, depth: int) -> SentPacket:
    try:
        data = _parse(content, depth)
    except BadRequest as error:
        if not _is_lax_event(content):
            raise
        return SentPacket(is_event=True, ack=number, refusal=error)
    if not _is_event(data):
        raise BadRequest("an event is a list: its name, and its payload")
    return SentPacket(is_event=True, ack=number)


def _parse(content: str, depth: int) -> JsonValue:
    return parse_json(content.encode(errors="surrogatepass"), depth=depth)


def _is_event(data: JsonValue) -> bool:
    match data:
        case [str(name), *_]:
            return name not in _RESERVED
        case _:
            return False


def _is_lax_event(content: str) -> bool:
    """Return whether a lax parser reads an event, such as one with half of an emoji in a text."""
    try:
        return _is_event(json.loads(content))
    except (ValueError, RecursionError):
        return False


@dataclass(eq=False, slots=True)
class Holder:
    """One client, from its first request on.

    Attributes:
        socket: its WebSocket; None while it polls.
        owner: who presented the key.
        token: the key, for the WebSocket that takes the place of polling.
        client: gets what is sent, once it is connected.
        connection: handles its events, likewise.
        acks: whether events that are checked and not yet handled want an ack.
        timer: ends a client that polls without a key, until it has connected.
    """

    transport: "SocketIoTransport"
    socket: Socket | None = None
    owner: OwnerId | None = None
    token: str = ""
    client: "SocketIoClient | None" = None
    connection: Connection | None = None
    acks: deque[bool] = field(default_factory=deque[bool])
    timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        """Let the client be, though it polls: its key has come, or it has a WebSocket."""
        if self.timer is not None:
            self.timer.cancel()

    def give_way(self) -> None:
        """End a client that polls, in favour of another one."""
        self.transport.end_polling(self)


class SocketIoClient:
    """A connected client.

    Args:
        transport: has the library's server.
        holder: the client.
        engine_id: the library's id of its connection.
        queue: packets for it. Nobody reads them once it has gone.
    """

    def __init__(
        self,
        transport: "SocketIoTransport",
        holder: Holder,
        engine_id: str,
        queue: "asyncio.Queue[Any]",
        /,
    ) -> None:
        self._transport = transport
        self._holder = holder
        self._engine_id = engine_id
        self._queue = queue
        self._sizes: deque[int] = deque()
        self._queued = 0

    def send(self, event: Outgoing, /) -> None:
        self._send_packet(event.packet)

    def refuse(self, error: BadRequest, ack: str, /) -> None:
        """Answer an event that is refused before it is handled: by its ack, if it wants one."""
        if ack:
            self._send_packet(f"3{ack}[{write_json({'status': 'error', **refusal_data(error)})}]")
        else:
            self.send(refusal(error))

    def _send_packet(self, text: str) -> None:
        while len(self._sizes) > self._queue.qsize():
            self._queued -= self._sizes.popleft()
        if self._sizes and self._queued + len(text) > self._transport.most_queued:
            self._transport.drop_slow(self._holder, self._engine_id)
            return
        self._sizes.append(len(text))
        self._queued += len(text)
        self._queue.put_nowait(self._transport.message(text))

    async def wait_until_sent(self) -> None:
        await self._queue.join()


class SocketIoTransport:
    """Serves clients of Socket.IO. Used within `running()`.

    Args:
        services: the runs, the keys and the limits.
        feeds: the shared readers.
    """

    def __init__(self, services: Services, feeds: Feeds, /) -> None:
        self._services = services
        self._feeds = feeds
        self._tasks: anyio.abc.TaskGroup | None = None
        self.most_queued = services.limits.socket_queue_bytes
        self._clients: dict[str, SocketIoClient] = {}
        # without types, and only there with the extra
        library: Any = importlib.import_module("socketio")
        self._packets: Any = importlib.import_module("engineio.packet")
        self._refused: type[Exception] = library.exceptions.ConnectionRefusedError
        self._server = server = library.AsyncServer(
            async_mode="asgi",
            async_handlers=False,  # events of one client are handled in their order
            cors_allowed_origins=[],  # the gate has checked the origin
            logger=_quiet_logger,
            engineio_logger=_quiet_logger,
            http_compression=False,
            max_http_buffer_size=services.limits.socket_bytes,
            ping_interval=services.ping_seconds,
        )
        server.on("connect", self._connect)
        server.on("disconnect", self._disconnect)
        server.on("*", self._handle_event)
        self._application: ASGIApp = library.ASGIApp(server, socketio_path=PATH.strip("/"))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Own the tasks, until the context is left."""
        async with anyio.create_task_group() as self._tasks:
            with self._services.stopping.telling(self._stop):
                yield
            await self._server.shutdown()
            self._tasks.cancel_scope.cancel()

    def message(self, text: str, /) -> object:
        """Return a text as a packet of the library."""
        return self._packets.Packet(self._packets.MESSAGE, data=text)

    def drop_slow(self, holder: Holder, engine_id: str, /) -> None:
        """Disconnect a client that does not read."""
        if holder.socket is not None:
            holder.socket.abandon(*TOO_SLOW)
        else:
            self._end(engine_id)

    def end_polling(self, holder: Holder, /) -> None:
        """End a client that has polled for too long without a key."""
        for engine_id, environ in self._server.environ.items():
            if environ["asgi.scope"].get(_HOLDER_KEY) is holder:
                self._end(engine_id)
        self._leave(holder)

    # ---------------------------------------------------------------- WebSockets
    async def serve(self, socket: Socket, /) -> None:
        """Serve one WebSocket: a client's first connection, or one instead of its polling."""
        holder = self._known_holder(socket.scope)
        if holder is None:
            holder = socket.scope[_HOLDER_KEY] = Holder(self)
        elif holder.owner is not None and socket.owner is None:
            self._leave(holder)
            socket.present_key(holder.token)
        holder.socket = socket
        holder.stop_timer()
        await socket.run_application(partial(self._serve_checked, socket, holder))

    def _known_holder(self, scope: Scope) -> Holder | None:
        """Return the client of a request that names one."""
        environ = self._server.environ.get(_engine_id(scope))
        holder: Holder | None = environ and environ["asgi.scope"].get(_HOLDER_KEY)
        return holder

    async def _serve_checked(
        self, socket: Socket, holder: Holder, scope: Scope, receive: Receive, send: Send
    ) -> None:
        async def receive_checked() -> Message:
            while True:
                message = await receive()
                try:
                    if message["type"] != "websocket.receive" or self._check(
                        holder, message.get("text")
                    ):
                        return message
                except BadRequest as error:
                    self._log_malformed(scope)
                    socket.close(1008, f"{error.code}: {error.message}")
                    return {"type": "websocket.disconnect", "code": 1008}

        await self._application(scope, receive_checked, send)

    def _check(self, holder: Holder, text: str | None) -> bool:
        """Return whether a packet is for the library: an event may have been refused already.

        Raises:
            BadRequest: it is malformed.
        """
        if text is None:
            raise BadRequest("a packet is a text")
        packet = check_packet(text, depth=self._services.limits.depth)
        if packet.is_event:
            if holder.client is None:
                raise BadRequest("an event comes behind the connection")
            if packet.refusal is not None:
                holder.client.refuse(packet.refusal, packet.ack)
                return False
            holder.acks.append(bool(packet.ack))
        return True

    def _log_malformed(self, scope: Scope) -> None:
        logger.warning("a client of Socket.IO sent a malformed packet: %s", request_id(scope))

    # ---------------------------------------------------------------- polling
    async def poll(self, request: Request) -> ASGIApp:
        """Answer a request of a client that polls."""
        scope = request.scope
        holder = self._known_holder(scope)
        if self._services.stopping.is_set:
            raise ShuttingDown("this worker is stopping; connect again")
        if request.method == "POST":
            limits = self._services.limits
            if holder is None or holder.owner is None:
                limits = replace(limits, body_bytes=KEYLESS_BYTES)
            owner = OwnerId("") if holder is None else holder.owner or OwnerId("")
            body = await read_body(request, limits, self._services.bodies, owner)
            return partial(self._take_payload, holder, body)
        if holder is None and "sid" not in request.query_params:
            self._enter(scope)
        return self._application

    def _enter(self, scope: Scope) -> None:
        """Count a new client. Raises ServerBusy, TooManySockets."""
        holder = Holder(self, owner=known_owner(scope))
        self._services.sockets.enter(holder)
        scope[_HOLDER_KEY] = holder
        seconds = self._services.limits.key_seconds
        loop = asyncio.get_running_loop()
        holder.timer = loop.call_later(seconds, self.end_polling, holder)

    async def _take_payload(
        self, holder: Holder | None, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            packets = _decode(body).split(_SEPARATOR)
            if len(packets) > MOST_PACKETS:
                raise BadRequest(f"a payload has at most {MOST_PACKETS} packets")
            if holder is not None:
                packets = [each for each in packets if self._check(holder, each)] or [_PONG]
                body = _SEPARATOR.join(packets).encode()
        except BadRequest as error:
            self._log_malformed(scope)
            if holder is not None:
                self.end_polling(holder)
            await error_answer(scope, error)(scope, receive, send)
            return

        async def receive_body() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        sized = [(b"content-length", str(len(body)).encode())]
        headers = [each for each in scope["headers"] if each[0] != b"content-length"]
        engine = self._server.eio.sockets.get(_engine_id(scope))
        await self._application({**scope, "headers": [*headers, *sized]}, receive_body, send)
        if engine is not None and _CLOSE in packets:  # the library leaves its poll waiting
            engine.queue.put_nowait(self._packets.Packet(self._packets.NOOP))

    def _leave(self, holder: Holder) -> None:
        holder.stop_timer()
        self._services.sockets.leave(holder)

    # ---------------------------------------------------------------- the library's events
    async def _connect(self, sid: str, environ: Mapping[str, Any], auth: object = None) -> None:
        """Give a client its owner, by its token."""
        holder: Holder = environ["asgi.scope"][_HOLDER_KEY]
        engine_id: str = self._server.manager.eio_sid_from_sid(sid, "/")
        try:
            owner = self._owner_of(holder, environ["asgi.scope"], auth)
            if holder.socket is None:
                self._services.sockets.claim(holder, owner)
        except PassbackError as error:
            if holder.socket is not None:  # nobody can try many keys on one socket
                holder.socket.close(1008, f"{error.code}: the connection is refused")
            raise self._refused(error.message, refusal_data(error)) from None
        holder.owner = owner
        holder.stop_timer()
        queue: asyncio.Queue[Any] = self._server.eio.sockets[engine_id].queue
        client = SocketIoClient(self, holder, engine_id, queue)
        holder.client, holder.connection = client, Connection(self._services, self._feeds, client)
        self._clients[engine_id] = client

    def _owner_of(self, holder: Holder, scope: Scope, auth: object) -> OwnerId:
        """Return the owner of the token, or of the header of the handshake.

        Raises:
            Unauthenticated, InvalidRequest, TooManySockets: there is none.
        """
        socket = holder.socket
        known = known_owner(scope) if socket is None else socket.owner
        has_token = isinstance(auth, dict) and "token" in auth
        if known is not None and not has_token:
            return known
        given = cast("JsonValue", auth if has_token else {"token": ""})
        holder.token = validate_model(Auth, given).token
        if socket is not None:
            return socket.present_key(holder.token)
        return self._services.resolve_key(holder.token)

    async def _disconnect(self, sid: str, _reason: str = "") -> None:
        engine_id = self._server.manager.eio_sid_from_sid(sid, "/")
        self._clients.pop(engine_id, None)
        holder: Holder = self._server.environ[engine_id]["asgi.scope"][_HOLDER_KEY]
        self._leave(holder)
        connection, holder.connection = holder.connection, None
        assert connection is not None, "clients that were refused do not disconnect"
        connection.close()
        # a client that has left the main namespace, the only one, may never close its connection
        self._end(engine_id)

    async def _handle_event(self, name: str, sid: str, *given: JsonValue) -> Ack:
        environ = self._server.get_environ(sid)
        holder: Holder = environ["asgi.scope"][_HOLDER_KEY]
        wants_ack = holder.acks.popleft()
        data: JsonValue = given[0] if len(given) == 1 else list(given)
        assert holder.connection is not None
        return await holder.connection.handle(holder.owner, name, data, wants_ack=wants_ack)

    # ---------------------------------------------------------------- the end
    def _stop(self) -> None:
        """Tell all clients that the server stops, and end those that poll."""
        word = refusal(ShuttingDown("the server stops: connect again, and resume"))
        for client in self._clients.values():
            client.send(word)
        for engine_id, socket in self._server.eio.sockets.items():
            if not socket.upgraded:
                self._end(engine_id)

    def _end(self, engine_id: str) -> None:
        """End a connection. A client that polls no more is not waited for."""

        async def disconnect() -> None:
            with anyio.move_on_after(_FINAL_SECONDS):
                await self._server.eio.disconnect(engine_id)

        assert self._tasks is not None
        self._tasks.start_soon(disconnect, name=f"end of {engine_id}")


def _engine_id(scope: Scope) -> str:
    """Return the library's id of the connection that a request names; empty for none."""
    query: bytes = scope["query_string"]
    return parse_qs(query.decode("latin-1")).get("sid", [""])[0]


def _decode(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadRequest("a payload is UTF-8") from None
