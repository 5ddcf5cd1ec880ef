"""However often a probe asks, the store is asked once a second, and every probe gets its answer."""

import anyio
import pytest

from passback.core.errors import StoreFull
from passback.engine.service import Readiness

pytestmark = pytest.mark.anyio


class _Store:
    def __init__(self, error: StoreFull | None = None) -> None:
        self.asked = 0
        self.error = error
        self.answers = anyio.Event()

    async def ping(self) -> None:
        self.asked += 1
        await self.answers.wait()
        if self.error:
            raise self.error


async def test_many_probes_are_one_question() -> None:
    store = _Store()
    ready = Readiness(store.ping, seconds=60)
    async with anyio.create_task_group() as tasks:
        for _ in range(200):
            tasks.start_soon(ready.check)
        await anyio.wait_all_tasks_blocked()
        store.answers.set()
    await ready.check()
    assert store.asked == 1


async def test_a_bad_answer_counts_as_long_and_is_told_to_each() -> None:
    store = _Store(StoreFull("no room", retry_after=2))
    store.answers.set()
    ready = Readiness(store.ping, seconds=60)
    told = []
    for _ in range(3):
        with pytest.raises(StoreFull, match="no room") as raised:
            await ready.check()
        told.append(raised.value)
    assert store.asked == 1
    assert [each.retry_after for each in told] == [2, 2, 2]
    assert len(set(map(id, told))) == 3


async def test_a_probe_that_gives_up_leaves_the_question_to_the_next() -> None:
    store = _Store()
    ready = Readiness(store.ping)
    with anyio.move_on_after(0.01):
        await ready.check()
    store.answers.set()
    await ready.check()
    assert store.asked == 2
