"""Addresses, headers and bodies: what a client needs of HTTP."""

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing
from typing import cast

import anyio
import httpx

from passback.core.errors import ConfigurationError

_BODY_TIMEOUT = 5.0


class Headers:
    """What each request of a client begins with; shows nothing of itself, for there is a key in it."""

    def __init__(self, url: httpx.URL, own: Mapping[str, str]) -> None:
        headers = {
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "passback",
            **own,
        }
        self.raw = httpx.Request("GET", url, headers=headers).headers.raw  # with the host


def checked_url(text: str, *endings: str) -> httpx.URL:
    """A base URL; of a longer address, with the whole path to the model, these endings are taken off in turn.

    Raises:
        ConfigurationError: it cannot be one.
    """
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL:
        raise ConfigurationError("the model's base URL is not a URL") from None
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.fragment:
        raise ConfigurationError("the model's base URL must look like https://host/v1")
    path = url.path.rstrip("/")
    for ending in endings:
        path = path.removesuffix(ending)
    return url.copy_with(path=path)


def endpoint(base: httpx.URL, path: str) -> httpx.URL:
    return base.copy_with(path=f"{base.path.rstrip('/')}/{path}")


def checked_key(api_key: str | None) -> str:
    """The key as it is sent, empty if there is none.

    Raises:
        ConfigurationError: it cannot be one.
    """
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError("the model's key has characters that no key has")
    return key


# ---------------------------------------------------------------- responses
def media_type(response: httpx.Response) -> str:
    content_type: str = response.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower()


def body_of(response: httpx.Response) -> AsyncGenerator[bytes]:
    """The body as it comes, decompressed when the service compressed it unasked."""
    # straight from the transport where there is nothing to decode: two generators less for every read
    plain = "content-encoding" not in response.headers
    body = aiter(cast("AsyncIterable[bytes]", response.stream)) if plain else response.aiter_bytes()
    return cast("AsyncGenerator[bytes]", body)


async def read_some(response: httpx.Response, limit: int) -> bytes:
    """The body, or its beginning: what comes within some seconds, at most `limit` bytes and one read."""
    read = bytearray()
    async with aclosing(body_of(response)) as body:
        with anyio.move_on_after(_BODY_TIMEOUT):
            async for data in body:
                read += data
                if len(read) >= limit:
                    break
    return bytes(read)
