"""Notifications of logs that grow, and a lock for large writes, inside one process."""

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio

from passback.core.changes import Commit
from passback.core.errors import StoreUnavailable
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    ChildMessage,
    Content,
    Message,
    as_text,
)
from passback.pacing import LARGE, wait_for_large_work

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
class LargeWrites:
    """A lock for a store's large writes, first come, first served.

    The holder packs its records under the lock, too, so that the records of one write are in
    memory at a time, not those of all that wait.

    Args:
        timeout: seconds for which a write waits before it fails with StoreUnavailable.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def hold_lock(self, large: bool, /) -> AsyncGenerator[None]:
        """Hold the lock if the write is large.

        Raises:
            StoreUnavailable: the lock is not free in time.
        """
        if not large:
            yield
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._lock.acquire()
        except TimeoutError:
            raise StoreUnavailable("the store is busy with large writes", retry_after=1) from None
        try:
            await wait_for_large_work()
            yield
        finally:
            self._lock.release()


def is_large(records: Collection[bytes], /) -> bool:
    """Return whether a write of these records is large."""
    return sum(map(len, records)) > LARGE


def is_large_commit(commit: Commit, /) -> bool:
    """Return whether a commit is large, before it is packed."""
    # its events mostly repeat its messages, which are counted alone
    size = 0
    for message in commit.append:
        size += _text_size(message)
    return size > LARGE


def _text_size(message: Message) -> int:
    """Return the number of characters in a message's texts."""
    if isinstance(message, AssistantMessage):
        size = _content_size(message.content)
        for call in message.tool_calls:
            size += len(call.arguments)
        for thought in message.reasoning:
            size += len(thought.text)
        return size
    if isinstance(message, ChildMessage):
        return _text_size(message.message)
    return 0 if isinstance(message, ApprovalMessage) else _content_size(message.content)


def _content_size(content: Content) -> int:
    return len(
        content if isinstance(content, str) else as_text(content, media=lambda part: part.url)
    )
