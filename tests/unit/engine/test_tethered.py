"""Runs that are to be cancelled when nobody follows them any more (P7)."""

from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.runs import (
    KEY,
    QUICK,
    at_once,
    contents,
    outcome,
    over,
    post,
    reading,
    says,
    until,
    worker,
)

from passback.core.events import Cancelled, Completed, TextDelta
from passback.core.ports import Store
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio

IMPATIENT = replace(QUICK, disconnect_grace=0.05)


@pytest.mark.promise("P7")
async def test_a_run_is_cancelled_some_time_after_its_last_reader_left(store: Store) -> None:
    model = ScriptedModel([["half", anyio.Event()]])
    async with worker(store, model, timing=IMPATIENT) as runs:
        run = await post(runs, says(), on_disconnect="cancel")
        await until(runs, run, TextDelta)
        await over(store, run)
        assert await outcome(runs, run) == Cancelled()
        assert await contents(runs) == ["hi", "half"]
    assert model.open_streams == 0


@pytest.mark.promise("P7")
async def test_a_run_that_nobody_ever_followed_is_cancelled_too(store: Store) -> None:
    async with worker(store, ScriptedModel([[anyio.Event()]]), timing=IMPATIENT) as runs:
        run = await post(runs, says(), on_disconnect="cancel")
        await over(store, run)
        assert await outcome(runs, run) == Cancelled()


@pytest.mark.promise("P7")
async def test_a_run_is_not_cancelled_that_did_not_ask_for_it(memory: Store) -> None:
    gate = anyio.Event()
    faults = Faults(memory)
    async with worker(
        faults.store, ScriptedModel([[gate, *words("one")]]), timing=IMPATIENT
    ) as runs:
        run = await post(runs, says())
        await faults.until("renew", 20)
        gate.set()
        assert await outcome(runs, run) == Completed()


async def test_a_run_is_not_cancelled_while_one_reader_stays(memory: Store) -> None:
    gate = anyio.Event()
    faults = Faults(memory)
    async with worker(
        faults.store, ScriptedModel([["a", gate, *words("b")]]), timing=IMPATIENT
    ) as runs:
        run = await post(runs, says(), on_disconnect="cancel")
        async with reading(runs, run) as stays:
            await until(runs, run, TextDelta)  # a reader who leaves
            await stays.until(TextDelta("a"))
            await faults.until("renew", 20)
            gate.set()
        assert await outcome(runs, run) == Completed()


async def test_a_reader_that_comes_back_within_the_grace_keeps_the_run(memory: Store) -> None:
    gate = anyio.Event()
    faults = Faults(memory)
    patient = replace(QUICK, disconnect_grace=3600)
    async with worker(
        faults.store, ScriptedModel([["a", gate, *words("b")]]), timing=patient
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
async def test_a_reader_at_another_worker_keeps_the_run(store: Store) -> None:
    """It says in the store that it is there; when it has left, the run is cancelled."""
    gate = anyio.Event()
    faults = Faults(store)
    model = ScriptedModel([["a", gate, "b", anyio.Event()]])
    async with (
        worker(store, model, timing=replace(QUICK, disconnect_grace=0.2)) as owner,
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
async def test_the_next_worker_knows_that_the_run_is_tethered(store: Store) -> None:
    async with (
        worker(store, ScriptedModel([["more", anyio.Event()]]), timing=IMPATIENT) as other,
        killable_worker(store, ScriptedModel([["half", anyio.Event()]])) as dying,
    ):
        run = await post(dying.runs, says(), on_disconnect="cancel")
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        await other.status(KEY)
        await over(store, run)
        assert await outcome(other, run) == Cancelled()


async def test_a_run_that_waits_is_tethered_when_it_begins(store: Store) -> None:
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")], ["half", anyio.Event()]])
    async with worker(store, model, timing=IMPATIENT) as runs:
        first = await post(runs, says("a"))
        run = await post(runs, says("b"), on_busy="enqueue", on_disconnect="cancel")
        gate.set()
        await outcome(runs, first)
        await over(store, run)
        assert await outcome(runs, run) == Cancelled()


async def test_a_reader_that_waited_with_its_run_keeps_it(store: Store) -> None:
    """It follows from the store what goes on in its own process."""
    gates = [anyio.Event(), anyio.Event()]
    model = ScriptedModel([[gates[0], *words("one")], ["a", gates[1], *words("b")]])
    faults = Faults(store)
    async with worker(faults.store, model, timing=replace(IMPATIENT, disconnect_grace=0.3)) as runs:
        await post(runs, says("a"))
        run = await post(runs, says("b"), on_busy="enqueue", on_disconnect="cancel")
        async with reading(runs, run) as reader:
            gates[0].set()
            await reader.until(TextDelta("a"))
            seen = faults.calls["status"]
            with anyio.move_on_after(1):
                await over(store, run)
            assert faults.calls["status"] > seen  # the owner looked whether somebody attends
            gates[1].set()
        assert await outcome(runs, run) == Completed()


async def test_a_store_that_fails_when_the_reader_is_gone_is_asked_again(memory: Store) -> None:
    faults = Faults(memory)
    faults.plan["status"] = ["refuse"]
    async with worker(faults.store, ScriptedModel([[anyio.Event()]]), timing=IMPATIENT) as runs:
        run = await post(runs, says(), on_disconnect="cancel")
        await over(memory, run)
        assert await outcome(runs, run) == Cancelled()
