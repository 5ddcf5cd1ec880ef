"""Reading an answer that has begun: bytes in, batches of deltas out, within bounds."""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Self

import httpx
from typing_extensions import override

from passback.core.deltas import ModelDelta, TextChunk
from passback.core.errors import ModelError, ModelIncomplete, ModelUnavailable
from passback.core.ports import Eager, TakeDeltas
from passback.core.values import value
from passback.models.http.connection import Answer
from passback.models.http.decoding import Decoder
from passback.pacing import LARGE, large_work

logger = logging.getLogger(__name__)


@value
class Begun:
    """An answer whose first bytes have come. Of the response, which is heavy, only what is needed while it is read."""

    stream: httpx.AsyncByteStream
    body: AsyncGenerator[bytes]
    first: bytes
    whole: bool
    """It is one object instead of a stream."""


class Reading(AsyncIterator[Sequence[ModelDelta]], Eager):
    """The batches of an answer: what one read brought.

    Raises `ModelError` where the answer breaks off, after what came of it before.

    Args:
        name: the model's.
        begun: the answer.
        decoder: makes deltas of it.
        limit: seconds without new content.
    """

    _take: TakeDeltas

    def __init__(self, name: str, begun: Begun, decoder: Decoder, limit: float) -> None:
        self._name = name
        self._first = begun.first
        self._body = begun.body
        self._decoder = decoder
        self._stall = _Stall(limit)
        self._over = False

    @override
    def try_deliver(self, take: TakeDeltas, /) -> None:
        if not isinstance(self._body, Answer):
            return  # a transport that gives its bytes in its reader's turn only
        self._take = take
        self._body.offer = self._offered

    def _offered(self, data: bytes) -> bool:
        if len(data) > LARGE:
            return False
        text = self._decoder.take_text(data)
        if not text:
            return False
        self._stall.check(self._decoder.size)  # it has grown
        self._take((TextChunk(text),))
        return True

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Sequence[ModelDelta]:
        while not self._over:
            self._decoder.check()
            if batch := await self._next():
                return batch
        self._decoder.check()
        raise StopAsyncIteration

    async def _next(self) -> Sequence[ModelDelta]:
        data = self._first or await self._read()
        self._first = b""
        if len(data) > LARGE:
            await large_work()
        batch = self._decoder.feed(data)
        if data and not self._decoder.done:
            return batch
        self._over = True
        return (*batch, *self._decoder.end())

    async def _read(self) -> bytes:
        """What has come since the last time; nothing at the end."""
        try:
            self._stall.check(self._decoder.size)
            return await anext(self._body)
        except StopAsyncIteration:
            return b""
        except httpx.HTTPError as error:
            self._broke_off(error)
            return b""

    def _broke_off(self, error: httpx.HTTPError) -> None:
        """Raise what it means, unless all that mattered had come."""
        if self._decoder.finished:
            return
        logger.warning("model=%s broke off error=%s", self._name, kind_of(error))
        if isinstance(error, httpx.ReadTimeout):
            raise stalled() from error
        raise ModelIncomplete("the connection to the model's service was cut") from error


class _Stall:
    """Notices that the answer has not grown for `limit` seconds; a slow reader's time does not count."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._size = 0
        self._grew_at = time.monotonic()

    def check(self, size: int) -> None:
        """Raises httpx.ReadTimeout."""
        now = time.monotonic()
        if size > self._size:
            self._size, self._grew_at = size, now
        elif now - self._grew_at > self._limit:
            raise httpx.ReadTimeout("nothing but keep-alives")


def kind_of(error: httpx.HTTPError, /) -> str:
    """What it was below: httpx knows fewer kinds than the transport."""
    return type(error.__cause__ or error).__name__


def stalled() -> ModelError:
    return ModelUnavailable("the model's service sent nothing for too long")
