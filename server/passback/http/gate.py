"""The gate in front of all routes: checks host, origin and key, and adds the headers of CORS.

Pages of other sites and rebound host names are refused (P13). The gate is pure ASGI, so streams
pass through it without a wrapper around each chunk.
"""

import hmac
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from passback.core.errors import ClientError, ForeignHost, ForeignOrigin, Unauthenticated
from passback.core.messages import OwnerId
from passback.core.values import value
from passback.hotpath.sending import forget_send_now
from passback.http.answers import (
    await_key,
    empty_answer,
    error_answer,
    set_owner,
    socket_refusal,
)
from passback.http.requests import Headers, headers_of, sent_path
from passback.setting_forms import is_loopback

logger = logging.getLogger(__name__)

ANONYMOUS = OwnerId("anonymous")
_DEFAULT_PORTS = (":80", ":443")
_FOREIGN_SITES = frozenset({"cross-site", "same-site"})
_MAX_HOST_CHARACTERS = 512  # more than a DNS name has, and few enough to be cached
_LOOPBACK_ORIGIN = re.compile(
    r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.ASCII
)
# Values that the settings can list. The log shows no other host or origin that a stranger sends.
_LISTABLE_HOST = re.compile(r"[a-z0-9._-]{1,253}|\[[0-9a-f:]{2,39}\]", re.ASCII)
_LISTABLE_ORIGIN = re.compile(r"https?://[\w.:\[\]-]{1,255}", re.ASCII)
# Browsers send this for a page without an origin. It identifies no page.
_OPAQUE_ORIGIN = "null"

_MAX_WARNINGS = 100  # hosts that a process names in its log, and as many origins
_EXPOSED_HEADERS = (
    "X-Conversation-Id, X-Run-Id, X-Request-Id, X-Owed-Tool-Calls, X-Budget-Left-Tokens, "
    "X-Budget-Left-Seconds, X-Budget-Left-Cost, X-Error-Code, Retry-After, "
    "Location"
)
_PREFLIGHT_HEADERS = {
    "access-control-allow-headers": (
        "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id"
    ),
    "access-control-max-age": "600",
}


