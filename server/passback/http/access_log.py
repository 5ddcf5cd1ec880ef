"""The access log: one line for each request, when its answer has ended.

A line has ids and codes, and the pattern of the route: no address, no header and nothing of a body.
"""

import logging
from collections.abc import Awaitable, Iterable, Sequence
from time import monotonic

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from passback.http.answers import known_owner, noted_code, request_id
from passback.http.routing import Endpoint, route_of

logger = logging.getLogger(__name__)

_NAMED = {b"x-conversation-id": "conversation_id", b"x-run-id": "run_id"}
"""Headers of an answer whose values are in its line."""


class AccessLog:
    """Logs the requests that `app` answers, at the level of their route; a refusal has its code.

    Where `info` is not logged, a request costs one look at the logger's level.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], /) -> None:
        self._app = app
        self._endpoints = [each for each in routes if isinstance(each, Endpoint)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not logger.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        answer, begun = _Answer(send), monotonic()
        try:
            await self._app(scope, receive, answer.send)
        finally:
            self._log(scope, answer, round((monotonic() - begun) * 1000, 1))

    def _log(self, scope: Scope, answer: "_Answer", milliseconds: float) -> None:
        route = route_of(scope) or self._route_meant(scope)
        is_plain = route is not None and not noted_code(scope)
        level = route.log_level if route is not None and is_plain else logging.INFO
        if logger.isEnabledFor(level):
            logger.log(level, "request", extra=_fields(scope, route, answer, milliseconds))

    def _route_meant(self, scope: Scope) -> Endpoint | None:
        """Return the route of a request that was refused in front of it."""
        found = (each for each in self._endpoints if each.matches(scope)[0] is not Match.NONE)
        return next(found, None)


def log_unread(scope: Scope, status: int, /) -> None:
    """Log a request that was refused because it cannot be read as one."""
    logger.info(
        "request",
        extra={"status": status, "code": noted_code(scope), "request_id": request_id(scope)},
    )


class _Answer:
    """Notes what is sent, on its way."""

    __slots__ = ("_send", "complete", "headers", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.headers: Iterable[tuple[bytes, bytes]] = ()
        self.complete = False

    def send(self, message: Message) -> Awaitable[None]:  # no coroutine of its own
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message.get("headers", ())
        elif not message.get("more_body", False):
            self.complete = True
        return self._send(message)


def _fields(
    scope: Scope, route: Endpoint | None, answer: _Answer, milliseconds: float
) -> dict[str, object]:
    """Return what the line says; what is not known is left out."""
    fields: dict[str, object | None] = {
        "method": scope["method"],
        "route": route and route.path,
        "status": answer.status,
        "code": noted_code(scope),
        "duration_ms": milliseconds,
        "complete": None if answer.complete else False,
        "owner": known_owner(scope),
        "request_id": request_id(scope),
    }
    for name, text in answer.headers:
        if name in _NAMED:
            fields[_NAMED[name]] = text.decode("latin-1")
    return {name: field for name, field in fields.items() if field is not None}
