"""The reader of an answer that has begun: bytes in, batches of deltas out, within bounds."""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import httpx
from typing_extensions import override

from passback.core.deltas import ModelDelta
from passback.core.errors import ModelError, ModelIncomplete, ModelUnavailable
from passback.core.values import value
from passback.models.http.decoding import Decoder
from passback.models.http.transport import TRANSPORT_ERRORS, error_kind, is_stall, without_text
from passback.pacing import LARGE, wait_for_large_work

logger = logging.getLogger(__name__)


@value
class StartedAnswer:
    """An answer whose first bytes have arrived.

    It holds only the parts of the response that reading needs: the response object is large.

    Attributes:
        whole: True if the answer is one object instead of a stream.
    """

    stream: httpx.AsyncByteStream
    body: AsyncGenerator[bytes]
    first: bytes
    whole: bool


class AnswerReader(AsyncIterator[Sequence[ModelDelta]]):
    """An iterator over the deltas of an answer, one batch for each read.

    It raises `ModelError` where the answer breaks off, after the deltas that came before.

    Args:
        name: the model's name, for the log.
        begun: the answer.
        decoder: turns its bytes into deltas.
        limit: the longest time without new content, in seconds.
    """

    def __init__(self, name: str, begun: StartedAnswer, decoder: Decoder, limit: float) -> None:
        self._name = name
        self._first = begun.first
        self._body = begun.body
        self._decoder = decoder
        self._limit = limit
        self._size = 0  # characters of the answer when it last grew
        self._grew_at = time.monotonic()
        self._over = False

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
            elif now - self._grew_at > self._limit:
                raise httpx.ReadTimeout("nothing but keep-alives")
            return await anext(self._body)
        except StopAsyncIteration:
            return b""
        except TRANSPORT_ERRORS as error:
            if self._decoder.finished:
                return b""  # the connection broke after the last thing that matters
            logger.warning("model=%s broke off error=%s", self._name, error_kind(error))
            if is_stall(error):
                raise stall_error() from without_text(error)
            raise ModelIncomplete(
                "the connection to the model's service was cut"
            ) from without_text(error)


def stall_error() -> ModelError:
    """Return the error for a service that was silent for longer than `content_timeout`."""
    return ModelUnavailable("the model's service sent nothing for too long")
