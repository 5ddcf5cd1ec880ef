"""The store refuses, or its replies get lost: nothing is doubled, nothing half done (P15)."""

from collections import Counter
from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import Fault, Faults, killable_worker
from tests.support.runs import (
    EXPIRING,
    KEY,
    PAINT,
    QUICK,
    call_ids,
    contents,
    followed,
    outcome,
    park,
    post,
    reply,
    result,
    says,
    until,
    worker,
)

from passback.core.errors import StoreUnavailable
from passback.core.events import Completed, Failed, HandedBack, Position, RunFinished, TextDelta
from passback.core.messages import AssistantMessage, RunRef, ToolMessage
from passback.core.transcript import owed_answers, paired_messages
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


async def assert_sound(runs: RunService, other: RunService, run: RunRef) -> None:
    """One end, one log for everybody, a transcript that keeps the rules, and nothing twice."""
    log = await followed(runs, run)
    assert await followed(other, run) == log
    assert [one.position for one in log] == [Position(1, n) for n in range(1, len(log) + 1)]
    assert [isinstance(one.event, RunFinished) for one in log] == [False] * (len(log) - 1) + [True]
    messages = (await runs.messages(KEY, start=0, limit=100)).messages
    assert max(Counter(message.id for message in messages).values()) == 1
    if not (owing := owed_answers(messages)):
        assert Counter(paired_messages(messages)) == Counter(messages)
    assert (await runs.status(KEY)).owed == owing


