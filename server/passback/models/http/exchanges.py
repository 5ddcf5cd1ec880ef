"""Addresses, headers and bodies: what a client needs of HTTP."""

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing
from dataclasses import asdict
from http import HTTPStatus
from typing import cast

import anyio
import httpx

from passback.core.errors import ConfigurationError
from passback.core.values import value
from passback.models.http.connection import Answer, Patience
from passback.models.http.transport import Origin, Transport, head_of

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


# ---------------------------------------------------------------- answers
@value
class Arrival:
    """An answer whose head has come: what a client needs of it. Its stream must be closed.

    Attributes:
        media_type: in lower case, without parameters.
        is_encoded: whether the service compressed it, although it was not asked to.
        body: as it comes; what is encoded is never unpacked, for it could become any size.
    """

    status: int
    media_type: str
    is_encoded: bool
    retry_after: str | None
    stream: httpx.AsyncByteStream
    body: AsyncGenerator[bytes]

    @property
    def is_success(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class Exchanges:
    """Requests to a service with the headers that each of them has.

    Our own transport is asked without the objects that httpx makes of a request and its answer: making them costs a
    twentieth of a short request's instructions.
    """

    def __init__(
        self, transport: httpx.AsyncBaseTransport, answers: httpx.URL, headers: Headers, /
    ) -> None:
        self._transport = transport
        self._answers = answers
        self._headers = headers.raw
        self._origin = Origin.of(answers)
        self._head = head_of("POST", answers, headers.raw)

    async def post(self, body: bytes, patience: Patience, /) -> Arrival:
        """Post JSON to the address of answers.

        Raises:
            httpx.TransportError: no answer.
        """
        if isinstance(self._transport, Transport):
            message = b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)
            return _arrived(await self._transport.ask(self._origin, message, patience))
        length = (b"Content-Length", b"%d" % len(body))
        request = httpx.Request(
            "POST",
            self._answers,
            headers=[*self._headers, length],
            stream=httpx.ByteStream(body),
            extensions={"timeout": asdict(patience)},
        )
        return _arrival(await self._transport.handle_async_request(request))

    async def get(self, url: httpx.URL, patience: Patience, /) -> Arrival:
        """As `post`."""
        request = httpx.Request(
            "GET", url, headers=self._headers, extensions={"timeout": asdict(patience)}
        )
        return _arrival(await self._transport.handle_async_request(request))


def _arrived(answer: Answer) -> Arrival:
    headers = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
    answer.headers.clear()  # nobody asks for them any more, and the answer may take long
    body = cast("AsyncGenerator[bytes]", answer)
    kind = _media_type(headers.get(b"content-type", ""))
    is_encoded = _is_encoded(headers.get(b"content-encoding"))
    return Arrival(answer.status, kind, is_encoded, headers.get(b"retry-after"), answer, body)


def _arrival(response: httpx.Response) -> Arrival:
    headers, stream = response.headers, cast("httpx.AsyncByteStream", response.stream)
    # straight from the transport: two generators less for every read
    body = aiter(cast("AsyncIterable[bytes]", stream))
    return Arrival(
        response.status_code,
        _media_type(headers.get("content-type", "")),
        _is_encoded(headers.get("content-encoding")),
        headers.get("retry-after"),
        stream,
        cast("AsyncGenerator[bytes]", body),
    )


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _is_encoded(content_encoding: str | None) -> bool:
    return (content_encoding or "identity").strip().lower() != "identity"


async def read_some(arrival: Arrival, limit: int) -> bytes:
    """The body, or its beginning: what comes within some seconds, at most `limit` bytes and one read.

    Nothing of a body that is encoded.
    """
    if arrival.is_encoded:
        return b""
    read = bytearray()
    async with aclosing(arrival.body) as body:
        with anyio.move_on_after(_BODY_TIMEOUT):
            async for data in body:
                read += data
                if len(read) >= limit:
                    break
    return bytes(read)
