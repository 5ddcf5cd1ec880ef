"""How requests reach the service: HTTP/1.1 behind httpx's interface, over connections that are kept.

Reading 40 paced streams costs 38 ms of CPU per 1,000 reads; through aiohttp it was 53, through httpx's own transport
127. What those can do beyond this (proxies, HTTP/2, uploads in pieces) is not needed here. Nothing is taken from the
environment.
"""

import asyncio
import re
import ssl
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import anyio
import httpx
from typing_extensions import override

from passback.core.values import value
from passback.models.http.connection import Answer, Connection, Patience

MAX_CONNECTIONS = 10_000
"""Answers that are read at once; more wait for a free connection."""

KEEP_ALIVE = 30.0
"""Seconds for which an idle connection is kept."""

_CLOSING = 5.0

_METHOD = re.compile(r"(?!HEAD$|CONNECT$)[A-Z]+")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\0\r\n]*\r\n")


@value
class Origin:
    """Where connections go to."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: httpx.URL) -> "Origin":
        if url.scheme not in {"http", "https"} or not url.host:
            raise httpx.UnsupportedProtocol("an address must begin with http:// or https://")
        tls = url.scheme == "https"
        return cls(url.raw_host.decode("ascii"), url.port or (443 if tls else 80), tls)


class Transport(httpx.AsyncBaseTransport):
    """A pool of connections. A request is a whole one (no `HEAD`), and its response must be closed.

    While several answers are read at once, one idle connection is kept ready for the next: to open it then, and to
    agree on TLS, would delay the answer's first byte.

    Args:
        ssl_context: whom to trust; without it certifi's authorities.
        max_connections: at most, busy and idle ones together.
        keep_alive: seconds for which an idle connection is kept.
    """

    def __init__(
        self,
        ssl_context: ssl.SSLContext | None = None,
        *,
        max_connections: int = MAX_CONNECTIONS,
        keep_alive: float = KEEP_ALIVE,
    ) -> None:
        self._ssl_context = ssl_context or _trusting()
        self._max_connections = max_connections
        self._keep_alive = keep_alive
        self._slots = anyio.Semaphore(max_connections, fast_acquire=True)
        self._open: set[Connection] = set()
        self._idle: defaultdict[Origin, dict[Connection, None]] = defaultdict(dict)
        self._spares: dict[Origin, asyncio.Task[None]] = {}
        self._emptied: anyio.Event | None = None

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and wait for the head of its answer.

        Raises:
            httpx.LocalProtocolError: a request that cannot be sent as it is.
            httpx.TransportError: no answer.
        """
        origin = Origin.of(request.url)
        message = await _written(request)
        patience = Patience(**request.extensions.get("timeout", {}))
        answer = await self.ask(origin, message, patience)
        return httpx.Response(answer.status, headers=answer.headers, stream=answer)

    async def ask(self, origin: Origin, message: bytes, patience: Patience, /) -> Answer:
        """Send a request as it goes over the wire, see `head_of`, and wait for the head of its answer, which must be closed.

        Raises:
            httpx.TransportError: no answer.
        """
        await self._take_slot(patience.pool)
        answered = False
        try:
            answer = await self._ask(origin, message, patience)
            answered = True
        finally:
            if not answered:
                self._slots.release()
        self._keep_spare(origin, patience.connect)
        return answer

    @override
    async def aclose(self) -> None:
        """Close all connections, also those that are being read."""
        self._emptied = anyio.Event()
        for connection in tuple(self._open):
            connection.end()
        with anyio.move_on_after(_CLOSING, shield=True):
            spares = list(self._spares.values())
            for spare in spares:
                spare.cancel()
            if spares:
                await asyncio.wait(spares)
            if self._open:
                await self._emptied.wait()

    async def _ask(self, origin: Origin, message: bytes, patience: Patience) -> Answer:
        """An answer whose head has come, over an idle connection if there is one."""
        if connection := self._idle_one(origin):
            answer = connection.ask(message, patience)
            try:
                await answer.head()
            except (httpx.RemoteProtocolError, httpx.ReadError):
                if answer.begun:
                    raise
                # the service had closed it while it was idle: the request was not seen
            else:
                answer.on_close = partial(self._give_back, origin, connection, answer)
                return answer
        connection = await self._connected(origin, patience.connect)
        answer = connection.ask(message, patience)
        await answer.head()
        answer.on_close = partial(self._give_back, origin, connection, answer)
        return answer

    # ---------------------------------------------------------------- connections
    async def _take_slot(self, limit: float | None) -> None:
        try:
            self._slots.acquire_nowait()
        except anyio.WouldBlock:
            try:
                with anyio.fail_after(limit):
                    await self._slots.acquire()
            except TimeoutError as error:
                raise httpx.PoolTimeout("too many answers are being read") from error

    def _idle_one(self, origin: Origin) -> Connection | None:
        """The one that was used last: it is the least likely to be closed meanwhile."""
        idle = self._idle[origin]
        while idle:
            connection, _ = idle.popitem()
            if connection.usable:
                return connection
        return None

    async def _connected(self, origin: Origin, limit: float | None) -> Connection:
        self._make_room()
        try:
            with anyio.fail_after(limit):
                _, connection = await asyncio.get_running_loop().create_connection(
                    partial(Connection, partial(self._lost, origin)),
                    origin.host,
                    origin.port,
                    ssl=self._ssl_context if origin.tls else None,
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout("no connection") from error
        except (OSError, ValueError) as error:
            raise httpx.ConnectError("no connection") from error
        if not connection.closed:
            self._open.add(connection)
        return connection

    def _keep_spare(self, origin: Origin, limit: float | None) -> None:
        """Begin to open the connection of the next request, if it would find none and others go on."""
        is_due = 1 < self._busy < self._max_connections and not self._idle[origin]
        if is_due and origin not in self._spares and self._emptied is None:
            self._spares[origin] = asyncio.create_task(self._open_spare(origin, limit))

    async def _open_spare(self, origin: Origin, limit: float | None) -> None:
        try:
            connection = await self._connected(origin, limit)
            if not connection.closed:
                self._rest(origin, connection)
                self._make_room()  # others may have become busy meanwhile
        except httpx.TransportError:
            pass  # the next request tries again, and says so
        finally:
            del self._spares[origin]

    @property
    def _busy(self) -> int:
        return self._max_connections - self._slots.value

    def _make_room(self) -> None:
        """Close an idle connection, if there are more than may be."""
        idle = [connections for connections in self._idle.values() if connections]
        if self._busy + sum(map(len, idle)) > self._max_connections:
            oldest = next(iter(idle[0]))
            del idle[0][oldest]
            oldest.close()

    def _rest(self, origin: Origin, connection: Connection) -> None:
        connection.rest(self._keep_alive)
        self._idle[origin][connection] = None

    def _give_back(self, origin: Origin, connection: Connection, answer: Answer) -> None:
        if answer.reusable:
            self._rest(origin, connection)
        self._slots.release()

    def _lost(self, origin: Origin, connection: Connection) -> None:
        self._open.discard(connection)
        self._idle[origin].pop(connection, None)
        if self._emptied is not None and not self._open:
            self._emptied.set()


async def _written(request: httpx.Request) -> bytes:
    """The request as it goes over the wire; raises `httpx.LocalProtocolError`."""
    body = await request.aread()
    head = head_of(request.method, request.url, request.headers.raw)
    length = request.headers.get("content-length", "0")
    if length != str(len(body)) or "transfer-encoding" in request.headers:
        raise httpx.LocalProtocolError("a body is sent whole, with its length")
    return b"%b\r\n%b" % (head, body)


def head_of(method: str, url: httpx.URL, headers: Sequence[tuple[bytes, bytes]], /) -> bytes:
    """The lines of a request before the blank one.

    Raises:
        httpx.LocalProtocolError: a line could pass for several.
    """
    fields = [b"%b: %b\r\n" % field for field in headers]
    if not _METHOD.fullmatch(method) or not all(map(_FIELD.fullmatch, fields)):
        raise httpx.LocalProtocolError("a method or header that cannot be sent")
    return b"".join((b"%b %b HTTP/1.1\r\n" % (method.encode("ascii"), url.raw_path), *fields))


def _trusting() -> ssl.SSLContext:
    context = httpx.create_ssl_context(trust_env=False)
    context.set_alpn_protocols(["http/1.1"])
    return context
