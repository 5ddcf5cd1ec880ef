"""The access log: one line for each request, written when its answer has ended.

A WebSocket is one line at its end, with its close code.

A line has ids, codes and the pattern of the route. It has no address, no header and no content.
"""

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from http import HTTPStatus
from time import monotonic

from starlette.routing import BaseRoute, Match, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from passback.http.answers import known_owner, noted_code, noted_end, request_id
from passback.http.routing import Endpoint, route_of

logger = logging.getLogger(__name__)

# headers of an answer that its line repeats
_LOGGED_HEADERS = {b"x-conversation-id": "conversation_id", b"x-run-id": "run_id"}


class AccessLog:
    """Middleware that logs each request at the level of its route, and refusals with their code.

    Where the level `info` is off, a request only costs the check of the level.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], /) -> None:
        self._app = app
        self._endpoints = [each for each in routes if isinstance(each, Endpoint)]
        self._sockets = [each for each in routes if isinstance(each, WebSocketRoute)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or not logger.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
            return
        answer = _ObservedAnswer(send)
        try:
            await self._app(scope, receive, answer.send)
        finally:
            self._log_request(scope, answer)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = _ObservedSocket(receive, send)
        try:
            await self._app(scope, socket.receive, socket.send)
        finally:
            code, reason = noted_end(scope) or (socket.close_code, "")
            path = (each.path for each in self._sockets if each.matches(scope)[0] is Match.FULL)
            _log_fields(
                logging.INFO,
                {
                    "method": "GET",
                    "route": next(path, None),
                    "status": socket.status,
                    "code": noted_code(scope),
                    "close_code": code,
                    "reason": reason or None,
                    "duration_ms": _milliseconds_since(socket.begun),
                    "owner": known_owner(scope),
                    "request_id": request_id(scope),
                },
            )

    def _log_request(self, scope: Scope, answer: "_ObservedAnswer") -> None:
        route = route_of(scope)
        if route is None:  # the gate refused it: find the route that it was meant for
            found = (each for each in self._endpoints if each.matches(scope)[0] is not Match.NONE)
            route = next(found, None)
        is_plain = route is not None and not noted_code(scope)
        # a refusal is logged even where the route's own level is off
        level = route.log_level if route is not None and is_plain else logging.INFO
        if not logger.isEnabledFor(level):
            return
        fields: dict[str, object | None] = {
            "method": scope["method"],
            "route": route and route.path,
            "status": answer.status,
            "code": noted_code(scope),
            "duration_ms": _milliseconds_since(answer.begun),
            "complete": None if answer.complete else False,  # named only where it broke off
            "owner": known_owner(scope),
            "request_id": request_id(scope),
        }
        for name, text in answer.headers:
            if name in _LOGGED_HEADERS:
                fields[_LOGGED_HEADERS[name]] = text.decode("latin-1")
        _log_fields(level, fields)


def _log_fields(level: int, fields: Mapping[str, object | None]) -> None:
    known = {name: field for name, field in fields.items() if field is not None}
    logger.log(level, "request", extra=known)


def _milliseconds_since(begun: float) -> float:
    return round((monotonic() - begun) * 1000, 1)


def log_unread(scope: Scope, status: int, /) -> None:
    """Log a request that was refused because it could not be parsed."""
    logger.info(
        "request",
        extra={"status": status, "code": noted_code(scope), "request_id": request_id(scope)},
    )


class _ObservedAnswer:
    """Records begin, status, headers and end of an answer while it is sent."""

    __slots__ = ("_send", "begun", "complete", "headers", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = monotonic()
        self.status: int | None = None
        self.headers: Iterable[tuple[bytes, bytes]] = ()
        self.complete = False

    def send(self, message: Message) -> Awaitable[None]:  # no coroutine of its own
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message.get("headers", ())
        elif not message.get("more_body", False):
            self.complete = True
        return self._send(message)


class _ObservedSocket:
    """Records how the handshake of a WebSocket is answered, and its first close code."""

    __slots__ = ("_receive", "_send", "begun", "close_code", "status")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.begun = monotonic()
        self.status: int | None = None
        self.close_code: int | None = None

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] == "websocket.accept":
            self.status = HTTPStatus.SWITCHING_PROTOCOLS.value
        elif message["type"] == "websocket.http.response.start":
            self.status = message["status"]
        elif message["type"] == "websocket.close":
            self._note_close(message)
        return self._send(message)

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._note_close(message)
        return message

    def _note_close(self, message: Message) -> None:
        if self.status is None:  # closed in place of an answer
            self.status = HTTPStatus.FORBIDDEN.value
        else:
            self.close_code = self.close_code or message.get("code")
