"""A lock that is also taken without waiting, and is next to nothing while nobody waits: each run has one."""

import asyncio
from collections import deque


class Turn:
    """Held by one at a time; who waits gets it in the order of coming. Of one event loop."""

    __slots__ = ("_taken", "_waiting")

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] | None = None

    def take(self) -> bool:
        """Take it if it is free. False: it is not."""
        if self._taken:
            return False
        self._taken = True
        return True

    def give_back(self) -> None:
        """Only by its holder."""
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():  # else who waited was cancelled
                following.set_result(None)
                return
        self._taken = False

    async def __aenter__(self) -> None:
        if self.take():
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting = self._waiting or deque()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was given in the same instant
                self.give_back()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self.give_back()
