"""Pacing of expensive work: owners take turns at it, and small pieces of work run in between."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.lowlevel import RunVar

from passback.core.changes import Commit
from passback.core.errors import StoreUnavailable
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    ChildMessage,
    Content,
    ConversationKey,
    Message,
    OwnerId,
    as_text,
)

LARGE = 128 * 1024  # bytes or characters that one piece of work parses, encodes or sends

_REST_TURNS = 2  # iterations of the event loop between two large pieces of work


class _WorkQueue:
    """Tasks that wait to do a large piece of work, first come, first served. One per event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_resting = False

    async def wait_turn(self) -> None:
        if self._is_resting:
            mine = self._loop.create_future()
            self._waiting.append(mine)
            await mine
        else:
            # the first task continues at once; tasks that come during its rest wait
            self._is_resting = True
            self._rest_then_wake(_REST_TURNS)

    def _rest_then_wake(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._rest_then_wake, turns - 1)
            return
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():  # a task that was cancelled leaves its place to the next one
                following.set_result(None)
                self._loop.call_soon(self._rest_then_wake, _REST_TURNS)
                return
        self._is_resting = False


_work_queue = RunVar[_WorkQueue]("passback_large_work")


async def wait_for_large_work() -> None:
    """Wait until the caller may do a large piece of work.

    The piece is all that the caller does up to its next `await`.
    """
    queue = _work_queue.get(None)
    if queue is None:
        queue = _WorkQueue()
        _work_queue.set(queue)
    await queue.wait_turn()


def limiter_of(variable: RunVar["FairLimiter"], number: int, seconds: float, /) -> "FairLimiter":
    """Return the limiter of this event loop. If there is none, make one.

    Args:
        variable: holds it.
        number: of places, for a new one.
        seconds: longest wait, for a new one.
    """
    found = variable.get(None)
    if found is None:
        found = FairLimiter(number, seconds)
        variable.set(found)
    return found


@dataclass(eq=False, slots=True)
class _Waiter:
    key: ConversationKey
    given: anyio.Event = field(default_factory=anyio.Event)


class FairLimiter:
    """Limiter of concurrent work. One owner never has all places, if there are several.

    A free place goes to the owner with the fewest places, and of these to the one that got a place
    longest ago. An owner's conversations take turns in the same way.

    Args:
        number: of places.
        seconds: longest wait for a place.
        most_waiting: waiting tasks of one owner, at most. Each holds its input in memory.
    """

    def __init__(self, number: int, seconds: float, *, most_waiting: int = 64) -> None:
        self.seconds = seconds
        self._most_waiting = most_waiting
        self._number = number
        self._most = max(1, number - 1)
        self._taken = Counter[OwnerId]()
        self._waiting: list[_Waiter] = []
        self._last_turn = 0
        self._turns: dict[OwnerId | ConversationKey, int] = {}

    @asynccontextmanager
    async def acquire(self, key: ConversationKey, /) -> AsyncGenerator[None]:
        """Hold a place for work on a conversation.

        Raises:
            TimeoutError: no place became free in time, or too many tasks of the owner wait.
        """
        # waiting tasks hold their input in memory: one owner must not fill it
        if sum(each.key.owner == key.owner for each in self._waiting) >= self._most_waiting:
            raise TimeoutError
        waiter = _Waiter(key)
        self._waiting.append(waiter)
        self._give_places()
        try:
            if not waiter.given.is_set():  # a free place is given without a switch of tasks
                with anyio.fail_after(self.seconds):
                    await waiter.given.wait()
            yield
        finally:
            if waiter.given.is_set():
                self._taken[key.owner] -= 1
                self._give_places()
            else:
                self._waiting.remove(waiter)
            # forget owners and conversations that neither wait nor work: the maps stay small
            known = {part for each in self._waiting for part in (each.key, each.key.owner)}
            known |= {owner for owner, places in self._taken.items() if places}
            self._taken = Counter({one: n for one, n in self._taken.items() if one in known})
            self._turns = {part: turn for part, turn in self._turns.items() if part in known}

    def _give_places(self) -> None:
        def rank(waiter: _Waiter) -> tuple[int, int, int]:
            key, turns = waiter.key, self._turns
            return self._taken[key.owner], turns.get(key.owner, 0), turns.get(key, 0)

        while self._taken.total() < self._number:
            # the last place is kept for another owner
            admitted = (each for each in self._waiting if self._taken[each.key.owner] < self._most)
            waiter = min(admitted, key=rank, default=None)
            if waiter is None:
                return
            self._waiting.remove(waiter)
            self._last_turn += 1
            self._turns[waiter.key] = self._turns[waiter.key.owner] = self._last_turn
            self._taken[waiter.key.owner] += 1
            waiter.given.set()


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
