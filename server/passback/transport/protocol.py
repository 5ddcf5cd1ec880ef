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
from passback.transport.http import error_answer
from passback.transport.sending import BODY_CAME, SEND_NOW
from passback.transport.signal import Signal

HEADERS = 100  # fields of a head
HEAD_BYTES = 64 * 1024  # of a head, and of what comes behind one without being a part of the body
HEAD_SECONDS = 10.0  # for a head, and for the rest of a request that is answered already
READ_BYTES = 1024 * 1024  # that a client reads at least in `send_seconds`, or all there is
_LINGER_SECONDS = 2.0


class OpenConnections:
    """The connections of one server: how many may be open, and which of them wait for a request.

    Only a request that is being answered keeps its place when all places are taken: whoever waits longest is closed for a
    newcomer. Requests without a valid key are answered at once, so they cannot keep out those that have one.

    Args:
        most: connections that may be open.
        send_seconds: for which a client may leave an answer unread.
    """

    __slots__ = ("_most", "send_seconds", "waiting")

    def __init__(self, most: int = 4096, send_seconds: float = 30) -> None:
        self._most = most
        self.send_seconds = send_seconds
        self.waiting: dict[BoundedHttpProtocol, None] = {}
        """A set in the order in which they began to wait."""

    def make_room(self, connections: int, /) -> bool:
        """Close the one that waits longest if there are too many `connections`. False: none waits."""
        if connections <= self._most:
            return True
        longest = next(iter(self.waiting), None)
        if longest is None:
            return False
        del self.waiting[longest]
        longest.close()
        return True


class BoundedHttpProtocol(HttpToolsProtocol):
    """Refuses a head that is too large with 431, one that cannot be read with 400, both as our JSON errors.

    A connection is closed when a head, or the rest of a request that is answered already, does not come in time: nobody is
    there to read an answer. It is aborted when an answer is not read in time.
    """

    # beside uvicorn's own they would be more than 30: the dictionary of each connection then takes 1,584 bytes, not 288
    __slots__ = (
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
        elif self._deadline is None and (in_head or self.cycle.response_complete):
            self._expect_request()

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
        self._in_head = False
        self._request_has_come()
        self._open.waiting.pop(self, None)
        super().on_headers_complete()
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
        goes_on = bool(self.pipeline)
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reading()
        elif not goes_on:
            self._open.waiting[self] = None
            if not self._in_head and self._deadline is None:
                self._expect_request()

    @override
    def timeout_keep_alive_handler(self) -> None:
        self.close()

    @override
    def send_400_response(self, msg: str) -> None:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # none before the first whole head
        if cycle is not None and not cycle.response_complete:
            if self.pipeline or cycle.response_started:
                # an answer is on its way: nothing may stand in the middle of it
                self.transport.abort()
                return
            cycle.disconnected = True  # what is written here is its answer
            cycle.message_event.set()
        self._refuse(self._fault or BadRequest("this cannot be read as HTTP/1.1"))

    @override
    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: anybody can ask for an upgrade, and gets his answer."""

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
        seconds = self._open.send_seconds
        self._unread = self.loop.call_later(seconds, self._look_at_reading, unread)

    def _stop_watching(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # ---------------------------------------------------------------- what is refused
    def _break_off_head(self, fault: ClientError) -> None:
        """Let the parser stop within a head; `send_400_response` then says why."""
        self._fault = fault
        raise ValueError(fault.code)

    def _refuse(self, error: ClientError) -> None:
        answer = error_answer({"type": "http", "headers": []}, error)
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
