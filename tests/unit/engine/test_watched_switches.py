"""A reader of a conversation is told of another branch that is read, and waits for its first run."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.support.runs import KEY, PAINT, call_ids, outcome, park, post, result, says, worker
from tests.unit.engine.branched import anew, answered, edited

from passback.core.changes import Change, Status
from passback.core.errors import UnknownConversation
from passback.core.events import START, Cursor, RunFinished
from passback.core.ids import new_nonce
from passback.core.messages import MessageId, RunRef
from passback.core.posts import StartRun
from passback.core.runs import RunBatch
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


class Watched:
    """What a reader is given: runs that have ended, the leaf of each switch, and the end."""

    def __init__(self) -> None:
        self.seen: list[RunRef | int | str] = []
        self._changed = anyio.Event()

    def note(self, what: RunRef | int | str) -> None:
        self.seen.append(what)
        self._changed.set()
        self._changed = anyio.Event()

    async def tell(self, status: Status) -> None:
        self.note(status.tree.leaf)

    async def read(self, batches: AsyncIterator[RunBatch]) -> None:
        async for run, batch in batches:
            if isinstance(batch[-1].event, RunFinished):
                self.note(run)
        self.note("deleted")

    async def until(self, *expected: RunRef | int | str) -> None:
        """Wait until exactly this was seen."""
        with anyio.fail_after(5):
            while len(self.seen) < len(expected):
                await self._changed.wait()
        assert self.seen == [*expected]


@asynccontextmanager
async def watching(runs: RunService, **options: Any) -> AsyncGenerator[Watched]:
    watched = Watched()
    async with (
        runs.watch(KEY, tell_switch=watched.tell, **options) as batches,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(watched.read, batches)
        yield watched
        tasks.cancel_scope.cancel()


async def branched(runs: RunService) -> None:
    """Make the branches a(0) 1(1) and b(2) 2(3), of which the second is read."""
    await answered(runs, "a")
    await edited(runs, "", "b")


def numbered() -> ScriptedModel:
    return ScriptedModel([words(each) for each in "12345"])


async def last_place(runs: RunService) -> Cursor:
    status = await runs.status(KEY)
    assert status.run_id is not None
    return Cursor(status.run_id, status.logged)


async def test_each_switch_is_told_once_and_nothing_else(store: Ledger) -> None:
    async with worker(store, numbered()) as runs:
        await branched(runs)
        async with watching(runs) as watched:
            await runs.switch(KEY, MessageId("a"))
            await watched.until(1)
            await store.rename(KEY, "another title")
            await runs.switch(KEY, MessageId("a"))
            await runs.switch(KEY, MessageId("b"))
            await watched.until(1, 3)
            run = await post(runs, says(message_id="c"))
            await watched.until(1, 3, run)
            await runs.switch(KEY, MessageId("a"))
            await watched.until(1, 3, run, 1)
            await runs.delete(KEY)
            await watched.until(1, 3, run, 1, "deleted")


async def test_a_reader_that_comes_back_is_told_of_a_branch_that_it_may_not_know(
    store: Ledger,
) -> None:
    async with worker(store, numbered()) as runs:
        await branched(runs)
        place = await last_place(runs)
        async with watching(runs, after=place) as watched:
            await runs.switch(KEY, MessageId("a"))
            await watched.until(1)
        async with watching(runs, after=place) as watched:
            await watched.until(1)
            await runs.switch(KEY, MessageId("b"))
            await watched.until(1, 3)
        # it reads the messages of the branch when it begins
        await runs.switch(KEY, MessageId("a"))
        async with watching(runs) as watched:
            run = await post(runs, says(message_id="c"))
            await watched.until(run)


async def test_a_run_on_another_branch_tells_of_it_itself(store: Ledger) -> None:
    async with worker(store, numbered()) as runs:
        await branched(runs)
        async with watching(runs) as watched:
            await anew(runs, "b")
            await watched.until(RunRef(KEY, (await last_place(runs)).run_id))


async def test_answers_that_are_stored_before_a_run_are_no_switch(store: Ledger) -> None:
    asked = calls(("paint", {}), ("paint", {}))
    async with worker(store, ScriptedModel([asked, words("done")])) as runs:
        await outcome(runs, await post(runs, says(message_id="a"), tools=[PAINT]))
        one, other = await call_ids(runs)
        place = await last_place(runs)
        async with watching(runs) as watched, watching(runs, after=place) as second:
            await park(runs, result(one, message_id="r1"))
            last = await post(runs, result(other, message_id="r2"))
            for each in (watched, second):
                await each.until(last)


async def test_calls_that_a_switch_closes_on_the_branch_that_is_left_do_not_hide_it(
    store: Ledger,
) -> None:
    model = ScriptedModel([words("1"), calls(("paint", {}))])
    async with worker(store, model) as runs:
        await answered(runs, "a")
        edit = StartRun(KEY, (says("b", "b"),), (PAINT,), after=MessageId(""))
        run = await runs.start(edit)
        assert isinstance(run, RunRef)
        await outcome(runs, run)
        async with watching(runs) as watched:
            await runs.switch(KEY, MessageId("a"))
            await watched.until(1)
            await runs.switch(KEY, MessageId("b"))
            await watched.until(1, 4)


async def test_a_switch_to_what_follows_the_branch_is_one(store: Ledger) -> None:
    async with worker(store, numbered()) as runs:
        await answered(runs, "a")
        await answered(runs, "b")
        async with watching(runs) as watched:
            version = (await runs.status(KEY)).version
            assert await store.park(Change(KEY, new_nonce(), version, leaf=1))
            await watched.until(1)
            await runs.switch(KEY, MessageId("b"))
            await watched.until(1, 3)


async def test_messages_that_begin_a_conversation_without_a_run_are_told(store: Ledger) -> None:
    async with worker(store, numbered()) as runs, watching(runs, waits=True) as watched:
        assert await store.park(Change(KEY, new_nonce(), 0, (says("a", "a"),)))
        await watched.until(0)


async def test_a_conversation_that_is_not_there_yet_is_waited_for(store: Ledger) -> None:
    async with worker(store, numbered()) as runs:
        refused: list[dict[str, Any]] = [{}, {"waits": True, "after": START}]
        for options in refused:
            with pytest.raises(UnknownConversation):
                async with watching(runs, **options):
                    pass
        async with watching(runs, waits=True) as watched:
            run = await post(runs, says(message_id="a"))
            await watched.until(run)
            await runs.delete(KEY)
            await watched.until(run, "deleted")


async def test_it_is_waited_for_at_other_workers(store: Ledger) -> None:
    async with (
        worker(store, numbered()) as runs,
        worker(store, ScriptedModel([])) as other,
        watching(other, waits=True) as watched,
    ):
        run = await post(runs, says(message_id="a"))
        await watched.until(run)