@value
class Access:
    """The access settings of a server.

    Args:
        hosts: names that a `Host` header may have beside loopback, without port, lower case.
        origins: origins of other sites whose pages may call us, exactly as browsers send them.
        keys: bearer keys and their owners. Without keys everyone is the owner `anonymous`.
        loopback_only: the server is bound to a loopback address. Otherwise `Host` may be any
            IP address.
        loopback_pages: pages of loopback origins may call us, too, at an address of loopback.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    keys: Mapping[str, OwnerId] = field(default_factory=dict[str, OwnerId])
    loopback_only: bool = True
    loopback_pages: bool = False

    @property
    def may_list(self) -> bool:
        """Conversations may be listed: not everybody who reaches the server is the same owner."""
        return bool(self.keys) or self.loopback_only


def check_host(headers: Headers, access: Access, /) -> None:
    """Refuse a host name that is not ours.

    Without this check a hostile page could let its own name resolve to this machine.

    Raises:
        ForeignHost: the `Host` header is missing, doubled, or names neither us nor an address.
    """
    name = _named_host(headers)
    if name is None or not _is_own_host(name, access.hosts, access.loopback_only):
        raise ForeignHost(
            "this server does not serve the host that the request names; "
            "to allow it, list it in PASSBACK_ALLOWED_HOSTS"
        )


def may_read_answers(origin: str, headers: Headers, access: Access, /) -> bool:
    """Return whether a page of this origin, which is not our own, may call us and read answers."""
    if origin in access.origins:
        return True
    # The request has to name us by loopback, too. Otherwise a page on a visitor's own machine
    # would pass where a proxy on this machine makes us public.
    return (
        access.loopback_pages
        and _LOOPBACK_ORIGIN.fullmatch(origin) is not None
        and is_loopback(_named_host(headers) or "")
        and not _is_same_host(origin, headers.first.get(b"host", ""))
    )


def foreign_origin(headers: Headers, access: Access, /) -> str | None:
    """Return the first `Origin` of a request whose pages may not call us, or None."""
    host = headers.first.get(b"host", "")
    for origin in headers.all.get(b"origin", ()):
        if not _is_same_host(origin, host) and not may_read_answers(origin, headers, access):
            return origin
    return None


def check_origin(headers: Headers, access: Access, /) -> None:
    """Refuse a page of another site.

    Raises:
        ForeignOrigin: the `Origin` header is neither our own nor one that the settings allow.
    """
    origin = foreign_origin(headers, access)
    if origin == _OPAQUE_ORIGIN:
        raise ForeignOrigin(
            "the page has no origin (a file, or a sandboxed frame): serve it over HTTP, from an "
            "origin that PASSBACK_ALLOWED_ORIGINS lists"
        )
    if origin is not None:
        raise ForeignOrigin(
            "pages of this origin may not call this server; PASSBACK_ALLOWED_ORIGINS lists those "
            "that may"
        )


def check_site(headers: Headers, access: Access, /, *, is_open: bool) -> None:
    """Refuse a cross-site request by its `Sec-Fetch-Site` header.

    Pictures, objects and links are requested without an `Origin`, so `check_origin` misses them.

    Args:
        headers: of the request.
        access: the rules. A page that may read our answers (`may_read_answers`) may ask from any
            site, by CORS.
        is_open: the path needs no credentials, so a link may lead to it.

    Raises:
        ForeignOrigin: the browser says that a page of another site, or of another port of this
            host, asks.
    """
    if _FOREIGN_SITES.isdisjoint(headers.all.get(b"sec-fetch-site", ())):
        return
    if may_read_answers(headers.first.get(b"origin", ""), headers, access):
        return
    if not (is_open and headers.first.get(b"sec-fetch-dest", "") == "document"):
        raise ForeignOrigin(
            "pages of another site may not load this: open its address directly, or use fetch "
            "from a page whose origin PASSBACK_ALLOWED_ORIGINS lists"
        )


def listable_host(headers: Headers, /) -> str | None:
    """Return the request's host as PASSBACK_ALLOWED_HOSTS can list it, or None if it cannot."""
    name = _named_host(headers)
    shown = f"[{name}]" if name and ":" in name else name
    return shown if shown and _LISTABLE_HOST.fullmatch(shown) else None


def listable_origin(headers: Headers, access: Access, /) -> str | None:
    """Return the refused origin as PASSBACK_ALLOWED_ORIGINS can list it.

    Returns None if the setting cannot list it, or no origin was refused.
    """
    origin = foreign_origin(headers, access)
    return origin if origin is not None and _LISTABLE_ORIGIN.fullmatch(origin) else None


def authenticate(headers: Headers, access: Access, /) -> OwnerId:
    """Return the owner of the bearer key that a request presents.

    Raises:
        Unauthenticated: keys are configured, and the request presents none of them, or several.
    """
    if not access.keys:
        return ANONYMOUS
    # a proxy in front of us may have checked another one of several headers
    if len(headers.all.get(b"authorization", ())) > 1:
        raise Unauthenticated("one Authorization header is needed, and this request has several")
    scheme, _, presented = headers.first.get(b"authorization", "").partition(" ")
    owner = _owner_of_key(access, presented.strip() if scheme.lower() == "bearer" else "")
    if owner is None:
        raise Unauthenticated("a valid API key is needed: send Authorization: Bearer KEY")
    return owner


def resolve_key(access: Access, key: str, /) -> OwnerId:
    """Return the owner of a key that came within a protocol (`Wire.late_keys`).

    Raises:
        Unauthenticated: keys are configured, and it is none of them.
    """
    owner = _owner_of_key(access, key) if access.keys else ANONYMOUS
    if owner is None:
        raise Unauthenticated("a valid API key is needed")
    return owner


