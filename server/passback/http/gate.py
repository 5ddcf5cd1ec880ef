"""The gate in front of all routes: checks host, origin and key, and adds the headers of CORS.

It is pure ASGI, so streams pass through it without a wrapper around each chunk.
"""

import logging

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from passback.core.errors import ClientError, ForeignHost, ForeignOrigin
from passback.hotpath.sending import forget_send_now
from passback.http.access import (
    ANONYMOUS,
    Access,
    authenticate,
    check_host,
    check_origin,
    check_site,
    listable_host,
    listable_origin,
    may_read_answers,
)
from passback.http.answers import empty_answer, error_answer, set_owner
from passback.http.headers import Headers, headers_of

logger = logging.getLogger(__name__)

_MAX_WARNINGS = 100  # hosts that a process names in its log, and as many origins
_EXPOSED_HEADERS = (
    "X-Conversation-Id, X-Run-Id, X-Request-Id, X-Owed-Tool-Calls, X-Budget-Left-Tokens, "
    "X-Budget-Left-Seconds, X-Budget-Left-Cost, Retry-After, Location"
)
_PREFLIGHT_HEADERS = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": (
        "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id"
    ),
    "access-control-max-age": "600",
}


def protect(app: ASGIApp, access: Access, /, *, public: frozenset[str] = frozenset()) -> ASGIApp:
    """Return an application that passes on to `app` only the requests that `access` allows.

    Args:
        app: answers them; `answers.owner_of` returns the owner of a request to it.
        access: the rules.
        public: paths that answer GET and HEAD without credentials.
    """
    return _Gate(app, access, public)


class _Gate:
    def __init__(self, app: ASGIApp, access: Access, public: frozenset[str]) -> None:
        self._app = app
        self._access = access
        self._public = public
        self._hosts = _RefusedNames("host", "PASSBACK_ALLOWED_HOSTS")
        self._origins = _RefusedNames("origin", "PASSBACK_ALLOWED_ORIGINS")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._serve_socket(scope, receive, send)
            return
        headers = headers_of(scope)
        origin = headers.get(b"origin")
        if origin and may_read_answers(origin, headers, self._access):
            send = _with_cors_headers(origin, send)
        try:
            answer = self._check_request(scope, headers) or self._app
        except ClientError as error:
            self._warn_of_refusal(headers, error)
            answer = error_answer(scope, error)
        try:
            await answer(scope, receive, send)
        finally:
            forget_send_now(scope)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        try:
            check_host(headers, self._access)
            check_origin(headers, self._access)  # browsers send one with each WebSocket
            set_owner(scope, authenticate(headers, self._access), self._access.may_list)
        except ClientError as error:
            self._warn_of_refusal(headers, error)
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._app(scope, receive, send)

    def _warn_of_refusal(self, headers: Headers, error: ClientError) -> None:
        # by name, because mostly it is one that the settings should list
        if isinstance(error, ForeignHost):
            self._hosts.warn_once(listable_host(headers))
        elif isinstance(error, ForeignOrigin):
            self._origins.warn_once(listable_origin(headers, self._access))

    def _check_request(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a preflight, or None for a request that may pass.

        Raises ClientError for a request that may not.
        """
        check_host(headers, self._access)
        check_origin(headers, self._access)
        is_open = scope["method"] in {"GET", "HEAD"} and scope["path"] in self._public
        check_site(headers, self._access, is_open=is_open)
        asks_leave = b"origin" in headers and b"access-control-request-method" in headers
        if asks_leave and scope["method"] == "OPTIONS":  # a preflight, which comes without a key
            return empty_answer(scope, headers=_PREFLIGHT_HEADERS)
        owner = ANONYMOUS if is_open else authenticate(headers, self._access)
        set_owner(scope, owner, self._access.may_list)
        return None


class _RefusedNames:
    """Logs each refused name once, and a bounded number of them, because strangers choose them."""

    def __init__(self, kind: str, setting: str) -> None:
        self._kind = kind
        self._setting = setting
        self._seen_names: set[str | None] = set()

    def warn_once(self, name: str | None) -> None:
        """Log that a name was refused. It is None if the setting could not list it."""
        if name in self._seen_names or len(self._seen_names) > _MAX_WARNINGS:
            return
        self._seen_names.add(name)
        if len(self._seen_names) > _MAX_WARNINGS:
            logger.warning(
                "refused more than %s different %ss: no more are named here; "
                "PASSBACK_LOG_LEVEL=info logs every request",
                *(_MAX_WARNINGS, self._kind),
            )
        elif name is None:
            logger.warning("refused a request: %s can list no %s of it", self._setting, self._kind)
        else:
            logger.warning(
                "refused the %s %s: to allow it, list it in %s", self._kind, name, self._setting
            )


def _with_cors_headers(origin: str, send: Send) -> Send:
    """Return a `send` whose answer a page of this origin may read."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = _EXPOSED_HEADERS
            headers.add_vary_header("origin")
        await send(message)

    return send_with_headers
