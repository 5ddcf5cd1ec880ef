"""Following a run: from every place, late, from elsewhere, and without being able to harm it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.runs import (
    KEY,
    OTHER,
    at_once,
    followed,
    outcome,
    post,
    says,
    until,
    worker,
)

from passback.core.deltas import Finish
from passback.core.errors import InvalidCursor, UnknownRun
from passback.core.events import (
    START,
    Completed,
    Logged,
    Position,
    RunFinished,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import RunId, RunRef
from passback.core.ports import Store
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.stores.open import open_store
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


@tool
def look() -> str:
    """A server tool."""
    return "seen"


SCRIPT = [["Let ", "me ", "see. ", *calls(("look", {}))], words("I ", "saw ", "it.")]


@asynccontextmanager
async def places(store: Store, tmp_path: Path) -> AsyncGenerator[list[tuple[str, RunService]]]:
    """The worker that runs, and others that only read: on the same store, and on the same file."""
    async with (
        worker(store, ScriptedModel(SCRIPT), look) as owner,
        worker(store, ScriptedModel([])) as same,
    ):
        readers = [("owner", owner), ("same store", same)]
        if not store.location.startswith("sqlite"):
            yield readers
            return
        async with (
            open_store(f"sqlite:///{tmp_path}/store.db") as second,
            worker(second, ScriptedModel([])) as other,
        ):
            yield [*readers, ("same file", other)]


@pytest.mark.promise("P3")
async def test_a_log_cut_anywhere_adds_up_to_the_uncut_one(store: Store, tmp_path: Path) -> None:
    async with places(store, tmp_path) as readers:
        run = await post(readers[0][1], says())
        whole = await followed(readers[0][1], run)
        assert len(whole) == 14
        assert [one.position for one in whole] == [Position(1, n) for n in range(1, 15)]
        for _, reader in readers:
            assert await followed(reader, run) == whole
            for cut, last in enumerate(whole, 1):
                assert await followed(reader, run, last.position) == whole[cut:]


@pytest.mark.promise("P3")
async def test_readers_that_leave_after_every_event_miss_nothing(
    store: Store, tmp_path: Path
) -> None:
    async with places(store, tmp_path) as readers:
        run = await post(readers[0][1], says())
        seen: dict[str, list[Logged]] = {name: [] for name, _ in readers}

        async def read(name: str, reader: RunService) -> None:
            position = START
            while not (seen[name] and isinstance(seen[name][-1].event, RunFinished)):
                async with reader.follow(run, after=position) as batches:
                    batch = await anext(batches)
                seen[name].append(batch[0])
                position = batch[0].position

        async with at_once() as tasks:
            for name, reader in readers:
                tasks.start_soon(read, name, reader)
        whole = await followed(readers[0][1], run)
        assert seen == dict.fromkeys(seen, whole)


async def test_text_is_seen_before_the_answer_is_complete(store: Store) -> None:
    gate = anyio.Event()
    async with (
        worker(store, ScriptedModel([["first", gate, *words("second")]])) as owner,
        worker(store, ScriptedModel([])) as other,
    ):
        run = await post(owner, says())
        for reader in (owner, other):
            assert (await until(reader, run, TextDelta)).event == TextDelta("first")
        gate.set()
        assert await outcome(other, run) == Completed()


async def test_a_run_is_followed_live_from_elsewhere(store: Store, tmp_path: Path) -> None:
    gates = [anyio.Event() for _ in range(4)]
    script = [step for n, gate in enumerate(gates) for step in (f"{n}", gate)]
    async with (
        worker(store, ScriptedModel([[*script, Finish("stop")]])) as owner,
        worker(store, ScriptedModel([])) as other,
    ):
        run = await post(owner, says())
        waiting = iter(gates)
        seen: list[Logged] = []
        async with other.follow(run) as batches:
            async for batch in batches:
                seen.extend(batch)
                if isinstance(batch[-1].event, TextDelta):
                    next(waiting).set()
        assert seen == await followed(owner, run)


async def test_what_is_ready_together_comes_as_one_batch(memory: Store) -> None:
    async with worker(memory, ScriptedModel([words("a", "b")])) as runs:
        run = await post(runs, says())
        whole = await followed(runs, run)
        async with runs.follow(run) as batches:
            assert [list(batch) async for batch in batches] == [whole]


async def test_what_a_waiting_reader_takes_does_not_come_again(memory: Store) -> None:
    gates = [anyio.Event() for _ in range(3)]
    script: list[Step] = [step for n, gate in enumerate(gates) for step in (gate, f"{n}")]
    taken: list[Logged] = []
    read: list[Logged] = []

    def take(batch: Sequence[Logged]) -> bool:
        if len(taken) == 2:
            return False
        taken.extend(batch)
        return True

    async with worker(memory, ScriptedModel([[*script, Finish("stop")]])) as runs:
        run = await post(runs, says())

        async def follow() -> None:
            async with runs.follow(run, take=take) as batches:
                async for batch in batches:
                    read.extend(batch)

        async with at_once() as tasks:
            tasks.start_soon(follow)
            for gate in gates:
                await anyio.wait_all_tasks_blocked()
                gate.set()
        assert [one.event for one in taken] == [TextDelta("0"), TextDelta("1")]
        assert sorted([*taken, *read]) == await followed(runs, run)
        assert isinstance(read[-1].event, RunFinished)


@pytest.mark.promise("P7")
async def test_a_reader_that_cannot_take_breaks_by_itself(memory: Store) -> None:
    gate = anyio.Event()

    def take(_: Sequence[Logged]) -> bool:
        raise RuntimeError("tulip")

    async with worker(memory, ScriptedModel([[gate, *words("a")]])) as runs:
        run = await post(runs, says())

        async def follow() -> None:
            async with runs.follow(run, take=take) as batches:
                await anext(batches)
                with pytest.raises(RuntimeError, match="tulip"):
                    await anext(batches)

        async with at_once() as tasks:
            tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            gate.set()
        assert await outcome(runs, run) == Completed()


async def test_readers_share_a_run_and_each_sees_all_of_it(memory: Store) -> None:
    gates = [anyio.Event() for _ in range(5)]
    script: list[Step] = [step for n, gate in enumerate(gates) for step in (gate, f"{n}")]
    async with worker(memory, ScriptedModel([[*script, Finish("stop")]])) as runs:
        run = await post(runs, says())
        seen: list[list[Logged]] = []

        async def read() -> None:
            seen.append(await followed(runs, run))

        async with at_once() as tasks:
            for gate in gates:
                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                gate.set()
        assert seen == [await followed(runs, run)] * 5


@pytest.mark.promise("P7")
async def test_a_closed_reader_does_not_stop_the_run(store: Store) -> None:
    gate = anyio.Event()
    async with worker(store, ScriptedModel([["first", gate, *words(" second")]])) as runs:
        run = await post(runs, says())

        async def read(scope: anyio.CancelScope) -> None:
            with scope:
                async with runs.follow(run) as batches:
                    async for batch in batches:
                        if any(isinstance(logged.event, TextDelta) for logged in batch):
                            scope.cancel()

        async with at_once() as tasks:
            for _ in range(3):
                tasks.start_soon(read, anyio.CancelScope())
        gate.set()
        assert await outcome(runs, run) == Completed()


@pytest.mark.promise("P12")
async def test_a_place_beyond_the_end_of_a_run_that_is_over_is_refused(store: Store) -> None:
    async with (
        worker(store, ScriptedModel([words("a")])) as owner,
        worker(store, ScriptedModel([])) as other,
    ):
        run = await post(owner, says())
        whole = await followed(owner, run)
        for reader in (owner, other):
            assert await followed(reader, run, whole[-1].position) == []
            for place in (Position(1, len(whole) + 1), Position(1, 99), Position(7, 1)):
                with pytest.raises(InvalidCursor):
                    await followed(reader, run, place)


async def test_a_place_ahead_of_a_live_log_is_refused_where_the_run_is(memory: Store) -> None:
    gate = anyio.Event()
    async with worker(memory, ScriptedModel([[gate, *words("a", "b")]])) as runs:
        run = await post(runs, says())
        await until(runs, run, TurnStarted)
        for place in (Position(1, 3), Position(2, 1)):
            with pytest.raises(InvalidCursor):
                await followed(runs, run, place)
        gate.set()
        whole = await followed(runs, run)
        assert await followed(runs, run, Position(0, 9)) == whole


async def test_an_unknown_run_is_refused_on_entering(store: Store) -> None:
    gate = anyio.Event()
    async with worker(store, ScriptedModel([[gate, *words("a")]])) as runs:
        run = await post(runs, says())
        for wrong in (RunRef(KEY, RunId("never")), RunRef(OTHER, run.run_id)):
            with pytest.raises(UnknownRun):
                async with runs.follow(wrong):
                    pass
        gate.set()


async def test_the_turns_of_a_run_have_messages_of_their_own(memory: Store) -> None:
    async with worker(memory, ScriptedModel(SCRIPT), look) as runs:
        whole = await followed(runs, await post(runs, says()))
    turns = [one.event.message_id for one in whole if isinstance(one.event, TurnStarted)]
    assert len(turns) == len(set(turns)) == 2
