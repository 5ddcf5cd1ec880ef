"""Retries, and the pauses before them."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import SystemRandom
from typing import TypeVar

import anyio

from passback_client.contact import Contact
from passback_client.errors import BadAnswer, Busy, PassbackError
from passback_client.limits import Retry

_RANDOM = SystemRandom()
_T = TypeVar("_T")
_DOUBLINGS = 32
"""Limit of the exponent, against overflow."""
_ATTEMPTS = 8


class Backoff:
    """Counts failures in a row.

    Args:
        retry: the rules.
        contact: of the client.
        random: returns a number from 0 to 1.
        clock: returns seconds.
    """

    def __init__(
        self,
        retry: Retry,
        contact: Contact,
        *,
        random: Callable[[], float] = _RANDOM.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retry = retry
        self._contact = contact
        self._random = random
        self._clock = clock
        self._began: float | None = None
        self._failures = 0

    def begin(self) -> None:
        """Note the time of the first attempt."""
        if self._began is None:
            self._began = self._clock()

    def succeeded(self) -> None:
        self._failures = 0

    def pause_after(self, error: PassbackError, asked: float | None = None) -> float:
        """Return the seconds before the next attempt: the server's delay at least, with jitter.

        Args:
            error: of the last attempt; its `retry_after` counts.
            asked: seconds by the `retry:` of the stream.

        Raises:
            PassbackError: `error`, if there is no next attempt.
        """
        retry, least = self._retry, error.retry_after or 0.0
        most = _ATTEMPTS if retry.attempts is None else retry.attempts
        self._failures += 1
        if self._failures >= most or least > retry.longest_retry_after:
            raise error
        grown = self._grown(retry.first if asked is None else min(asked, retry.longest_retry_after))
        self._check_contact(error, least + grown)
        return least + grown

    def pause_within(self, most: float | None) -> float:
        """Return the seconds before another poll for the end of another client's claim.

        Args:
            most: seconds until its end, if that is known.
        """
        self._failures += 1
        pause = self._grown(self._retry.first)
        return pause if most is None else min(pause, max(most, self._retry.first))

    def _check_contact(self, error: PassbackError, pause: float) -> None:
        """Raise the error if no server has ever answered and the time for that is over."""
        bound = self._contact.bound(self._retry)
        if bound is None or self._began is None:
            return
        # a foreign server will hardly become a passback server
        is_foreign = isinstance(error, BadAnswer)
        if is_foreign or self._clock() - self._began + pause > bound:
            raise error

    def _grown(self, base: float) -> float:
        longest = max(self._retry.longest, base)
        pause = min(longest, base * 2.0 ** min(self._failures - 1, _DOUBLINGS))
        return pause * (0.5 + self._random() / 2)


async def with_retry(
    backoff: Backoff, request: Callable[[], Awaitable[_T]], *, waits_while_busy: bool = True
) -> _T:
    """Make an idempotent request, with retries.

    Raises:
        PassbackError: it was refused, or failed too often. Busy: at once, unless it waits for that.
    """
    backoff.begin()
    while True:
        try:
            return await request()
        except PassbackError as error:
            if not error.retryable or (isinstance(error, Busy) and not waits_while_busy):
                raise
            await anyio.sleep(backoff.pause_after(error))


def parse_retry_after(value: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header, a number or a date; None for anything else."""
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())
