"""Approvals that are interrupted: unanswered, or with something between answer and call."""

from dataclasses import replace

import anyio
import pytest
from tests.support.killable_worker import killable_worker
from tests.support.runs import (
    KEY,
    QUICK,
    approval,
    call_ids,
    contents,
    events,
    outcome,
    park,
    post,
    record,
    reply,
    says,
    until,
    worker,
)
from tests.unit.engine.counted_tools import CountedTools, asked, called, of_calls, results

from passback.core.errors import ResultConflict
from passback.core.events import Cancelled, Completed, HandedBack, TextDelta, ToolResulted
from passback.core.messages import ApprovalMessage, RunRef
from passback.core.posts import OnBusy, StartRun
from passback.core.transcript import SYNTHETIC_TEXT, UNMADE_TEXT
from passback.engine.ledger import Ledger
from passback.models.scripted import ScriptedModel, Step
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio

INTERRUPTED = SYNTHETIC_TEXT["interrupted"]
DENIED = SYNTHETIC_TEXT["denied"]


# ---------------------------------------------------------------- interrupted approvals
@pytest.mark.promise("P5")
async def test_after_the_deadline_only_allowed_calls_are_made(store: Ledger) -> None:
    counted = CountedTools()
    tools = [counted.tool("pay", "ask"), counted.tool("send", "ask")]
    script = [called("pay", "send"), words("so")]
    timing = replace(QUICK, tool_timeout=1, scan=0.01)
    async with worker(store, ScriptedModel(script), *tools, timing=timing) as runs:
        pay, send = await asked(runs)
        assert [each.id for each in (await park(runs, approval(pay))).owed] == [send]
        with anyio.fail_after(5):
            while (await contents(runs))[-1] != "so":
                await anyio.lowlevel.checkpoint()
        assert await results(runs) == [SYNTHETIC_TEXT["timeout"], "pay done"]
        with pytest.raises(ResultConflict, match="time"):
            await post(runs, approval(send))
    assert counted.done == {"pay": 1}


@pytest.mark.promise("P5")
async def test_a_user_message_means_that_nobody_answered(store: Ledger) -> None:
    counted = CountedTools()
    tools = [counted.tool("pay", "ask"), counted.tool("send", "ask")]
    model = ScriptedModel([called("pay", "send"), words("fine")])
    async with worker(store, model, *tools) as runs:
        pay, send = await asked(runs)
        await park(runs, approval(pay))
        assert await reply(runs, says("never mind", "u2")) == "fine"
        with pytest.raises(ResultConflict):
            await post(runs, approval(send))
        assert await results(runs) == [SYNTHETIC_TEXT["superseded"], UNMADE_TEXT]
    assert counted.done == {}


POLICIES: dict[OnBusy, tuple[list[object], Completed | Cancelled]] = {
    "enqueue": (["go", "", "pay done", "paid", "next", "two"], Completed()),
    "interrupt": (["go", "", INTERRUPTED, "next", "two"], Cancelled()),
    "rollback": (["go", "", INTERRUPTED, "next", "two"], Cancelled()),
}


@pytest.mark.promise("P5", "P8")
@pytest.mark.parametrize(("policy", "expected"), POLICIES.items(), ids=POLICIES)
async def test_a_message_while_an_allowed_call_is_made(
    store: Ledger, policy: OnBusy, expected: tuple[list[object], Completed | Cancelled]
) -> None:
    """An allowed call stays known, and is not made again."""
    begun, gate = anyio.Event(), anyio.Event()
    counted = CountedTools()

    @tool(permission="ask")
    async def pay() -> str:
        counted.done["pay"] += 1
        begun.set()
        await gate.wait()
        return "pay done"

    texts = ["paid", "two"] if policy == "enqueue" else ["two"]
    model = ScriptedModel([called("pay"), *map(words, texts)])
    async with worker(store, model, pay) as runs:
        [call] = await asked(runs)
        run = await post(runs, approval(call))
        await begun.wait()
        second = await post(runs, says("next", "u2"), on_busy=policy)
        if policy == "enqueue":
            gate.set()
        messages, ending = expected
        assert await outcome(runs, second) == Completed()
        assert await outcome(runs, run) == ending
        assert await contents(runs) == messages
        assert [m.call_id for m in await record(runs) if isinstance(m, ApprovalMessage)] == [call]
        assert await post(runs, approval(call)) == run
    assert counted.done == {"pay": 1}


@pytest.mark.promise("P5", "P9")
async def test_a_rollback_leaves_the_result_of_what_was_allowed(store: Ledger) -> None:
    """It was done: that stays true, as with the client's own results."""
    counted = CountedTools()
    stalls: list[Step] = ["half", anyio.Event()]
    model = ScriptedModel([called("pay"), called("look"), stalls, words("two")])
    tools = [counted.tool("pay", "ask"), counted.tool("look")]
    async with worker(store, model, *tools) as runs:
        [call] = await asked(runs)
        run = await post(runs, approval(call))
        await until(runs, run, TextDelta)
        second = await post(runs, says("next", "u2"), on_busy="rollback")
        assert await outcome(runs, second) == Completed()
        assert await outcome(runs, run) == Cancelled()
        assert await contents(runs) == ["go", "", "pay done", "next", "two"]
        assert await post(runs, approval(call)) == run
    assert counted.done == {"pay": 1, "look": 1}


@pytest.mark.promise("P7", "P8")
async def test_a_run_that_is_cancelled_while_an_allowed_call_is_made(store: Ledger) -> None:
    counted = CountedTools("pay")
    model = ScriptedModel([called("pay"), words("what now?")])
    async with worker(store, model, counted.tool("pay", "ask")) as runs:
        [call] = await asked(runs)
        run = await post(runs, approval(call))
        await counted.begun.wait()
        assert await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        assert await post(runs, approval(call)) == run
        assert await results(runs) == [INTERRUPTED]
        assert await reply(runs, says("so?", "u2")) == "what now?"
    assert counted.done == {"pay": 1}


