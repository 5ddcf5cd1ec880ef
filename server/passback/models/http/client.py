"""The client: connects, asks, retries before the first byte, and reads the answer within bounds."""

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
    encoded_unasked,
    is_within,
    likely_bases,
    objection,
    read_listing,
    shown,
    status_failure,
)
from passback.models.http.reading import Begun, Reading, kind_of, stalled
from passback.models.http.transport import Transport

_MAX_ERROR_BODY = 64 * 1024
_MAX_MODEL_LIST = 4 * 1024 * 1024
_CHECK_PATIENCE = Patience(connect=10.0, read=10.0, write=10.0, pool=10.0)
_CHECK_SECONDS = 30.0  # for all that is asked, however slowly it comes
_LINGER = 0.1
_CLEANUP_TIMEOUT = 5.0

logger = logging.getLogger(__name__)


@value
class Service:
    """A model's service, as its client finds it.

    Attributes:
        name: what people are shown, with the model in it.
        model: the service's name of it.
        base: the address that settings give, without the path of one request.
        given: that address as it is given.
        answers: where answers are asked for.
        models: where the list of models is.
        headers: what they begin with.
    """

    name: str
    model: str
    base: httpx.URL
    given: str
    answers: httpx.URL
    models: httpx.URL
    headers: Headers


@value
class Encoded:
    """A request as the service takes it, and who reads the answer: whole, if it is one object instead of a stream."""

    body: bytes
    decoder: Callable[[bool], Decoder]


def settled(
    kind: str,
    owner: str,
    name: str,
    *,
    base_url: str | None,
    api_key: str | None,
    timeout: float | None,
) -> Bounds:
    """The bounds that a setting such as `KIND:NAME` gives, if it is one that can work.

    Where no base URL is given the service is its owner's, who wants a key.

    Raises:
        ConfigurationError: no name, or the owner's service without a key.
    """
    if not name:
        raise ConfigurationError(f"the model needs a name: {kind}:NAME")
    if not base_url and not api_key:
        own = f"{kind.upper()}_API_KEY"
        raise ConfigurationError(f"{owner} needs a key ({own}), and any other service a base URL")
    return Bounds() if timeout is None else Bounds(content_timeout=timeout)


