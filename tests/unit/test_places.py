"""Few places: who gets the next one."""

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.pacing import FairLimiter

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]


class Work:
    """Pieces of work that each end when they are told to; `begun` has their owners and conversations, as `a1`."""

    def __init__(self, places: FairLimiter) -> None:
        self.begun: list[str] = []
        self._places = places
        self.ends: list[anyio.Event] = []

    async def do(self, name: str) -> None:
        key = ConversationKey(OwnerId(name[0]), ConversationId(name[1]))
        async with self._places.acquire(key):
            self.begun.append(name)
            end = anyio.Event()
            self.ends.append(end)
            await end.wait()

    async def end(self, number: int) -> None:
        self.ends[number].set()
        await anyio.wait_all_tasks_blocked()


async def order(places: FairLimiter, wanted: Sequence[str], at_once: int) -> list[str]:
    """Who gets a place, one after the other, when so many begin at once and then end in their order."""
    work = Work(places)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for name in wanted:
                tasks.start_soon(work.do, name)
                await anyio.wait_all_tasks_blocked()
            assert len(work.begun) == at_once
            for number in range(len(wanted)):
                await work.end(number)
    return work.begun


@pytest.mark.parametrize(
    ("number", "wanted", "at_once", "begun"),
    [
        # one place: owners take turns
        (1, "a1 a1 a1 b1 b1 c1", 1, "a1 b1 c1 a1 b1 a1"),
        # and so do the conversations of one
        (1, "a1 a1 a1 a2 a3", 1, "a1 a2 a3 a1 a1"),
        # of several places one owner never has all
        (2, "a1 a1 a1 b1 b1", 2, "a1 b1 a1 b1 a1"),
        (3, "a1 a2 a3 a4 b1 c1", 3, "a1 a2 b1 c1 a3 a4"),
        # who comes first is first where nothing else is to be said
        (2, "a1 b1 c1 d1", 2, "a1 b1 c1 d1"),
    ],
)
async def test_owners_take_turns(number: int, wanted: str, at_once: int, begun: str) -> None:
    assert await order(FairLimiter(number, 5.0), wanted.split(), at_once) == begun.split()


async def test_a_place_that_was_given_to_one_that_is_cancelled_goes_to_the_next() -> None:
    places = FairLimiter(1, 5.0)
    work = Work(places)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work.do, "a1")
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as others:
                others.start_soon(work.do, "b1")
                others.start_soon(work.do, "b2")
                await anyio.wait_all_tasks_blocked()
                work.ends[0].set()
                await anyio.lowlevel.checkpoint()
                others.cancel_scope.cancel()
            tasks.start_soon(work.do, "c1")
            await anyio.wait_all_tasks_blocked()
            assert work.begun[-1] == "c1"
            await work.end(len(work.begun) - 1)


async def test_who_waits_too_long_is_told_so_and_holds_up_nobody() -> None:
    places = FairLimiter(1, 0.0)
    key = ConversationKey(OwnerId("a"), ConversationId("1"))
    async with places.acquire(key):
        with pytest.raises(TimeoutError):
            async with places.acquire(key):
                raise AssertionError("there is no second place")
    async with places.acquire(key):
        pass


async def test_so_many_of_an_owner_wait_and_no_more() -> None:
    work = Work(FairLimiter(1, 60, most_waiting=2))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for name in ("a1", "a2", "a3", "b1"):
                tasks.start_soon(work.do, name)
                await anyio.wait_all_tasks_blocked()
            with pytest.raises(TimeoutError):
                await work.do("a4")
            for number in range(4):
                await work.end(number)
    assert sorted(work.begun) == ["a1", "a2", "a3", "b1"]
