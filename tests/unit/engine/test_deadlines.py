"""Deadlines of what a client owes: the model goes on without it, once, on any worker."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    ASK,
    KEY,
    OTHER,
    PAINT,
    QUICK,
    RECOVERING,
    at_once,
    call_ids,
    contents,
    events,
    followed,
    outcome,
    park,
    post,
    reading,
    record,
    result,
    says,
    standing,
    until,
    worker,
)

from passback.core.changes import Change, Commit, Enqueue, LogWrite, QueuedPost
from passback.core.errors import ResultConflict
from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    Position,
    Rewound,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    MessageId,
    RunId,
    RunRef,
    ToolCall,
    ToolMessage,
)
from passback.core.posts import OnBusy, StartRun
from passback.core.transcript import SYNTHETIC_TEXT, owed_answers
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.supervisor import Timing
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


LATE = replace(QUICK, tool_timeout=0)
"""A worker whose calls are overdue as soon as they are made, without background recovery."""
LONG_TIMEOUT = replace(QUICK, tool_timeout=3600)
RECOVERING_SOON = replace(LATE, scan=0.01)
TIMEOUT = SYNTHETIC_TEXT["timeout"]
BOTH = calls(("paint", {}), ("ask", {}))


async def handed_back(runs: RunService) -> RunRef:
    run = await post(runs, says(), tools=[PAINT, ASK])
    assert isinstance(await outcome(runs, run), HandedBack)
    return run


async def newest(runs: RunService, before: RunRef) -> RunRef:
    """The run that began by itself."""
    with anyio.fail_after(5):
        while (run_id := (await runs.status(KEY)).run_id) in {None, before.run_id}:
            pass
    assert run_id is not None
    return RunRef(KEY, run_id)


async def closings(runs: RunService) -> list[tuple[object, bool, str | None]]:
    results = [each for each in await record(runs) if isinstance(each, ToolMessage)]
    return [(each.content, each.is_error, each.synthetic) for each in results]


# ---------------------------------------------------------------- the deadline
async def test_what_is_owed_has_the_deadline_of_the_settings(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([BOTH]), timing=LONG_TIMEOUT) as asking,
        worker(store, ScriptedModel([BOTH])) as other,
    ):
        await handed_back(asking)
        status = await other.status(KEY)
        assert status.answer_by is not None
        assert not status.overdue


async def test_a_run_that_owes_nothing_has_none(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("hello")]), timing=LATE) as runs:
        assert await outcome(runs, await post(runs, says())) == Completed()
        status = await runs.status(KEY)
        assert (status.answer_by, status.overdue) == (None, False)


# ---------------------------------------------------------------- it is over
@pytest.mark.promise("P1", "P10")
async def test_a_worker_that_looks_goes_on_with_what_another_one_was_owed(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([BOTH]), timing=LATE) as gone,
        worker(store, ScriptedModel([words("without, then")]), timing=RECOVERING_SOON) as other,
    ):
        first = await handed_back(gone)
        run = await newest(other, first)
        assert await outcome(other, run) == Completed()
        assert await closings(other) == [(TIMEOUT, True, "timeout")] * 2
        assert (await contents(other))[-1] == "without, then"


async def test_asking_for_the_status_lets_an_overdue_conversation_go_on(store: Ledger) -> None:
    async with worker(store, ScriptedModel([BOTH, words("so be it")]), timing=LATE) as runs:
        first = await handed_back(runs)
        status = await runs.status(KEY)
        assert status.run_id not in {None, first.run_id}
        assert await outcome(runs, await newest(runs, first)) == Completed()


async def test_the_model_gets_the_answers_that_came_in_time(store: Ledger) -> None:
    """The repeat of such an answer joins the run that it led to."""
    model = ScriptedModel([BOTH, words("half of it")])
    async with worker(store, model, timing=replace(QUICK, tool_timeout=1)) as runs:
        first = await handed_back(runs)
        painted, asked = await call_ids(runs)
        assert [left.id for left in (await park(runs, result(painted))).owed] == [asked]
        run = await newest(runs, first)
        assert await outcome(runs, run) == Completed()
        assert await closings(runs) == [("done", False, None), (TIMEOUT, True, "timeout")]
        assert await post(runs, result(painted)) == run
        with pytest.raises(ResultConflict, match="time for this tool call's result is over"):
            await post(runs, result(asked))


async def test_many_workers_that_find_an_overdue_conversation_start_one_run(store: Ledger) -> None:
    models = [ScriptedModel([BOTH, words("once")]), ScriptedModel([words("once")])]
    async with (
        worker(store, models[0], timing=RECOVERING_SOON) as one,
        worker(store, models[1], timing=RECOVERING_SOON) as other,
    ):
        first = await handed_back(one)
        async with at_once() as tasks:
            for runs in (one, other) * 5:
                tasks.start_soon(runs.status, KEY)
        run = await newest(other, first)
        assert await outcome(one, run) == await outcome(other, run) == Completed()
        turns = [each.content for each in await record(one) if isinstance(each, AssistantMessage)]
        assert turns == ["", "once"]


async def test_a_worker_that_loses_the_race_starts_nothing(memory: Ledger) -> None:
    faults = Faults(memory)
    async with (
        worker(memory, ScriptedModel([BOTH, words("once")]), timing=LATE) as one,
        worker(faults.store, ScriptedModel([]), timing=LATE) as slow,
    ):
        first = await handed_back(one)
        faults.first["begin"] = lambda: one.status(KEY)
        await slow.status(KEY)
        assert await outcome(one, await newest(one, first)) == Completed()
        assert (await contents(slow))[-1] == "once"


async def test_what_is_overdue_is_in_no_inbox(memory: Ledger) -> None:
    async with (
        worker(memory, ScriptedModel([BOTH]), timing=LATE) as late,
        worker(memory, ScriptedModel([BOTH]), timing=LONG_TIMEOUT) as asking,
    ):
        await handed_back(late)
        run = await post(asking, says(), key=OTHER, tools=[PAINT, ASK])
        assert isinstance(await outcome(asking, run), HandedBack)
        assert len((await memory.inbox(KEY.owner, limit=9)).owing) == 2
        page = await late.inbox(KEY.owner, limit=9)
        assert [each.key for each in page.owing] == [OTHER]


# ---------------------------------------------------------------- posts
@pytest.mark.promise("P9", "P12")
async def test_a_late_result_is_a_conflict_and_changes_nothing(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([BOTH]), timing=LATE) as runs:
        first = await handed_back(runs)
        late = (await memory.status(KEY)).owed[0]
        with pytest.raises(ResultConflict, match="time for this tool call's result is over"):
            await post(runs, result(late.id))
        assert (await memory.status(KEY)).run_id == first.run_id


@pytest.mark.parametrize("on_busy", ["reject", "enqueue", "interrupt", "rollback"])
async def test_a_user_message_starts_its_run_at_once(memory: Ledger, on_busy: OnBusy) -> None:
    async with worker(memory, ScriptedModel([BOTH, words("sure")]), timing=LATE) as runs:
        await handed_back(runs)
        run = await post(runs, says("never mind"), on_busy=on_busy)
        assert await outcome(runs, run) == Completed()
        assert await closings(runs) == [(TIMEOUT, True, "timeout")] * 2
        assert (await contents(runs))[-2:] == ["never mind", "sure"]


# ---------------------------------------------------------------- posts that wait
NEXT = RunRef(KEY, RunId("run_next"))


async def overdue_before(store: Ledger, waits: StartRun) -> RunRef:
    """Owe two overdue calls, while a post waits; the worker is gone."""
    run = RunRef(KEY, RunId("run_first"))
    change = Change(KEY, "nonce", 0, (says("one"),))
    lease = await store.begin(change, run.run_id, (RunStarted(run.run_id),), lease=30)
    assert lease is not None
    entry = Enqueue(QueuedPost(NEXT.run_id, waits), {}, (RunQueued(NEXT.run_id),), 9)
    assert await store.enqueue(entry) == "queued"
    asked = tuple(ToolCall(CallId(name), name, "{}", client=True) for name in ("paint", "ask"))
    turn = AssistantMessage(MessageId("a"), "", asked)
    log = LogWrite(lease, 2, (RunFinished(HandedBack(owed_answers([turn]))),))
    commit = Commit(log, 0, (turn,), owed_answers([turn]), ends=True, answer_within=0)
    assert await store.commit(commit, lease=30)
    return run


async def test_posts_that_wait_come_after_the_run_that_goes_on_without(memory: Ledger) -> None:
    first = await overdue_before(memory, StartRun(KEY, (says("two"),), on_busy="enqueue"))
    async with worker(memory, ScriptedModel([words("without"), words("next")])) as runs:
        run = await newest(runs, first)
        assert await outcome(runs, run) == Completed()
        assert await outcome(runs, NEXT) == Completed()
        assert run != NEXT
        assert await contents(runs) == ["one", "", TIMEOUT, TIMEOUT, "without", "two", "next"]


async def test_a_post_that_stops_what_runs_before_it_stops_that_run_too(memory: Ledger) -> None:
    first = await overdue_before(memory, StartRun(KEY, (says("two"),), on_busy="interrupt"))
    async with worker(memory, ScriptedModel([words("next")])) as runs:
        run = await newest(runs, first)
        assert await outcome(runs, run) == Cancelled()
        assert await outcome(runs, NEXT) == Completed()
        assert await contents(runs) == ["one", "", TIMEOUT, TIMEOUT, "two", "next"]


async def test_an_answer_that_waits_with_a_post_is_in_time(memory: Ledger) -> None:
    waits = StartRun(KEY, (result(CallId("paint")), says("two")), on_busy="enqueue")
    first = await overdue_before(memory, waits)
    async with worker(memory, ScriptedModel([words("with one"), words("next")])) as runs:
        assert await outcome(runs, await newest(runs, first)) == Completed()
        assert await outcome(runs, NEXT) == Completed()
        assert await contents(runs) == ["one", "", "done", TIMEOUT, "with one", "two", "next"]


async def test_a_new_message_times_out_calls_and_starts_the_queue(memory: Ledger) -> None:
    await overdue_before(memory, StartRun(KEY, (says("two"),), on_busy="enqueue"))
    async with worker(memory, ScriptedModel([words("next"), words("last")])) as runs:
        assert await outcome(runs, await post(runs, says("three", "v"))) == Completed()
        assert await contents(runs) == ["one", "", TIMEOUT, TIMEOUT, "two", "next", "three", "last"]


# ---------------------------------------------------------------- stalls
STILL = replace(QUICK, heartbeat=3600, log_delay=3600)
"""A worker that renews its leases only when it commits."""


def half() -> list[Step]:
    return ["half", anyio.Event()]


@asynccontextmanager
async def stalled(
    store: Ledger, model: ScriptedModel, timing: Timing = STILL
) -> AsyncGenerator[tuple[RunService, Faults]]:
    faults = Faults(store)
    async with worker(faults.store, model, timing=timing) as runs:
        yield runs, faults


async def stand_still(store: Ledger, faults: Faults) -> None:
    """Expire the leases, as a long pause would."""
    await store.renew(faults.leases, lease=0)


@pytest.mark.parametrize("who", ["status", "post"])
@pytest.mark.promise("P6", "P10")
async def test_a_worker_goes_on_with_its_own_lost_run(store: Ledger, who: str) -> None:
    model = ScriptedModel([half(), words("whole"), words("next")])
    async with stalled(store, model) as (runs, faults):
        run = await post(runs, says())
        async with reading(runs, run) as reader:
            await reader.until(TextDelta("half"))
            await stand_still(store, faults)
            if who == "status":
                assert (await runs.status(KEY)).attempt == 2
            else:
                await post(runs, says("more"), on_busy="enqueue")
        assert Rewound(Position(1, 1)) in reader.events
        assert standing(reader.seen) == await followed(runs, run)
        assert (await contents(runs))[:2] == ["hi", "whole"]
        assert model.open_streams == 0


@pytest.mark.promise("P6", "P10")
async def test_a_worker_finds_its_own_lost_run_by_itself(store: Ledger) -> None:
    model = ScriptedModel([half(), words("whole")])
    timing = replace(RECOVERING, lease=0.3, heartbeat=3600, log_delay=3600)
    async with stalled(store, model, timing) as (runs, _):
        run = await post(runs, says())
        async with reading(runs, run) as reader:
            await reader.until(TextDelta("whole"))
        assert standing(reader.seen) == await followed(runs, run)
        assert await contents(runs) == ["hi", "whole"]


@pytest.mark.promise("P6", "P10")
async def test_a_run_that_its_worker_took_over_can_be_cancelled(store: Ledger) -> None:
    model = ScriptedModel([half(), half()])
    async with stalled(store, model) as (runs, faults):
        run = await post(runs, says())
        await until(runs, run, TextDelta)
        await stand_still(store, faults)
        await runs.status(KEY)
        await until(runs, run, TextDelta)
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        assert model.open_streams == 0


@pytest.mark.promise("P6", "P10")
async def test_a_run_that_its_worker_took_over_again_and_again_ends(store: Ledger) -> None:
    """It is lost as often as there are attempts, and the service lives."""
    model = ScriptedModel([half(), half(), half(), words("next")])
    async with stalled(store, model) as (runs, faults):
        run = await post(runs, says())
        for attempt in (1, 2, 3):
            assert (await runs.status(KEY)).attempt == attempt
            await until(runs, run, TextDelta)
            await stand_still(store, faults)
        status = await runs.status(KEY)
        assert not status.running
        assert await outcome(runs, await post(runs, says("again"))) == Completed()
    assert model.open_streams == 0


@pytest.mark.promise("P6", "P10")
async def test_a_stop_leaves_the_run_that_was_taken_over(store: Ledger) -> None:
    model = ScriptedModel([half(), half()])
    async with worker(store, ScriptedModel([words("whole")])) as other:
        async with stalled(store, model) as (runs, faults):
            run = await post(runs, says())
            await until(runs, run, TextDelta)
            await stand_still(store, faults)
            await runs.status(KEY)
            async with at_once() as tasks:
                tasks.start_soon(runs.drain, 0)
        assert await outcome(other, run) == Completed()
        assert TextDelta("half") not in await events(other, run)
    assert model.open_streams == 0
