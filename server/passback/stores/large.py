"""Large writes to a store, one at a time: a small write waits for at most one of them."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager

from passback.core.changes import Commit
from passback.core.errors import StoreUnavailable
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    ChildMessage,
    Content,
    MediaPart,
    Message,
    as_text,
)
from passback.pacing import LARGE, wait_for_large_work


class LargeWrites:
    """A lock for a store's large writes, first come, first served.

    The holder packs its records under the lock, too, so that the records of one write are in
    memory at a time, not those of all that wait.

    Args:
        patience: seconds for which a write waits before it fails with StoreUnavailable.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def hold_lock(self) -> AsyncGenerator[None]:
        """Hold the lock. Raises StoreUnavailable when it is not free in time."""
        try:
            async with asyncio.timeout(self._patience):
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
    return len(content if isinstance(content, str) else as_text(content, media=_media_url))


def _media_url(part: MediaPart) -> str:
    return part.url
