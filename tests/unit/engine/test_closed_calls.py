"""Calls that the client owes are closed without a message, and compaction without a command."""

from functools import partial

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    KEY,
    OTHER,
    PAINT,
    at_once,
    call_ids,
    contents,
    events,
    outcome,
    park,
    post,
    record,
    reply,
    result,
    says,
    until,
    worker,
)
from tests.unit.engine.budget_agents import serving

from passback.agent import Agent
from passback.core.changes import Change
from passback.core.errors import Conflict, ConversationBusy, ResultConflict, UnknownConversation
from passback.core.events import Cancelled, Compacted, Completed, RunStarted, TextDelta
from passback.core.ids import new_nonce
from passback.core.messages import SummaryMessage, ToolMessage
from passback.core.permissions import pattern_rule
from passback.core.transcript import SYNTHETIC_TEXT
from passback.engine.ledger import Ledger
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio

ASKED = calls(("paint", {}), ("paint", {}))
SUPERSEDED = SYNTHETIC_TEXT["superseded"]


@tool
def erase() -> str:
    """A server tool that asks first."""
    raise AssertionError("nobody allowed it")


async def test_a_conversation_goes_on_without_the_calls_that_were_closed(store: Ledger) -> None:
    model = ScriptedModel([ASKED, words("without them")])
    async with worker(store, model) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        one, other = await call_ids(runs)
        await park(runs, result(one, "red", "r1"))
        closing = await runs.close_calls(KEY)
        assert closing is not None
        assert await outcome(runs, closing) == Cancelled()
        assert (await runs.status(KEY)).owed == ()
        assert len(model.requests) == 1
        assert await contents(runs) == ["hi", "", "red", SUPERSEDED]
        with pytest.raises(ResultConflict):
            await post(runs, result(other, "blue", "r2"))
        assert await runs.close_calls(KEY) is None
        assert await reply(runs, says("go on", "u2")) == "without them"


async def test_who_watches_is_told_what_was_closed(store: Ledger) -> None:
    async with worker(store, ScriptedModel([ASKED])) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        async with runs.watch(KEY) as batches:
            await runs.close_calls(KEY)
            [begun, *_] = (await anext(batches)).events
        assert isinstance(begun.event, RunStarted)
        closed = (await record(runs))[begun.event.first :][: begun.event.posted]
        assert [m.synthetic for m in closed if isinstance(m, ToolMessage)] == 2 * ["superseded"]


async def test_an_approval_that_is_owed_is_closed_and_the_tool_does_not_run(store: Ledger) -> None:
    model = ScriptedModel([calls(("erase", {})), words("well")])
    async with worker(store, model, erase, rules=[pattern_rule({"erase": "ask"})]) as runs:
        await outcome(runs, await post(runs, says()))
        closing = await runs.close_calls(KEY)
        assert closing is not None
        assert await outcome(runs, closing) == Cancelled()
        assert await reply(runs, says("go on", "u2")) == "well"


async def test_calls_of_a_run_that_goes_on_are_not_closed(store: Ledger) -> None:
    gate = anyio.Event()
    async with worker(store, ScriptedModel([["a", gate, *words("b")]])) as runs:
        run = await post(runs, says())
        await until(runs, run, TextDelta)
        with pytest.raises(ConversationBusy):
            await runs.close_calls(KEY)
        gate.set()
        assert await outcome(runs, run) == Completed()
        with pytest.raises(UnknownConversation):
            await runs.close_calls(OTHER)


async def test_of_two_who_close_at_once_one_does_it(store: Ledger) -> None:
    async with worker(store, ScriptedModel([ASKED])) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        closed = list[object]()

        async def close() -> None:
            try:
                closed.append(await runs.close_calls(KEY))
            except ConversationBusy:
                closed.append(None)

        async with at_once() as tasks:
            for _ in range(3):
                tasks.start_soon(close)
        assert len(closed) == 3
        assert sum(each is not None for each in closed) == 1
        assert await contents(runs) == ["hi", "", SUPERSEDED, SUPERSEDED]


async def test_a_result_that_comes_meanwhile_counts(store: Ledger) -> None:
    faults = Faults(store)
    async with (
        worker(store, ScriptedModel([ASKED])) as other,
        worker(faults.store, ScriptedModel([])) as runs,
    ):
        await outcome(other, await post(other, says(), tools=[PAINT]))
        one, _ = await call_ids(other)
        faults.first["begin"] = partial(park, other, result(one, "red", "r1"))
        assert await runs.close_calls(KEY) is not None
        assert await contents(other) == ["hi", "", "red", SUPERSEDED]


async def test_a_conversation_that_changes_all_the_time_is_busy(store: Ledger) -> None:
    faults = Faults(store)
    async with worker(faults.store, ScriptedModel([ASKED])) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))

        async def change_again() -> None:
            faults.first["begin"] = change_again
            version = (await store.status(KEY)).version
            owed = (await store.status(KEY)).owed
            assert await store.park(Change(KEY, new_nonce(), version, owed=owed))

        faults.first["begin"] = change_again
        with pytest.raises(ConversationBusy):
            await runs.close_calls(KEY)
        assert len(await call_ids(runs)) == 2


# ---------------------------------------------------------------- compaction
@pytest.mark.parametrize("commands", ["yes", "no"])
async def test_what_was_said_is_summed_up_whether_users_may_ask_for_it_or_not(
    commands: str,
) -> None:
    script = [words("one " * 500), words("two " * 500), words("in short"), words("three")]
    agent = Agent(model=(model := ScriptedModel(script)), window=2_000)
    async with serving(agent, commands=commands) as runs:
        with pytest.raises(UnknownConversation):
            await runs.compact(KEY)
        await reply(runs, says("a", "u1"))
        await reply(runs, says("b", "u2"))
        run = await runs.compact(KEY)
        assert any(isinstance(event, Compacted) for event in await events(runs, run))
        assert await reply(runs, says("c", "u3")) == "three"
        [summary] = [m for m in await record(runs) if isinstance(m, SummaryMessage)]
    assert summary.content == "in short"
    assert "in short" in str(model.requests[-1].messages[0].content)


async def test_nothing_is_summed_up_while_answers_are_owed_or_a_run_goes_on(store: Ledger) -> None:
    gate = anyio.Event()
    async with worker(store, ScriptedModel([ASKED, ["a", gate, *words("b")]])) as runs:
        await outcome(runs, await post(runs, says(), tools=[PAINT]))
        with pytest.raises(Conflict, match="waits for answers"):
            await runs.compact(KEY)
        run = await post(runs, says("on", "u2"))
        await until(runs, run, TextDelta)
        with pytest.raises(ConversationBusy):
            await runs.compact(KEY)
        gate.set()
        assert await outcome(runs, run) == Completed()