async def test_posts_that_wait_begin_when_the_answer_does_not_come(store: Ledger) -> None:
    """They waited for the run that asks; the answer and a message end the waiting."""
    gate = anyio.Event()
    counted = CountedTools()
    model = ScriptedModel([[gate, *called("pay")], words("one"), words("two")])
    async with worker(store, model, counted.tool("pay", "ask")) as runs:
        first = await post(runs, says("a"))
        waits = await post(runs, says("b", "b"), on_busy="enqueue")
        gate.set()
        assert isinstance(await outcome(runs, first), HandedBack)
        [call] = await call_ids(runs)
        answered = await runs.start(StartRun(KEY, (approval(call),)))
        assert isinstance(answered, RunRef)
        assert await outcome(runs, answered) == Completed()
        assert await outcome(runs, waits) == Completed()
        assert await contents(runs) == ["a", "", "pay done", "one", "b", "two"]


# ---------------------------------------------------------------- workers die
@pytest.mark.promise("P1", "P10")
async def test_the_worker_that_asked_may_be_gone(store: Ledger) -> None:
    counted = CountedTools()
    pay = counted.tool("pay", "ask")
    async with (
        worker(store, ScriptedModel([words("paid")]), pay) as other,
        killable_worker(store, ScriptedModel([called("pay")]), pay) as dying,
    ):
        [call] = await asked(dying.runs)
        await dying.kill()
        assert await call_ids(other) == [call]
        assert await reply(other, approval(call)) == "paid"
    assert counted.done == {"pay": 1}


@pytest.mark.promise("P1", "P10")
async def test_what_is_owed_is_handed_back_by_the_next_worker(store: Ledger) -> None:
    """The turn was committed, and the server's own call of it was being made."""
    counted = CountedTools("look")
    tools = [counted.tool("look"), counted.tool("pay", "ask")]
    async with (
        worker(store, ScriptedModel([words("paid")]), *tools) as other,
        killable_worker(store, ScriptedModel([called("pay", "look")]), *tools) as dying,
    ):
        run = await post(dying.runs, says())
        await counted.begun.wait()
        await dying.kill()
        ending = await outcome(other, run)
        assert isinstance(ending, HandedBack)
        [owed] = ending.owed
        assert (owed.kind, owed.name) == ("approval", "pay")
        assert await reply(other, approval(owed.id)) == "paid"
        assert await results(other) == [INTERRUPTED, "pay done"]
    assert counted.done == {"look": 1, "pay": 1}


@pytest.mark.promise("P10")
@pytest.mark.parametrize(
    ("repeatable", "done", "answers"),
    [
        (False, {"pay": 1, "send": 1}, [INTERRUPTED, "send done"]),
        (True, {"pay": 2, "send": 1}, ["pay done", "send done"]),
    ],
    ids=["not repeatable", "repeatable"],
)
async def test_an_allowed_call_that_was_being_made_is_repeated_only_if_that_is_harmless(
    store: Ledger, repeatable: bool, done: dict[str, int], answers: list[str]
) -> None:
    counted = CountedTools("pay")
    tools = [counted.tool("pay", "ask", repeatable=repeatable), counted.tool("send", "ask")]
    async with (
        worker(store, ScriptedModel([words("so")]), *tools) as other,
        killable_worker(store, ScriptedModel([called("pay", "send")]), *tools) as dying,
    ):
        calls_ = await asked(dying.runs)
        run = await post(dying.runs, *map(approval, calls_))
        await counted.begun.wait()
        counted.stuck.clear()
        await dying.kill()
        assert await outcome(other, run) == Completed()
        assert await results(other) == answers
        seen = of_calls(await events(other, run))
        assert [e.content for e in seen if isinstance(e, ToolResulted)] == answers
        assert await post(other, *map(approval, calls_)) == run
    assert counted.done == done


@pytest.mark.promise("P10")
async def test_a_call_whose_result_could_not_be_stored_is_not_made_again(store: Ledger) -> None:
    counted = CountedTools()
    pay = counted.tool("pay", "ask")
    paid, never = anyio.Event(), anyio.Event()

    async def die() -> None:
        paid.set()
        await never.wait()

    async with (
        worker(store, ScriptedModel([words("so")]), pay) as other,
        killable_worker(store, ScriptedModel([called("pay")]), pay) as dying,
    ):
        [call] = await asked(dying.runs)
        dying.faults.first["commit"] = die
        run = await post(dying.runs, approval(call))
        await paid.wait()
        dying.faults.dead = True
        never.set()
        await dying.kill()
        assert await outcome(other, run) == Completed()
        assert await results(other) == [INTERRUPTED]
    assert counted.done == {"pay": 1}


@pytest.mark.promise("P10")
async def test_a_call_whose_result_was_stored_keeps_it(store: Ledger) -> None:
    counted = CountedTools()
    pay = counted.tool("pay", "ask")
    stalls: list[Step] = [anyio.Event()]
    async with (
        worker(store, ScriptedModel([words("paid")]), pay) as other,
        killable_worker(store, ScriptedModel([called("pay"), stalls]), pay) as dying,
    ):
        [call] = await asked(dying.runs)
        run = await post(dying.runs, approval(call))
        await until(dying.runs, run, ToolResulted)
        await dying.kill()
        assert await outcome(other, run) == Completed()
        assert await results(other) == ["pay done"]
    assert counted.done == {"pay": 1}
