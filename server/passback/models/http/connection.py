"""A connection of HTTP/1.1, and the answers that come on it.

The way of a byte is short: the event loop hands what it read to the connection, the parser (llhttp, in C) cuts it up,
and the answer's iterator gives all that has gathered since it was last asked. No timer is set for a read: one timer
looks, whenever it rings, since when the present wait lasts. Which connection serves whom is not known here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import cast

import httptools
import httpx
from typing_extensions import override

MAX_HEAD = 64 * 1024
"""Bytes of an answer's head; also of all else between two pieces of its body."""

MAX_UNREAD = 256 * 1024
"""Bytes of a body that wait for their reader before the other side has to."""

_SWITCHING, _FINAL = 101, 200

_SLACK = 0.001
"""Seconds that a timeout may come early: the resolution of timers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds to wait before it is an error; None: without an end."""

    connect: float | None = None
    read: float | None = None
    write: float | None = None
    pool: float | None = None


class Connection(asyncio.Protocol):
    """One socket with at most one request at a time.

    Args:
        lost: told once, when the connection has ended for whatever reason.
    """

    _transport: asyncio.Transport

    def __init__(self, lost: "Callable[[Connection], object]") -> None:
        self._lost = lost
        self._answer: Answer | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._paused = False
        self.closed = False
        self.writing = False
        """Whether the other side has yet to take a large part of the request."""

    @property
    def usable(self) -> bool:
        """Whether all was sent and neither side is closing: another request may follow a whole answer."""
        return not self._transport.is_closing() and not self._transport.get_write_buffer_size()

    def ask(self, request: bytes, patience: Patience) -> "Answer":
        """Send a request; what comes from now on is its answer."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self.resume()
        self._answer = answer = Answer(self, patience)
        if self._transport.is_closing():
            answer.cut(None)
        else:
            self._transport.write(request)
        return answer

    def rest(self, seconds: float) -> None:
        """Wait that long for the next request, then close."""
        self._answer = None
        self._expiry = asyncio.get_running_loop().call_later(seconds, self.close)

    def end(self) -> None:
        """Close at once, and let the reader know."""
        if self._answer is not None:
            self._answer.fail(httpx.ReadError("the connection was closed on this side"))
        self.close()

    def close(self) -> None:
        """Close at once; an answer hears nothing more."""
        self._answer = None
        self._paused = False
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._transport.abort()

    def pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    # ---------------------------------------------------------------- from the event loop
    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nobody asked
            self.close()
        else:
            self._answer.feed(data)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None:
            self._answer.cut(exc)
        self.close()
        self.closed = True
        self._lost(self)

    @override
    def pause_writing(self) -> None:
        self.writing = True

    @override
    def resume_writing(self) -> None:
        self.writing = False
        if self._answer is not None:
            self._answer.written()


class Answer(httpx.AsyncByteStream):
    """One response, and the iterator over its body: each step gives all that has come, as it was sent.

    The iterator raises `httpx.ReadTimeout` when its reader waits for too long, `httpx.RemoteProtocolError` when the
    answer is cut or is not HTTP, and `httpx.ReadError` when the connection fails. What came before is given first.
    """

    def __init__(self, connection: Connection, patience: Patience) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.begun = False
        """Whether a byte has come."""
        self.on_close: Callable[[], object] | None = None
        """Called once, when the reader has no more need of the connection."""
        self.offer: Callable[[bytes], bool] | None = None
        """Asked, while the reader waits, whether what has come is taken in its place: that costs no task's turn."""
        self._connection = connection
        self._patience = patience
        self._parser = httptools.HttpResponseParser(self)
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._unread = 0
        self._overhead = 0
        self._complete = self._keep = self._closed = self._ends_with_connection = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all of it has come and was read."""
        return self._complete and not self._parts

    @property
    def reusable(self) -> bool:
        """Whether the connection may carry another request: this answer is whole, and nothing came after it."""
        return self._complete and self._keep and self._connection.usable

    async def head(self) -> None:
        """Wait for the status and the headers. The connection is closed when this fails or is cancelled.

        Raises:
            httpx.TransportError: no answer, or none that can be understood.
        """
        has_come = False
        try:
            while not self.status:
                if self._error is not None:
                    raise self._error
                await self._wait()
            has_come = True
        finally:
            if not has_come:
                self.close()

    # ---------------------------------------------------------------- reading
    @override
    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._complete:
                raise StopAsyncIteration
            await self._wait()
        data = b"".join(self._parts)
        self._parts.clear()
        self._unread = 0
        self._connection.resume()
        return data

    @override
    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def close(self) -> None:
        """Stop reading: the connection is free for others when the answer is whole, else closed."""
        if self._closed:
            return
        self._closed = True
        del self._parser  # it refers back to this answer
        self.offer = None
        self._stop_timer()
        self._parts.clear()
        if not self._complete:
            self._error = self._error or httpx.StreamClosed()
        if not self.reusable:
            self._connection.close()
        if self.on_close is not None:
            self.on_close()

    async def _wait(self) -> None:
        limit = self._limit
        self._waiter = self._loop.create_future()
        self._since = self._loop.time()
        if self._timer is None and limit is not None:
            self._timer = self._loop.call_later(limit, self._ring)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---------------------------------------------------------------- time
    @property
    def _limit(self) -> float | None:
        return self._patience.write if self._connection.writing else self._patience.read

    def _ring(self) -> None:
        """The timer of the first wait: ends the present wait, or rings again when that one's time is over."""
        self._timer = None
        limit = self._limit
        if self._waiter is None or limit is None:
            return  # the next wait sets a timer
        left = self._since + limit - self._loop.time()
        if left > _SLACK:
            self._timer = self._loop.call_later(left, self._ring)
        elif self._connection.writing:
            self.fail(httpx.WriteTimeout("the request is not taken"))
        else:
            self.fail(httpx.ReadTimeout("nothing comes"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---------------------------------------------------------------- from the connection
    def feed(self, data: bytes) -> None:
        self.begun = True
        before = self._unread
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(httpx.RemoteProtocolError("the answer is not HTTP"), error)
            return
        if self._unread > before:
            self._overhead = 0
            if self._is_taken():
                return
            if self._unread > MAX_UNREAD:
                self._connection.pause()
            self._wake()
            return
        self._overhead += len(data)
        if self._overhead > MAX_HEAD:
            self.fail(httpx.RemoteProtocolError("the answer has too much beside its body"))

    def _is_taken(self) -> bool:
        """Whether somebody has taken what has come."""
        if self.offer is None or self._waiter is None or self._waiter.done():
            return False
        if not self.offer(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)):
            return False
        self._parts.clear()
        self._unread = 0
        self._since = self._loop.time()
        return True

    def written(self) -> None:
        """The other side has taken the request: from now on the time for reading counts."""
        self._stop_timer()
        self._wake()

    def cut(self, cause: Exception | None) -> None:
        """The connection has ended, by an error or by the other side's will."""
        if cause is not None:
            self.fail(httpx.ReadError("the connection failed"), cause)
        elif self.status and self._ends_with_connection:
            self._complete = True
            self._wake()
        else:
            self.fail(httpx.RemoteProtocolError("the answer was cut"))

    def fail(self, error: Exception, cause: Exception | None = None) -> None:
        self._connection.close()
        if not self._complete and self._error is None:
            error.__cause__ = cause
            self._error = error
            self._wake()

    # ---------------------------------------------------------------- from the parser, which stops at what they raise
    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("an answer that nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else it stands behind the body
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD:
            raise ValueError("the head is too long")
        if status == _SWITCHING:
            raise ValueError("another protocol, which nobody asked for")
        if status < _FINAL:  # the answer itself is still to come
            self.headers.clear()
            return
        self.status = status
        self._ends_with_connection = _ends_with_the_connection(self.headers)
        self._wake()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._unread += len(body)

    def on_message_complete(self) -> None:
        if self.status:
            self._complete = True
            self._keep = self._parser.should_keep_alive()
            self._stop_timer()
            self._wake()


def _ends_with_the_connection(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether nothing else says where the body ends."""
    for name, value in headers:
        match name.lower():
            case b"content-length":
                return False
            case b"transfer-encoding":
                return not value.lower().rstrip().endswith(b"chunked")
            case _:
                pass
    return True
