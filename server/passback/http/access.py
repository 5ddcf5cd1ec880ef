"""Who may talk to the server: the settings and the rules. Foreign pages and rebound names are refused (P13)."""

import hmac
import re
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from urllib.parse import urlsplit

from passback.core.errors import ForeignHost, ForeignOrigin, Unauthenticated
from passback.core.messages import OwnerId
from passback.core.values import value
from passback.http.headers import Headers

ANONYMOUS = OwnerId("anonymous")
_DEFAULT_PORTS = (":80", ":443")
_FOREIGN_SITES = frozenset({"cross-site", "same-site"})
_MAX_HOST = 512
"""Characters: more than a name of the DNS has, and few enough to be remembered."""
_LOOPBACK_ORIGIN = re.compile(
    r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.ASCII
)
_HOST = re.compile(r"[a-z0-9._-]{1,253}|\[[0-9a-f:]{2,39}\]", re.ASCII)
_ORIGIN = re.compile(r"https?://[\w.:\[\]-]{1,255}", re.ASCII)
"""What the settings can list: the log shows nothing else that a stranger sends as a host or an origin."""


@value
class Access:
    """Who may talk to the server.

    Args:
        hosts: names that a `Host` header may have beside loopback, without port, lower case.
        origins: origins of other sites whose pages may call us, exactly as browsers send them.
        keys: bearer keys and whose they are; none: everyone is the owner `anonymous`.
        loopback_only: the server is bound to a loopback address; otherwise `Host` may be any IP address.
        loopback_pages: pages of loopback origins may call us, too, at an address of loopback.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    keys: Mapping[str, OwnerId] = field(default_factory=dict[str, OwnerId])
    loopback_only: bool = True
    loopback_pages: bool = False


def check_host(headers: Headers, access: Access, /) -> None:
    """Refuse a name that is not ours: a hostile page can make its own name lead to this machine.

    Raises:
        ForeignHost: the `Host` header is missing, doubled, or names neither us nor an address.
    """
    name = _named_host(headers)
    if name is None or not _is_ours(name, access):
        raise ForeignHost(
            "this server does not answer for the host that the request names; "
            "PASSBACK_ALLOWED_HOSTS lists those that it answers for"
        )


_NO_ORIGIN = "null"
"""What a browser sends for a page without an origin; no page of an origin can be told by it."""


def may_read(origin: str, headers: Headers, access: Access, /) -> bool:
    """Return whether a page of this origin, which is not our own, may call us and read our answers.

    That the request names us by loopback, too, keeps out the pages of a visitor's own machine where a proxy beside us
    serves others.
    """
    if origin in access.origins:
        return True
    return (
        access.loopback_pages
        and _LOOPBACK_ORIGIN.fullmatch(origin) is not None
        and _is_loopback_host(headers)
        and not _is_same(origin, headers.get(b"host"))
    )


def foreign_origin(headers: Headers, access: Access, /) -> str | None:
    """Return the first `Origin` of a request whose pages may not call us; None if there is none."""
    host = headers.get(b"host")
    for origin in headers.all(b"origin"):
        if not _is_same(origin, host) and not may_read(origin, headers, access):
            return origin
    return None


def check_origin(headers: Headers, access: Access, /) -> None:
    """Refuse a page of another site.

    Raises:
        ForeignOrigin: the `Origin` header is neither our own nor one that the settings allow.
    """
    origin = foreign_origin(headers, access)
    if origin == _NO_ORIGIN:
        raise ForeignOrigin(
            "the page has no origin, as one that was opened as a file or stands in a sandboxed frame: serve it over "
            "HTTP, from an origin that PASSBACK_ALLOWED_ORIGINS lists"
        )
    if origin is not None:
        raise ForeignOrigin(
            "pages of this origin may not call this server; PASSBACK_ALLOWED_ORIGINS lists those that may"
        )


def check_site(headers: Headers, access: Access, /, *, is_open: bool) -> None:
    """Refuse what another site makes a browser ask for: an `Origin` does not come with a picture, an object or a link.

    Args:
        headers: the request's.
        access: the rules; a page that `may_read` our answers may ask from any site, by CORS.
        is_open: the path needs no credentials, so that a link may lead to it.

    Raises:
        ForeignOrigin: the browser says that a page of another site, or of another port of this host, asks.
    """
    asks = headers.all(b"sec-fetch-site")
    if _FOREIGN_SITES.isdisjoint(asks) or may_read(headers.get(b"origin"), headers, access):
        return
    if not (is_open and headers.get(b"sec-fetch-dest") == "document"):
        raise ForeignOrigin(
            "pages of another site may not ask for this without an Origin; open it by its address, or ask by fetch "
            "from a page that PASSBACK_ALLOWED_ORIGINS lists"
        )


# ---------------------------------------------------------------- what was refused, for the log
def shown_host(headers: Headers, /) -> str | None:
    """Return the host that a request names, as PASSBACK_ALLOWED_HOSTS can list it; None if it cannot."""
    name = _named_host(headers)
    shown = f"[{name}]" if name and ":" in name else name
    return shown if shown and _HOST.fullmatch(shown) else None


def shown_origin(headers: Headers, access: Access, /) -> str | None:
    """Return the refused origin, as PASSBACK_ALLOWED_ORIGINS can list it; None if it cannot, or there is none."""
    origin = foreign_origin(headers, access)
    return origin if origin is not None and _ORIGIN.fullmatch(origin) else None


# ---------------------------------------------------------------- keys
def authenticate(headers: Headers, access: Access, /) -> OwnerId:
    """Whose bearer key this is. All keys are compared, in constant time.

    Raises:
        Unauthenticated: keys are configured, and this is none of them, or more than one is presented: a proxy in front
            may have checked the other one.
    """
    if not access.keys:
        return ANONYMOUS
    if len(headers.all(b"authorization")) > 1:
        raise Unauthenticated("one Authorization header is needed, and this request has several")
    scheme, _, presented = headers.get(b"authorization").partition(" ")
    digest = _digest(presented.strip() if scheme.lower() == "bearer" else "")
    found: OwnerId | None = None
    for key, owner in access.keys.items():
        if hmac.compare_digest(_digest(key), digest):
            found = owner
    if found is None:
        raise Unauthenticated("a valid bearer key is needed")
    return found


def _digest(key: str) -> bytes:
    """Of one length for all keys, so that not even that is told by the time of a comparison."""
    return sha256(key.encode()).digest()


def _named_host(headers: Headers) -> str | None:
    """The name of the only `Host`; None when there is none, or it is malformed."""
    given = headers.all(b"host")
    return _host_name(given[0]) if len(given) == 1 and len(given[0]) <= _MAX_HOST else None


@lru_cache(maxsize=256)
def _host_name(authority: str) -> str | None:
    """The host of `host[:port]`, lower case; None when it is malformed."""
    try:
        parts = urlsplit(f"//{authority}")
        _ = parts.port
    except ValueError:
        return None
    is_plain = parts.netloc == authority and "@" not in authority
    return parts.hostname if is_plain else None


def _is_ours(name: str, access: Access) -> bool:
    if name == "localhost" or not access.hosts.isdisjoint({name, f"[{name}]"}):
        return True
    is_loopback = _is_loopback(name)
    return is_loopback is not None and (is_loopback or not access.loopback_only)


@lru_cache(maxsize=256)
def _is_loopback(name: str) -> bool | None:
    """Whether it is an address of this machine only; None when it is no address."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return None


def _is_loopback_host(headers: Headers) -> bool:
    name = _named_host(headers)
    return name is not None and (name == "localhost" or _is_loopback(name) is True)


def _is_same(origin: str, host: str) -> bool:
    """Whether an origin is the host itself; the scheme is set aside, for a proxy may have taken TLS away."""
    scheme, _, authority = origin.lower().partition("://")
    return scheme in {"http", "https"} and _without_default_port(
        authority
    ) == _without_default_port(host.lower())


def _without_default_port(authority: str) -> str:
    for port in _DEFAULT_PORTS:
        authority = authority.removesuffix(port)
    return authority
