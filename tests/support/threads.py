"""Threads that are all taken: what needs one waits."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
from anyio.to_thread import current_default_thread_limiter


@asynccontextmanager
async def no_thread() -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """Take all threads of this event loop; gives a call that returns as soon as somebody waits for one."""
    limiter = current_default_thread_limiter()
    borrowers = [object() for _ in range(int(limiter.available_tokens))]
    for each in borrowers:
        limiter.acquire_on_behalf_of_nowait(each)

    async def awaited() -> None:
        with anyio.fail_after(5):
            while not limiter.statistics().tasks_waiting:
                await anyio.lowlevel.checkpoint()

    try:
        yield awaited
    finally:
        for each in borrowers:
            limiter.release_on_behalf_of(each)
