"""Large writes to a store go one at a time: what is small waits for one of them at most."""

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
from passback.pacing import LARGE, large_work


class LargeWrites:
    """The lane of a store's large writes, in the order of their coming.

    Whoever is in it packs its records there, too: so they are in memory for one write, not for all that wait.

    Args:
        patience: seconds until a write that waits for the others is told that the store does not answer.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for the large writes before this one. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(self._patience):
                await self._lock.acquire()
        except TimeoutError:
            raise StoreUnavailable("the store is busy with large writes", retry_after=1) from None
        try:
            await large_work()
            yield
        finally:
            self._lock.release()


def is_large(records: Collection[bytes], /) -> bool:
    """Whether a write of these records takes a turn."""
    return sum(map(len, records)) > LARGE


def is_large_commit(commit: Commit, /) -> bool:
    """The same of a commit that is not packed yet: what it reveals is mostly in its messages."""
    size = 0
    for message in commit.append:
        size += _size(message)
    return size > LARGE


def _size(message: Message) -> int:
    """Characters of a message's texts."""
    if isinstance(message, AssistantMessage):
        size = _content_size(message.content)
        for call in message.tool_calls:
            size += len(call.arguments)
        for thought in message.reasoning:
            size += len(thought.text)
        return size
    if isinstance(message, ChildMessage):
        return _size(message.message)
    return 0 if isinstance(message, ApprovalMessage) else _content_size(message.content)


def _content_size(content: Content) -> int:
    return len(content if isinstance(content, str) else as_text(content, media=_url))


def _url(part: MediaPart) -> str:
    return part.url
