"""uvicorn's HTTP protocol with bounds.

They are on connections, heads, trailers, pipelined requests and unread answers.
"""

import asyncio
import re
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

import httptools
from typing_extensions import override
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from passback.core.errors import BadRequest, ClientError, HeadersTooLarge
from passback.core.signals import Signal
from passback.hotpath.sending import SEND_NOW, DirectSending
from passback.http.access_log import log_unread
from passback.http.answers import error_answer
from passback.http.body import BODY_RECEIVED
from passback.http.requests import Headers

HEADERS = 100  # fields in a head
HEAD_BYTES = 64 * 1024  # in a head, and in what follows one and is no part of the body
HEAD_SECONDS = 10.0  # for a head, and for the rest of a request that was answered already
READ_BYTES = 1024 * 1024  # to be read by a client per `send_seconds`, unless fewer are unread
UNREAD_BYTES = 256 * 1024 * 1024  # not read by their clients, on all connections together
PIPELINED = 64  # requests of a connection that wait for the answer to the one before them
_TOKENS = re.compile(r"[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
# 16 bytes in base64
_SOCKET_KEY = re.compile(r"[A-Za-z0-9+/]{21}[AQgw]==")
_SOCKET_LINE_BYTES = 8000  # of the handshake of a WebSocket; the package that reads it takes 8192
LINGER_SECONDS = 2.0  # in which a client can read a refusal or the end of an answer


class Connection(Protocol):
    """An open connection, as `OpenConnections` knows it."""

    def give_way(self) -> None:
        """Close it in favour of another one."""
        ...


class OpenConnections:
    """The open connections of one server, which of them are idle, and whose answers are unread.

    When `most` are open, a new one replaces the connection that has waited longest for a request
    or, as a WebSocket, for a key, else the one whose answer has been unread longest. Requests
    without a valid key are answered at once, so a client without a key can hold a connection only
    in these ways: it cannot keep out clients that have one.

    Args:
        most: connections that may be open.
        send_seconds: time for which a client may leave an answer unread.
    """

    __slots__ = ("_most", "_unread", "_unread_bytes", "send_seconds", "waiting")

    def __init__(self, most: int = 4096, send_seconds: float = 30) -> None:
        self._most = most
        self._unread: dict[BoundedHttpProtocol, int] = {}
        self._unread_bytes = 0
        self.send_seconds = send_seconds
        # a set, in the order in which they began to wait
        self.waiting: dict[Connection, None] = {}

    def make_room(self, connections: int, /) -> bool:
        """Close one connection if there are too many. Return False if all are being answered."""
        if connections <= self._most:
            return True
        longest: Connection | None = next(iter(self.waiting), None)
        longest = longest or next(iter(self._unread), None)
        if longest is None:
            return False
        self.waiting.pop(longest, None)
        longest.give_way()
        return True

    def note_unread(self, connection: "BoundedHttpProtocol", size: int, /) -> None:
        """Count the bytes that a client has not read.

        If all clients together leave too many unread, close those that have not read for longest.
        """
        self._unread_bytes += size - self._unread.get(connection, 0)
        self._unread[connection] = size
        while self._unread_bytes > UNREAD_BYTES and len(self._unread) > 1:
            next(iter(self._unread)).give_way()

    def forget_unread(self, connection: "BoundedHttpProtocol", /) -> None:
        self._unread_bytes -= self._unread.pop(connection, 0)


class BoundedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds on what a client may send and leave unread.

    A head that is too large is refused with 431, a malformed one with 400, both as our JSON
    errors. A connection is closed when a head, or the rest of a request that was answered already,
    does not arrive in time, because nobody is there to read an answer. It is aborted when an
    answer is not read in time.
    """

    # Slots, because these and uvicorn's own attributes are more than 30: the dictionary of each
    # connection would take 1,584 bytes instead of 288.
    __slots__ = (
        "_answering",
        "_deadline",
        "_fault",
        "_head_bytes",
        "_in_head",
        "_open",
        "_overhead_bytes",
        "_refused",
        "_sends_directly",
        "_takes_socket",
        "_unread",
        "_upgrade_end",
        "_upgrades",
        "left",
    )

    _deadline: asyncio.TimerHandle | None
    _unread: asyncio.TimerHandle | None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: OpenConnections | None = None,
        sends_directly: bool = True,
        takes_socket: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._takes_socket = takes_socket
        self._upgrades = False
        self._upgrade_end: int | None = None
        self._open = connections or OpenConnections()
        self._sends_directly = sends_directly

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.left = Signal()
        self._head_bytes = self._overhead_bytes = 0
        self._in_head = True
        self._refused = False
        self._fault: ClientError | None = None
        self._answering: RequestResponseCycle | None = None
        self._deadline = self._unread = None
        super().connection_made(transport)
        if not self._open.make_room(len(self.connections)):
            transport.abort()
            return
        self._open.waiting[self] = None
        self._start_deadline()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._open.waiting.pop(self, None)
        self._stop_deadline()
        self._stop_watching()
        if self._answering is not None and not self._answering.response_complete:
            # uvicorn only informs the request that came last
            self._answering.disconnected = True
            self._answering.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        self.left.set()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        # a closing connection still waits until the rest is read
        if not self.transport.is_closing():
            self._stop_watching()

    @override
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
        else:
            self._overhead_bytes += len(data)
            # the bytes of this read may be a part of the body
            if self._overhead_bytes > HEAD_BYTES + len(data):
                self.transport.abort()
                return
        super().data_received(data)
        if self._upgrade_end is not None:
            if behind := data[self._upgrade_end :]:  # frames that did not wait for the answer
                protocol: Any = self.transport.get_protocol()
                protocol.data_received(behind)
        elif not self._refused:
            self._check_head()

    def _check_head(self) -> None:
        """Refuse a head that is too large, or start the time for the rest of it."""
        in_head = self._in_head and self._head_bytes > 0
        if in_head and self._head_bytes > HEAD_BYTES:
            self._refuse_request(_head_too_large())
        elif self._deadline is None and self._answering is None:
            self._start_deadline()

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        # one read may bring a whole request and the beginning of the next
        self._head_bytes = self._head_bytes or 1

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer: it must not act as a field of the head (RFC 9110, section 6.5.1)
        super().on_header(name, value)
        if len(self.headers) > HEADERS:
            self._break_off_head(
                HeadersTooLarge(f"the request has more than {HEADERS} header fields")
            )
        if self.headers[-1][0] == b"transfer-encoding" and value.lower() != b"chunked":
            # nothing behind us decodes another one
            self._break_off_head(BadRequest("the only supported transfer coding is chunked"))

    @override
    def on_headers_complete(self) -> None:
        # the bytes of this read may be a head that is too large, or a small one and some body
        if self._head_bytes > HEAD_BYTES:
            fields = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if len(self.url) + fields > HEAD_BYTES:
                self._break_off_head(_head_too_large())
        if len(self.pipeline) >= PIPELINED:
            self._break_off_head(BadRequest("too many requests wait on this connection"))
        self._in_head = False
        self._stop_deadline()
        self._open.waiting.pop(self, None)
        self._upgrades = self._takes_socket is not None and self._is_handshake(self._takes_socket)
        super().on_headers_complete()
        if self._upgrades:
            return
        if not self.pipeline:
            self._answering = self.cycle
        if self._sends_directly:
            extensions: dict[str, Any] = {SEND_NOW: DirectSending(self, self.cycle)}
            self.scope["extensions"] = extensions

    @override
    def on_body(self, body: bytes) -> None:
        self._overhead_bytes = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope.setdefault("extensions", {})[BODY_RECEIVED] = {}
        self._in_head, self._head_bytes, self._overhead_bytes = True, 0, 0
        # A large body has paused reading. A task that waits for the client to disconnect does not
        # ask for more of the body, so nothing else would resume it.
        if not self.pipeline:
            self.flow.resume_reading()

    @override
    def on_response_complete(self) -> None:
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reading()
        elif self._answering is None:
            self._open.waiting[self] = None
            if self._deadline is None and (not self._in_head or self._head_bytes):
                self._start_deadline()
        elif self.pipeline:
            # otherwise each answer would let in as many requests as one read brings
            self.flow.pause_reading()

    @override
    def timeout_keep_alive_handler(self) -> None:
        self.close()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse_request(self._fault or BadRequest("the request is not valid HTTP/1.1"))

    @override
    def _should_upgrade(self) -> bool:
        return self._upgrades

    def _is_handshake(self, takes_socket: Callable[[str], bool]) -> bool:
        """Return whether a head is the valid handshake of a WebSocket (RFC 6455, section 4.2.1).

        A request that is not is answered as if it asked for no upgrade, which HTTP allows.
        """
        if not self.parser.should_upgrade() or self._answering is not None:
            return False
        fields = Headers(self.headers)
        options = ",".join(fields.all.get(b"connection", ())).lower()
        protocols = fields.all.get(b"sec-websocket-protocol", ())
        keys = fields.all.get(b"sec-websocket-key", ())
        is_valid = (
            (self.parser.get_method(), self.parser.get_http_version()) == (b"GET", "1.1")
            and [each.lower() for each in fields.all.get(b"upgrade", ())] == ["websocket"]
            and "upgrade" in {each.strip(" \t") for each in options.split(",")}
            and all(_TOKENS.fullmatch(each) for each in (options, *protocols))
            and fields.all.get(b"sec-websocket-version") == ["13"]
            and len(keys) == 1
            and len(fields.all.get(b"origin", ())) <= 1
            and _SOCKET_KEY.fullmatch(keys[0]) is not None
            and fields.all.keys().isdisjoint({b"content-length", b"transfer-encoding"})
        )
        if not (is_valid and takes_socket(httptools.parse_url(self.url).path.decode("latin-1"))):
            return False
        if max(len(self.url), *(len(n) + len(v) for n, v in self.headers)) > _SOCKET_LINE_BYTES:
            line = f"a line of the handshake has more than {_SOCKET_LINE_BYTES} bytes"
            self._break_off_head(HeadersTooLarge(line))
        return True

    @override
    def handle_websocket_upgrade(self) -> None:
        upgrade = sys.exception()
        assert isinstance(upgrade, httptools.HttpParserUpgrade)
        self._upgrade_end = upgrade.args[0]
        self._stop_watching()
        self._unset_keepalive_if_required()
        super().handle_websocket_upgrade()
        # the parser refers to this object: both would stay until the collector looks for cycles
        none: Any = None
        self.parser = none

    @override
    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: anybody can ask for an upgrade, and gets an ordinary answer."""

    def give_way(self) -> None:
        """Close the connection in favour of another one."""
        self._stop_watching()
        # `close` would hold the connection until all is read
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def close(self) -> None:
        """Close the connection when the client has read all of it, or does not read in time."""
        self.transport.close()
        self._watch_reading()

    def break_off(self) -> None:
        """Close the connection behind what was sent, without waiting long for its reader."""
        self.close()
        # a server that stops does not wait until all is read
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.close)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _watch_reading(self) -> None:
        if self._unread is None:
            self._check_reading(self.transport.get_write_buffer_size() + READ_BYTES)

    def _check_reading(self, before: int) -> None:
        """Abort the connection if too little was read since its buffer held `before` bytes."""
        unread = self.transport.get_write_buffer_size()
        if before - unread < READ_BYTES:
            self.transport.abort()
            return
        self._open.note_unread(self, unread)
        seconds = self._open.send_seconds
        self._unread = self.loop.call_later(seconds, self._check_reading, unread)

    def _stop_watching(self) -> None:
        self._open.forget_unread(self)
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _break_off_head(self, fault: ClientError) -> None:
        """Make the parser stop within a head. `send_400_response` then answers with `fault`."""
        self._fault = fault
        raise ValueError(fault.code)

    def _refuse_request(self, error: ClientError) -> None:
        """Answer a request that could not be read with an error, and close the connection."""
        if self._answering is not None:
            # nothing may be written into an answer that has begun
            if self.pipeline or self._answering.response_started:
                self.transport.abort()
                return
            self._answering.disconnected = True  # it gets the error for its answer
            self._answering.message_event.set()
        scope: dict[str, Any] = {"type": "http", "headers": []}
        answer = error_answer(scope, error)
        log_unread(scope, answer.status_code)
        status = HTTPStatus(answer.status_code)
        head = [f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii")]
        head += [b"%b: %b\r\n" % header for header in answer.raw_headers]
        self._stop_deadline()
        self.transport.write(b"".join((*head, b"connection: close\r\n\r\n", answer.body)))
        # A connection that is closed at once is reset when more arrives, and the client never sees
        # the answer.
        self._refused = True
        self.transport.write_eof()
        self._deadline = self.loop.call_later(LINGER_SECONDS, self.close)


def _head_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"the headers have more than {HEAD_BYTES} bytes")
