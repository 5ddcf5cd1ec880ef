"""The lock of a run's writers."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from passback.engine.turn import Turn

pytestmark = pytest.mark.anyio


def test_it_is_taken_once() -> None:
    turn = Turn()
    assert turn.take()
    assert not turn.take()
    turn.give_back()
    assert turn.take()


async def test_who_waits_gets_it_in_the_order_of_coming() -> None:
    turn, had = Turn(), list[str]()

    async def have(name: str) -> None:
        async with turn:
            had.append(name)
            await anyio.lowlevel.checkpoint()
            assert not turn.take()

    async with asyncio.TaskGroup() as tasks:
        for name in ("one", "two", "three"):
            tasks.create_task(have(name))
    assert had == ["one", "two", "three"]
    assert turn.take()


async def test_one_that_does_not_wait_any_more_is_passed_over() -> None:
    turn, had = Turn(), list[str]()

    async def have(name: str) -> None:
        async with turn:
            had.append(name)

    async with turn:
        gone, waits = (asyncio.create_task(have(name)) for name in ("gone", "waits"))
        await anyio.wait_all_tasks_blocked()
        gone.cancel()
        await anyio.wait_all_tasks_blocked()
    await waits
    assert (gone.cancelled(), had) == (True, ["waits"])


async def test_one_that_is_cancelled_when_it_gets_it_gives_it_back() -> None:
    turn = Turn()

    async def have() -> None:
        async with turn:
            raise AssertionError("it was cancelled")

    async with turn:
        gone = asyncio.create_task(have())
        await anyio.wait_all_tasks_blocked()
    gone.cancel()
    await asyncio.wait([gone])
    assert gone.cancelled()
    assert turn.take()
