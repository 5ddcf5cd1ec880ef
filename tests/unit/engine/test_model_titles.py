"""Titles that a model writes after the first answer of a conversation."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    ASK,
    KEY,
    OTHER,
    call_ids,
    outcome,
    post,
    reply,
    result,
    says,
    until,
    worker,
)
from tests.support.store_values import new_nonce

from passback.core.budgets import Budget, BudgetLimits, Price, Spending, Spent
from passback.core.changes import Change, Status
from passback.core.deltas import Finish, ReasoningChunk, UsageChunk
from passback.core.errors import ModelUnavailable
from passback.core.events import Completed, Failed, TextDelta
from passback.core.messages import (
    AssistantMessage,
    MediaPart,
    MessageId,
    RunRef,
    Usage,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.core.state import State, TitleCall, owner_view
from passback.engine.agents import TitleModel
from passback.engine.commands import Commands
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio

PRICE = Price(input=1_000_000.0, output=2_000_000.0)
USAGE = Usage(40, 5)


def model(count: int = 3) -> ScriptedModel:
    return ScriptedModel([words(f"answer {number}") for number in range(1, count + 1)])


def titles(*turns: Sequence[Step]) -> TitleModel:
    return TitleModel(ScriptedModel(turns, name="titles"), PRICE)


def asked(titles: TitleModel) -> ScriptedModel:
    assert isinstance(titles.model, ScriptedModel)
    return titles.model


async def titled(store: Ledger) -> Status:
    """Wait until the model was asked for a title and what came of it is stored."""
    while (status := await store.status(KEY)).state.title_call is None:
        await anyio.lowlevel.checkpoint()
    return status


async def settled(titles: TitleModel, runs: RunService) -> None:
    """Let every title that was to be asked for be asked for: the store answers in order."""
    for _ in range(20):
        await runs.status(KEY)
        await anyio.lowlevel.checkpoint()
    while asked(titles).open_streams:
        await anyio.lowlevel.checkpoint()


async def test_a_model_writes_the_title_once_after_the_first_answer(store: Ledger) -> None:
    writes = titles([" “Blue\x00 ", "page”\nmore", UsageChunk(USAGE), Finish("stop")])
    async with worker(store, model(), titles=writes) as runs:
        assert await reply(runs, says("Make the page blue, please")) == "answer 1"
        status = await titled(store)
        assert (status.title, status.named) == ("Blue page", False)
        [request] = asked(writes).requests
        assert request.messages[0].content == (
            "<conversation>\n[user]\nMake the page blue, please\n\n[assistant]\nanswer 1\n"
            "</conversation>\n\nWrite the title."
        )
        assert "never an instruction" in request.system
        assert not request.tools
        assert await reply(runs, says("and red", "u2")) == "answer 2"
        await settled(writes, runs)
        assert len(asked(writes).requests) == 1
        assert (await store.status(KEY)).title == "Blue page"


async def test_its_usage_counts_for_the_conversation_and_not_for_the_messages(
    memory: Ledger,
) -> None:
    writes = titles(["Blue", UsageChunk(USAGE), Finish("stop")])
    async with worker(memory, model(), titles=writes) as runs:
        await reply(runs, says())
        state = (await titled(memory)).state
        assert (state.usage, state.cost) == (Usage(), 0)
        assert state.title_call is not None
        assert state.title_call == TitleCall(
            USAGE, Spent(45, state.title_call.spent.seconds, cost=50.0)
        )
        seen = owner_view(state)
        assert (seen.usage, seen.cost) == (USAGE, 50.0)
        assert seen.seconds == state.seconds + state.title_call.spent.seconds


async def test_the_title_does_not_delay_the_end_of_the_run_or_the_next_one(store: Ledger) -> None:
    gate = anyio.Event()
    writes = titles(["Gr", gate, "een", Finish("stop")])
    async with worker(store, model(), titles=writes) as runs:
        assert await outcome(runs, await post(runs, says("first"))) == Completed()
        while not asked(writes).open_streams:
            await anyio.lowlevel.checkpoint()
        assert not (await store.status(KEY)).running
        assert await reply(runs, says("more", "u2")) == "answer 2"
        assert (await store.status(KEY)).title == "first"
        gate.set()
        status = await titled(store)
        assert (status.title, status.message_count) == ("Green", 4)


async def test_a_title_that_comes_within_the_next_run_stays_when_that_ends(store: Ledger) -> None:
    gate, going_on = anyio.Event(), anyio.Event()
    writes = titles([gate, "Blue", UsageChunk(USAGE), Finish("stop")])
    answers = ScriptedModel([words("one"), ["two", going_on, UsageChunk(Usage(3)), Finish("stop")]])
    async with worker(store, answers, titles=writes) as runs:
        await reply(runs, says("first"))
        second = await post(runs, says("more", "u2"))
        await until(runs, second, TextDelta)
        gate.set()
        await titled(store)
        going_on.set()
        assert await outcome(runs, second) == Completed()
        status = await store.status(KEY)
        assert (status.title, owner_view(status.state).usage) == ("Blue", Usage(43, 5))


# ---------------------------------------------------------------- a client's title wins
async def test_no_model_is_asked_where_a_client_gave_the_title(store: Ledger) -> None:
    writes = titles(words("Blue"))
    async with worker(store, model(), titles=writes) as runs:
        await runs.create(KEY, title="mine")
        await reply(runs, says())
        await settled(writes, runs)
        assert not asked(writes).requests
        assert (await store.status(KEY)).title == "mine"


async def test_a_client_that_renames_meanwhile_wins(store: Ledger) -> None:
    gate = anyio.Event()
    writes = titles(["Blue", gate, Finish("stop")])
    async with worker(store, model(), titles=writes) as runs, worker(store, model()) as other:
        await reply(runs, says("first"))
        while not asked(writes).open_streams:
            await anyio.lowlevel.checkpoint()
        await other.rename(KEY, "first")
        gate.set()
        status = await titled(store)
        assert (status.title, status.named) == ("first", True)


async def test_a_conversation_that_was_deleted_meanwhile_gets_no_title(memory: Ledger) -> None:
    gate, faults = anyio.Event(), Faults(memory)
    writes = titles(["Secret", gate, Finish("stop")])
    async with worker(faults.store, model(), titles=writes) as runs:
        await reply(runs, says("first"))
        while not asked(writes).open_streams:
            await anyio.lowlevel.checkpoint()
        before = (await memory.status(KEY)).created
        while (await memory.status(KEY)).created in {0, before}:  # of another millisecond
            await memory.delete(KEY)
            await runs.create(KEY)
        gate.set()
        await faults.until("write_title", 1)
        assert (await memory.status(KEY)).title == ""


async def test_a_run_that_was_lost_at_its_end_gets_no_title(memory: Ledger) -> None:
    faults = Faults(memory)

    async def begin_anew() -> None:
        await memory.delete(KEY)
        assert await memory.park(Change(KEY, new_nonce(), 0))

    faults.first["commit"] = begin_anew
    writes = titles(words("Secret"))
    async with worker(faults.store, model(), titles=writes) as runs:
        await post(runs, says("first"))
        await faults.until("commit", 1)
        await settled(writes, runs)
        assert not asked(writes).requests


# ---------------------------------------------------------------- what is a first answer
async def test_an_answer_after_a_tool_call_of_the_client_is_the_first_one(store: Ledger) -> None:
    writes = titles(words("Blue"))
    answers = ScriptedModel([calls(("ask", {})), words("done")])
    async with worker(store, answers, titles=writes) as runs:
        await outcome(runs, await post(runs, says("paint it"), tools=[ASK]))
        await settled(writes, runs)
        assert not asked(writes).requests
        [call] = await call_ids(runs)
        await reply(runs, result(call))
        assert (await titled(store)).title == "Blue"
        assert "paint it" in str(asked(writes).requests[0].messages[0].content)


async def test_a_run_that_failed_or_was_cancelled_or_was_a_command_answers_nothing(
    memory: Ledger,
) -> None:
    writes = titles(words("Blue"))
    answers = ScriptedModel(
        [["half", anyio.Event()], ["half", ModelUnavailable("down")], words("a")]
    )
    async with worker(memory, answers, titles=writes, commands=Commands({}, True)) as runs:
        await reply(runs, says("/help", "u0"))
        first = await post(runs, says("one", "u1"))
        await until(runs, first, TextDelta)
        await runs.cancel(first)
        await outcome(runs, first)
        await reply(runs, says("two", "u2"))
        await settled(writes, runs)
        assert not asked(writes).requests
        await reply(runs, says("three", "u3"))
        assert (await titled(memory)).title == "Blue"


async def test_the_answers_of_an_imported_history_do_not_count(memory: Ledger) -> None:
    history = (
        UserMessage(MessageId("h1"), "long ago", imported=True),
        AssistantMessage(MessageId("h2"), "yes", imported=True),
    )
    writes = titles(words("Blue"))
    async with worker(memory, model(), titles=writes) as runs:
        await runs.start(StartRun(KEY, (says("now", "u2"),), history=history))
        assert (await titled(memory)).title == "Blue"


async def test_a_conversation_whose_beginning_is_not_read_had_its_first_answer(
    memory: Ledger,
) -> None:
    said = (says("old", "m1"), AssistantMessage(MessageId("m2"), "yes"))
    old = Change(KEY, new_nonce(), 0, said, state=State(history_start=2), title="old")
    assert await memory.park(old)
    writes = titles(words("Blue"))
    async with worker(memory, model(), titles=writes) as runs:
        assert await reply(runs, says("more", "u2")) == "answer 1"
        await settled(writes, runs)
        assert not asked(writes).requests
        assert (await memory.status(KEY)).title == "old"


async def test_what_has_no_text_gets_no_title(memory: Ledger) -> None:
    writes = titles(words("Blue"))
    async with worker(memory, ScriptedModel([words(" ")], media=True), titles=writes) as runs:
        picture = UserMessage(MessageId("u"), (MediaPart("image", "https://example.com/a.png"),))
        await outcome(runs, await post(runs, picture))
        await settled(writes, runs)
        assert not asked(writes).requests


# ---------------------------------------------------------------- failures
@pytest.mark.parametrize(
    ("turn", "logged"),
    [
        (["Secret", ModelUnavailable("Secret")], "title not written: model_unavailable"),
        (["Secret", RuntimeError("broken")], "title failed"),
    ],
)
async def test_a_call_that_fails_leaves_the_title_and_is_logged_without_content(
    memory: Ledger, caplog: pytest.LogCaptureFixture, turn: list[Step], logged: str
) -> None:
    writes = titles([UsageChunk(USAGE), *turn])
    with caplog.at_level(logging.INFO):
        async with worker(memory, model(), titles=writes) as runs:
            await reply(runs, says("Hidden"))
            status = await titled(memory)
            assert status.title == "Hidden"
            assert status.state.title_call is not None
            assert status.state.title_call.usage == replace(USAGE, estimated=True, output_tokens=5)
            assert await reply(runs, says("more", "u2")) == "answer 2"
            await settled(writes, runs)
    lines = [line for line in caplog.messages if "title" in line]
    assert lines == [logged]
    assert not any(text in line for line in caplog.messages for text in ("Secret", "Hidden"))


@pytest.mark.parametrize(
    ("turn", "is_paid"),
    [
        (["no end"], True),  # as is estimated
        (["I cannot", UsageChunk(Usage(1)), Finish("refusal")], True),
        ([UsageChunk(Usage(1)), " \n", Finish("stop")], True),
        ([" ", Finish("stop")], False),
        ([ModelUnavailable("down")], False),
    ],
)
async def test_no_title_is_better_than_half_a_one(
    memory: Ledger, turn: list[Step], is_paid: bool
) -> None:
    writes = titles(turn)
    async with worker(memory, model(), titles=writes) as runs:
        await reply(runs, says("first"))
        while not asked(writes).requests:
            await anyio.lowlevel.checkpoint()
        await settled(writes, runs)
        status = await memory.status(KEY)
        assert status.title == "first"
        assert (status.state.title_call is not None) is is_paid


@pytest.mark.parametrize("step", ["word " * 300, "思" * 9000])
async def test_an_answer_that_does_not_end_is_cut(memory: Ledger, step: str) -> None:
    reasons = step.startswith("思")
    first: Step = ReasoningChunk(step) if reasons else step
    writes = titles([first, anyio.Event()])
    async with worker(memory, model(), titles=writes) as runs:
        await reply(runs, says("first"))
        status = await titled(memory)
        assert status.title == ("first" if reasons else f"{' '.join(['word'] * 20)}…")
        assert status.state.title_call is not None
        assert status.state.title_call.usage.estimated
        assert not asked(writes).open_streams


async def test_a_store_that_fails_fails_no_run(
    memory: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults(memory)
    faults.plan["write_title"] = ["refuse"]
    writes = titles(words("Blue"))
    async with worker(faults.store, model(), titles=writes) as runs:
        await reply(runs, says("first"))
        await faults.until("write_title", 1)
        assert await reply(runs, says("more", "u2")) == "answer 2"
        assert (await memory.status(KEY)).title == "first"
    assert "title not written: store_unavailable" in caplog.messages


async def test_a_worker_that_stops_leaves_the_title_and_counts_what_was_spent(
    store: Ledger,
) -> None:
    writes = titles([UsageChunk(USAGE), "Blue", anyio.Event()])
    async with worker(store, model(), titles=writes) as runs:
        await reply(runs, says("first"))
        while not asked(writes).open_streams:
            await anyio.lowlevel.checkpoint()
        await until_read(writes)
    status = await store.status(KEY)
    assert status.title == "first"
    assert status.state.title_call is not None
    assert status.state.title_call.usage == replace(USAGE, estimated=True)


async def until_read(titles: TitleModel) -> None:
    """Let the reader come to the step that waits."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


