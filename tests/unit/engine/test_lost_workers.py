"""A worker silent for longer than its lease has lost its run: late writes do nothing (P6, P10)."""

from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    EXPIRING,
    EXPIRING_FLUSHED,
    FAILING_LOST,
    KEY,
    PAINT,
    QUICK,
    RECOVERING,
    at_once,
    call_ids,
    contents,
    events,
    followed,
    let_pass,
    outcome,
    post,
    reading,
    record,
    reply,
    result,
    says,
    standing,
    until,
    worker,
)
from tests.support.waiting import moment

from passback.core.changes import Change, Commit, Lease, LogWrite
from passback.core.errors import LeaseLost, ModelUnavailable, UnknownToolCall
from passback.core.events import (
    Completed,
    HandedBack,
    Position,
    Rewound,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallStarted,
    ToolResulted,
)
from passback.core.messages import CallId, RunId, RunRef, ToolMessage
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger
from passback.engine.next_run import LOST_RUN
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- the run goes on elsewhere
@pytest.mark.promise("P6", "P10")
@pytest.mark.parametrize("late", [words("too late"), [ModelUnavailable("too late")]])
async def test_a_reader_elsewhere_makes_its_worker_take_over(
    store: Ledger, late: list[Step]
) -> None:
    """The lost worker's end, or its failure, is sent once and changes nothing."""
    faults = Faults(store)
    gate = anyio.Event()
    async with (
        worker(faults.store, ScriptedModel([["half", gate, *late]]), timing=EXPIRING) as dying,
        worker(store, ScriptedModel([words("whole")])) as other,
    ):
        run = await post(dying, says())
        await until(dying, run, TextDelta)
        assert await outcome(other, run) == Completed()
        gate.set()
        assert await outcome(dying, run) == Completed()
        assert await followed(dying, run) == await followed(other, run)
        assert await contents(other) == ["hi", "whole"]
        assert faults.calls["commit"] == 1


@pytest.mark.promise("P10")
async def test_a_reader_of_a_lost_workers_text_learns_that_it_is_void(store: Ledger) -> None:
    gate = anyio.Event()
    async with (
        worker(
            store, ScriptedModel([["half", gate, *words("late")]]), timing=EXPIRING_FLUSHED
        ) as dying,
        worker(store, ScriptedModel([words("whole")])) as other,
    ):
        run = await post(dying, says())
        async with reading(dying, run) as reader:
            await reader.until(TextDelta("half"))
            assert (await other.status(KEY)).attempt == 2
            gate.set()
        fresh = await followed(other, run)
        assert [one for one in reader.events if isinstance(one, Rewound)] == [
            Rewound(Position(1, 1))
        ]
        assert standing(reader.seen) == fresh
        assert TextDelta("half") not in await events(other, run)


async def test_a_worker_that_wakes_up_stops_its_lost_run(memory: Ledger) -> None:
    """Its heartbeat tells it; it closes the model's stream, and readers go on from the store."""
    model = ScriptedModel([["half", anyio.Event()]])
    async with (
        worker(memory, model, timing=replace(QUICK, lease=0)) as dying,
        worker(memory, ScriptedModel([words("whole")])) as other,
    ):
        run = await post(dying, says())
        await until(dying, run, TextDelta)
        async with at_once() as tasks:
            tasks.start_soon(other.status, KEY)
            assert await outcome(dying, run) == Completed()
        assert model.open_streams == 0


async def test_a_post_elsewhere_finds_the_taken_over_run_going_on(store: Ledger) -> None:
    gate = anyio.Event()
    async with (
        worker(store, ScriptedModel([["half", anyio.Event()]]), timing=EXPIRING) as dying,
        worker(store, ScriptedModel([[gate, *words("one")], words("two")])) as other,
    ):
        lost = await post(dying, says("first"))
        waiting = await post(other, says("second"), on_busy="enqueue")
        gate.set()
        assert await outcome(other, lost) == Completed()
        assert await outcome(other, waiting) == Completed()
        assert await contents(other) == ["first", "one", "second", "two"]


