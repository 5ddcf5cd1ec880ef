"""The base of all clients over HTTP: requests, retries before the first byte, setting checks."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress

import anyio
import httpx
from typing_extensions import override

from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.errors import (
    ConfigurationError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
)
from passback.core.messages import MediaPart
from passback.core.values import value
from passback.models.http.bounds import Bounds
from passback.models.http.connection import Answer, Patience
from passback.models.http.decoding import Decoder
from passback.models.http.exchanges import Arrival, Exchanges, Headers, endpoint, read_some
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
from passback.models.http.reading import AnswerReader, StartedAnswer, error_kind, stall_error
from passback.models.http.transport import Transport

_MAX_ERROR_BODY = 64 * 1024  # bytes
_MAX_MODEL_LIST = 4 * 1024 * 1024  # bytes
_CHECK_PATIENCE = Patience(connect=10.0, read=10.0, write=10.0, pool=10.0)
_CHECK_TIMEOUT = 30.0  # seconds, for all requests of a check together
_LINGER = 0.1  # seconds to wait for the end of a body, so that its connection can be kept
_CLEANUP_TIMEOUT = 5.0  # seconds

logger = logging.getLogger(__name__)


@value
class ServiceEndpoint:
    """The addresses and headers of a model's service.

    Attributes:
        name: the client's name as people see it, with the model in it.
        model: the service's own name of the model.
        base: the base URL of the settings, without the path of a single request.
        given: the base URL as the settings give it.
        answers_url: the URL to post requests to.
        models_url: the URL of the list of models.
        headers: the headers of every request.
    """

    name: str
    model: str
    base: httpx.URL
    given: str
    answers_url: httpx.URL
    models_url: httpx.URL
    headers: Headers


@value
class EncodedRequest:
    """A request in the service's own form, and a function that makes the decoder of its answer.

    The function is called with True if the answer is one object instead of a stream.
    """

    body: bytes
    decoder: Callable[[bool], Decoder]


def checked_bounds(
    kind: str,
    owner: str,
    name: str,
    *,
    base_url: str | None,
    api_key: str | None,
    timeout: float | None,
) -> Bounds:
    """Check a setting such as `KIND:NAME`, and return the bounds that it gives.

    Without a base URL, the service is that of the kind's owner, who wants a key.

    Raises:
        ConfigurationError: there is no name, or no key for the owner's service.
    """
    if not name:
        raise ConfigurationError(f"the model needs a name: {kind}:NAME")
    if not base_url and not api_key:
        own = f"{kind.upper()}_API_KEY"
        raise ConfigurationError(f"{owner} needs a key ({own}), and any other service a base URL")
    return Bounds() if timeout is None else Bounds(content_timeout=timeout)


class HttpModel(ABC):
    """The base class of models that are reached over HTTP, with streamed answers.

    Args:
        service: the addresses and headers of the service.
        bounds: timeouts, retries and sizes.
        transport: an httpx transport to use instead of passback's own, for a proxy, certificates or
            a test. It is closed with the client.
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
        # Requests go straight to the transport: httpx's client costs half as much again, and brings
        # proxies of the environment, redirects and cookies, which must not be used here.
        self._transport = transport or Transport()
        self._exchanges = Exchanges(self._transport, service.answers_url, service.headers)
        self._patience = Patience(
            connect=self.bounds.connect_timeout,
            read=self.bounds.content_timeout,
            write=self.bounds.content_timeout,
            pool=2 * self.bounds.connect_timeout,
        )

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
        return _AnswerContext(self, self.encode(request))

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
        except (httpx.HTTPError, TimeoutError) as error:
            raise ModelUnavailable(f"{base} cannot be reached") from error
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
        listing = await self._exchanges.get(url, _CHECK_PATIENCE)
        async with aclosing(listing.stream):
            if listing.is_success and listing.is_encoded:
                raise unexpected_encoding()
            return read_listing(listing.status, await read_some(listing, _MAX_MODEL_LIST))

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def begin_answer(self, body: bytes, /) -> StartedAnswer:
        """Post a request, with retries, and return the answer once its first bytes have arrived.

        Raises:
            ModelError: the last attempt failed, or it failed in a way that a retry cannot mend.
        """
        for attempt in range(self.bounds.retries + 1):
            try:
                return await self._attempt_request(body)
            except ModelError as failure:
                pause = self.bounds.retry_pause(failure, attempt)
                logger.warning(
                    "model=%s failed code=%s attempt=%s", self.name, failure.code, attempt
                )
                if pause is None:
                    raise
            await anyio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover

    async def _attempt_request(self, body: bytes) -> StartedAnswer:
        """Post a request once.

        Raises:
            ModelError: there is no answer.
        """
        try:
            arrival = await self._exchanges.post(body, self._patience)
            has_begun = False
            try:  # a flag instead of `except`: a cancelled attempt has to close its stream, too
                begun = await self._read_first_bytes(arrival)
                has_begun = True
            finally:
                if not has_begun:
                    await _close_stream(arrival.stream)
            return begun
        except httpx.HTTPError as error:
            logger.warning("model=%s unreachable error=%s", self.name, error_kind(error))
            if isinstance(error, httpx.ReadTimeout):
                raise stall_error() from error
            raise ModelUnavailable("the model's service cannot be reached") from error

    async def _read_first_bytes(self, arrival: Arrival) -> StartedAnswer:
        if not arrival.is_success:
            logger.warning("model=%s status=%s", self.name, arrival.status)
            error_body = await read_some(arrival, _MAX_ERROR_BODY)
            raise status_failure(arrival.status, error_body, arrival.retry_after)
        if arrival.media_type == "text/html":
            raise ModelRejected("the model's address answers with a web page")
        if arrival.is_encoded:
            raise unexpected_encoding()
        first = await anext(arrival.body, b"")
        return StartedAnswer(
            arrival.stream, arrival.body, first, arrival.media_type == "application/json"
        )


