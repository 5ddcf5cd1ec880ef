"""A worker that is silent for longer than its lease has lost its run (P6, and the refusals of P10)."""

from dataclasses import replace

import anyio
import pytest
from tests.support.faults import Faults
from tests.support.runs import (
    DYING,
    KEY,
    PAINT,
    QUICK,
    at_once,
    call_ids,
    events,
    outcome,
    post,
    reply,
    result,
    says,
    until,
    worker,
)

from passback.core.events import (
    Completed,
    HandedBack,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallStarted,
)
from passback.core.messages import AssistantMessage, ToolMessage
from passback.core.ports import Store
from passback.core.transcript import owed
from passback.engine.runs import LOST, RunService
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


async def contents(runs: RunService) -> list[object]:
    page = await runs.messages(KEY, start=0, limit=100)
    return [message.content for message in page.messages]


async def test_a_reader_elsewhere_gives_a_silent_workers_run_its_end(store: Store) -> None:
    gate = anyio.Event()
    async with (
        worker(store, ScriptedModel([["half", gate, *words("whole")]]), tempo=DYING) as dying,
        worker(store, ScriptedModel([words("next")])) as other,
    ):
        run = await post(dying, says())
        await until(dying, run, TextDelta)
        said = await events(other, run)
        assert said == [RunStarted(run.run_id), RunFinished(LOST)]
        gate.set()
        assert await outcome(dying, run) == LOST
        assert await reply(other, says("again")) == "next"
        assert await contents(other) == ["hi", "again", "next"]


@pytest.mark.promise("P6", "P10")
async def test_a_post_elsewhere_ends_a_silent_workers_run_and_starts_its_own(
    store: Store,
) -> None:
    gate = anyio.Event()
    async with (
        worker(store, ScriptedModel([[gate, *words("too late")]]), tempo=DYING) as dying,
        worker(store, ScriptedModel([words("in time")])) as other,
    ):
        lost = await post(dying, says("one"))
        run = await post(other, says("two"))
        assert await outcome(other, run) == Completed()
        gate.set()
        assert await outcome(dying, lost) == LOST
        assert await outcome(other, lost) == LOST
        assert await contents(other) == ["one", "two", "in time"]


async def test_a_worker_that_wakes_up_stops_its_lost_run(memory: Store) -> None:
    """It learns from its heartbeat, closes the model's stream, and its readers see the stored end."""
    model = ScriptedModel([["half", anyio.Event()]])
    sleepy = replace(QUICK, lease=0)
    async with (
        worker(memory, model, tempo=sleepy) as dying,
        worker(memory, ScriptedModel([words("next")])) as other,
    ):
        run = await post(dying, says())
        await until(dying, run, TextDelta)
        async with at_once() as tasks:
            tasks.start_soon(post, other, says("again"))
            assert await outcome(dying, run) == LOST
        assert model.open_streams == 0


@pytest.mark.promise("P10")
async def test_the_result_of_a_tool_of_a_lost_run_is_not_written(memory: Store) -> None:
    started, gate = anyio.Event(), anyio.Event()

    @tool
    async def work() -> str:
        """Work for a while."""
        started.set()
        await gate.wait()
        return "worked"

    model = ScriptedModel([calls(("work", {}))])
    async with (
        worker(memory, model, work, tempo=DYING) as dying,
        worker(memory, ScriptedModel([])) as other,
    ):
        run = await post(dying, says())
        await started.wait()
        assert await outcome(other, run) == LOST
        gate.set()
        assert await outcome(dying, run) == LOST
        page = await other.messages(KEY, start=0, limit=100)
        (closed,) = [m for m in page.messages if isinstance(m, ToolMessage)]
        assert closed.synthetic == "interrupted"


