"""How long the client waits, how often it tries, how much it takes."""

import random
from dataclasses import dataclass

import httpx

from passback.core.errors import ModelError
from passback.models.http.decoding import MAX_ANSWER

_jitter = random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Times in seconds.

    Attributes:
        connect_timeout: until a connection stands.
        content_timeout: without new content, before or in the answer. Keep-alives are no content: silence is noticed
            at once, a stream of nothing but keep-alives with the next of them.
        retries: further attempts while nothing of the answer has come.
        retry_delay: before the first of them, at most; it doubles each time.
        max_retry_after: the longest `Retry-After` that is waited for here; what asks for more fails, and says so.
        max_answer: characters of one answer.
    """

    connect_timeout: float = 10.0
    content_timeout: float = 60.0
    retries: int = 2
    retry_delay: float = 0.5
    max_retry_after: float = 5.0
    max_answer: int = MAX_ANSWER

    def pause(self, failure: ModelError, attempt: int, /) -> float | None:
        """Seconds until the attempt after this failed one, counted from 0. None: there is none."""
        if attempt >= self.retries or not failure.retryable:
            return None
        if isinstance(failure.__cause__, httpx.ReadTimeout):
            return None  # whoever waits has waited long enough
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.max_retry_after else None
        longest: float = self.retry_delay * 2**attempt
        return _jitter.uniform(longest / 2, longest)
