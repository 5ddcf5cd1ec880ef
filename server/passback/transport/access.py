"""Who may talk to the server: the settings and the rules. Foreign pages and rebound names are refused (P13)."""

import hmac
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from urllib.parse import urlsplit

from passback.core.errors import ForeignHost, ForeignOrigin, Unauthenticated
from passback.core.messages import OwnerId
from passback.core.values import value
from passback.transport.headers import Headers

ANONYMOUS = OwnerId("anonymous")
_DEFAULT_PORTS = (":80", ":443")
_FOREIGN_SITES = frozenset({"cross-site", "same-site"})
_MAX_HOST = 512
"""Characters: more than a name of the DNS has, and few enough to be remembered."""


@value
class Access:
    """Who may talk to the server.

    Args:
        hosts: names that a `Host` header may have beside loopback, without port, lower case.
        origins: origins of other sites whose pages may call us, exactly as browsers send them.
        keys: bearer keys and whose they are; none: everyone is the owner `anonymous`.
        loopback_only: the server is bound to a loopback address; otherwise `Host` may be any IP address.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    keys: Mapping[str, OwnerId] = field(default_factory=dict[str, OwnerId])
    loopback_only: bool = True


def check_host(headers: Headers, access: Access, /) -> None:
    """Refuse a name that is not ours: a hostile page can make its own name lead to this machine.

    Raises:
        ForeignHost: the `Host` header is missing, doubled, or names neither us nor an address.
    """
    given = headers.all(b"host")
    name = _host_name(given[0]) if len(given) == 1 and len(given[0]) <= _MAX_HOST else None
    if name is None or not _is_ours(name, access):
        raise ForeignHost("this server does not answer for the host that the request names")


def check_origin(headers: Headers, access: Access, /) -> None:
    """Refuse a page of another site.

    Raises:
        ForeignOrigin: the `Origin` header is neither our own nor one that the settings name.
    """
    for origin in headers.all(b"origin"):
        if origin not in access.origins and not _is_same(origin, headers.get(b"host")):
            raise ForeignOrigin("pages of this origin may not call this server")


def check_site(headers: Headers, access: Access, /, *, is_open: bool) -> None:
    """Refuse what another site makes a browser ask for: an `Origin` does not come with a picture, an object or a link.

    Args:
        headers: the request's.
        access: the rules; a page of `access.origins` may ask from any site, by CORS.
        is_open: the path needs no credentials, so that a link may lead to it.

    Raises:
        ForeignOrigin: the browser says that a page of another site, or of another port of this host, asks.
    """
    asks = headers.all(b"sec-fetch-site")
    if _FOREIGN_SITES.isdisjoint(asks) or headers.get(b"origin") in access.origins:
        return
    if not (is_open and headers.get(b"sec-fetch-dest") == "document"):
        raise ForeignOrigin("pages of another site may not ask for this; open it by its address")


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
