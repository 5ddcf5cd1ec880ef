"""The base of all clients over HTTP: requests, retries before the first byte, setting checks.

An answer that has begun is read in batches of deltas, within bounds.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from typing import cast

import anyio
import httpx
from typing_extensions import override

from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.errors import ModelError, ModelIncomplete, ModelRejected, ModelUnavailable
from passback.core.messages import MediaPart
from passback.core.values import value
from passback.models.http.decoding import Decoder
from passback.models.http.failures import (
    Listing,
    has_longer_path,
    likely_bases,
    listing_error,
    read_listing,
    status_failure,
    unexpected_encoding,
    without_query,
)
from passback.models.http.service import Bounds, ServiceEndpoint, endpoint
from passback.models.http.transport import (
    error_kind,
    is_stall,
    open_transport,
    transport_errors,
    unreachable_error,
    without_text,
)
from passback.pacing import LARGE, wait_for_large_work

_MAX_ERROR_BODY = 64 * 1024  # bytes
_MAX_MODEL_LIST = 4 * 1024 * 1024  # bytes
_CHECK_TIMEOUTS = httpx.Timeout(10.0)  # seconds, for each step of one request
_CHECK_TIMEOUT = 30.0  # seconds, for all requests of a check together
_PIECE = 256 * 1024  # bytes of a request that are sent at once
_BODY_TIMEOUT = 5.0  # seconds to read a body that is no answer
_LINGER = 0.1  # seconds to wait for the end of a body, so that its connection can be kept
_CLEANUP_TIMEOUT = 5.0  # seconds

logger = logging.getLogger(__name__)


@value
class EncodedRequest:
    """A request in the service's own form, and a function that makes the decoder of its answer.

    The function takes `whole`: True if the answer is one object instead of a stream.
    """

    body: bytes
    decoder: Callable[..., Decoder]


class HttpModel(ABC):
    """The base class of models that are reached over HTTP, with streamed answers.

    Args:
        service: the addresses and headers of the service.
        bounds: timeouts, retries and sizes.
        transport: an httpx transport to use instead of the usual one, for a proxy or certificates
            that the environment does not name, or a test. It is closed with the client.
    """

    def __init__(
        self,
        service: ServiceEndpoint,
        *,
        bounds: Bounds | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.bounds = bounds or Bounds()
        self._service = service
        # Requests go straight to the transport: what httpx's client does on top of it (redirects,
        # cookies, a log line with the URL) must not be done here, and takes time for each request.
        self._transport = transport or open_transport(service.base)
        connect, content = self.bounds.connect_timeout, self.bounds.content_timeout
        self._timeouts = httpx.Timeout(content, connect=connect, pool=2 * connect)
        # the transport begins to count when the request is sent, which a service may never take
        self._head_timeout = 2 * connect + content

    @property
    def name(self) -> str:
        return self._service.name

    @abstractmethod
    def encode(self, request: ModelRequest, /) -> EncodedRequest:
        """Return the request in the service's own form."""

    @abstractmethod
    def refuses(self, part: MediaPart, /) -> str | None:
        """Return the reason to refuse an attachment, see `ModelClient.refuses`."""

    def stream(
        self, request: ModelRequest, /
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[ModelDelta]]]:
        return AnswerReader(self, self.encode(request))

    async def check(self) -> Sequence[str]:
        """Check address, key and name by the service's list of models, which costs nothing.

        Return warnings for the person who wrote the settings.

        Raises:
            ModelError: the settings cannot work, or the service cannot be reached.
        """
        service = self._service
        base = without_query(service.base)
        try:
            with anyio.fail_after(_CHECK_TIMEOUT):
                listing = await self._fetch_listing(service.models_url)
                if not (listing.names or listing.is_broken):
                    await self._refuse_wrong_base(listing)
        except transport_errors(TimeoutError) as error:
            raise unreachable_error(base, error) from without_text(error)
        if wrong := listing_error(base, service.model, listing):
            raise wrong
        warnings: list[str] = []
        if has_longer_path(service.base, service.given):
            warnings.append(
                f"the base URL (PASSBACK_MODEL_BASE_URL) has more than it needs: set it to {base}"
            )
        if not listing.names:
            warnings.append(
                f"{base} has no list of models: whether it has this one was not checked"
            )
        return warnings

    async def _refuse_wrong_base(self, listing: Listing) -> None:
        """Look for the list of models at the addresses that the base URL may have been meant as.

        Raises:
            ModelRejected: the list is there, so the base URL is wrong.
        """
        service = self._service
        for base in likely_bases(service.base, service.models_url):
            other = await self._fetch_listing(endpoint(base, "models"))
            # A refused key where the first address did not refuse it: the API begins there.
            if other.names or (other.is_refused and not listing.is_refused):
                raise ModelRejected(
                    f"{without_query(service.base)} has no list of models, "
                    f"and {without_query(base)} has: "
                    f"set the base URL (PASSBACK_MODEL_BASE_URL) to {without_query(base)}"
                )

    async def _fetch_listing(self, url: httpx.URL) -> Listing:
        response = await self._send("GET", url, _CHECK_TIMEOUTS)
        async with aclosing(response):
            if response.is_success and _is_encoded(response):
                raise unexpected_encoding()
            return read_listing(response.status_code, await _read_some(response, _MAX_MODEL_LIST))

    async def aclose(self) -> None:
        """Close the connections; all answers must have been read to their ends or left."""
        await self._transport.aclose()

    async def post(self, body: bytes, /) -> httpx.Response:
        """Post a request once, and return the response without its body."""
        with anyio.fail_after(self._head_timeout):
            return await self._send("POST", self._service.answers_url, self._timeouts, body)

    async def _send(
        self, method: str, url: httpx.URL, timeouts: httpx.Timeout, body: bytes | None = None
    ) -> httpx.Response:
        async def pieces_of(body: bytes) -> AsyncGenerator[bytes]:
            for start in range(0, len(body), _PIECE):
                yield body[start : start + _PIECE]

        headers = self._service.headers.raw
        content: bytes | AsyncGenerator[bytes] | None = body
        if body is not None and len(body) > _PIECE:  # at once, it would hold up the event loop
            headers = [*headers, (b"Content-Length", b"%d" % len(body))]
            content = pieces_of(body)
        extensions = {"timeout": timeouts.as_dict()}
        request = httpx.Request(
            method, url, headers=headers, content=content, extensions=extensions
        )
        return await self._transport.handle_async_request(request)


