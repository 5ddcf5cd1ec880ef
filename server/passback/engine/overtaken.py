"""Trying again when others write to a conversation at the same time."""

import random

import anyio

ATTEMPTS = 20
"""How often something is tried."""

_STEP_ASIDE = 0.01
"""Seconds that it waits at most before the next time, for each time that it was overtaken before."""

_jitter = random.SystemRandom()


async def step_aside(attempt: int, /) -> None:
    """Wait a little after an attempt, counted from 0: many in step would overtake each other for ever."""
    await anyio.sleep(_jitter.uniform(0, _STEP_ASIDE * attempt))
