"""Following a run: from every place, late, from elsewhere, and without being able to harm it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.ledgers import open_ledger
from tests.support.runs import (
    KEY,
    OTHER,
    QUICK,
    at_once,
    followed,
    let_pass,
    outcome,
    post,
    reading,
    says,
    until,
    worker,
)
from tests.support.store_values import LONG, begin_run, change

from passback.core.conversation.store import Watch
from passback.core.deltas import Finish
from passback.core.errors import CursorExpired, InvalidCursor, UnknownRun
from passback.core.events import (
    START,
    Completed,
    Logged,
    Position,
    Rewound,
    RunEvent,
    RunFinished,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import ConversationKey, RunId, RunRef
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


@tool
def look() -> str:
    """A server tool."""
    return "seen"


SCRIPT = [["Let ", "me ", "see. ", *calls(("look", {}))], words("I ", "saw ", "it.")]


@asynccontextmanager
async def places(store: Ledger, tmp_path: Path) -> AsyncGenerator[list[tuple[str, RunService]]]:
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
            open_ledger(f"sqlite:///{tmp_path}/store.db") as second,
            worker(second, ScriptedModel([])) as other,
        ):
            yield [*readers, ("same file", other)]


@pytest.mark.promise("P3")
async def test_a_log_cut_anywhere_adds_up_to_the_uncut_one(store: Ledger, tmp_path: Path) -> None:
    async with places(store, tmp_path) as readers:
        run = await post(readers[0][1], says())
        whole = await followed(readers[0][1], run)
        assert len(whole) == 17
        assert [one.position for one in whole] == [Position(1, n) for n in range(1, 18)]
        for _, reader in readers:
            assert await followed(reader, run) == whole
            for cut, last in enumerate(whole, 1):
                assert await followed(reader, run, last.position) == whole[cut:]


@pytest.mark.promise("P3")
async def test_readers_that_often_leave_miss_nothing(store: Ledger, tmp_path: Path) -> None:
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


async def test_text_is_seen_before_the_answer_is_complete(store: Ledger) -> None:
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


async def test_a_run_is_followed_live_from_elsewhere(store: Ledger, tmp_path: Path) -> None:
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


async def test_what_is_ready_together_comes_as_one_batch(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([words("a", "b")])) as runs:
        run = await post(runs, says())
        whole = await followed(runs, run)
        async with runs.follow(run) as batches:
            assert [list(batch) async for batch in batches] == [whole]


async def test_what_a_waiting_reader_takes_does_not_come_again(memory: Ledger) -> None:
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
async def test_a_reader_that_cannot_take_breaks_by_itself(memory: Ledger) -> None:
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


async def test_readers_share_a_run_and_each_sees_all_of_it(memory: Ledger) -> None:
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
async def test_a_closed_reader_does_not_stop_the_run(store: Ledger) -> None:
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
async def test_a_place_beyond_the_end_of_a_run_that_is_over_is_refused(store: Ledger) -> None:
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


async def test_a_place_ahead_of_a_live_log_is_refused_where_the_run_is(memory: Ledger) -> None:
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


async def test_an_unknown_run_is_refused_on_entering(store: Ledger) -> None:
    gate = anyio.Event()
    async with worker(store, ScriptedModel([[gate, *words("a")]])) as runs:
        run = await post(runs, says())
        for wrong in (RunRef(KEY, RunId("never")), RunRef(OTHER, run.run_id)):
            with pytest.raises(UnknownRun):
                async with runs.follow(wrong):
                    pass
        gate.set()


async def test_the_turns_of_a_run_have_messages_of_their_own(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel(SCRIPT), look) as runs:
        whole = await followed(runs, await post(runs, says()))
    turns = [one.event.message_id for one in whole if isinstance(one.event, TurnStarted)]
    assert len(turns) == len(set(turns)) == 2


# ---------------------------------------------------------------- at other workers
async def test_a_cursor_ahead_of_a_live_log_waits_elsewhere(memory: Ledger) -> None:
    """Its reader has seen it where the run is, before it was stored."""
    gate = anyio.Event()
    silent = replace(QUICK, log_delay=3600)
    async with (
        worker(memory, ScriptedModel([["a", gate, *words("b")]]), timing=silent) as owner,
        worker(memory, ScriptedModel([])) as other,
    ):
        run = await post(owner, says())
        ahead = await until(owner, run, TextDelta)
        with pytest.raises(InvalidCursor):  # of an epoch that was not begun
            await followed(other, run, Position(2, 1))
        async with reading(other, run, ahead.position) as reader:
            await let_pass(other)
            assert reader.seen == []
            gate.set()
        assert reader.seen == (await followed(owner, run))[ahead.position.seq :]


@pytest.mark.promise("P3", "P12")
async def test_a_place_from_the_future_is_refused_elsewhere_too(memory: Ledger) -> None:
    """The run's worker has stored more, and the position was not in it."""
    gates = [anyio.Event() for _ in range(1000)]
    steps = [step for number, gate in enumerate(gates) for step in (gate, f"{number} ")]
    model = ScriptedModel([steps])
    async with worker(memory, model) as owner, worker(memory, ScriptedModel([])) as other:
        run = await post(owner, says())
        async with at_once() as tasks:

            async def read() -> None:
                await refused(other, run, Position(1, 5000))
                tasks.cancel_scope.cancel()

            tasks.start_soon(read)
            for number, gate in enumerate(gates):
                gate.set()
                await shown(other, run, TextDelta(f"{number} "))
            raise AssertionError("it was not refused")
        await owner.cancel(run)


