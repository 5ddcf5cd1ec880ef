"""Posts that stop what runs before them: `interrupt` keeps its text, `rollback` takes it back."""

from dataclasses import replace
from typing import Literal

import anyio
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.runs import (
    KEY,
    PAINT,
    QUICK,
    at_once,
    call_ids,
    contents,
    events,
    outcome,
    over,
    post,
    reading,
    record,
    result,
    says,
    until,
    worker,
)
from tests.support.transcript_rules import said_in

from passback.core.events import (
    Cancelled,
    Completed,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolResulted,
)
from passback.core.messages import AssistantMessage, RunRef, ToolMessage
from passback.core.posts import OnBusy
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


Stops = Literal["interrupt", "rollback"]
BOTH: list[Stops] = ["interrupt", "rollback"]


def half() -> list[Step]:
    return ["half", anyio.Event()]


async def stop(runs: RunService, text: str, how: Stops) -> RunRef:
    return await post(runs, says(text, text), on_busy=how)


# ---------------------------------------------------------------- one after one
@pytest.mark.promise("P7")
async def test_an_interrupted_run_keeps_its_partial_answer(store: Ledger) -> None:
    model = ScriptedModel([half(), words("two")])
    async with worker(store, model) as runs:
        first = await post(runs, says("a"))
        await until(runs, first, TextDelta)
        second = await stop(runs, "b", "interrupt")
        assert await outcome(runs, second) == Completed()
        assert await outcome(runs, first) == Cancelled()
        messages = await record(runs)
        assert said_in(messages) == ["a", "half", "b", "two"]
        assert isinstance(messages[1], AssistantMessage)
        assert messages[1].partial
        assert [m.content for m in model.requests[1].messages] == ["a", "half", "b"]
        assert (await events(runs, second))[:2] == [
            RunQueued(second.run_id),
            RunStarted(second.run_id),
        ]
    assert model.open_streams == 0


async def test_a_rollback_takes_back_what_the_run_said_and_its_message(store: Ledger) -> None:
    model = ScriptedModel([words("zero"), half(), words("two")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says("before")))
        first = await post(runs, says("a"))
        await until(runs, first, TextDelta)
        second = await stop(runs, "b", "rollback")
        assert await outcome(runs, second) == Completed()
        assert await outcome(runs, first) == Cancelled()
        assert await contents(runs) == ["before", "zero", "b", "two"]
        assert [m.content for m in model.requests[2].messages] == ["before", "zero", "b"]


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.promise("P7")
async def test_a_run_is_stopped_from_any_worker(store: Ledger, how: Stops) -> None:
    model = ScriptedModel([half(), words("two")])
    async with worker(store, model) as owner, worker(store, model) as other:
        first = await post(owner, says("a"))
        await until(other, first, TextDelta)
        second = await stop(other, "b", how)
        async with reading(other, second) as reader:
            assert await outcome(other, first) == Cancelled()
        assert reader.events[-1] == RunFinished(Completed())
        kept = ["a", "half"] if how == "interrupt" else []
        assert await contents(other) == [*kept, "b", "two"]


