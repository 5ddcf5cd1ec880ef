"""The gate in front of all routes, pure ASGI: host, origin, cross-origin headers, key. Streams pass unwrapped."""

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from passback.core.errors import ClientError
from passback.transport.access import (
    ANONYMOUS,
    Access,
    authenticate,
    check_host,
    check_origin,
    check_site,
)
from passback.transport.headers import Headers, headers_of
from passback.transport.http import empty_answer, error_answer, set_owner
from passback.transport.sending import forget_send_now

_EXPOSED = (
    "X-Conversation-Id, X-Run-Id, X-Request-Id, X-Owed-Tool-Calls, X-Budget-Left-Tokens, "
    "X-Budget-Left-Seconds, X-Budget-Left-Cost, Retry-After, Location"
)
_PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": (
        "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id"
    ),
    "access-control-max-age": "600",
}


def protect(app: ASGIApp, access: Access, /, *, public: frozenset[str] = frozenset()) -> ASGIApp:
    """Let only those requests through to `app` that `access` allows.

    Args:
        app: what answers them; `http.owner_of` then tells it whose request it has.
        access: the rules.
        public: paths that answer GET and HEAD without credentials.
    """
    return _Gate(app, access, public)


class _Gate:
    def __init__(self, app: ASGIApp, access: Access, public: frozenset[str]) -> None:
        self._app = app
        self._access = access
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:  # no route of ours is a WebSocket
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        origin = headers.get(b"origin")
        if origin in self._access.origins:
            send = _readable_by(origin, send)
        try:
            answer = self._admit(scope, headers)
        except ClientError as error:
            answer = error_answer(scope, error)
        try:
            await (answer or self._app)(scope, receive, send)
        finally:
            forget_send_now(scope)

    def _admit(self, scope: Scope, headers: Headers) -> Response | None:
        """Give the answer to a preflight, or None for a request that may pass."""
        check_host(headers, self._access)
        check_origin(headers, self._access)
        is_open = scope["method"] in {"GET", "HEAD"} and scope["path"] in self._public
        check_site(headers, self._access, is_open=is_open)
        if _is_preflight(scope, headers):
            return empty_answer(scope, headers=_PREFLIGHT)
        set_owner(scope, ANONYMOUS if is_open else authenticate(headers, self._access))
        return None


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    """A browser asks whether it may send; only pages of other origins make it ask."""
    return (
        scope["method"] == "OPTIONS"
        and b"origin" in headers
        and b"access-control-request-method" in headers
    )


def _readable_by(origin: str, send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = _EXPOSED
            headers.add_vary_header("origin")
        await send(message)

    return send_with_headers