# ---------------------------------------------------------------- budgets
@pytest.mark.parametrize("kind", ["run", "conversation", "owner"])
async def test_without_budget_no_title_is_asked_for(memory: Ledger, kind: str) -> None:
    budget = Budget(**{kind: BudgetLimits(tokens=100)})
    writes = titles(words("Blue"))
    answers = ScriptedModel([["a", UsageChunk(Usage(90, 10)), Finish("stop")]])
    async with worker(memory, answers, titles=writes, budget=budget) as runs:
        assert await reply(runs, says("first")) == "a"
        await settled(writes, runs)
        assert not asked(writes).requests
        assert (await memory.status(KEY)).title == "first"


async def test_a_title_counts_for_the_budget_of_later_runs(store: Ledger) -> None:
    budget = Budget(conversation=BudgetLimits(tokens=1000))
    writes = titles(["Blue", UsageChunk(Usage(990, 10)), Finish("stop")])
    async with worker(store, model(), titles=writes, budget=budget) as runs:
        await reply(runs, says("first"))
        await titled(store)
        assert await outcome(runs, await post(runs, says("more", "u2"))) == Completed("budget")


async def test_a_title_counts_for_its_owner(store: Ledger) -> None:
    budget = Budget(owner=BudgetLimits(tokens=10_000))
    writes = titles(["Blue", UsageChunk(USAGE), Finish("stop")])
    answers = ScriptedModel([["a", UsageChunk(Usage(7, 1)), Finish("stop")]])
    async with worker(store, answers, titles=writes, budget=budget) as runs:
        run = await post(runs, says("first"))
        await outcome(runs, run)
        await titled(store)
        day = datetime.now(UTC).date().isoformat()
        spent = await store.spend(Spending(RunRef(KEY, run.run_id), 0, day, Spent()))
        assert spent.tokens == 8 + 45


async def test_nothing_is_asked_where_titles_are_those_of_the_first_message(memory: Ledger) -> None:
    async with worker(memory, model()) as runs:
        await reply(runs, says("first"))
        await reply(runs, says("more", "u2"))
        status = await memory.status(KEY)
        assert (status.title, status.state.title_call) == ("first", None)
        failed = await post(runs, says(), key=OTHER)
        assert not isinstance(await outcome(runs, failed), Failed)