async def test_a_rollback_takes_back_whole_turns_but_not_the_clients_results(store: Ledger) -> None:
    """The client did what it was asked to: that stays true."""

    @tool
    def look() -> str:
        return "seen"

    model = ScriptedModel([calls(("paint", {})), calls(("look", {})), half(), words("two")])
    async with worker(store, model, look) as runs:
        await outcome(runs, await post(runs, says("a"), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
        run = await post(runs, result(call_id, "painted"), says("and look"))
        await until(runs, run, TextDelta)
        second = await stop(runs, "b", "rollback")
        assert await outcome(runs, second) == Completed()
        assert await contents(runs) == ["a", "", "painted", "b", "two"]
        assert await post(runs, result(call_id, "painted")) == run


@pytest.mark.parametrize("how", BOTH)
async def test_a_run_that_has_ended_is_neither_cut_nor_undone(store: Ledger, how: Stops) -> None:
    """The worker hears of the stop only when it has ended."""
    gate = anyio.Event()
    no_heartbeat = replace(QUICK, heartbeat=3600, log_delay=3600)
    model = ScriptedModel([[gate, *words("whole")], words("two")])
    async with worker(store, model, timing=no_heartbeat) as owner, worker(store, model) as other:
        first = await post(owner, says("a"))
        second = await stop(other, "b", how)
        gate.set()
        assert await outcome(owner, second) == Completed()
        assert await outcome(owner, first) == Completed()
        assert await contents(owner) == ["a", "whole", "b", "two"]


@pytest.mark.parametrize("how", BOTH)
async def test_nothing_is_stopped_where_nothing_runs(memory: Ledger, how: Stops) -> None:
    model = ScriptedModel([words("one"), words("two")])
    async with worker(memory, model) as runs:
        await outcome(runs, await post(runs, says("a")))
        run = await stop(runs, "b", how)
        assert (await events(runs, run))[0] == RunStarted(run.run_id)
        assert await contents(runs) == ["a", "one", "b", "two"]


@pytest.mark.parametrize("how", BOTH)
async def test_what_the_client_owes_is_superseded_and_stays(memory: Ledger, how: Stops) -> None:
    """A run that handed back has ended: it is not taken back."""
    model = ScriptedModel([calls(("paint", {})), words("two")])
    async with worker(memory, model) as runs:
        await outcome(runs, await post(runs, says("a"), tools=[PAINT]))
        assert await outcome(runs, await stop(runs, "b", how)) == Completed()
        messages = await record(runs)
        assert [m.role for m in messages] == ["user", "assistant", "tool", "user", "assistant"]


@pytest.mark.promise("P5")
async def test_a_tool_of_an_interrupted_run_is_closed(store: Ledger) -> None:
    started = anyio.Event()

    @tool
    async def work() -> str:
        started.set()
        await anyio.sleep_forever()
        return ""

    model = ScriptedModel([calls(("work", {})), words("two")])
    async with worker(store, model, work) as runs:
        first = await post(runs, says("a"))
        await started.wait()
        second = await stop(runs, "b", "interrupt")
        assert await outcome(runs, second) == Completed()
        (closed,) = [m for m in await record(runs) if isinstance(m, ToolMessage)]
        assert closed.synthetic == "interrupted"
        assert not [e for e in await events(runs, first) if isinstance(e, ToolResulted)]


# ---------------------------------------------------------------- several at once
@pytest.mark.parametrize("how", BOTH)
@pytest.mark.promise("P6")
async def test_of_several_that_stop_each_other_the_last_one_runs(store: Ledger, how: Stops) -> None:
    model = ScriptedModel([half(), words("last")])
    no_heartbeat = replace(QUICK, heartbeat=3600, log_delay=3600)
    async with worker(store, model, timing=no_heartbeat) as runs, worker(store, model) as other:
        first = await post(runs, says("a"))
        await until(runs, first, TextDelta)
        between = [await stop(other, text, how) for text in "bc"]
        last = await stop(runs, "d", how)
        assert await outcome(runs, last) == Completed()
        for run in between:
            assert await events(runs, run) == [
                RunQueued(run.run_id),
                RunStarted(run.run_id),
                RunFinished(Cancelled()),
            ]
        kept = ["a", "half", "b", "c"] if how == "interrupt" else []
        assert await contents(runs) == [*kept, "d", "last"]
    assert len(model.requests) == 2


@pytest.mark.parametrize("how", BOTH)
async def test_a_post_that_stops_the_run_does_not_wait_for_queued_posts(
    store: Ledger, how: Stops
) -> None:
    model = ScriptedModel([half(), words("last")])
    async with worker(store, model) as runs:
        first = await post(runs, says("a"))
        await until(runs, first, TextDelta)
        queued = await post(runs, says("b"), on_busy="enqueue")
        last = await stop(runs, "c", how)
        assert await outcome(runs, last) == Completed()
        assert await outcome(runs, queued) == Cancelled()
        # a rollback takes back the run right before it, and no other
        kept = ["a", "half", "b"] if how == "interrupt" else ["a", "half"]
        assert await contents(runs) == [*kept, "c", "last"]


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.promise("P5", "P6")
async def test_many_interrupts_leave_a_sound_conversation(store: Ledger, how: Stops) -> None:
    """Two workers interrupt at once: each run has one end, and the last was not cut."""
    model = ScriptedModel([half()] + [words(f"answer {n}") for n in range(10)])
    async with worker(store, model) as one, worker(store, model) as two:
        ran = [await post(one, says("a"))]
        await until(one, ran[0], TextDelta)

        async def post_one(runs: RunService, text: str) -> None:
            ran.append(await stop(runs, text, how))

        async with at_once() as tasks:
            for number in range(10):
                tasks.start_soon(post_one, (one, two)[number % 2], f"post {number}")
        ends = [await outcome(one, run) for run in ran]
        status = await two.status(KEY)
        assert (status.running, status.queued) == (False, ())
        assert ends[0] == Cancelled()
        by_run = dict(zip((run.run_id for run in ran), ends, strict=True))
        assert status.run_id is not None
        assert by_run[status.run_id] == Completed()
        texts = await contents(two)
        posts = [text for text in texts if str(text).startswith("post")]
        assert len(posts) == len(set(posts))
        if how == "interrupt":
            assert sorted(map(str, posts)) == [f"post {n}" for n in range(10)]


@pytest.mark.parametrize("how", [*BOTH, "enqueue"])
async def test_a_post_may_stop_a_queued_run_that_is_just_beginning(
    store: Ledger, how: OnBusy
) -> None:
    """A post is judged while the first runs, and again when that has ended meanwhile."""
    owning, asked = Faults(store), Faults(store)
    gate, looked = anyio.Event(), anyio.Event()

    async def let_the_first_end() -> None:
        gate.set()
        await looked.wait()

    async def let_the_third_come() -> None:
        looked.set()
        await asked.until("enqueue", 1)

    second_turn = words("two") if how == "enqueue" else half()
    model = ScriptedModel([[gate, *words("one")], second_turn, words("three")])
    async with worker(owning.store, model) as runs, worker(asked.store, model) as other:
        first = await post(runs, says("a"))
        second = await post(runs, says("b"), on_busy="enqueue")
        owning.first["begin"] = let_the_third_come
        asked.first["enqueue"] = let_the_first_end
        third = await post(other, says("c", "c"), on_busy=how)
        assert await outcome(runs, first) == Completed()
        assert await outcome(runs, second) == (Completed() if how == "enqueue" else Cancelled())
        assert await outcome(runs, third) == Completed()


# ---------------------------------------------------------------- workers that die
@pytest.mark.parametrize("how", BOTH)
@pytest.mark.promise("P10")
async def test_a_dead_workers_run_can_be_stopped(store: Ledger, how: Stops) -> None:
    async with (
        worker(store, ScriptedModel([half(), words("two")])) as other,
        killable_worker(store, ScriptedModel([half()])) as dying,
    ):
        first = await post(dying.runs, says("a"))
        await until(dying.runs, first, TextDelta)
        await dying.kill()
        second = await stop(other, "b", how)
        assert await outcome(other, second) == Completed()
        assert await outcome(other, first) == Cancelled()
        texts = [text for text in await contents(other) if text != "half"]
        assert texts == (["a", "b", "two"] if how == "interrupt" else ["b", "two"])


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.promise("P10")
async def test_a_worker_may_die_before_it_stops_the_run(store: Ledger, how: Stops) -> None:
    """The order is in the store: the next worker ends the run, and begins the one that waits."""
    no_heartbeat = replace(QUICK, heartbeat=3600, log_delay=3600)
    async with (
        worker(store, ScriptedModel([words("two")])) as other,
        killable_worker(store, ScriptedModel([half()]), timing=no_heartbeat) as dying,
    ):
        first = await post(dying.runs, says("a"))
        await until(dying.runs, first, TextDelta)
        second = await stop(other, "b", how)
        await dying.kill()
        assert await outcome(other, second) == Completed()
        assert await outcome(other, first) == Cancelled()
        kept = ["a"] if how == "interrupt" else []
        assert await contents(other) == [*kept, "b", "two"]


@pytest.mark.promise("P10")
async def test_a_worker_may_die_between_the_stop_and_the_rollback(store: Ledger) -> None:
    """The run was cut, the one that takes it back has not begun: another worker takes it back."""
    async with (
        worker(store, ScriptedModel([words("two")])) as other,
        killable_worker(store, ScriptedModel([half()])) as dying,
    ):
        first = await post(dying.runs, says("a"))
        await until(dying.runs, first, TextDelta)
        dying.faults.plan["load"] = ["none", "refuse"]
        second = await stop(dying.runs, "b", "rollback")
        await dying.faults.until("load", dying.faults.calls["load"] + 1)
        await dying.kill()
        assert await outcome(other, second) == Completed()
        assert await outcome(other, first) == Cancelled()
        assert await contents(other) == ["b", "two"]


# ---------------------------------------------------------------- runs that end with their reader
SHORT_GRACE = replace(QUICK, disconnect_grace=0.05)


@pytest.mark.promise("P7")
async def test_a_run_is_cancelled_some_time_after_its_last_reader_left(store: Ledger) -> None:
    model = ScriptedModel([["half", anyio.Event()]])
    async with worker(store, model, timing=SHORT_GRACE) as runs:
        run = await post(runs, says(), on_disconnect="cancel")
        await until(runs, run, TextDelta)
        await over(store, run)
        assert await outcome(runs, run) == Cancelled()
        assert await contents(runs) == ["hi", "half"]
    assert model.open_streams == 0


@pytest.mark.promise("P7")
async def test_a_run_that_nobody_ever_followed_is_cancelled_too(store: Ledger) -> None:
    async with worker(store, ScriptedModel([[anyio.Event()]]), timing=SHORT_GRACE) as runs:
        run = await post(runs, says(), on_disconnect="cancel")
        await over(store, run)
        assert await outcome(runs, run) == Cancelled()


@pytest.mark.promise("P7")
async def test_a_run_is_not_cancelled_that_did_not_ask_for_it(memory: Ledger) -> None:
    gate = anyio.Event()
    faults = Faults(memory)
    async with worker(
        faults.store, ScriptedModel([[gate, *words("one")]]), timing=SHORT_GRACE
    ) as runs:
        run = await post(runs, says())
        await faults.until("renew", 20)
        gate.set()
        assert await outcome(runs, run) == Completed()


async def test_a_run_is_not_cancelled_while_one_reader_stays(memory: Ledger) -> None:
    gate = anyio.Event()
    faults = Faults(memory)
    async with worker(
        faults.store, ScriptedModel([["a", gate, *words("b")]]), timing=SHORT_GRACE
    ) as runs:
        run = await post(runs, says(), on_disconnect="cancel")
        async with reading(runs, run) as stays:
            await until(runs, run, TextDelta)  # a reader who leaves
            await stays.until(TextDelta("a"))
            await faults.until("renew", 20)
            gate.set()
        assert await outcome(runs, run) == Completed()


async def test_a_reader_that_comes_back_within_the_grace_keeps_the_run(memory: Ledger) -> None:
    gate = anyio.Event()
    faults = Faults(memory)
    long_grace = replace(QUICK, disconnect_grace=3600)
    async with worker(
        faults.store, ScriptedModel([["a", gate, *words("b")]]), timing=long_grace
    ) as runs:
        run = await post(runs, says(), on_disconnect="cancel")
        await until(runs, run, TextDelta)
        await faults.until("renew", 5)
        async with reading(runs, run) as back:
            await back.until(TextDelta("a"))
            await faults.until("renew", faults.calls["renew"] + 5)
            gate.set()
        assert await outcome(runs, run) == Completed()


@pytest.mark.promise("P7")
async def test_a_reader_at_another_worker_keeps_the_run(store: Ledger) -> None:
    """It says in the store that it is there; when it has left, the run is cancelled."""
    gate = anyio.Event()
    faults = Faults(store)
    model = ScriptedModel([["a", gate, "b", anyio.Event()]])
    async with (
        worker(store, model, timing=replace(QUICK, disconnect_grace=0.5)) as owner,
        worker(faults.store, ScriptedModel([])) as other,
    ):
        run = await post(owner, says(), on_disconnect="cancel")
        with anyio.CancelScope() as leaving:
            async with reading(other, run) as there, at_once():
                await there.until(TextDelta("a"))
                await faults.until("keep_followed", 1)
                assert (await store.status(KEY)).followed
                with anyio.move_on_after(1):
                    await over(store, run)
                gate.set()
                await there.until(TextDelta("b"))
                leaving.cancel()
        await store.keep_followed(run, seconds=0)  # what time would do
        await over(store, run)
        assert await outcome(owner, run) == Cancelled()


@pytest.mark.promise("P7", "P10")
async def test_the_next_worker_knows_that_the_run_ends_with_its_reader(store: Ledger) -> None:
    async with (
        worker(store, ScriptedModel([["more", anyio.Event()]]), timing=SHORT_GRACE) as other,
        killable_worker(store, ScriptedModel([["half", anyio.Event()]])) as dying,
    ):
        run = await post(dying.runs, says(), on_disconnect="cancel")
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        await other.status(KEY)
        await over(store, run)
        assert await outcome(other, run) == Cancelled()


async def test_a_queued_run_ends_with_its_reader_once_it_begins(store: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")], ["half", anyio.Event()]])
    async with worker(store, model, timing=SHORT_GRACE) as runs:
        first = await post(runs, says("a"))
        run = await post(runs, says("b"), on_busy="enqueue", on_disconnect="cancel")
        gate.set()
        await outcome(runs, first)
        await over(store, run)
        assert await outcome(runs, run) == Cancelled()


async def test_a_reader_that_waited_with_its_run_keeps_it(store: Ledger) -> None:
    """It follows from the store what goes on in its own process."""
    gates = [anyio.Event(), anyio.Event()]
    model = ScriptedModel([[gates[0], *words("one")], ["a", gates[1], *words("b")]])
    faults = Faults(store)
    async with worker(
        faults.store, model, timing=replace(SHORT_GRACE, disconnect_grace=1.5)
    ) as runs:
        await post(runs, says("a"))
        run = await post(runs, says("b"), on_busy="enqueue", on_disconnect="cancel")
        async with reading(runs, run) as reader:
            gates[0].set()
            await reader.until(TextDelta("a"))
            seen = faults.calls["status"]
            with anyio.move_on_after(2):
                await over(store, run)
            await faults.until("status", seen + 1)  # the owner looks if somebody follows
            gates[1].set()
        assert await outcome(runs, run) == Completed()


async def test_a_store_that_fails_when_the_reader_is_gone_is_asked_again(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["status"] = ["refuse"]
    async with worker(faults.store, ScriptedModel([[anyio.Event()]]), timing=SHORT_GRACE) as runs:
        run = await post(runs, says(), on_disconnect="cancel")
        await over(memory, run)
        assert await outcome(runs, run) == Cancelled()
