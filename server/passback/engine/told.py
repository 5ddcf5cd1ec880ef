"""What an agent is told in one run only: text that a function of its author gives."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

from passback.core.messages import RunRef
from passback.core.prompts import RunContext
from passback.engine.calling import called

Told: TypeAlias = Callable[[RunRef], str | Awaitable[str]]

SECONDS = 30.0
"""How long it may take."""


def run_context(function: Told, /, *, seconds: float = SECONDS) -> RunContext:
    """The function, plain (it runs in a thread) or async, as the engine asks it; TimeoutError after `seconds`."""

    async def told(run: RunRef) -> str:
        with anyio.fail_after(seconds):
            said: str = await called(function, run)
            return said

    return told