async def test_a_cursor_ahead_of_a_silent_worker_is_refused(memory: Ledger) -> None:
    model = ScriptedModel([["a", anyio.Event()]])
    short_lease = replace(QUICK, lease=0.3)
    async with worker(memory, model) as owner, worker(memory, model, timing=short_lease) as other:
        run = await post(owner, says())
        await until(other, run, TextDelta)
        await refused(other, run, Position(1, 99))
        await owner.cancel(run)


@pytest.mark.promise("P3", "P10")
@pytest.mark.parametrize("ends", [False, True])
async def test_a_cursor_never_stored_is_waited_for(memory: Ledger, ends: bool) -> None:
    """Its reader saw it there; the take-over voids it, even if the run ends before he looks."""
    silent = replace(QUICK, log_delay=3600)
    async with (
        worker(memory, ScriptedModel([words("good")])) as third,
        worker(memory, ScriptedModel([words("good")])) as other,
        killable_worker(memory, ScriptedModel([["void", anyio.Event()]]), timing=silent) as dying,
    ):
        run = await post(dying.runs, says())
        ahead = await until(dying.runs, run, TextDelta)
        async with reading(other, run, ahead.position) as reader:
            await let_pass(other)
            await dying.kill()
            if ends:
                assert await outcome(third, run) == Completed()
        assert isinstance(reader.events[0], Rewound)
        assert TextDelta("good") in reader.events


@pytest.mark.promise("P3", "P10")
async def test_a_place_is_waited_for_as_long_as_its_dead_workers_lease_lasts(store: Ledger) -> None:
    mute = replace(QUICK, log_delay=3600)
    async with (
        worker(store, ScriptedModel([words("good")])) as other,
        killable_worker(store, ScriptedModel([["void", anyio.Event()]]), timing=mute) as dying,
    ):
        run = await post(dying.runs, says())
        ahead = await until(dying.runs, run, TextDelta)
        await dying.vanish()
        async with reading(other, run, ahead.position) as reader:
            await let_pass(other)
            assert reader.seen == []
            await dying.expire()
        assert isinstance(reader.events[0], Rewound)
        assert TextDelta("good") in reader.events


@pytest.mark.promise("P10")
async def test_late_readers_are_shown_nothing_that_becomes_void(store: Ledger) -> None:
    """Readers see committed events, then the good text, as if no worker had died."""
    script: list[list[Step]] = [["Let me see.", *calls(("look", {}))], ["void", anyio.Event()]]
    async with (
        worker(store, ScriptedModel([words("good")]), look) as other,
        killable_worker(store, ScriptedModel(script), look) as dying,
    ):
        run = await post(dying.runs, says())
        await shown(other, run, TextDelta("void"))
        await dying.vanish()
        async with reading(other, run) as reader:
            await reader.until(TextDelta("Let me see."))
            await let_pass(other)
            await dying.expire()
        assert [event for event in reader.events if isinstance(event, TextDelta | Rewound)] == [
            TextDelta("Let me see."),
            TextDelta("good"),
        ]