class _AnswerContext(AbstractAsyncContextManager[AsyncIterator[Sequence[ModelDelta]]]):
    """The context of one answer, from the request until the connection is free or closed."""

    _arriving: AsyncGenerator[bytes]
    _stream: httpx.AsyncByteStream
    _decoder: Decoder

    def __init__(self, model: HttpModel, encoded: EncodedRequest) -> None:
        self._model = model
        self._body, self._decoder_of = encoded.body, encoded.decoder

    @override
    async def __aenter__(self) -> AnswerReader:
        model = self._model
        begun = await model.begin_answer(self._body)
        self._arriving, self._stream = begun.body, begun.stream
        self._decoder = self._decoder_of(begun.whole)
        del self._body, self._decoder_of  # the history is large, and the answer may take minutes
        return AnswerReader(model.name, begun, self._decoder, model.bounds.content_timeout)

    @override
    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if isinstance(self._arriving, Answer) and self._arriving.is_whole:
            self._arriving.close()  # a passback `Answer` is body and stream in one
            return
        try:
            async with aclosing(self._arriving) as body:
                # After an error or an early stop the rest of the body may be long.
                if kind is None and self._decoder.done:
                    await _read_to_end(body)
        finally:
            await _close_stream(self._stream)


async def _read_to_end(body: AsyncGenerator[bytes]) -> None:
    """Read the end of a body if it arrives at once, so that the connection can be used again."""
    with anyio.move_on_after(_LINGER), suppress(httpx.HTTPError):
        async for _ in body:
            pass


async def _close_stream(stream: httpx.AsyncByteStream) -> None:
    if isinstance(stream, Answer):
        stream.close()
        return
    # Shielded: a cancelled run would leave the socket open otherwise.
    with anyio.move_on_after(_CLEANUP_TIMEOUT, shield=True):
        await stream.aclose()