@pytest.mark.promise("P10")
async def test_a_worker_looks_for_lost_runs_by_itself(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([["half", gate, *words("too late")]])
    async with (
        worker(store, model, timing=EXPIRING) as dying,
        worker(store, ScriptedModel([words("whole")]), timing=RECOVERING),
    ):
        run = await post(dying, says())
        while (await store.status(KEY)).running:
            await moment()
        gate.set()
        assert await outcome(dying, run) == Completed()
        assert await contents(dying) == ["hi", "whole"]


@pytest.mark.promise("P6")
async def test_many_workers_and_readers_take_a_lost_run_over_once(store: Ledger) -> None:
    models = [ScriptedModel([words("whole")]) for _ in range(2)]
    async with (
        worker(store, ScriptedModel([[anyio.Event()]]), timing=EXPIRING) as dying,
        worker(store, models[0]) as one,
        worker(store, models[1]) as two,
    ):
        run = await post(dying, says())
        ends: list[object] = []

        async def read(reader: RunService) -> None:
            ends.append(await outcome(reader, run))

        async with at_once() as tasks:
            for reader in (one, two) * 4:
                tasks.start_soon(read, reader)
        assert ends == [Completed()] * 8
        assert sum(len(model.requests) for model in models) == 1
        assert (await one.status(KEY)).attempt == 2


async def test_a_run_that_ends_while_it_is_being_given_up_keeps_its_end(memory: Ledger) -> None:
    gate = anyio.Event()
    faults = Faults(memory)
    async with (
        worker(memory, ScriptedModel([[gate, *words("done")]]), timing=EXPIRING) as dying,
        worker(faults.store, ScriptedModel([])) as other,
    ):
        run = await post(dying, says())

        async def end() -> None:
            gate.set()
            await outcome(dying, run)

        faults.first["take_over"] = end
        assert await outcome(other, run) == Completed()
        assert await contents(other) == ["hi", "done"]


# ---------------------------------------------------------------- the end of all attempts
@pytest.mark.promise("P6", "P10")
async def test_a_run_that_no_worker_survives_ends_once_as_lost(store: Ledger) -> None:
    """Each of three workers loses it; the fourth that looks ends it."""
    gate = anyio.Event()

    def breaking() -> ScriptedModel:
        return ScriptedModel([["half", gate, *words("too late")]])

    async with (
        worker(store, breaking(), timing=EXPIRING_FLUSHED) as one,
        worker(store, breaking(), timing=EXPIRING_FLUSHED) as two,
        worker(store, breaking(), timing=EXPIRING_FLUSHED) as three,
        worker(store, ScriptedModel([words("next")])) as last,
    ):
        run = await post(one, says())
        await until(one, run, TextDelta)
        for number, runs in enumerate((two, three), 2):
            assert (await runs.status(KEY)).attempt == number
            await until(runs, run, TextDelta)
        status = await last.status(KEY)
        assert (status.running, status.lapsed, status.run_id) == (False, False, run.run_id)
        gate.set()
        for runs in (one, two, three, last):
            assert await outcome(runs, run) == LOST_RUN
        assert await events(last, run) == [RunStarted(run.run_id), RunFinished(LOST_RUN)]
        assert await contents(last) == ["hi"]
        assert await reply(last, says("again")) == "next"


async def test_calls_that_no_reader_saw_are_closed_with_the_lost_run(memory: Ledger) -> None:
    """The turn was committed, its client call not yet handed back: nothing is owed for it."""
    started = anyio.Event()

    @tool
    async def work() -> str:
        """Work for ever."""
        started.set()
        await anyio.Event().wait()
        return ""

    model = ScriptedModel([calls(("work", {}), ("paint", {}))])
    async with (
        worker(memory, model, work, timing=EXPIRING) as dying,
        worker(memory, ScriptedModel([words("next")]), timing=FAILING_LOST) as other,
    ):
        run = await post(dying, says(), tools=[PAINT])
        await started.wait()
        seen = await events(other, run)
        assert seen[-1] == RunFinished(LOST_RUN)
        assert [event.is_error for event in seen if isinstance(event, ToolResulted)] == [True]
        assert owed_answers(await record(other)) == ()
        assert await call_ids(other) == []
        assert await reply(other, says("again")) == "next"


@pytest.mark.promise("P10")
async def test_an_answered_call_survives_the_loss_of_its_run(memory: Ledger) -> None:
    model = ScriptedModel([calls(("paint", {})), [anyio.Event()]])
    async with (
        worker(memory, model) as first,
        worker(memory, model, timing=EXPIRING) as dying,
        worker(memory, ScriptedModel([words("next")]), timing=FAILING_LOST) as other,
    ):
        assert isinstance(
            await outcome(first, await post(first, says(), tools=[PAINT])), HandedBack
        )
        (call_id,) = await call_ids(first)
        run = await post(dying, result(call_id, "red"))
        assert await post(other, result(call_id, "red")) == run
        assert await outcome(other, run) == LOST_RUN
        assert await reply(other, says("well?")) == "next"
        assert await contents(other) == ["hi", "", "red", "well?", "next"]


async def test_a_post_ends_a_run_out_of_attempts_and_starts_its_own(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([[anyio.Event()]]), timing=EXPIRING) as dying,
        worker(store, ScriptedModel([words("in time")]), timing=FAILING_LOST) as other,
    ):
        lost = await post(dying, says("one"))
        run = await post(other, says("two"))
        assert await outcome(other, run) == Completed()
        assert await outcome(other, lost) == LOST_RUN
        assert await contents(other) == ["one", "two", "in time"]


