"""Large pieces of work on the event loop take turns: what is small goes on between two of them."""

import asyncio
from collections import deque

from anyio.lowlevel import RunVar

LARGE = 128 * 1024  # bytes or characters that are read, written down or sent in one piece of work

_REST_TURNS = 2  # turns of the event loop between two large pieces of work


class _WorkQueue:
    """Those who wait to do a large piece of work, in the order of their coming."""

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
            self._is_resting = True
            self._rest_then_wake(_REST_TURNS)

    def _rest_then_wake(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._rest_then_wake, turns - 1)
            return
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():  # else who waited was cancelled
                following.set_result(None)
                self._loop.call_soon(self._rest_then_wake, _REST_TURNS)
                return
        self._is_resting = False


_work_queue = RunVar[_WorkQueue]("passback_large_work")


async def large_work() -> None:
    """Wait until a large piece of work may be done on the event loop: what follows, up to the next `await`."""
    queue = _work_queue.get(None)
    if queue is None:
        queue = _WorkQueue()
        _work_queue.set(queue)
    await queue.wait_turn()
