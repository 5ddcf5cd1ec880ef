"""uvicorn's HTTP protocol with what it lacks: a limit on a request's head, and a way to send without a task."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from time import monotonic
from typing import Any, NamedTuple, cast

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from passback.core.errors import BadRequest, ClientError, HeadersTooLarge
from passback.transport.http import error_answer
from passback.transport.sending import BODY_CAME, SEND_NOW
from passback.transport.signal import Signal

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10.0
_LINGER_SECONDS = 2.0


class BoundedHttpProtocol(HttpToolsProtocol):
    """Refuses a head that is too large with 431, one that cannot be read with 400, both as our JSON errors.

    A connection whose head does not come in time is closed: nobody is there to read an answer.
    """

    # beside uvicorn's own they would be more than 30: the dictionary of each connection then takes 1,584 bytes, not 288
    __slots__ = ("_deadline", "_head_bytes", "_in_head", "_refused", "left", "unread_since")

    _deadline: asyncio.TimerHandle | None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.left = Signal()
        self.unread_since: float | None = None
        self._head_bytes = 0
        self._in_head = True
        self._refused = False
        self._deadline = None
        super().connection_made(transport)
        self._expect_head()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._head_has_come()
        super().connection_lost(exc)
        self.left.set()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread_since = monotonic()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread_since = None

    @override
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head or self._head_bytes == 0:  # mostly a whole request was in it
            return
        if self._head_bytes > HEAD_BYTES:
            self._refuse(HeadersTooLarge(f"the headers have more than {HEAD_BYTES} bytes"))
        elif self._deadline is None:
            self._expect_head()

    @override
    def on_headers_complete(self) -> None:
        self._head_has_come()
        super().on_headers_complete()
        extensions: dict[str, Any] = {SEND_NOW: _SendNow(self, self.cycle)}
        self.scope["extensions"] = extensions

    @override
    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope.setdefault("extensions", {})[BODY_CAME] = {}
        self._in_head, self._head_bytes = True, 0
        # a large body has paused it, and who waits for the client's leave does not ask for more of the body
        if not self.pipeline:
            self.flow.resume_reading()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest("this cannot be read as HTTP/1.1"))

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _head_has_come(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, error: ClientError) -> None:
        answer = error_answer({"type": "http", "headers": []}, error)
        status = HTTPStatus(answer.status_code)
        head = [f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii")]
        head += [b"%b: %b\r\n" % header for header in answer.raw_headers]
        self._head_has_come()
        self.transport.write(b"".join((*head, b"connection: close\r\n\r\n", answer.body)))
        # closed at once, a connection on which more arrives is reset, and the client never sees the answer
        self._refused = True
        self.transport.write_eof()
        self._deadline = self.loop.call_later(_LINGER_SECONDS, self.transport.close)


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
    def unread_since(self) -> float | None:
        return self._connection.unread_since

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
        transport = self._connection.transport
        transport.close()
        # closing waits until all was read
        self._connection.loop.call_later(_LINGER_SECONDS, transport.abort)

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
