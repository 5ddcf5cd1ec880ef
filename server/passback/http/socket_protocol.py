"""uvicorn's WebSocket protocol with bounds.

They are on messages, fragments, control frames, and on what a client leaves unread. Nothing is
compressed: a compressed message may be a thousand times as large as what was sent. The package
`websockets` reads and writes the frames; this module is imported only where it is installed.
"""

import asyncio
import logging
from typing import Any

from typing_extensions import override
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame
from websockets.http11 import Request

from passback.core.errors import ServerBusy
from passback.core.messages import OwnerId
from passback.http.open_sockets import SOCKET_LINK
from passback.http.protocol import LINGER_SECONDS, OpenConnections
from passback.http.wires import PartialBodies

KEYLESS_BYTES = 16 * 1024  # the largest message before the key has come
CONTROL_FRAMES = 200  # pings and pongs of a client in one second; each ping is answered
FRAGMENTS = 64  # of a message, and one more for each FRAGMENT_BYTES of it
FRAGMENT_BYTES = 256
_PIECE_BYTES = 4096  # that are parsed before the next look at the bounds
_UNCOUNTED_BYTES = 16 * 1024  # of a message that arrives

# uvicorn's own logger names the address with its query, and at DEBUG `websockets` logs every frame
_quiet_logger = logging.getLogger("uvicorn.error.sockets")
_quiet_logger.setLevel(logging.WARNING)


class BoundedSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol with bounds on what a client may send and leave unread.

    It is the `SocketLink` of its scope. A message is parsed when the application has taken the one
    before it. The application closes the WebSocket when the server stops.

    Args:
        connections: the open connections. A WebSocket gives its place to others until it has an
            owner.
        bodies: counts the messages that have arrived in part, of WebSockets that have an owner.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: OpenConnections,
        bodies: PartialBodies,
        sends_directly: bool = True,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = self.conn.logger = _quiet_logger
        self.conn.debug = False
        self.conn.max_message_size = min(KEYLESS_BYTES, config.ws_max_size)
        self.close_timeout = LINGER_SECONDS
        self._open = connections
        self._bodies = bodies
        self._sends_directly = sends_directly
        self._owner: OwnerId | None = None
        self._unparsed = bytearray()
        self._fragments = self._fragment_bytes = self._counted = 0
        self._control_frames, self._control_second = 0, 0.0
        self._abortion: asyncio.TimerHandle | None = None

    # ---------------------------------------------------------------- the application's side
    @property
    def ready(self) -> bool:
        return (
            self._sends_directly
            and self.handshake_complete
            and not self.close_sent
            and self.writable.is_set()
            and not self.transport.is_closing()
        )

    def send_now(self, content: str | bytes, /) -> None:
        if isinstance(content, bytes):
            self.conn.send_binary(content)
        else:
            self.conn.send_text(content.encode(errors="replace"))
        self.transport.write(b"".join(self.conn.data_to_send()))

    def admit(self, owner: OwnerId, /) -> None:
        self._owner = owner
        self.conn.max_message_size = self.config.ws_max_size
        self._open.waiting.pop(self, None)

    def fail(self, code: int, reason: str, /) -> None:
        if self.close_sent or self.transport.is_closing():
            return
        if not self.handshake_complete:
            self.transport.abort()
            return
        self.stop_keepalive()
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def give_way(self) -> None:
        """Close the WebSocket in favour of another connection."""
        self.fail(1013, "another connection has taken the place of this one, which had no key")
        self.transport.close()

    @override
    async def send(self, message: ASGISendEvent) -> None:
        if self.close_sent:
            raise ClientDisconnected
        await super().send(message)
        if self.close_sent:  # an HTTP answer is whole, too, which uvicorn would log as an error
            self.handshake_complete = True
        if message["type"] in {"websocket.accept", "websocket.close"}:
            self._continue_reading()

    @override
    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._continue_reading()
        return message

    # ---------------------------------------------------------------- the connection
    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._open.waiting[self] = None

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._open.waiting.pop(self, None)
        self._unparsed.clear()
        self._count_partial(0)
        if self._abortion is not None:
            self._abortion.cancel()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:  # the head, which the HTTP protocol has checked
            super().data_received(data)
            self.transport.pause_reading()  # until it is answered
            return
        if not self.conn.eof_sent:  # else it has failed, and what comes is dropped
            self._unparsed += data
            self._parse()

    @override
    def shutdown(self) -> None:
        """Do nothing: the application closes the WebSocket when it has said the last word."""

    @override
    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        if not self.disconnected:  # the client has so long to read the rest
            seconds = self.close_timeout + LINGER_SECONDS
            self._abortion = self.loop.call_later(seconds, self.transport.abort)

    @override
    def keepalive_timeout(self) -> None:
        self.pong_timer = self.pending_ping_payload = None
        if self.read_paused:  # the pong may wait here, behind a message
            self.schedule_ping()
        else:
            self.fail(1011, "the client does not answer pings")

    @property
    def _takes_frames(self) -> bool:
        is_open = self.handshake_complete and not self.transport.is_closing()
        return is_open and not self.read_paused

    def _continue_reading(self) -> None:
        self._parse()
        if self._takes_frames:
            self.transport.resume_reading()

    def _parse(self) -> None:
        """Parse what has arrived, up to the first message that the application has to take."""
        while self._unparsed and self._takes_frames:
            piece = bytes(self._unparsed[:_PIECE_BYTES])
            del self._unparsed[:_PIECE_BYTES]
            super().data_received(piece)
        if self._owner is not None:
            self._count_partial(self._fragment_bytes + len(self.conn.reader.buffer))

    def _count_partial(self, size: int) -> None:
        """Count the bytes of a message that has arrived in part, if they are many."""
        more = (size if size > _UNCOUNTED_BYTES else 0) - self._counted
        if more == 0 or self._owner is None:
            return
        if more < 0:
            self._bodies.release(self._owner, -more)
        else:
            try:
                self._bodies.take(self._owner, more)
            except ServerBusy:
                self.fail(1013, "too many messages are arriving at once; send this one later")
                return
        self._counted += more

    # ---------------------------------------------------------------- frames
    @override
    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        scope: Any = self.scope
        scope["extensions"][SOCKET_LINK] = self

    @override
    def handle_cont(self, event: Frame) -> None:
        self._count_fragment(event)
        super().handle_cont(event)

    @override
    def handle_text(self, event: Frame) -> None:
        self._count_fragment(event)
        super().handle_text(event)

    @override
    def handle_bytes(self, event: Frame) -> None:
        self._count_fragment(event)
        super().handle_bytes(event)

    @override
    def handle_ping(self) -> None:
        self._count_control_frame()
        if not self.conn.eof_sent:
            super().handle_ping()

    @override
    def handle_pong(self, event: Frame) -> None:
        self._count_control_frame()
        super().handle_pong(event)

    @override
    def send_receive_event_to_app(self) -> None:
        # uvicorn's own version logs an error for a text that is not UTF-8
        content, self.frames = b"".join(self.frames), []
        self._fragments = self._fragment_bytes = 0
        if self.close_sent:
            return
        if self.curr_msg_data_type == "text":
            try:
                text = content.decode()
            except UnicodeDecodeError:
                self.fail(1007, "the text of a message is not UTF-8")
                return
            self.queue.put_nowait({"type": "websocket.receive", "text": text})
        else:
            self.queue.put_nowait({"type": "websocket.receive", "bytes": content})
        self.read_paused = True
        self.transport.pause_reading()

    @override
    def handle_parser_exception(self) -> None:
        if self.close_sent:
            return
        close = self.conn.close_sent
        assert close is not None
        ended: ASGIReceiveEvent = {
            "type": "websocket.disconnect",
            "code": close.code,
            "reason": close.reason,
        }
        self.queue.put_nowait(ended)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._unparsed.clear()
        # A connection that is closed at once is reset when more arrives, and the client never sees
        # the close frame. uvicorn leaves a connection with this timer open.
        self.transport.write_eof()
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _count_fragment(self, event: Frame) -> None:
        self._fragments += 1
        self._fragment_bytes += len(event.data)
        if self._fragments > FRAGMENTS + self._fragment_bytes // FRAGMENT_BYTES:
            self.fail(1008, "a message comes in too many small fragments")

    def _count_control_frame(self) -> None:
        now = self.loop.time()
        if now - self._control_second > 1:
            self._control_frames, self._control_second = 0, now
        self._control_frames += 1
        if self._control_frames > CONTROL_FRAMES:
            self.fail(1008, "too many pings or pongs in one second")
