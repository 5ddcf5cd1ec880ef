"""Waiting by the clock, for tests that have no event to wait for.

Faults come at moments, clients wait before they retry, and another process is asked again after a
while. Everything else waits for an event: `sleep-in-tests` in pyproject.toml names the exceptions.
"""

import anyio


async def pause(seconds: float) -> None:
    await anyio.sleep(seconds)
