"""The only clock of the harness: faults come at moments, not after conditions, and clients wait before they come back."""

import anyio


async def pause(seconds: float) -> None:
    await anyio.sleep(seconds)
