"""A queue for large pieces of work on the event loop, so that small ones run in between."""

import asyncio
from collections import deque

from anyio.lowlevel import RunVar

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
