"""uvicorn's HTTP protocol with what it lacks: bounds on connections, heads, trailers and unread answers, and a way to send
without a task.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple, cast

from typing_extensions import override
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from passback.core.errors import BadRequest, ClientError, HeadersTooLarge
from passback.http.access_log import log_unread
from passback.http.answers import error_answer
from passback.http.sending import BODY_CAME, SEND_NOW, Signal

HEADERS = 100  # fields of a head
HEAD_BYTES = 64 * 1024  # of a head, and of what comes behind one without being a part of the body
HEAD_SECONDS = 10.0  # for a head, and for the rest of a request that is answered already
READ_BYTES = 1024 * 1024  # that a client reads at least in `send_seconds`, or all there is
# of answers on all connections together that their clients have not read
UNREAD_BYTES = 256 * 1024 * 1024
PIPELINED = 64  # requests on a connection that wait for the answer to the one before them
_LINGER_SECONDS = 2.0


class OpenConnections:
    """The connections of one server: how many may be open, which of them wait for a request, and whose answers are not read.

    When all places are taken, a newcomer gets that of the connection that has waited longest for a request, else of the one
    whose answer has been unread longest. Requests without a valid key are answered at once: who has none can keep a place
    only in these two ways, and so cannot keep out those who have one.

    Args:
        most: connections that may be open.
        send_seconds: for which a client may leave an answer unread.
    """

    __slots__ = ("_most", "_unread", "_unread_bytes", "send_seconds", "waiting")

    def __init__(self, most: int = 4096, send_seconds: float = 30) -> None:
        self._most = most
        self._unread: dict[BoundedHttpProtocol, int] = {}
        self._unread_bytes = 0
        self.send_seconds = send_seconds
        self.waiting: dict[BoundedHttpProtocol, None] = {}
        """A set in the order in which they began to wait."""

    def make_room(self, connections: int, /) -> bool:
        """Close one connection if there are too many. False: all are being answered."""
        if connections <= self._most:
            return True
        longest = next(iter(self.waiting), None) or next(iter(self._unread), None)
        if longest is None:
            return False
        self.waiting.pop(longest, None)
        longest.give_way()
        return True

    def note_unread(self, connection: "BoundedHttpProtocol", size: int, /) -> None:
        """Count what a client has not read; those that have not read for longest are dropped if it is too much."""
        self._unread_bytes += size - self._unread.get(connection, 0)
        self._unread[connection] = size
        while self._unread_bytes > UNREAD_BYTES and len(self._unread) > 1:
            next(iter(self._unread)).give_way()

    def forget_unread(self, connection: "BoundedHttpProtocol", /) -> None:
        self._unread_bytes -= self._unread.pop(connection, 0)


class BoundedHttpProtocol(HttpToolsProtocol):
    """Refuses a head that is too large with 431, one that cannot be read with 400, both as our JSON errors.

    A connection is closed when a head, or the rest of a request that is answered already, does not come in time: nobody is
    there to read an answer. It is aborted when an answer is not read in time.
    """

    # beside uvicorn's own they would be more than 30: the dictionary of each connection then takes 1,584 bytes, not 288
    __slots__ = (
        "_answering",
        "_beside",
        "_deadline",
        "_fault",
        "_head_bytes",
        "_in_head",
        "_open",
        "_refused",
        "_unread",
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
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._open = connections or OpenConnections()

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.left = Signal()
        self._head_bytes = self._beside = 0
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
        self._expect_request()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._open.waiting.pop(self, None)
        self._request_has_come()
        self._stop_watching()
        if self._answering is not None and not self._answering.response_complete:
            # uvicorn tells only the request that came last
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
        # one that is closing still waits until the rest is read
        if not self.transport.is_closing():
            self._stop_watching()

    @override
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
        else:
            self._beside += len(data)
            # what this read brings may be a part of the body
            if self._beside > HEAD_BYTES + len(data):
                self.transport.abort()
                return
        super().data_received(data)
        if self._refused:
            return
        in_head = self._in_head and self._head_bytes > 0
        if in_head and self._head_bytes > HEAD_BYTES:
            self._refuse(_head_too_large())
        elif self._deadline is None and self._answering is None:
            self._expect_request()

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        # one read may bring a whole request and the beginning of the next
        self._head_bytes = self._head_bytes or 1

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer: it must not pass for a field of the head (RFC 9110, section 6.5.1)
        super().on_header(name, value)
        if len(self.headers) > HEADERS:
            self._break_off_head(
                HeadersTooLarge(f"the request has more than {HEADERS} header fields")
            )
        if self.headers[-1][0] == b"transfer-encoding" and value.lower() != b"chunked":
            self._break_off_head(BadRequest("the only transfer coding that is taken is chunked"))

    @override
    def on_headers_complete(self) -> None:
        # one read may bring a whole head that is too large, or a small one with a part of the body
        if self._head_bytes > HEAD_BYTES:
            fields = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if len(self.url) + fields > HEAD_BYTES:
                self._break_off_head(_head_too_large())
        if len(self.pipeline) >= PIPELINED:
            self._break_off_head(BadRequest("too many requests wait on this connection"))
        self._in_head = False
        self._request_has_come()
        self._open.waiting.pop(self, None)
        super().on_headers_complete()
        if not self.pipeline:
            self._answering = self.cycle
        extensions: dict[str, Any] = {SEND_NOW: _SendNow(self, self.cycle)}
        self.scope["extensions"] = extensions

    @override
    def on_body(self, body: bytes) -> None:
        self._beside = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope.setdefault("extensions", {})[BODY_CAME] = {}
        self._in_head, self._head_bytes, self._beside = True, 0, 0
        # a large body has paused it, and who waits for the client's leave does not ask for more of the body
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
                self._expect_request()
        elif self.pipeline:
            self.flow.pause_reading()  # each answer would let in as many requests as one read brings

    @override
    def timeout_keep_alive_handler(self) -> None:
        self.close()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse(self._fault or BadRequest("this cannot be read as HTTP/1.1"))

    @override
    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: anybody can ask for an upgrade, and gets his answer."""

    def give_way(self) -> None:
        """Close the connection for another one: at once where something is unread, or it would keep its place for that."""
        self._stop_watching()
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def close(self) -> None:
        """Close the connection behind what was written to it, which the client has to read in time."""
        self.transport.close()
        self._watch_reading()

    def _expect_request(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.close)

    def _request_has_come(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # ---------------------------------------------------------------- what is not read
    def _watch_reading(self) -> None:
        if self._unread is None:
            self._look_at_reading(self.transport.get_write_buffer_size() + READ_BYTES)

    def _look_at_reading(self, before: int) -> None:
        """Abort a connection whose client has not read enough since its buffer held `before` bytes."""
        unread = self.transport.get_write_buffer_size()
        if before - unread < READ_BYTES:
            self.transport.abort()
            return
        self._open.note_unread(self, unread)
        seconds = self._open.send_seconds
        self._unread = self.loop.call_later(seconds, self._look_at_reading, unread)

    def _stop_watching(self) -> None:
        self._open.forget_unread(self)
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # ---------------------------------------------------------------- what is refused
    def _break_off_head(self, fault: ClientError) -> None:
        """Let the parser stop within a head; `_refuse` then says why."""
        self._fault = fault
        raise ValueError(fault.code)

    def _refuse(self, error: ClientError) -> None:
        """Answer what is no request, and close; nothing is written into an answer that is on its way."""
        if self._answering is not None:
            if self.pipeline or self._answering.response_started:
                self.transport.abort()
                return
            self._answering.disconnected = True  # what is written here is its answer
            self._answering.message_event.set()
        scope: dict[str, Any] = {"type": "http", "headers": []}
        answer = error_answer(scope, error)
        log_unread(scope, answer.status_code)
        status = HTTPStatus(answer.status_code)
        head = [f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii")]
        head += [b"%b: %b\r\n" % header for header in answer.raw_headers]
        self._request_has_come()
        self.transport.write(b"".join((*head, b"connection: close\r\n\r\n", answer.body)))
        # closed at once, a connection on which more arrives is reset, and the client never sees the answer
        self._refused = True
        self.transport.write_eof()
        self._deadline = self.loop.call_later(_LINGER_SECONDS, self.close)


def _head_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"the headers have more than {HEAD_BYTES} bytes")


class _SendNow:
    """`SendNow` for one response of uvicorn's: its own sending, less what a message pays for being of any kind."""

    def __init__(self, connection: BoundedHttpProtocol, cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle
        self._write = cycle.transport.write

    @property
    def ready(self) -> bool:
        cycle = self._cycle
        return bool(cycle.chunked_encoding) and not (cycle.flow.write_paused or cycle.disconnected)

    @property
    def left(self) -> Signal:
        return self._connection.left

    async def begin(self, head: Awaitable[None], chunk: bytes, /) -> None:
        # to send a head, uvicorn asks a transport for nothing but `write`
        cycle, transport = self._cycle, self._cycle.transport
        gathered: list[bytes] = []
        cycle.transport = cast("asyncio.Transport", _Gathering(gathered.append))
        try:
            await head
        finally:
            cycle.transport = transport
        if gathered:  # else the client has left
            assert cycle.chunked_encoding
            self._write(b"".join((*gathered, _framed(chunk))))

    def break_off(self) -> None:
        self._cycle.disconnected = (
            True  # else uvicorn takes the missing end for a fault, and logs it
        )
        self._connection.close()
        # a server that stops does not wait until all was read
        self._connection.loop.call_later(_LINGER_SECONDS, self._connection.transport.abort)

    def drop(self) -> None:
        self._connection.transport.abort()

    def send(self, chunk: bytes, /) -> None:
        self._write(_framed(chunk))


class _Gathering(NamedTuple):
    """Stands in for a transport while what is written is not to go out yet."""

    write: Callable[[bytes], None]


def _framed(chunk: bytes) -> bytes:
    """In the chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(chunk), chunk)
