"""The gate in front of all routes, pure ASGI: host, origin, cross-origin headers, key. Streams pass unwrapped."""

import logging

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from passback.core.errors import ClientError, ForeignHost, ForeignOrigin
from passback.http.access import (
    ANONYMOUS,
    Access,
    authenticate,
    check_host,
    check_origin,
    check_site,
    may_read,
    shown_host,
    shown_origin,
)
from passback.http.answers import empty_answer, error_answer, set_owner
from passback.http.headers import Headers, headers_of
from passback.http.sending import forget_send_now

logger = logging.getLogger(__name__)

_MOST_NAMED = 100  # hosts, and as many origins, in the log of a process
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
        self._hosts = _Refused("host", "PASSBACK_ALLOWED_HOSTS")
        self._origins = _Refused("origin", "PASSBACK_ALLOWED_ORIGINS")

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
        if origin and may_read(origin, headers, self._access):
            send = _readable_by(origin, send)
        try:
            answer = self._admit(scope, headers)
        except ClientError as error:
            self._warn(error, headers)
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

    def _warn(self, error: ClientError, headers: Headers) -> None:
        """Name a refused host or origin once: mostly it is one that the settings should list."""
        if isinstance(error, ForeignHost):
            self._hosts.warn(shown_host(headers))
        elif isinstance(error, ForeignOrigin):
            self._origins.warn(shown_origin(headers, self._access))


class _Refused:
    """Warns of each refused name once, and of a bounded number of them: strangers choose them."""

    def __init__(self, kind: str, setting: str) -> None:
        self._kind = kind
        self._setting = setting
        self._named: set[str | None] = set()

    def warn(self, name: str | None) -> None:
        """`name` is None where there is none that the setting can list."""
        if name in self._named or len(self._named) > _MOST_NAMED:
            return
        self._named.add(name)
        if len(self._named) > _MOST_NAMED:
            logger.warning(
                "refused more than %s different %ss: no more are named here; "
                "PASSBACK_LOG_LEVEL=info logs every request",
                *(_MOST_NAMED, self._kind),
            )
        elif name is None:
            logger.warning("refused a request: %s can list no %s of it", self._setting, self._kind)
        else:
            logger.warning(
                "refused the %s %s: to allow it, list it in %s", self._kind, name, self._setting
            )


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
