"""Bounds of a client: timeouts, retries, and the size of an answer."""

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
        connect_timeout: the longest time to open a connection.
        content_timeout: the longest time without new content, before the answer or in it.
            Keep-alives are not content: silence is noticed at once, a stream of nothing but
            keep-alives when the next of them arrives.
        retries: the number of further attempts while nothing of the answer has arrived.
        retry_delay: the longest pause before the first retry; it doubles with each further one.
        max_retry_after: the longest `Retry-After` that is waited for. If a service asks for more,
            the request fails, and the error says for how long.
        max_answer: characters of one answer.
    """

    connect_timeout: float = 10.0
    content_timeout: float = 60.0
    retries: int = 2
    retry_delay: float = 0.5
    max_retry_after: float = 5.0
    max_answer: int = MAX_ANSWER

    def retry_pause(self, failure: ModelError, attempt: int, /) -> float | None:
        """Return the seconds to wait before the next attempt, or None if there is to be none.

        `attempt` is the number of the attempt that failed, counted from 0.
        """
        if attempt >= self.retries or not failure.retryable:
            return None
        if isinstance(failure.__cause__, httpx.ReadTimeout):
            return None  # the user has waited for a whole `content_timeout` already
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.max_retry_after else None
        # Jitter: clients that failed together should not come back together.
        longest: float = self.retry_delay * 2**attempt
        return _jitter.uniform(longest / 2, longest)
