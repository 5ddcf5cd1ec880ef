"""Addresses, headers and bodies: what the client needs of HTTP."""

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from typing import cast

import anyio
import httpx

from passback.core.errors import ConfigurationError

_BODY_TIMEOUT = 5.0


def checked_url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL:
        raise ConfigurationError("the model's base URL is not a URL") from None
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.fragment:
        raise ConfigurationError("the model's base URL must look like https://host/v1")
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return url.copy_with(path=path)


def endpoint(base: httpx.URL, path: str) -> httpx.URL:
    return base.copy_with(path=f"{base.path.rstrip('/')}/{path}")


def headers_with(api_key: str | None) -> dict[str, str]:
    headers = {
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "passback",
    }
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError("the model's key has characters that no key has")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return headers


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