def _body_of(response: httpx.Response) -> AsyncGenerator[bytes]:
    # the methods of the response would put two generators more around each read
    return cast("AsyncGenerator[bytes]", aiter(cast("httpx.AsyncByteStream", response.stream)))


def _is_encoded(response: httpx.Response) -> bool:
    encoding: str = response.headers.get("content-encoding", "")
    return encoding.strip().lower() not in {"", "identity"}


async def _read_some(response: httpx.Response, limit: int) -> bytes:
    """Return what arrives of a body within some seconds, at most `limit` bytes and one read.

    Nothing of a body that is encoded.
    """
    read = bytearray()
    if _is_encoded(response):
        return b""
    async with aclosing(_body_of(response)) as body:
        with anyio.move_on_after(_BODY_TIMEOUT):
            async for data in body:
                read += data
                if len(read) >= limit:
                    break
    return bytes(read)


class AnswerReader(
    AbstractAsyncContextManager["AnswerReader"], AsyncIterator[Sequence[ModelDelta]]
):
    """One answer, from its request until the connection is free or closed.

    Entering it posts the request, with retries, until the first bytes have arrived. It is an
    iterator over the deltas, one batch for each read. It raises `ModelError` where the answer
    breaks off, after the deltas that came before.

    It holds only the parts of the response that reading needs: the response object is large.
    """

    _stream: httpx.AsyncByteStream
    _body: AsyncGenerator[bytes]
    _first: bytes
    _decoder: Decoder

    def __init__(self, model: HttpModel, encoded: EncodedRequest) -> None:
        self._model = model
        self._encoded = encoded
        self._size = 0  # characters of the answer when it last grew
        self._grew_at = 0.0
        self._over = False

    @override
    async def __aenter__(self) -> "AnswerReader":
        """Raises ModelError if the last attempt failed, or one in a way that no retry mends."""
        name, bounds = self._model.name, self._model.bounds
        for attempt in range(bounds.retries + 1):
            try:
                await self._begin()
                return self
            except ModelError as failure:
                pause = bounds.retry_pause(failure, attempt)
                logger.warning("model=%s failed code=%s attempt=%s", name, failure.code, attempt)
                if pause is None:
                    raise
            await anyio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover

    async def _begin(self) -> None:
        """Post the request once.

        Raises:
            ModelError: there is no answer.
        """
        name = self._model.name
        try:
            async with AsyncExitStack() as stack:
                response = await self._model.post(self._encoded.body)
                self._stream = cast("httpx.AsyncByteStream", response.stream)
                stack.push_async_callback(_close_stream, self._stream)
                status, headers = response.status_code, response.headers
                if not response.is_success:
                    logger.warning("model=%s status=%s", name, status)
                    error_body = await _read_some(response, _MAX_ERROR_BODY)
                    raise status_failure(status, error_body, headers.get("retry-after"))
                media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
                if media_type == "text/html":
                    raise ModelRejected("the model's address answers with a web page")
                if _is_encoded(response):
                    raise unexpected_encoding()
                self._body = _body_of(response)
                self._first = await anext(self._body, b"")
                stack.pop_all()  # from here on `__aexit__` closes the stream
        except transport_errors(TimeoutError) as error:
            logger.warning("model=%s unreachable error=%s", name, error_kind(error))
            if is_stall(error):
                raise _stall_error() from without_text(error)
            raise unreachable_error("the model's service", error) from without_text(error)
        self._decoder = self._encoded.decoder(whole=media_type == "application/json")
        del self._encoded  # the history is large, and the answer may take minutes
        self._grew_at = time.monotonic()

    @override
    async def __anext__(self) -> Sequence[ModelDelta]:
        while not self._over:
            self._decoder.check()
            data = self._first or await self._read_body()
            self._first = b""
            if len(data) > LARGE:
                await wait_for_large_work()
            batch = self._decoder.feed(data)
            if not data or self._decoder.done:
                self._over = True
                batch = (*batch, *self._decoder.end())
            if batch:
                return batch
        self._decoder.check()
        raise StopAsyncIteration

    async def _read_body(self) -> bytes:
        """Return the bytes that have arrived since the last read; none at the end.

        Raises:
            ModelError: the connection failed before the answer was complete.
        """
        try:
            now = time.monotonic()
            if self._decoder.size > self._size:
                self._size, self._grew_at = self._decoder.size, now
            elif now - self._grew_at > self._model.bounds.content_timeout:
                raise httpx.ReadTimeout("nothing but keep-alives")
            return await anext(self._body)
        except StopAsyncIteration:
            return b""
        except transport_errors() as error:
            if self._decoder.finished:
                return b""  # the connection broke after the last thing that matters
            logger.warning("model=%s broke off error=%s", self._model.name, error_kind(error))
            if is_stall(error):
                raise _stall_error() from without_text(error)
            raise ModelIncomplete(
                "the connection to the model's service was cut"
            ) from without_text(error)

    @override
    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            async with aclosing(self._body) as body:
                # After an error or an early stop the rest of the body may be long.
                if kind is None and self._decoder.done:
                    # an end that arrives at once lets the connection be used again
                    with anyio.move_on_after(_LINGER), suppress(*transport_errors()):
                        async for _ in body:
                            pass
        finally:
            await _close_stream(self._stream)


async def _close_stream(stream: httpx.AsyncByteStream) -> None:
    # Shielded: a cancelled run would leave the socket open otherwise.
    with anyio.move_on_after(_CLEANUP_TIMEOUT, shield=True):
        await stream.aclose()


def _stall_error() -> ModelError:
    """Return the error for a service that was silent for longer than `content_timeout`."""
    return ModelUnavailable("the model's service sent nothing for too long")
