"""Large pieces of work leave room for small ones between them."""

import asyncio
import itertools

import anyio
import pytest
from anyio.lowlevel import checkpoint

from passback.pacing import wait_for_large_work

pytestmark = pytest.mark.anyio


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