FAULTS: list[Fault] = ["refuse", "lose reply"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("before", range(5))
@pytest.mark.promise("P5", "P6", "P15")
async def test_a_failing_commit_leaves_a_sound_conversation(
    memory: Ledger, fault: Fault, count: int, before: int
) -> None:
    faults = Faults(memory)
    first: list[Step] = ["one", *calls(("look", {}))]
    second: list[Step] = ["two", *calls(("look", {}), ("paint", {}))]
    model = ScriptedModel([first, second, words("three")])
    quiet: list[Fault] = ["none"] * before
    faults.plan["commit"] = [*quiet, *([fault] * count)]
    async with (
        worker(faults.store, model, look) as runs,
        worker(memory, ScriptedModel([words("after")])) as other,
    ):
        run = await post(runs, says(), tools=[PAINT])
        await outcome(runs, run)
        await assert_sound(runs, other, run)
        assert await reply(other, says("and now?")) == "after"


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_end_of_a_run_survives_a_failed_write(memory: Ledger, fault: Fault) -> None:
    faults = Faults(memory)
    faults.plan["commit"] = [fault]
    no_heartbeat = replace(
        QUICK, heartbeat=3600
    )  # a lease that ended with its run is not asked about
    async with worker(faults.store, ScriptedModel([words("done")]), timing=no_heartbeat) as runs:
        assert await outcome(runs, await post(runs, says())) == Completed()
    assert faults.calls["commit"] == 2


async def test_a_refused_tool_result_fails_the_run_with_the_stores_code(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["commit"] = ["none", "full"]
    async with worker(faults.store, ScriptedModel([calls(("look", {}))]), look) as runs:
        ended = await outcome(runs, await post(runs, says()))
    assert ended == Failed("store_full", "no room in the test", retryable=True)


async def test_a_store_that_is_away_for_a_moment_is_waited_for(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["commit"] = ["none", "refuse", "lose reply", "refuse", "none", "refuse"]
    model = ScriptedModel([calls(("look", {})), words("done")])
    async with worker(faults.store, model, look) as runs:
        assert await outcome(runs, await post(runs, says())) == Completed()
        messages = (await runs.messages(KEY, start=0, limit=9)).messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_store_away_for_longer_than_the_lease_fails_the_run(memory: Ledger) -> None:
    faults = Faults(memory)
    away: list[Fault] = ["refuse"] * 40
    faults.plan["commit"] = ["none", *away]
    timing = replace(QUICK, lease=0.05)
    model = ScriptedModel([calls(("look", {}))])
    async with worker(faults.store, model, look, timing=timing) as runs:
        ended = await outcome(runs, await post(runs, says()))
    assert ended == Failed("store_unavailable", "refused by the test", retryable=True)


async def test_a_client_that_leaves_while_its_post_is_stored_has_its_run(memory: Ledger) -> None:
    faults = Faults(memory)
    async with worker(faults.store, ScriptedModel([words("done")])) as runs:
        with anyio.CancelScope() as client:

            async def leave() -> None:
                client.cancel()

            faults.first["begin"] = leave
            await post(runs, says())
        run_id = (await runs.status(KEY)).run_id
        assert run_id is not None
        assert await outcome(runs, RunRef(KEY, run_id)) == Completed()


async def test_a_turn_that_could_not_be_stored_is_closed_with_the_run(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["commit"] = ["full"]
    async with worker(faults.store, ScriptedModel([calls(("look", {}))]), look) as runs:
        failed = Failed("store_full", "no room in the test", retryable=True)
        assert await outcome(runs, await post(runs, says())) == failed
        answer, closed = (await runs.messages(KEY, start=1, limit=9)).messages
        assert isinstance(answer, AssistantMessage)
        assert isinstance(closed, ToolMessage)
        assert closed.synthetic == "interrupted"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.promise("P3", "P15")
async def test_text_is_stored_after_a_failed_write(
    memory: Ledger, fault: Fault, count: int
) -> None:
    faults = Faults(memory)
    faults.plan["append"] = [fault] * count
    gates = [anyio.Event(), anyio.Event()]
    script: list[Step] = ["a", gates[0], "b", gates[1], *words("c")]
    async with (
        worker(faults.store, ScriptedModel([script])) as runs,
        worker(memory, ScriptedModel([])) as other,
    ):
        run = await post(runs, says())
        await faults.until("append", 1)
        gates[0].set()
        await faults.until("append", count + 1)
        gates[1].set()
        assert await outcome(runs, run) == Completed()
        await assert_sound(runs, other, run)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_hand_back_behind_a_failed_write_is_kept(memory: Ledger, fault: Fault) -> None:
    """The commit cannot even be tried before the text ahead of it is stored."""
    faults = Faults(memory)
    faults.plan["append"] = ["refuse"] * 1000
    gate = anyio.Event()
    async with (
        worker(faults.store, ScriptedModel([["text", gate, *calls(("paint", {}))]])) as runs,
        worker(memory, ScriptedModel([])) as other,
    ):
        run = await post(runs, says(), tools=[PAINT])
        await faults.until("append", 2)
        # the commit's own try fails too; the next one is that of the run's end
        faults.plan["append"] = []
        faults.plan["commit"] = [fault]
        gate.set()
        assert isinstance(await outcome(runs, run), HandedBack)
        assert len(await call_ids(runs)) == 1
        await assert_sound(runs, other, run)


async def test_a_commit_behind_a_text_that_is_refused_is_sent_with_the_end(memory: Ledger) -> None:
    faults = Faults(memory)
    gate = anyio.Event()
    slow = replace(QUICK, log_delay=0.01)
    async with (
        worker(
            faults.store, ScriptedModel([["text", gate, *calls(("paint", {}))]]), timing=slow
        ) as runs,
        worker(memory, ScriptedModel([])) as other,
    ):
        faults.plan["append"] = ["refuse"]

        async def open_gate() -> None:
            """Open it at the first refusal: the next to send is the commit."""
            faults.plan["append"] = ["refuse", "refuse"]
            gate.set()

        faults.first["append"] = open_gate
        run = await post(runs, says(), tools=[PAINT])
        assert isinstance(await outcome(runs, run), HandedBack)
        await assert_sound(runs, other, run)


async def test_a_store_that_is_gone_at_the_end_leaves_the_run_to_others(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["commit"] = ["refuse"] * 9
    faults.plan["take_over"] = ["refuse"] * 9
    async with (
        worker(faults.store, ScriptedModel([words("done")]), timing=EXPIRING) as runs,
        worker(memory, ScriptedModel([words("done by another")])) as other,
    ):
        run = await post(runs, says())
        assert await outcome(other, run) == Completed()
        assert await outcome(runs, run) == Completed()
        assert await contents(other) == ["hi", "done by another"]


async def test_a_heartbeat_that_fails_is_tried_again(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["renew"] = ["refuse", "lose reply"]
    gate = anyio.Event()
    async with worker(faults.store, ScriptedModel([[gate, *words("done")]])) as runs:
        run = await post(runs, says())
        await faults.until("renew", 4)
        gate.set()
        assert await outcome(runs, run) == Completed()


async def test_a_post_refused_by_the_store_may_be_sent_again(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["begin"] = ["refuse"]
    async with worker(faults.store, ScriptedModel([words("done")])) as runs:
        with pytest.raises(StoreUnavailable):
            await post(runs, says())
        assert await reply(runs, says()) == "done"
        assert (await runs.messages(KEY, start=0, limit=9)).total == 2


async def test_results_whose_reply_was_lost_lead_to_the_run_that_they_began(memory: Ledger) -> None:
    """Nobody works on it at first: it is taken over."""
    faults = Faults(memory)
    model = ScriptedModel([calls(("paint", {})), words("painted")])
    async with worker(faults.store, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        (call_id,) = await call_ids(runs)
        faults.plan["begin"] = ["lose reply"]
        with pytest.raises(StoreUnavailable):
            await post(runs, result(call_id))
        await memory.renew(faults.leases, lease=0)  # what time would do
        run = await post(runs, result(call_id))
        assert await outcome(runs, run) == Completed()
        assert await contents(runs) == ["hi", "", "done", "painted"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.promise("P15")
async def test_a_parked_result_may_be_sent_again(memory: Ledger, fault: Fault) -> None:
    faults = Faults(memory)
    faults.plan["park"] = [fault]
    model = ScriptedModel([calls(("paint", {}), ("paint", {})), words("done")])
    async with worker(faults.store, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        one, two = await call_ids(runs)
        with pytest.raises(StoreUnavailable):
            await park(runs, result(one))
        assert [owing.id for owing in (await park(runs, result(one))).owed] == [two]
        assert await reply(runs, result(two)) == "done"
        assert (await runs.messages(KEY, start=0, limit=9)).total == 5


async def test_a_cancellation_refused_by_the_store_may_be_repeated(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["cancel"] = ["refuse"]
    async with worker(faults.store, ScriptedModel([["half", anyio.Event()]])) as runs:
        run = await post(runs, says())
        await until(runs, run, TextDelta)
        with pytest.raises(StoreUnavailable):
            await runs.cancel(run)
        assert await runs.cancel(run)
        assert (await outcome(runs, run)).type == "cancelled"


async def test_a_conversation_can_be_read_while_nobody_can_take_its_run_over(store: Ledger) -> None:
    """A store may take no writes and still be read."""
    faults = Faults(store)
    async with (
        worker(faults.store, ScriptedModel([words("whole")])) as other,
        killable_worker(store, ScriptedModel([["half", anyio.Event()]])) as dying,
    ):
        run = await post(dying.runs, says())
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        faults.plan["take_over"] = ["refuse", "refuse"]
        status = await other.status(KEY)
        assert (status.running, status.lapsed, status.run_id) == (True, True, run.run_id)
        assert await contents(other) == ["hi"]
        assert await outcome(other, run) == Completed()
