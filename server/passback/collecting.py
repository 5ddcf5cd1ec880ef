"""When Python's collector looks for cycles of objects: everything stands still while it does.

By itself it looks through all that open streams hold whenever that has grown by a quarter: for a tenth of a millisecond and
more per stream, a second for some thousands. What requests and runs leave behind is gone without it, but for what broke
off. What is young is still looked through by itself, and often.
"""

import asyncio
import gc
from collections.abc import Callable
from time import monotonic

_YOUNG_OBJECTS = 5_000
"""Objects made and not yet gone until the youngest are looked through: for about a millisecond."""

_MIDDLE_ROUNDS = 5
"""Looks at the youngest until those that were left are looked through again."""

_OLD_ROUNDS = 1_000_000

_BUSY_SHARE, _IDLE_SHARE = 0.001, 0.01
"""Of the time that may go into looking through everything, while somebody is being answered and else."""

_BUSY_PAUSE = 300.0
"""Seconds between two such looks while somebody is being answered, at least."""


async def collect_seldom(is_calm: Callable[[], bool], *, look: float = 10.0) -> None:
    """Look through everything when nobody waits, and otherwise seldom. Works until cancelled; one for the process.

    What is there when it begins stays, and is not looked through at all.

    Args:
        is_calm: whether nobody is being answered.
        look: seconds between two questions whether it is time.
    """
    usual = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _MIDDLE_ROUNDS, _OLD_ROUNDS)
    try:
        await _collect_when_due(is_calm, look)
    finally:
        gc.set_threshold(*usual)


async def _collect_when_due(is_calm: Callable[[], bool], look: float) -> None:
    took, looked = 0.0, monotonic()
    while True:
        await asyncio.sleep(look)
        pause = took / _IDLE_SHARE if is_calm() else max(_BUSY_PAUSE, took / _BUSY_SHARE)
        if gc.get_count()[1:] == (0, 0) or monotonic() - looked < pause:
            continue
        began = monotonic()
        gc.collect()
        looked = monotonic()
        took = looked - began
