"""Large pieces of work on the event loop take turns: what is small goes on between two of them."""

import asyncio
from collections import deque

from anyio.lowlevel import RunVar

LARGE = 128 * 1024  # bytes or characters that are read, written down or sent in one piece of work

_REST = 2  # turns of the event loop between two large pieces of work


class _Turns:
    """Those who wait to do a large piece of work, in the order of their coming."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._rests = False

    async def take(self) -> None:
        if self._rests:
            mine = self._loop.create_future()
            self._waiting.append(mine)
            await mine
        else:
            self._rests = True
            self._rest(_REST)

    def _rest(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._rest, turns - 1)
            return
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():  # else who waited was cancelled
                following.set_result(None)
                self._loop.call_soon(self._rest, _REST)
                return
        self._rests = False


_turns = RunVar[_Turns]("passback_large_work")


async def large_work() -> None:
    """Wait until a large piece of work may be done on the event loop: what follows, up to the next `await`."""
    turns = _turns.get(None)
    if turns is None:
        turns = _Turns()
        _turns.set(turns)
    await turns.take()
