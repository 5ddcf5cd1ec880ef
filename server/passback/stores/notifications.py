"""Wake-up notifications inside a process: who waits for a conversation's log, and how to wake them."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio

QUIET_LIMIT = 2.0  # seconds after which a wait ends without a reason, in case a hint was lost
Look = Callable[[], Awaitable[None]]


class LogWaiter:
    """One waiting reader. A ring before the wait is not lost.

    Args:
        look: asked every `pause` seconds during a wait; it may ring this bell.
    """

    def __init__(self, look: Look | None = None, pause: float = QUIET_LIMIT) -> None:
        self._rung = anyio.Event()
        self._look = look
        self._pause = pause

    def ring(self) -> None:
        self._rung.set()

    async def wait(self) -> None:
        with anyio.move_on_after(QUIET_LIMIT):
            await self._until_rung()
        self._rung = anyio.Event()

    async def _until_rung(self) -> None:
        while not self._rung.is_set():
            with anyio.move_on_after(self._pause):
                await self._rung.wait()
                return
            if self._look is not None:
                await self._look()


class LogNotifications:
    """All bells of a process, by conversation tag."""

    def __init__(self) -> None:
        self._by_tag: defaultdict[str, set[LogWaiter]] = defaultdict(set)

    @contextmanager
    def hung(self, tag: str, bell: LogWaiter, /) -> Generator[LogWaiter]:
        """Rings reach this bell inside the context."""
        self._by_tag[tag].add(bell)
        try:
            yield bell
        finally:
            self._by_tag[tag].discard(bell)
            if not self._by_tag[tag]:
                del self._by_tag[tag]

    def tags(self) -> set[str]:
        """The conversations that somebody waits for."""
        return set(self._by_tag)

    def ring(self, tag: str, /) -> None:
        for bell in self._by_tag.get(tag, ()):
            bell.ring()

    def ring_all(self) -> None:
        for tag in self._by_tag:
            self.ring(tag)