def _owner_of_key(access: Access, presented: str) -> OwnerId | None:
    digest = _key_digest(presented)
    found: OwnerId | None = None
    # no early exit: the time must not depend on which key matches
    for key, owner in access.keys.items():
        if hmac.compare_digest(_key_digest(key), digest):
            found = owner
    return found


def _key_digest(key: str) -> bytes:
    # digests have one length, so the time of a comparison does not reveal the length of a key
    # a text of JSON may have lone surrogates
    return sha256(key.encode(errors="surrogatepass")).digest()


def _named_host(headers: Headers) -> str | None:
    """Return the name in the only `Host` header, or None if it is missing or malformed."""
    given = headers.all.get(b"host", ())
    if len(given) != 1 or len(given[0]) > _MAX_HOST_CHARACTERS:
        return None
    return _host_name(given[0])


@lru_cache(maxsize=256)
def _host_name(authority: str) -> str | None:
    """Return the host of `host[:port]` in lower case, or None if it is malformed."""
    try:
        parts = urlsplit(f"//{authority}")
        _ = parts.port  # raises for a port that is no number
    except ValueError:
        return None
    is_plain = parts.netloc == authority and "@" not in authority
    return parts.hostname if is_plain else None


@lru_cache(maxsize=256)
def _is_own_host(name: str, hosts: frozenset[str], loopback_only: bool) -> bool:
    if name == "localhost" or not hosts.isdisjoint({name, f"[{name}]"}):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or not loopback_only


def _is_same_host(origin: str, host: str) -> bool:
    """Return whether an origin is the host itself."""
    # any scheme: a proxy in front of us may have terminated TLS
    scheme, _, authority = origin.lower().partition("://")
    return scheme in {"http", "https"} and _without_default_port(
        authority
    ) == _without_default_port(host.lower())


def _without_default_port(authority: str) -> str:
    for port in _DEFAULT_PORTS:
        authority = authority.removesuffix(port)
    return authority


class Gate:
    """Middleware that passes on to `app` only the requests that `access` allows.

    Args:
        app: answers them; `answers.owner_of` returns the owner of a request to it.
        access: the rules.
        public: paths that answer GET and HEAD without credentials.
        late_keys: paths, or beginnings of paths with a slash at the end, where the key may come
            later, within the protocol.
        methods: the methods of its routes, which pages of other origins may use.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        /,
        *,
        public: frozenset[str] = frozenset(),
        late_keys: frozenset[str] = frozenset(),
        methods: Iterable[str] = (),
    ) -> None:
        self._app = app
        self._access = access
        self._may_list = access.may_list
        self._public = public
        self._late_paths = late_keys
        self._late_beginnings = tuple(path for path in late_keys if path.endswith("/"))
        self._preflight = {
            "access-control-allow-methods": ", ".join(sorted(methods)),
            **_PREFLIGHT_HEADERS,
        }
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
        origin = headers.first.get(b"origin", "")
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
            check_site(headers, self._access, is_open=False)
            self._admit(scope, headers)
        except ClientError as error:
            self._warn_of_refusal(headers, error)
            await socket_refusal(scope, error)(scope, receive, send)
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
        asked = {b"origin", b"access-control-request-method"}
        # a preflight, which comes without a key
        if scope["method"] == "OPTIONS" and asked <= headers.first.keys():
            return empty_answer(scope, headers=self._preflight)
        if is_open:
            set_owner(scope, ANONYMOUS, self._may_list)
        else:
            self._admit(scope, headers)
        return None

    def _admit(self, scope: Scope, headers: Headers) -> None:
        """Record the owner, or that the key comes later. Raises Unauthenticated."""
        if self._access.keys and b"authorization" not in headers.first and self._is_late(scope):
            await_key(scope, self._may_list)
        else:
            set_owner(scope, authenticate(headers, self._access), self._may_list)

    def _is_late(self, scope: Scope) -> bool:
        path = sent_path(scope)  # the routes are found by it, too
        return path in self._late_paths or path.startswith(self._late_beginnings)


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
