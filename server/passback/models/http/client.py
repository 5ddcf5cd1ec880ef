"""The client: connects, asks, retries before the first byte, and reads the answer within bounds."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass
from typing import cast

import anyio
import httpx

from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.errors import (
    ConfigurationError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
)
from passback.core.messages import MediaPart
from passback.models.http.bounds import Bounds
from passback.models.http.connection import Answer
from passback.models.http.decoding import Decoder
from passback.models.http.exchanges import Headers, body_of, media_type, read_some
from passback.models.http.failures import status_failure
from passback.models.http.listing import objection
from passback.models.http.reading import Begun, Reading, kind_of, stalled
from passback.models.http.transport import Transport

_MAX_ERROR_BODY = 64 * 1024
_MAX_MODEL_LIST = 4 * 1024 * 1024
_CHECK_TIMEOUT = 10.0
_LINGER = 0.1
_CLEANUP_TIMEOUT = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """A model's service, as its client finds it.

    Attributes:
        name: what people are shown, with the model in it.
        model: the service's name of it.
        base: the address that settings give.
        answers: where answers are asked for.
        models: where the list of models is.
        headers: what they begin with.
    """

    name: str
    model: str
    base: httpx.URL
    answers: httpx.URL
    models: httpx.URL
    headers: Headers


@dataclass(frozen=True, slots=True)
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
        raise ConfigurationError(f"{owner} needs a key, and any other service a base URL")
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
        patience = httpx.Timeout(
            self.bounds.content_timeout,
            connect=self.bounds.connect_timeout,
            pool=2 * self.bounds.connect_timeout,
        )
        self._patience = {"timeout": patience.as_dict()}

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
        encoded = self.encode(request)
        return self._stream(self._asking(encoded.body), encoded.decoder)

    @asynccontextmanager
    async def _stream(
        self, asking: httpx.Request, decoder_of: Callable[[bool], Decoder]
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        begun = await self._ask(asking)
        decoder = decoder_of(begun.whole)
        try:
            async with aclosing(begun.body):
                yield Reading(self.name, begun, decoder, self.bounds.content_timeout)
                if decoder.done:
                    await _read_to_end(begun.body)
        finally:
            await _close(begun.stream)

    async def check(self) -> None:
        """Ask for the list of models: shows whether address, key and name are right, and costs nothing.

        Raises:
            ModelError: what is wrong, for the person who wrote the settings.
        """
        patience = {"timeout": httpx.Timeout(_CHECK_TIMEOUT).as_dict()}
        service = self._service
        listing = httpx.Request(
            "GET", service.models, headers=service.headers.raw, extensions=patience
        )
        try:
            response = await self._transport.handle_async_request(listing)
            async with aclosing(response):
                body = await read_some(response, _MAX_MODEL_LIST)
        except httpx.HTTPError as error:
            raise ModelUnavailable(f"{service.base} cannot be reached") from error
        if wrong := objection(str(service.base), service.model, response.status_code, body):
            raise wrong

    async def aclose(self) -> None:
        await self._transport.aclose()

    # ------------------------------------------------------------ asking
    async def _ask(self, asking: httpx.Request) -> Begun:
        """The first bytes of an answer, after as many attempts as are allowed."""
        for attempt in range(self.bounds.retries + 1):
            try:
                return await self._attempt(asking)
            except ModelError as failure:
                pause = self.bounds.pause(failure, attempt)
                logger.warning(
                    "model=%s failed code=%s attempt=%s", self.name, failure.code, attempt
                )
                if pause is None:
                    raise
            await anyio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover

    def _asking(self, body: bytes) -> httpx.Request:
        """A request whose headers are known: to let httpx find them costs three times as much."""
        length = (b"Content-Length", b"%d" % len(body))
        return httpx.Request(
            "POST",
            self._service.answers,
            headers=[*self._service.headers.raw, length],
            stream=httpx.ByteStream(body),
            extensions=self._patience,
        )

    async def _attempt(self, asking: httpx.Request) -> Begun:
        async with AsyncExitStack() as unless_it_begins:
            try:
                response = await self._transport.handle_async_request(asking)
                unless_it_begins.push_async_callback(_close, _stream_of(response))
                answer = await self._begin(response)
            except httpx.HTTPError as error:
                logger.warning("model=%s unreachable error=%s", self.name, kind_of(error))
                if isinstance(error, httpx.ReadTimeout):
                    raise stalled() from error
                raise ModelUnavailable("the model's service cannot be reached") from error
            unless_it_begins.pop_all()
            return answer

    async def _begin(self, response: httpx.Response) -> Begun:
        if not response.is_success:
            logger.warning("model=%s status=%s", self.name, response.status_code)
            error_body = await read_some(response, _MAX_ERROR_BODY)
            retry_after = response.headers.get("retry-after")
            raise status_failure(response.status_code, error_body, retry_after)
        kind = media_type(response)
        if kind == "text/html":
            raise ModelRejected("the model's address answers with a web page")
        body = body_of(response)
        first = await anext(body, b"")
        return Begun(_stream_of(response), body, first, kind == "application/json")


async def _read_to_end(body: AsyncGenerator[bytes]) -> None:
    """Keep the connection for the next request, if the end of this answer has come or comes at once."""
    if isinstance(body, Answer) and body.is_whole:
        return
    with anyio.move_on_after(_LINGER), suppress(httpx.HTTPError):
        async for _ in body:
            pass


def _stream_of(response: httpx.Response) -> httpx.AsyncByteStream:
    return cast("httpx.AsyncByteStream", response.stream)


async def _close(stream: httpx.AsyncByteStream) -> None:
    if isinstance(stream, Answer):
        stream.close()
        return
    with anyio.move_on_after(_CLEANUP_TIMEOUT, shield=True):
        await stream.aclose()