async def test_the_end_of_a_lost_run_is_not_sent_again_and_again(memory: Store) -> None:
    faults = Faults(memory)
    faults.plan["renew"] = ["refuse"] * 1000
    deaf = replace(QUICK, lease=0, log_delay=3600)
    async with (
        worker(faults.store, ScriptedModel([["half", anyio.Event()]]), tempo=deaf) as dying,
        worker(memory, ScriptedModel([])) as other,
    ):
        run = await post(dying, says())
        await until(dying, run, TextDelta)
        assert await outcome(other, run) == LOST
        await dying.drain(0)
        assert await outcome(dying, run) == LOST
        assert faults.calls["commit"] == 1


async def test_calls_that_nobody_was_told_of_are_closed_with_the_lost_run(memory: Store) -> None:
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
        worker(memory, model, work, tempo=DYING) as dying,
        worker(memory, ScriptedModel([words("next")])) as other,
    ):
        run = await post(dying, says(), tools=[PAINT])
        await started.wait()
        assert await outcome(other, run) == LOST
        page = await other.messages(KEY, start=0, limit=100)
        assert owed(page.messages) == ()
        assert await call_ids(other) == []
        assert await reply(other, says("again")) == "next"


@pytest.mark.promise("P6")
async def test_many_readers_give_a_lost_run_one_end(store: Store) -> None:
    async with (
        worker(store, ScriptedModel([[anyio.Event()]]), tempo=DYING) as dying,
        worker(store, ScriptedModel([])) as one,
        worker(store, ScriptedModel([])) as two,
    ):
        run = await post(dying, says())
        ends: list[object] = []

        async def read(reader: RunService) -> None:
            ends.append(await outcome(reader, run))

        async with at_once() as tasks:
            for reader in (one, two) * 4:
                tasks.start_soon(read, reader)
        assert ends == [LOST] * 8
        assert (await one.status(KEY)).running is False


async def test_a_run_that_ends_while_it_is_being_given_up_keeps_its_end(memory: Store) -> None:
    gate = anyio.Event()
    faults = Faults(memory)
    async with (
        worker(memory, ScriptedModel([[gate, *words("done")]]), tempo=DYING) as dying,
        worker(faults.store, ScriptedModel([])) as other,
    ):
        run = await post(dying, says())

        async def end() -> None:
            gate.set()
            await outcome(dying, run)

        faults.first["load"] = end
        assert await outcome(other, run) == Completed()


async def test_a_result_for_a_run_that_is_lost_meanwhile_is_judged_by_what_is_left(
    memory: Store,
) -> None:
    """An early result waits for a run whose worker is dead: the run gets its end, the call is void."""
    model = ScriptedModel([[*calls(("paint", {}))[:-1], anyio.Event()], words("next")])
    quick_log = replace(DYING, log_delay=0.001)
    async with (
        worker(memory, model, tempo=quick_log) as dying,
        worker(memory, model) as other,
    ):
        run = await post(dying, says(), tools=[PAINT])
        begun = await until(dying, run, ToolCallStarted)
        assert isinstance(begun.event, ToolCallStarted)
        next_run = await post(other, says("never mind"), tools=None)
        assert await outcome(other, next_run) == Completed()
        page = await other.messages(KEY, start=0, limit=100)
        assert isinstance(page.messages[-1], AssistantMessage)


@pytest.mark.promise("P10")
async def test_an_answered_call_survives_the_loss_of_its_run(memory: Store) -> None:
    model = ScriptedModel([calls(("paint", {})), [anyio.Event()]])
    async with (
        worker(memory, model) as first,
        worker(memory, model, tempo=DYING) as dying,
        worker(memory, ScriptedModel([words("next")])) as other,
    ):
        assert isinstance(
            await outcome(first, await post(first, says(), tools=[PAINT])), HandedBack
        )
        (call_id,) = await call_ids(first)
        run = await post(dying, result(call_id, "red"))
        assert await post(other, result(call_id, "red")) == run
        assert await outcome(other, run) == LOST
        assert await reply(other, says("well?")) == "next"
        assert await contents(other) == ["hi", "", "red", "well?", "next"]
