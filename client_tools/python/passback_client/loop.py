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
    """A KeyboardInterrupt, which would end the loop if it came out of a task."""


class Loop:
    """From `open` to `close`."""

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
        """Wait for it; what interrupts the waiting, such as Ctrl-C, cancels it.

        Raises:
            BadSetup: the loop is not open.
        """
        loop = self._loop
        if loop is None:
            raise BadSetup("the client is not open: use it in `with Client(...) as client`")
        call = Call(work)
        # not the portal's own way: that waits until the task runs, and could be interrupted without
        # a future to cancel
        try:
            return asyncio.run_coroutine_threadsafe(call.run(), loop).result()
        except _Interrupted as interrupted:
            raise KeyboardInterrupt from interrupted
        finally:
            if not call.ended.is_set():
                loop.call_soon_threadsafe(call.leave)
                call.ended.wait(_UNWIND_SECONDS)


class Call(Generic[T]):
    """Work of the loop's thread, that can be left before it has begun, and at any time after that.

    Attributes:
        ended: set when it does nothing any more.
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
