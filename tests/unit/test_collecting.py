"""When everything is looked through for cycles."""

import asyncio
import gc
import itertools
import weakref

import anyio
import anyio.lowlevel
import pytest
from anyio.lowlevel import checkpoint

from passback.hotpath.collecting import collect_when_idle
from passback.pacing import wait_for_large_work

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


# ---------------------------------------------------------------- pacing
async def test_between_two_large_pieces_of_work_others_have_their_turns() -> None:
    done: list[str] = []

    async def work(name: str) -> None:
        for _ in range(3):
            await wait_for_large_work()
            done.append(name)

    async def beside() -> None:
        while sum(name != "small" for name in done) < 9:
            done.append("small")
            await checkpoint()

    with anyio.fail_after(5):
        await asyncio.gather(*map(work, "abc"), beside())
    large = [at for at, name in enumerate(done) if name != "small"]
    assert sorted(done[at] for at in large) == [*"aaabbbccc"]
    assert all(later - earlier > 1 for earlier, later in itertools.pairwise(large))


async def test_who_stops_waiting_is_passed_over() -> None:
    first, leaves, last = (asyncio.create_task(wait_for_large_work()) for _ in range(3))
    await first
    leaves.cancel()
    with anyio.fail_after(5):
        await last
    assert leaves.cancelled()


async def test_who_is_alone_does_not_wait() -> None:
    with anyio.fail_after(5):
        await wait_for_large_work()
        for _ in range(10):
            await checkpoint()
    task = asyncio.create_task(wait_for_large_work())
    await checkpoint()
    assert task.done()
