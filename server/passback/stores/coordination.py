"""Notifications of logs that grow, and a lock for large writes, inside one process."""

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager

import anyio

from passback.pacing import LARGE

Poll = Callable[[], Awaitable[None]]


class LogWaiter:
    """One waiting reader. A notification before the wait is not lost.

    Args:
        poll: called every `pause` seconds during a wait; it may notify this waiter.
    """

    def __init__(self, poll: Poll | None = None, pause: float = math.inf) -> None:
        self._notified = anyio.Event()
        self._poll = poll
        self._poll_pause = pause

    def notify(self) -> None:
        """End the wait, or the next one."""
        self._notified.set()

    async def wait(self, seconds: float = 2.0, /) -> None:
        """Wait for a notification, for so many seconds at most."""
        with anyio.move_on_after(seconds):
            while not self._notified.is_set():
                with anyio.move_on_after(self._poll_pause):
                    await self._notified.wait()
                if self._poll is not None and not self._notified.is_set():
                    await self._poll()
        self._notified = anyio.Event()


class LogNotifications:
    """All waiters of a process, by conversation tag."""

    def __init__(self) -> None:
        self._by_tag: defaultdict[str, set[LogWaiter]] = defaultdict(set)

    @contextmanager
    def registered(self, tag: str, waiter: LogWaiter, /) -> Generator[LogWaiter]:
        """Notify this waiter inside the context."""
        self._by_tag[tag].add(waiter)
        try:
            yield waiter
        finally:
            self._by_tag[tag].discard(waiter)
            if not self._by_tag[tag]:
                del self._by_tag[tag]

    def tags(self) -> set[str]:
        """Return the tags of the conversations that a reader waits for."""
        return set(self._by_tag)

    def notify(self, tag: str, /) -> None:
        for waiter in self._by_tag.get(tag, ()):
            waiter.notify()

    def notify_all(self) -> None:
        for tag in self._by_tag:
            self.notify(tag)


# ---------------------------------------------------------------- large writes
def is_large(records: Collection[bytes], /) -> bool:
    """Return whether a write of these records is large."""
    return sum(map(len, records)) > LARGE
