"""Calls of what others have written: functions, plain or async, and whatever else may fail in any way."""

import asyncio
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from math import inf
from typing import Any

import anyio
import anyio.to_thread


class StrayCancellation(Exception):
    """It was cancelled, and nobody had asked for that: it awaited something that somebody had cancelled."""


@contextmanager
def owning_cancellations() -> Generator[None]:
    """Make an error of a cancellation that was not meant for this task: unmended it would end all that runs beside it.

    Raises:
        StrayCancellation: there was one.
    """
    try:
        yield
    except anyio.get_cancelled_exc_class() as error:
        task = asyncio.current_task()
        meant = task is None or task.cancelling() or anyio.current_effective_deadline() == -inf
        if meant:
            raise
        raise StrayCancellation from error


async def called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What a function gives: a plain one runs in a thread, which is left behind when nobody waits for it any more.

    Raises:
        StrayCancellation: as above; whatever else it raises, too.
    """
    with owning_cancellations():
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        result = await anyio.to_thread.run_sync(
            lambda: function(*args, **kwargs), abandon_on_cancel=True
        )
        return await result if inspect.isawaitable(result) else result
