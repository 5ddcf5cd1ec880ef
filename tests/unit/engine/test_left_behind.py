"""What a run that is over leaves to the collector: nothing. With many streams open it looks for that seldom."""

import gc
from collections.abc import Generator

import anyio
import anyio.lowlevel
import pytest
from tests.support.runs import outcome, post, says, worker

from passback.core.events import Completed, Failed
from passback.core.ports import Store
from passback.engine.log import RunLog
from passback.engine.spending import Meter
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio

SECONDS = 30


@pytest.fixture
def uncollected() -> Generator[None]:
    """Without the collector, which starts from nothing."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def held() -> int:
    return sum(type(each) in {RunLog, Meter} for each in gc.get_objects())


async def nothing_is_left(before: int) -> None:
    """Wait for it: what a run says last is still being stored."""
    with anyio.fail_after(SECONDS):
        while held() > before:
            for _ in range(100):  # to look through all objects takes long
                await anyio.lowlevel.checkpoint()


@pytest.mark.usefixtures("uncollected")
async def test_a_run_that_is_over_leaves_nothing(memory: Store) -> None:
    before = held()
    async with worker(memory, ScriptedModel([words("one"), words("two")]), seconds=60) as runs:
        assert await outcome(runs, await post(runs, says())) == Completed()
        assert await outcome(runs, await post(runs, says("again"))) == Completed()
        await nothing_is_left(before)


@pytest.mark.usefixtures("uncollected")
async def test_a_run_that_failed_leaves_nothing(memory: Store) -> None:
    before = held()
    nobody: list[Step] = [*calls(("nobody", {}))]
    async with worker(memory, ScriptedModel([nobody] * 3), seconds=60) as runs:
        assert isinstance(await outcome(runs, await post(runs, says())), Failed)
        await nothing_is_left(before)
