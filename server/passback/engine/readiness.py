"""The readiness of the store, asked for at most once a second however often a probe asks."""

from collections.abc import Awaitable, Callable
from time import monotonic

import anyio

from passback.core.errors import StoreError

READY_SECONDS = (
    1.0  # for which an answer of the store counts: anybody may ask, and each look is a write
)


class Readiness:
    """Remembers the last answer of `ping`; those who ask meanwhile wait for the same one."""

    def __init__(
        self, ping: Callable[[], Awaitable[None]], /, *, seconds: float = READY_SECONDS
    ) -> None:
        self._ping = ping
        self._seconds = seconds
        self._asking = anyio.Lock()
        self._counts_until = 0.0
        self._error: StoreError | None = None

    async def check(self) -> None:
        """Return when the store can be used. Raises StoreError otherwise."""
        async with self._asking:
            error = await self._answer()
        if error is not None:
            # a new one: what is raised again and again grows by its traceback each time
            raise type(error)(error.message, retry_after=error.retry_after)

    async def _answer(self) -> StoreError | None:
        if monotonic() >= self._counts_until:
            self._error = None
            try:
                await self._ping()
            except StoreError as error:
                self._error = error
            self._counts_until = monotonic() + self._seconds
        return self._error
