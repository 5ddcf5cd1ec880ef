"""Garbage collection: freeze start-up objects, and collect fully only when idle.

A full collection pauses the whole process, because it visits everything that open streams hold:
0.1 ms and more per stream, a second for some thousands. By itself Python collects fully whenever
that has grown by a quarter. Finished requests and runs are freed without it, by their reference
counts, but for some that were interrupted. Python goes on to collect young objects often.
"""

import asyncio
import gc
from collections.abc import Callable
from time import monotonic

_YOUNG_OBJECTS = 5_000  # new objects before the youngest are collected: a pause of about 1 ms
_MIDDLE_ROUNDS = 5  # collections of the youngest before one of the middle generation
_OLD_ROUNDS = 1_000_000  # in effect never: full collections are started here
_BUSY_SHARE = 0.001  # of the time may go into full collections while requests are answered
_IDLE_SHARE = 0.01  # of the time may go into full collections else
_BUSY_PAUSE = 300.0  # seconds at least between full collections while requests are answered


async def collect_when_idle(is_calm: Callable[[], bool], *, look: float = 10.0) -> None:
    """Collect fully when the process is idle, and seldom otherwise. Run until cancelled.

    Only one may run in a process. Objects that exist when it begins are frozen: they are kept, and
    no collection visits them.

    Args:
        is_calm: returns True while no request is being answered.
        look: seconds between two checks whether a collection is due.
    """
    usual = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _MIDDLE_ROUNDS, _OLD_ROUNDS)
    try:
        took, collected_at = 0.0, monotonic()
        while True:
            await asyncio.sleep(look)
            pause = took / _IDLE_SHARE if is_calm() else max(_BUSY_PAUSE, took / _BUSY_SHARE)
            # without a collection of the young since, nothing has reached the older generations
            if gc.get_count()[1:] == (0, 0) or monotonic() - collected_at < pause:
                continue
            began = monotonic()
            gc.collect()
            collected_at = monotonic()
            took = collected_at - began
    finally:
        gc.set_threshold(*usual)
