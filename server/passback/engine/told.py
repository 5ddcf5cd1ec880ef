"""What an agent is told in one run only: text that a function of its author gives."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
import anyio.to_thread

from passback.core.messages import RunRef
from passback.core.prompts import RunContext

Told: TypeAlias = Callable[[RunRef], str | Awaitable[str]]

SECONDS = 30.0
"""How long it may take."""


def run_context(function: Told, /, *, seconds: float = SECONDS) -> RunContext:
    """The function, plain (it runs in a thread) or async, as the engine asks it; TimeoutError after `seconds`."""

    async def told(run: RunRef) -> str:
        with anyio.fail_after(seconds):
            if inspect.iscoroutinefunction(function):
                said: str | Awaitable[str] = function(run)
            else:
                said = await anyio.to_thread.run_sync(lambda: function(run), abandon_on_cancel=True)
            return said if isinstance(said, str) else await said

    return told
