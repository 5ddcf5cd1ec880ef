"""An event loop in a thread of its own, for programs without `async`."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from passback_client.errors import BadSetup

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_UNWIND_SECONDS = 5

T = TypeVar("T")


class _Interrupted(Exception):
    """A KeyboardInterrupt, which would end the loop if a task raised it."""


class Loop:
    """An event loop in a thread, from `open` to `close`."""

    def __init__(self) -> None:
        self._context: AbstractContextManager[BlockingPortal] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    def open(self) -> None:
        self._context = start_blocking_portal("asyncio")
        self._loop = self._context.__enter__().call(asyncio.get_running_loop)

    def close(self) -> None:
        context, self._context, self._loop = self._context, None, None
        assert context is not None
        context.__exit__(None, None, None)

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run the work and wait for it; an interrupt such as Ctrl-C cancels it.

        Raises:
            BadSetup: the loop is not open.
        """
        loop = self._loop
        if loop is None:
            raise BadSetup("the client is not open: use it in `with Client(...) as client`")
        call = LoopCall(work)
        # the portal's call waits until the task runs: an interrupt would have no future to cancel
        try:
            return asyncio.run_coroutine_threadsafe(call.run(), loop).result()
        except _Interrupted as interrupted:
            raise KeyboardInterrupt from interrupted
        finally:
            if not call.ended.is_set():
                loop.call_soon_threadsafe(call.leave)
                call.ended.wait(_UNWIND_SECONDS)


class LoopCall(Generic[T]):
    """Work in the loop's thread that can be cancelled at any time, also before it starts.

    Attributes:
        ended: set when it has ended.
    """

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self.ended = threading.Event()
        self._work = work
        self._task: asyncio.Task[T] | None = None

    async def run(self) -> T:
        if self.ended.is_set():
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        try:
            return await self._work()
        except KeyboardInterrupt as interrupt:
            raise _Interrupted from interrupt
        finally:
            self.ended.set()

    def leave(self) -> None:
        """Cancel it; in the loop's thread."""
        if self._task is None:
            self.ended.set()
        else:
            self._task.cancel()