# ---------------------------------------------------------------- late writes
@pytest.mark.promise("P10")
async def test_the_result_of_a_tool_of_a_lost_run_is_not_written(memory: Ledger) -> None:
    started, gate = anyio.Event(), anyio.Event()

    @tool
    async def work() -> str:
        """Work for a while."""
        started.set()
        await gate.wait()
        return "worked"

    model = ScriptedModel([calls(("work", {}))])
    async with (
        worker(memory, model, work, timing=EXPIRING) as dying,
        worker(memory, ScriptedModel([words("so be it")]), work) as other,
    ):
        run = await post(dying, says())
        await started.wait()
        assert await outcome(other, run) == Completed()
        before = await record(other)
        gate.set()
        assert await outcome(dying, run) == Completed()
        assert await record(other) == before
        (closed,) = [message for message in before if isinstance(message, ToolMessage)]
        assert closed.synthetic == "interrupted"


@pytest.mark.promise("P4")
async def test_an_early_result_at_a_lost_worker_is_judged_by_the_store(store: Ledger) -> None:
    """Its memory ends where the other worker's log begins."""
    gate, wake = anyio.Event(), anyio.Event()
    turn = calls(("paint", {}))
    model = ScriptedModel([["half", wake, *words("late")], words("painted")])
    async with (
        worker(store, model, timing=replace(EXPIRING, log_delay=0.01)) as dying,
        worker(store, ScriptedModel([[*turn[:-1], gate, turn[-1]]])) as other,
    ):
        run = await post(dying, says(), tools=[PAINT])
        await until(dying, run, TextDelta)
        await other.status(KEY)
        begun = await until(other, run, ToolCallStarted)
        assert isinstance(begun.event, ToolCallStarted)
        started: list[RunRef] = []

        async def answer(call_id: CallId) -> None:
            started.append(await post(dying, result(call_id)))

        async with at_once() as tasks:
            tasks.start_soon(answer, begun.event.call_id)
            await let_pass(other)
            assert started == []
            wake.set()
            gate.set()
        assert await outcome(dying, started[0]) == Completed()


@pytest.mark.promise("P10")
async def test_a_lost_worker_can_neither_log_nor_commit_nor_release(store: Ledger) -> None:
    """The fence refuses whatever it still has to write."""
    run = RunRef(KEY, RunId("run_lost"))
    opening = (RunStarted(run.run_id),)
    lease = await store.begin(Change(KEY, "n", 0, (says(),)), run.run_id, opening, lease=0)
    assert isinstance(lease, Lease)
    async with worker(store, ScriptedModel([words("whole")])) as other:
        assert await outcome(other, run) == Completed()
        before = await record(other), await followed(other, run), await other.status(KEY)
        write = LogWrite(lease, 2, (TextDelta("late"), RunFinished(Completed())))
        assert await store.append([write], lease=30) == ["lost"]
        with pytest.raises(LeaseLost):
            await store.commit(Commit(write, 1, (says("late"),), ends=True), lease=30)
        assert not await store.release(lease)
        assert await store.renew([lease], lease=30) == ["lost"]
        after = await record(other), await followed(other, run), await other.status(KEY)
        assert after == before


async def test_a_result_for_a_call_of_a_void_turn_is_unknown(memory: Ledger) -> None:
    """Its worker died before the turn was committed: the call was never made."""
    model = ScriptedModel([[*calls(("paint", {}))[:-1], anyio.Event()]])
    async with (
        worker(memory, model, timing=EXPIRING_FLUSHED) as dying,
        worker(memory, ScriptedModel([words("whole"), words("next")])) as other,
    ):
        run = await post(dying, says(), tools=[PAINT])
        begun = await until(dying, run, ToolCallStarted)
        assert isinstance(begun.event, ToolCallStarted)
        assert await outcome(other, run) == Completed()
        with pytest.raises(UnknownToolCall):
            await post(other, result(begun.event.call_id))
        assert await reply(other, says("never mind")) == "next"
