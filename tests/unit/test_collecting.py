"""Full garbage collection: while the server is idle; and turns of large pieces of work."""

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


class Cycle:
    """A reference cycle, which only the garbage collector frees."""

    def __init__(self) -> None:
        self.itself = self


def old_cycle() -> weakref.ref[Cycle]:
    """Return a cycle in an older generation, which only a full collection frees."""
    cycle = Cycle()
    gc.collect(1)
    return weakref.ref(cycle)


async def busy_for(turns: int) -> None:
    """Make enough objects for collections of the youngest generation."""
    for _ in range(turns):
        kept = [[number] for number in range(10_000)]
        await anyio.lowlevel.checkpoint()
        del kept


async def test_a_full_collection_runs_when_the_server_is_idle() -> None:
    is_idle = False
    task = asyncio.create_task(collect_when_idle(lambda: is_idle, look=0.001))
    try:
        with anyio.fail_after(30):
            await busy_for(3)
            cycle = old_cycle()
            await busy_for(30)
            assert cycle() is not None
            is_idle = True
            while cycle() is not None:
                await busy_for(3)
    finally:
        task.cancel()
        await asyncio.wait([task])
        gc.unfreeze()


async def test_automatic_collection_is_restored_at_the_end() -> None:
    thresholds = gc.get_threshold()
    task = asyncio.create_task(collect_when_idle(lambda: False))
    await anyio.wait_all_tasks_blocked()
    assert gc.get_threshold() != thresholds
    task.cancel()
    await asyncio.wait([task])
    assert gc.get_threshold() == thresholds
    gc.unfreeze()


# ---------------------------------------------------------------- pacing
async def test_other_tasks_run_between_large_pieces_of_work() -> None:
    done: list[str] = []

    async def work(name: str) -> None:
        for _ in range(3):
            await wait_for_large_work()
            done.append(name)

    async def work_on_small_pieces() -> None:
        while sum(name != "small" for name in done) < 9:
            done.append("small")
            await checkpoint()

    with anyio.fail_after(5):
        await asyncio.gather(*map(work, "abc"), work_on_small_pieces())
    large = [index for index, name in enumerate(done) if name != "small"]
    assert sorted(done[index] for index in large) == [*"aaabbbccc"]
    assert all(later - earlier > 1 for earlier, later in itertools.pairwise(large))


async def test_a_cancelled_wait_is_passed_over() -> None:
    first, cancelled, last = (asyncio.create_task(wait_for_large_work()) for _ in range(3))
    await first
    cancelled.cancel()
    with anyio.fail_after(5):
        await last
    assert cancelled.cancelled()


async def test_a_single_piece_of_work_does_not_wait() -> None:
    with anyio.fail_after(5):
        await wait_for_large_work()
        for _ in range(10):
            await checkpoint()
    task = asyncio.create_task(wait_for_large_work())
    await checkpoint()
    assert task.done()
