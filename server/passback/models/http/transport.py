"""The transport of requests to a model's service: aiohttp behind httpx's interface.

aiohttp is imported with the first request: that takes long, and an editor waits for the start.

Proxies and certificates are those that the environment names: `HTTP_PROXY`, `HTTPS_PROXY`,
`ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE` and `SSL_CERT_DIR`. A service on this machine is asked
directly, whatever they say.
"""

import importlib
import ssl
import sys
from typing import cast
from urllib.request import getproxies, proxy_bypass

import anyio.to_thread
import httpx
from typing_extensions import override

from passback.core.errors import ConfigurationError, ModelError, ModelUnavailable
from passback.setting_forms import is_loopback

_AIOHTTP = "passback.models.http.aiohttp_transport"


def transport_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return what a transport raises, and `others`, for `except`.

    Until aiohttp is imported, it raises none of its own.
    """
    module = sys.modules.get(_AIOHTTP)
    return (httpx.HTTPError, *(module.ERRORS if module else ()), *others)


def open_transport(url: httpx.URL, /) -> httpx.AsyncBaseTransport:
    """Return a transport for requests to the host of `url`.

    Raises:
        ConfigurationError: the environment names a proxy or certificates that cannot be used.
    """
    try:
        context = httpx.create_ssl_context()  # certifi's authorities if the environment names none
    except OSError as error:
        raise ConfigurationError(
            "SSL_CERT_FILE must name a file, or SSL_CERT_DIR a folder, of PEM certificates"
        ) from error

    return _LateTransport(context, find_proxy(url))


class _LateTransport(httpx.AsyncBaseTransport):
    """A transport that is made when the first request is sent."""

    def __init__(self, context: ssl.SSLContext, proxy: httpx.Proxy | None) -> None:
        self._context = context
        self._proxy = proxy
        self._made: httpx.AsyncBaseTransport | None = None

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        made = self._made or await self._make()
        return await made.handle_async_request(request)

    async def _make(self) -> httpx.AsyncBaseTransport:
        module = await anyio.to_thread.run_sync(importlib.import_module, _AIOHTTP)
        if (made := self._made) is None:  # else another request was faster
            made = self._made = cast(
                "httpx.AsyncBaseTransport", module.make_transport(self._context, self._proxy)
            )
        return made

    @override
    async def aclose(self) -> None:
        if self._made is not None:
            await self._made.aclose()


def find_proxy(url: httpx.URL, /) -> httpx.Proxy | None:
    """Return the proxy that the environment names for the host of `url`, None without one.

    Raises:
        ConfigurationError: it is not the URL of an HTTP proxy.
    """
    # aiohttp would look anew for each request, and take passwords from ~/.netrc besides
    proxies = getproxies()
    name = url.scheme if proxies.get(url.scheme) else "all"
    address = proxies.get(name, "").strip()
    if not address or is_loopback(url.host) or proxy_bypass(url.netloc.decode("ascii")):
        return None
    try:
        proxy = httpx.Proxy(address if "://" in address else f"http://{address}")
        proxy.url.raw_host.decode("ascii").encode("idna")  # or the socket would refuse it
        user, password = proxy.auth or ("", "")
        (user + password).encode("latin-1")  # or aiohttp could not send it
        if ":" not in user and proxy.url.scheme in {"http", "https"} and proxy.url.host:
            return proxy
    except (httpx.InvalidURL, ValueError):
        pass
    # without its cause, which holds the address, and that may hold a password
    raise ConfigurationError(
        f"{name.upper()}_PROXY must look like http://host:port; to reach {url.host} without it, "
        f"put {url.host} into NO_PROXY"
    ) from None


def is_stall(error: Exception, /) -> bool:
    """Return True if a service was reached, and then took or sent nothing for too long."""
    # a bare TimeoutError is that of a request as a whole
    return isinstance(error, httpx.ReadTimeout) or type(error) is TimeoutError


def error_kind(error: Exception, /) -> str:
    """Return the name of the transport's own error: httpx has fewer kinds of errors."""
    return type(error.__cause__ or error).__name__


def unreachable_error(who: str, error: Exception, /) -> ModelError:
    """Return the error for a service that a transport's error kept a request from."""
    module = sys.modules.get(_AIOHTTP)
    if module and isinstance(error.__cause__, module.PROXY_ERRORS):
        return ModelUnavailable(f"the proxy to {who} cannot be reached, or refuses")
    return ModelUnavailable(f"{who} cannot be reached")


def without_text(error: Exception, /) -> httpx.HTTPError:
    """Return an error that says of which kind another is, and no more.

    The texts of a transport's errors have URLs in them, with the key that some services take in the
    query, or the password of a proxy.
    """
    return (httpx.ReadTimeout if is_stall(error) else httpx.TransportError)(error_kind(error))