@pytest.mark.promise("P3", "P10")
async def test_a_reader_whose_events_are_void_and_lost_cannot_go_on(store: Ledger) -> None:
    held = await begin_run(store, KEY)
    await store.renew([held], lease=0)
    version, void = (await store.status(KEY)).version, (Rewound(START),)
    run_id = held.run.run_id
    assert await store.take_over(change(KEY, version), run_id, void, lease=LONG)
    async with (
        worker(store, ScriptedModel([])) as runs,
        runs.follow(held.run, after=Position(held.epoch, 1)) as batches,
    ):
        with pytest.raises(CursorExpired):
            await anext(batches)


async def refused(runs: RunService, run: RunRef, place: Position) -> None:
    with pytest.raises(InvalidCursor):
        await followed(runs, run, place)


async def shown(runs: RunService, run: RunRef, event: RunEvent) -> None:
    """Wait until a reader of the run has been shown an event."""
    async with runs.follow(run) as batches:
        async for batch in batches:
            if any(logged.event == event for logged in batch):
                return
    raise AssertionError("the run ended without it")


@pytest.mark.promise("P3", "P12")
async def test_a_cursor_is_awaited_while_its_worker_cannot_store(memory: Ledger) -> None:
    faults, gate = Faults(memory), anyio.Event()
    async with (
        worker(faults.store, ScriptedModel([["a", gate, *words("b")]])) as owner,
        worker(memory, ScriptedModel([])) as other,
    ):
        faults.plan["append"] = ["refuse"] * 10_000
        run = await post(owner, says())
        ahead = await until(owner, run, TextDelta)
        async with reading(other, run, ahead.position) as reader:
            await faults.until("renew", faults.calls["renew"] + 20)
            faults.plan["append"].clear()
            gate.set()
        assert TextDelta("b") in reader.events


async def test_what_a_sign_of_life_came_with_is_shown_at_once(memory: Ledger) -> None:
    """Nobody writes after it, and no reader looks again by itself."""
    faults, gate = Faults(memory), anyio.Event()
    faults.first["append"] = gate.wait
    silent = replace(QUICK, heartbeat=3600, log_delay=0.1)
    async with (
        worker(faults.store, ScriptedModel([["a", anyio.Event()]]), timing=silent) as owner,
        worker(HintsOnly(memory).store, ScriptedModel([])) as other,
    ):
        run = await post(owner, says())
        async with reading(other, run) as reader:
            await let_pass(other)
            gate.set()
            await reader.until(TextDelta("a"))
            await owner.cancel(run)


class HintsOnly:
    """A store whose watches wait until there is a hint."""

    def __init__(self, store: Ledger) -> None:
        self._store = store

    @property
    def store(self) -> Ledger:
        return cast("Ledger", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @asynccontextmanager
    async def watch(self, key: ConversationKey, /) -> AsyncGenerator[Watch]:
        async with self._store.watch(key) as watch:
            yield _EndlessWatch(watch)


@dataclass
class _EndlessWatch:
    watch: Watch

    async def wait(self, seconds: float = 0, /) -> None:
        await self.watch.wait(3600)


@pytest.mark.promise("P10")
async def test_a_hand_over_is_no_sign_of_life(memory: Ledger) -> None:
    faults, looking = Faults(memory), Faults(memory)
    silent = replace(QUICK, heartbeat=3600)
    async with (
        worker(faults.store, ScriptedModel([["void", anyio.Event()]]), timing=silent) as owner,
        worker(looking.store, ScriptedModel([words("good")])) as other,
    ):
        run = await post(owner, says())
        await faults.until("append", 1)
        async with reading(other, run) as reader:
            await looking.until("status", 2)
            await owner.drain(0)
        assert [event for event in reader.events if isinstance(event, TextDelta | Rewound)] == [
            TextDelta("good")
        ]


@pytest.mark.promise("P3", "P10")
async def test_a_worker_that_lost_its_run_without_knowing_takes_the_cursors_of_the_new_one(
    memory: Ledger,
) -> None:
    faults, gate = Faults(memory), anyio.Event()
    mute = replace(QUICK, heartbeat=3600, log_delay=3600)
    async with (
        worker(faults.store, ScriptedModel([["void", anyio.Event()]]), timing=mute) as stale,
        worker(memory, ScriptedModel([["good", gate, *words(" end")]])) as other,
    ):
        run = await post(stale, says())
        await until(stale, run, TextDelta)
        await memory.renew(faults.leases, lease=0)
        await other.status(KEY)
        ahead = await until(other, run, TextDelta)
        assert ahead.position.epoch > 1
        gate.set()
        seen = await followed(stale, run, ahead.position)
        assert TextDelta(" end") in [logged.event for logged in seen]
