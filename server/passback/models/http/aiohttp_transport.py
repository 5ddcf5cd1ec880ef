"""aiohttp behind httpx's interface. `transport` imports this module with the first request."""

import ssl

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

ERRORS = (aiohttp.ClientError,)
"""What httpx-aiohttp leaves as it is, such as the error for an answer which is not HTTP."""

PROXY_ERRORS = (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError)

_MAX_CONNECTIONS = 10_000  # answers read at once; further requests wait for a free connection


def make_transport(
    context: ssl.SSLContext, proxy: httpx.Proxy | None, /
) -> httpx.AsyncBaseTransport:
    """Return a transport with these certificates, through this proxy."""

    def open_session() -> aiohttp.ClientSession:
        # the transport's own session would keep cookies, and read at most 100 answers at once
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=_MAX_CONNECTIONS),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    return AiohttpTransport(verify=context, proxy=proxy, client=open_session)
