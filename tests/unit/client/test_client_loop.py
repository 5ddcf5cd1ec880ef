"""The loop behind the plain client, and what becomes of work that is left."""

import asyncio
import threading

import anyio
import pytest

from passback_client import BadSetup
from passback_client.loop import Call, Loop

pytestmark = pytest.mark.anyio


async def test_work_that_is_left_before_it_begins_never_does() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("work")

    call = Call(work)
    call.leave()
    assert call.ended.is_set()
    with pytest.raises(asyncio.CancelledError):
        await call.run()
    assert done == []


async def test_work_that_is_left_is_cancelled_and_has_ended_when_it_is_unwound() -> None:
    begun, unwound = anyio.Event(), anyio.Event()

    async def work() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            assert not call.ended.is_set()
            unwound.set()

    call = Call(work)
    task = asyncio.ensure_future(call.run())
    await begun.wait()
    call.leave()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert unwound.is_set()
    assert call.ended.is_set()
    call.leave()  # once more, in vain


def test_a_loop_runs_in_another_thread_while_it_is_open() -> None:
    async def thread() -> int:
        return threading.get_ident()

    loop = Loop()
    with pytest.raises(BadSetup):
        loop.run(thread)
    loop.open()
    try:
        assert loop.is_open
        assert loop.run(thread) != threading.get_ident()
    finally:
        loop.close()
    assert not loop.is_open
