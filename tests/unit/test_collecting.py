"""When everything is looked through for cycles."""

import asyncio
import gc
import weakref

import anyio
import anyio.lowlevel
import pytest

from passback.collecting import collect_when_idle

pytestmark = pytest.mark.anyio


class Knot:
    """A cycle: nothing but the collector takes it away."""

    def __init__(self) -> None:
        self.itself = self


def old_knot() -> weakref.ref[Knot]:
    """One that only a look through everything finds: it was there for some time, and is of no more use."""
    knot = Knot()
    gc.collect(1)
    return weakref.ref(knot)


async def busy_for(turns: int) -> None:
    """Make so much that the youngest objects are looked through, again and again."""
    for _ in range(turns):
        kept = [[number] for number in range(10_000)]
        await anyio.lowlevel.checkpoint()
        del kept


async def test_what_is_old_is_looked_for_when_nobody_waits() -> None:
    calm = False
    task = asyncio.create_task(collect_when_idle(lambda: calm, look=0.001))
    try:
        with anyio.fail_after(30):
            await busy_for(3)
            knot = old_knot()
            await busy_for(30)
            assert knot() is not None
            calm = True
            while knot() is not None:
                await busy_for(3)
    finally:
        task.cancel()
        await asyncio.wait([task])
        gc.unfreeze()


async def test_python_does_it_by_itself_again_when_the_server_has_ended() -> None:
    usual = gc.get_threshold()
    task = asyncio.create_task(collect_when_idle(lambda: False))
    await anyio.wait_all_tasks_blocked()
    assert gc.get_threshold() != usual
    task.cancel()
    await asyncio.wait([task])
    assert gc.get_threshold() == usual
    gc.unfreeze()
