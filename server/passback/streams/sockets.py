"""WebSockets for wires: a bounded queue to each client, late keys, and an end with a reason.

A wire declares a `SocketEndpoint`, whose handler gets a `Socket`. All limits hold without its
doing: of messages and connections (`http.socket_protocol`, `http.open_sockets`), of what waits
for a client, and of the time until a key comes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import TypeAlias

import anyio
import anyio.abc
from starlette.routing import Match, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from passback.core.errors import PassbackError, ShuttingDown, Unauthenticated
from passback.core.messages import OwnerId
from passback.http.answers import (
    STATUS,
    internal_error_answer,
    known_owner,
    note_end,
    request_id,
    set_late_owner,
    socket_refusal,
)
from passback.http.open_sockets import forget_socket_link, socket_link
from passback.http.requests import sent_path
from passback.http.wires import Services

logger = logging.getLogger(__name__)

_FINAL_SECONDS = 2  # in which a handler has to end, and a client to read the rest, when one stops
_REASON_BYTES = 123  # in a close frame (RFC 6455, section 5.5)

RESTART = (1012, "the server stops: connect again, to another worker")
TOO_SLOW = (1013, "the client reads too slowly: connect again")

SocketHandler: TypeAlias = Callable[["Socket"], Awaitable[None]]


class SocketEndpoint(WebSocketRoute):
    """A route whose handler has a `Socket` to itself until it returns.

    A `PassbackError` of the handler refuses the handshake, or closes the WebSocket with its code
    and message as the reason; anything else is logged, and closes it with 1011.

    Args:
        path: its pattern. A path is matched as it was sent.
        handler: serves one WebSocket.
        services: with the limits, the keys, and `stopping`.
    """

    def __init__(self, path: str, handler: SocketHandler, services: Services, /) -> None:
        super().__init__(path, handler)
        self._handler = handler
        self._services = services

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "websocket":
            return Match.NONE, {}
        return super().matches({**scope, "root_path": "", "path": sent_path(scope)})

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await Socket(self._services, scope, receive, send).serve(self._handler)
        finally:
            forget_socket_link(scope)


class Socket:
    """One WebSocket, as its handler uses it.

    Args:
        services: with the limits, the keys, and `stopping`.
        scope, receive, send: of the WebSocket.
    """

    def __init__(self, services: Services, scope: Scope, receive: Receive, send: Send, /) -> None:
        self.scope = scope
        self.services = services
        self._receive = receive
        self._send = send
        self._link = socket_link(scope)
        self._accepted = False
        self._end: tuple[int, str] | None = None  # the close code and the reason
        self._takes_messages = self._takes_close = True
        self._queue: deque[str | bytes] = deque()
        self._queued = 0  # bytes
        self._drained: anyio.Event | None = None
        self._waiting: anyio.CancelScope | None = None
        self._handling = anyio.CancelScope()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._key_timer: asyncio.TimerHandle | None = None
        self._stop_timer: asyncio.TimerHandle | None = None

    # ---------------------------------------------------------------- for the handler
    @property
    def owner(self) -> OwnerId | None:
        """The owner, or None until a late key has come (`present_key`)."""
        return known_owner(self.scope)

    @property
    def stopping(self) -> bool:
        """The server is about to stop: there is time for a last word."""
        return self.services.stopping.is_set

    async def accept(self, subprotocol: str | None = None) -> None:
        """Accept the handshake. Where no key came with it, one has to be presented in time."""
        seconds = self.services.limits.key_seconds
        if self.owner is None:
            late = f"no key came within {seconds:g} seconds (key_timeout in PASSBACK_TIMING)"
            loop = asyncio.get_running_loop()
            self._key_timer = loop.call_later(seconds, self.abandon, 1008, late)
        elif self._link is not None:
            self._link.admit(self.owner)
        headers = [(b"x-request-id", request_id(self.scope).encode())]
        self._accepted = True
        accept = {"type": "websocket.accept", "subprotocol": subprotocol, "headers": headers}
        try:
            await self._send(accept)
        except OSError:
            self._lose(1006)

    def present_key(self, key: str, /) -> OwnerId:
        """Return the owner of a key that came within the protocol, who is the socket's from now on.

        Raises:
            Unauthenticated: it is not valid, or of another owner than the socket's. `receive`
                returns None then: nobody can try many keys on one socket.
            TooManySockets: its owner has as many as are allowed. `receive` returns None, too.
        """
        try:
            owner = self.services.resolve_key(key)
            if self.owner is None:
                self.services.sockets.claim(self, owner)
            elif owner != self.owner:
                raise Unauthenticated("the WebSocket has another owner already")
        except PassbackError as error:
            self.close(*_close_of(error))
            raise
        if self._key_timer is not None:
            self._key_timer.cancel()
        set_late_owner(self.scope, owner)
        if self._link is not None:
            self._link.admit(owner)
        return owner

    async def receive(self) -> str | bytes | None:
        """Return the next message; None when the socket has ended, or the server is to stop.

        A handler that gets None returns soon. It may still `send`.
        """
        if self._end is not None:
            return None
        message: Message | None = None
        with anyio.CancelScope() as self._waiting:
            message = await self._receive()
        self._waiting = None
        if message is None:
            return None
        if message["type"] == "websocket.disconnect":
            self._lose(message.get("code", 1005))
            return None
        text: str | None = message.get("text")
        content: str | bytes = message["bytes"] if text is None else text
        return content

    def send(self, content: str | bytes, /) -> bool:
        """Send a message, text or bytes, without waiting. Return False if that cannot be done.

        A message waits in a queue while the client does not read. When the queue is too long, the
        socket is closed. What is large waits for `wait_until_sent` between its messages.
        """
        if not self._takes_messages:
            return False
        link = self._link
        if link is not None and not self._queue and link.ready:
            link.send_now(content)
            return True
        size = _memory_of(content)
        sockets = self.services.sockets
        is_full = self._queue and self._queued + size > self.services.limits.socket_queue_bytes
        if is_full or not sockets.has_room(size):
            self.abandon(*TOO_SLOW)
            return False
        self._release(-size)
        if isinstance(content, str):  # without lone surrogates, which servers cannot send
            content = content.encode(errors="replace").decode()
        self._queue.append(content)
        if len(self._queue) == 1 and self._tasks is not None:
            self._tasks.start_soon(self._write_queue)
        return True

    async def wait_until_sent(self) -> None:
        """Wait until no message is in the queue. The time is bounded: a slow client is closed."""
        if self._queue:
            self._drained = self._drained or anyio.Event()
            await self._drained.wait()

    def close(self, code: int = 1000, reason: str = "", /) -> None:
        """Make `receive` return None. The socket is closed when the handler has returned.

        The first reason counts. What is in the queue is sent before.
        """
        if self._end is None:
            self._end = (code, reason)
            note_end(self.scope, code, reason)
        if self._waiting is not None:
            self._waiting.cancel()

    def abandon(self, code: int, reason: str) -> None:
        """Close the socket at once; what is in the queue is lost."""
        self.close(code, reason)
        self._takes_messages = False
        self._clear_queue()
        if self._link is not None:
            self._takes_close = False
            self._link.fail(code, reason)

    async def run_application(self, application: ASGIApp, /) -> None:
        """Serve the socket by another ASGI application, such as a library's, within all limits."""
        connecting: list[Message] = [{"type": "websocket.connect"}]

        async def receive() -> Message:
            return connecting.pop() if connecting else await self._receive_message()

        await application(self.scope, receive, self._send_message)

    async def _receive_message(self) -> Message:
        content = await self.receive()
        if content is None:
            code, reason = self._end or (1005, "")
            return {"type": "websocket.disconnect", "code": code, "reason": reason}
        return {"type": "websocket.receive", _kind_of(content): content}

    async def _send_message(self, message: Message) -> None:
        match message["type"]:
            case "websocket.accept":
                await self.accept(message.get("subprotocol"))
            case "websocket.send":
                text: str | None = message.get("text")
                if not self.send(message["bytes"] if text is None else text):
                    raise _Ended
                await self.wait_until_sent()
            case "websocket.close" if self._accepted:
                self.close(message.get("code", 1000), message.get("reason") or "")
            case _:  # the handshake is refused
                self._takes_messages = self._takes_close = False
                await self._send(message)

    # ---------------------------------------------------------------- its life
    async def serve(self, handler: SocketHandler, /) -> None:
        """Count the socket, run its handler, and close it."""
        sockets = self.services.sockets
        await self._receive()  # its `websocket.connect`
        try:
            if self.stopping:
                raise ShuttingDown("this worker is stopping; connect again")
            sockets.enter(self)
            if self.owner is not None:
                sockets.claim(self, self.owner)
            async with anyio.create_task_group() as self._tasks:
                with self.services.stopping.telling(self._stop):
                    await self._handle(handler)
                    await self._finish()
                self._tasks.cancel_scope.cancel()
        except PassbackError as error:
            await socket_refusal(self.scope, error)(self.scope, self._receive, self._send)
        finally:
            for timer in (self._key_timer, self._stop_timer):
                if timer is not None:
                    timer.cancel()
            self._clear_queue()
            sockets.leave(self)

    def give_way(self) -> None:
        """Close the socket in favour of another one."""
        self.abandon(1013, "another WebSocket has taken the place of this one, which had no key")

    async def _handle(self, handler: SocketHandler) -> None:
        """Run the handler, and send what is in the queue; an error becomes the socket's end."""
        with self._handling:
            try:
                await handler(self)
            except _Ended:
                pass
            except PassbackError as error:
                await self._close_for(error, socket_refusal(self.scope, error))
            except Exception:  # the socket's boundary: the log gets the error, the client does not
                logger.exception("WebSocket %s failed", request_id(self.scope))
                unexpected = PassbackError("the server met an unexpected error")
                await self._close_for(unexpected, internal_error_answer(self.scope))
            await self.wait_until_sent()

    async def _close_for(self, error: PassbackError, refusal: ASGIApp) -> None:
        if self._accepted:
            self.close(*_close_of(error))
        else:
            self._takes_messages = self._takes_close = False
            await refusal(self.scope, self._receive, self._send)

    async def _finish(self) -> None:
        """Send the close frame, if the client takes it."""
        if not self._takes_close:
            return
        code, reason = self._end or (1000, "")
        if self._queue and self._link is not None:
            self._link.fail(code, reason)
            return
        with suppress(OSError), anyio.move_on_after(_FINAL_SECONDS):
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

    def _stop(self) -> None:
        """Begin the end of a socket whose server stops: its handler has time for a last word."""
        self.close(*RESTART)
        loop = asyncio.get_running_loop()
        self._stop_timer = loop.call_later(_FINAL_SECONDS, self._handling.cancel)

    def _lose(self, code: int) -> None:
        """Record that the client has left."""
        self._end = self._end or (code, "")
        self._takes_messages = self._takes_close = False
        self._clear_queue()

    async def _write_queue(self) -> None:
        while self._queue:
            content = self._queue[0]
            message = {"type": "websocket.send", _kind_of(content): content}
            try:
                with anyio.move_on_after(self.services.limits.send_seconds) as sending:
                    await self._send(message)
            except OSError:
                self._lose(1006)
                return
            if sending.cancelled_caught:
                self.abandon(*TOO_SLOW)
                return
            if self._queue:  # it was not cleared meanwhile
                self._release(_memory_of(self._queue.popleft()))
        self._tell_drained()

    def _clear_queue(self) -> None:
        self._queue.clear()
        self._release(self._queued)
        self._tell_drained()

    def _release(self, size: int) -> None:
        self._queued -= size
        self.services.sockets.queued -= size

    def _tell_drained(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None


class _Ended(OSError):
    """A socket has ended, as ASGI tells an application that sends."""


def _kind_of(content: str | bytes) -> str:
    """Return the key of a message's content in ASGI."""
    return "text" if isinstance(content, str) else "bytes"


def _memory_of(content: str | bytes) -> int:
    """Return a bound of the bytes that a message takes."""
    return len(content) * (4 if isinstance(content, str) and not content.isascii() else 1)


def _close_of(error: PassbackError) -> tuple[int, str]:
    """Return the close code and the reason for an error."""
    status = STATUS[error.code]
    if isinstance(error, ShuttingDown):
        code = 1012
    elif status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        code = 1013
    else:
        code = 1011 if status >= HTTPStatus.INTERNAL_SERVER_ERROR else 1008
    reason = f"{error.code}: {error.message}".encode()[:_REASON_BYTES]
    return code, reason.decode(errors="ignore")
