"""Calls of functions that others have written, plain or async."""

import inspect
from collections.abc import Callable
from typing import Any

import anyio.to_thread


async def called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What a function gives: a plain one runs in a thread, which is left behind when nobody waits for it any more."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    result = await anyio.to_thread.run_sync(
        lambda: function(*args, **kwargs), abandon_on_cancel=True
    )
    return await result if inspect.isawaitable(result) else result
