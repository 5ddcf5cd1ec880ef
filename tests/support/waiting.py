"""Waiting by the clock, for tests that have no event to wait for.

Faults come at moments, clients wait before they retry, and another process is asked again after a
while. Everything else waits for an event: `sleep-in-tests` in pyproject.toml names the exceptions.
"""

from collections.abc import Callable

import anyio

_PATIENCE = 30.0  # seconds


async def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what tells nobody, and leave the processor to others meanwhile."""
    with anyio.fail_after(_PATIENCE):
        while not holds():
            await moment()


async def moment() -> None:
    """Let a moment pass before something is looked at again."""
    await anyio.sleep(0.001)


async def pause(seconds: float) -> None:
    await anyio.sleep(seconds)