class HttpModel(ABC):
    """A model behind HTTP, streamed.

    Args:
        service: where it is.
        bounds: of time and size.
        transport: another way to the service: a proxy, certificates, a test. It is closed with the client.
    """

    def __init__(
        self,
        service: Service,
        *,
        bounds: Bounds | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.bounds = bounds or Bounds()
        self._service = service
        # requests go to the transport as they are: httpx's client above it costs half as much again, and brings what
        # must not be here (proxies of the environment, redirects, cookies)
        self._transport = transport or Transport()
        self._exchanges = Exchanges(self._transport, service.answers, service.headers)
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
    def encode(self, request: ModelRequest, /) -> Encoded:
        """The request in the service's own form."""

    @abstractmethod
    def refuses(self, part: MediaPart, /) -> str | None:
        """As `ModelClient.refuses`."""

    def stream(
        self, request: ModelRequest, /
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[ModelDelta]]]:
        return _Answering(self, self.encode(request))

    async def check(self) -> Sequence[str]:
        """Ask for the list of models: shows whether address, key and name are right, and costs nothing.

        Raises:
            ModelError: what is wrong, for the person who wrote the settings.
        """
        service = self._service
        base = shown(service.base)
        try:
            with anyio.fail_after(_CHECK_SECONDS):
                listing = await self._listing(service.models)
                if not (listing.names or listing.is_broken):
                    await self._refuse_wrong_base(listing)
        except (httpx.HTTPError, TimeoutError) as error:
            raise ModelUnavailable(f"{base} cannot be reached") from error
        if wrong := objection(base, service.model, listing):
            raise wrong
        return [*self._longer_than_needed(base), *([] if listing.names else [_unlisted(base)])]

    def _longer_than_needed(self, base: str) -> Sequence[str]:
        if not is_within(self._service.base, self._service.given):
            return ()
        return [f"the base URL (PASSBACK_MODEL_BASE_URL) has more than it needs: set it to {base}"]

    async def _refuse_wrong_base(self, listing: Listing) -> None:
        """Raise ModelRejected if the list of models is where the base URL may have been meant to lead."""
        service = self._service
        for base in likely_bases(service.base, service.models):
            other = await self._listing(endpoint(base, "models"))
            if other.names or (other.is_refused and not listing.is_refused):
                raise ModelRejected(
                    f"{shown(service.base)} has no list of models, and {shown(base)} has: set the base URL "
                    f"(PASSBACK_MODEL_BASE_URL) to {shown(base)}"
                )

    async def _listing(self, url: httpx.URL) -> Listing:
        listing = await self._exchanges.get(url, _CHECK_PATIENCE)
        async with aclosing(listing.stream):
            if listing.is_success and listing.is_encoded:
                raise encoded_unasked()
            return read_listing(listing.status, await read_some(listing, _MAX_MODEL_LIST))

    async def aclose(self) -> None:
        await self._transport.aclose()

    # ------------------------------------------------------------ asking
    async def begin(self, body: bytes, /) -> Begun:
        """The first bytes of an answer, after as many attempts as are allowed.

        Raises:
            ModelError: there is none.
        """
        for attempt in range(self.bounds.retries + 1):
            try:
                return await self._attempt(body)
            except ModelError as failure:
                pause = self.bounds.pause(failure, attempt)
                logger.warning(
                    "model=%s failed code=%s attempt=%s", self.name, failure.code, attempt
                )
                if pause is None:
                    raise
            await anyio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover

    async def _attempt(self, body: bytes) -> Begun:
        try:
            arrival = await self._exchanges.post(body, self._patience)
            has_begun = False
            try:
                begun = await self._first_of(arrival)
                has_begun = True
            finally:
                if not has_begun:
                    await _close(arrival.stream)
            return begun
        except httpx.HTTPError as error:
            logger.warning("model=%s unreachable error=%s", self.name, kind_of(error))
            if isinstance(error, httpx.ReadTimeout):
                raise stalled() from error
            raise ModelUnavailable("the model's service cannot be reached") from error

    async def _first_of(self, arrival: Arrival) -> Begun:
        if not arrival.is_success:
            logger.warning("model=%s status=%s", self.name, arrival.status)
            error_body = await read_some(arrival, _MAX_ERROR_BODY)
            raise status_failure(arrival.status, error_body, arrival.retry_after)
        if arrival.media_type == "text/html":
            raise ModelRejected("the model's address answers with a web page")
        if arrival.is_encoded:
            raise encoded_unasked()
        first = await anext(arrival.body, b"")
        return Begun(arrival.stream, arrival.body, first, arrival.media_type == "application/json")


class _Answering(AbstractAsyncContextManager[AsyncIterator[Sequence[ModelDelta]]]):
    """One answer of a model, from the request to the end of the connection's use."""

    _arriving: AsyncGenerator[bytes]
    _stream: httpx.AsyncByteStream
    _decoder: Decoder

    def __init__(self, model: HttpModel, encoded: Encoded) -> None:
        self._model = model
        self._body, self._decoder_of = encoded.body, encoded.decoder

    @override
    async def __aenter__(self) -> Reading:
        model = self._model
        begun = await model.begin(self._body)
        self._arriving, self._stream = begun.body, begun.stream
        self._decoder = self._decoder_of(begun.whole)
        del self._body, self._decoder_of  # the history is large, and the answer may take long
        return Reading(model.name, begun, self._decoder, model.bounds.content_timeout)

    @override
    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if isinstance(self._arriving, Answer) and self._arriving.is_whole:
            self._arriving.close()  # it is its own stream
            return
        try:
            async with aclosing(self._arriving) as body:
                if kind is None and self._decoder.done:
                    await _read_to_end(body)
        finally:
            await _close(self._stream)


def _unlisted(base: str) -> str:
    return f"{base} has no list of models: whether it has this one was not checked"


async def _read_to_end(body: AsyncGenerator[bytes]) -> None:
    """Keep the connection for the next request, if the end of this answer comes at once."""
    with anyio.move_on_after(_LINGER), suppress(httpx.HTTPError):
        async for _ in body:
            pass


async def _close(stream: httpx.AsyncByteStream) -> None:
    if isinstance(stream, Answer):
        stream.close()
        return
    with anyio.move_on_after(_CLEANUP_TIMEOUT, shield=True):
        await stream.aclose()
