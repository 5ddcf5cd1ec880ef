"""Lasting denials: a tool is not asked about again until the person takes it back."""

from time import monotonic

import anyio
import anyio.lowlevel
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import (
    EXPIRING,
    KEY,
    OTHER,
    approval,
    call_ids,
    denial,
    outcome,
    post,
    reply,
    says,
    worker,
)
from tests.unit.engine.counted_tools import CountedTools, asked, called, results
from tests.unit.engine.sub_agents import TASK, erase, helper, lead_worker

from passback.core.changes import Change
from passback.core.errors import ConversationBusy, InvalidRequest, UnknownConversation
from passback.core.events import Completed, HandedBack
from passback.core.messages import (
    MessageContext,
    MessageId,
    PostedMessage,
    RunRef,
    ToolCall,
    UserMessage,
)
from passback.core.permissions import MAX_DENIALS, Permission, pattern_rule
from passback.core.posts import StartRun
from passback.core.state import State
from passback.engine.ledger import Ledger
from passback.engine.loading import LARGE_HISTORY_BYTES
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.toolsets.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio

NEVER = "Not executed: the user allows no call of this tool in this conversation."
ONCE = "This call was not allowed."
FOR_GOOD = f"{ONCE} Nor is any other call of this tool in this conversation."


async def lasting(runs: RunService) -> list[tuple[str, bool, str]]:
    """Return the lasting answers of the conversation's state."""
    known = (await runs.status(KEY)).state.lasting or ()
    return [(each.tool, each.approved, each.reason) for each in known]


async def refusals(runs: RunService) -> list[tuple[str, str]]:
    return [(each.tool, each.reason) for each in (await runs.status(KEY)).state.refusals]


async def test_a_denial_for_good_is_for_the_tool_in_this_conversation(store: Ledger) -> None:
    counted = CountedTools()
    tools = [counted.tool("pay", "ask"), counted.tool("look")]
    model = ScriptedModel(
        [
            *[called("pay"), called("pay", "look"), words("one")],
            *[called("pay"), words("two"), called("pay")],
        ]
    )
    async with worker(store, model, *tools) as runs:
        [call] = await asked(runs)
        assert await reply(runs, denial(call, "No money.", always=True)) == "one"
        assert await lasting(runs) == [("pay", False, "No money.")]
        assert await refusals(runs) == [
            ("pay", f"{FOR_GOOD} The user says: No money."),
            ("pay", f"{NEVER} The user says: No money."),
        ]
        # who said never is not overruled by a rule that asks nobody
        async with worker(store, model, *tools, rules=[pattern_rule({"pay": "allow"})]) as lax:
            assert await reply(lax, says("again")) == "two"
        assert counted.done == {"look": 1}
        assert len(await asked(runs, OTHER)) == 1


def pays(counted: CountedTools, description: str) -> FunctionTool:
    """A tool whose declaration another server may change."""

    async def pay(what: str) -> str:
        counted.done[what] += 1
        return "paid"

    return tool(description=description)(pay)


def asks_about_secrets(call: ToolCall, _run: RunRef) -> Permission:
    return Permission("ask" if "secret" in call.arguments else "allow")


async def test_a_denial_for_good_is_of_the_name_whatever_is_declared(store: Ledger) -> None:
    counted = CountedTools()
    secret, harmless = (calls(("pay", {"what": what})) for what in ("secret", "bread"))
    turns = [secret, words("no"), harmless, words("nor this"), secret, words("nor that")]
    model = ScriptedModel(turns)
    async with worker(store, model, pays(counted, "Pay."), rules=[asks_about_secrets]) as runs:
        [call] = await asked(runs)
        assert await reply(runs, denial(call, always=True)) == "no"
    changed = pays(counted, "Pay, and tell nobody.")
    async with worker(store, model, changed, rules=[asks_about_secrets]) as runs:
        assert await lasting(runs) == [("pay", False, "")]
        assert await reply(runs, says("again", "u2")) == "nor this"
        assert await reply(runs, says("and again", "u3")) == "nor that"
        assert await refusals(runs) == [("pay", FOR_GOOD), ("pay", NEVER), ("pay", NEVER)]
    assert counted.done == {}


async def test_an_approval_for_good_is_of_what_was_declared(store: Ledger) -> None:
    counted = CountedTools()
    secret = calls(("pay", {"what": "secret"}))
    model = ScriptedModel([secret, words("yes"), secret, words("no"), secret, words("never")])
    async with worker(store, model, pays(counted, "Pay."), rules=[asks_about_secrets]) as runs:
        [call] = await asked(runs)
        assert await reply(runs, approval(call, always=True)) == "yes"
    changed = pays(counted, "Pay, and tell nobody.")
    async with worker(store, model, changed, rules=[asks_about_secrets]) as runs:
        [call] = await asked(runs)
        assert await reply(runs, denial(call, always=True)) == "no"
        assert await lasting(runs) == [("pay", False, "")]
    # who has denied it as it is declared in the meantime has denied it as it was, too
    async with worker(store, model, pays(counted, "Pay.")) as runs:
        assert await reply(runs, says("again", "u2")) == "never"
    assert counted.done == {"secret": 1}


async def test_no_denial_for_good_goes_for_a_newer_answer(store: Ledger) -> None:
    counted = CountedTools()
    names = [f"tool_{number}" for number in range(MAX_DENIALS + 1)]
    tools = [counted.tool(name) for name in names]
    model = ScriptedModel([called(*names), words("so"), called(names[0]), words("never")])
    async with worker(store, model, *tools, rules=[pattern_rule({"*": "ask"})]) as runs:
        owed = await asked(runs)
        with pytest.raises(InvalidRequest, match="64 tools are denied for good"):
            await runs.start(StartRun(KEY, tuple(denial(call, always=True) for call in owed)))
        assert await call_ids(runs) == owed
        never = [denial(call, always=True) for call in owed[:-1]]
        assert await reply(runs, *never, approval(owed[-1], always=True)) == "so"
    async with worker(store, model, *tools) as lax:
        assert await reply(lax, says("again", "u2")) == "never"
        answered = [(names[-1], True, ""), *((name, False, "") for name in names[:-1])]
        assert await lasting(lax) == answered
    assert counted.done == {names[-1]: 1}


async def test_of_answers_for_good_in_one_post_the_denial_counts(store: Ledger) -> None:
    """Two calls that were asked about together each get their own answer."""
    counted = CountedTools()
    model = ScriptedModel([called("pay", "pay"), called("pay"), words("so"), called("pay")])
    async with worker(store, model, counted.tool("pay", "ask")) as runs:
        one, other = await asked(runs)
        posted = [denial(one, always=True), approval(other, always=True)]
        assert await reply(runs, *posted) == "so"
        assert counted.done == {"pay": 1}
        assert await lasting(runs) == [("pay", False, "")]


async def test_what_is_taken_back_is_asked_about_again(store: Ledger) -> None:
    counted = CountedTools()
    model = ScriptedModel([called("pay"), words("no"), called("pay"), called("pay"), words("yes")])
    async with worker(store, model, counted.tool("pay", "ask")) as runs:
        [call] = await asked(runs)
        assert await reply(runs, denial(call, always=True)) == "no"
        for _ in range(2):  # the second time there is nothing to take back
            await runs.retract(KEY, "pay")
            assert await lasting(runs) == []
        [call] = await asked(runs)
        # also while a call is owed, which stays so
        await runs.retract(KEY, "other")
        assert await call_ids(runs) == [call]
        await outcome(runs, await post(runs, approval(call, always=True)))
        assert counted.done == {"pay": 2}
        await runs.retract(KEY, "pay")
        assert await lasting(runs) == []


async def test_what_is_owed_stays_owed_when_something_is_taken_back(store: Ledger) -> None:
    counted = CountedTools()
    model = ScriptedModel([called("pay"), called("send"), words("sent")])
    async with worker(
        store, model, counted.tool("pay", "ask"), counted.tool("send", "ask")
    ) as runs:
        [pay] = await asked(runs)
        ending = await outcome(runs, await post(runs, denial(pay, always=True)))
        assert isinstance(ending, HandedBack)
        await runs.retract(KEY, "pay")
        [send] = await call_ids(runs)
        assert await reply(runs, approval(send)) == "sent"
        assert counted.done == {"send": 1}


async def test_nothing_is_taken_back_while_a_run_goes_on_or_where_nothing_is(
    memory: Ledger,
) -> None:
    gate = anyio.Event()
    async with worker(memory, ScriptedModel([["a", gate, *words("b")]])) as runs:
        with pytest.raises(UnknownConversation):
            await runs.retract(KEY, "pay")
        run = await post(runs, says())
        with pytest.raises(ConversationBusy) as raised:
            await runs.retract(KEY, "pay")
        assert raised.value.retry_after == 1
        gate.set()
        assert await outcome(runs, run) == Completed()


async def test_a_retraction_that_always_loses_the_race_gives_up(memory: Ledger) -> None:
    counted, faults = CountedTools(), Faults(memory)
    model = ScriptedModel([called("pay"), words("no")])
    async with (
        worker(memory, model, counted.tool("pay", "ask")) as runs,
        worker(faults.store, ScriptedModel([])) as slow,
    ):
        [call] = await asked(runs)
        assert await reply(runs, denial(call, always=True)) == "no"

        async def overtake() -> None:
            status = await memory.status(KEY)
            nonce = f"nonce-{status.version}"
            assert await memory.park(Change(KEY, nonce, status.version, (says("x"),)))
            faults.first["park"] = overtake

        faults.first["park"] = overtake
        with pytest.raises(ConversationBusy):
            await slow.retract(KEY, "pay")
        assert await lasting(runs) == [("pay", False, "")]
        faults.first.clear()
        await slow.retract(KEY, "pay")
        assert await lasting(runs) == []


async def test_a_sub_agent_is_denied_what_was_denied_for_good(store: Ledger) -> None:
    turns = [called("erase"), words("left"), called("erase"), words("left again")]
    lead = ScriptedModel([TASK, words("one"), TASK, words("two")])
    async with lead_worker(store, lead, helper(ScriptedModel(turns), erase)) as runs:
        assert await reply(runs, says()) == ""
        [call] = await call_ids(runs)
        assert await reply(runs, denial(call, always=True)) == "one"
        assert await reply(runs, says("again", "u2")) == "two"
        assert await refusals(runs) == [("erase", FOR_GOOD), ("erase", NEVER)]


async def test_a_rule_that_denies_is_a_refusal_also_of_what_was_approved(store: Ledger) -> None:
    counted = CountedTools()
    tools = [counted.tool("pay", "ask"), counted.tool("look", "deny")]
    model = ScriptedModel([called("pay", "look"), words("so")])
    async with worker(store, model, *tools) as runs:
        [call] = await asked(runs)
        async with worker(store, model, *tools, rules=[pattern_rule({"pay": "deny"})]) as strict:
            assert await reply(strict, approval(call)) == "so"
        denied = "Not executed: this tool may not be called"
        assert await refusals(runs) == [("look", denied), ("pay", denied)]
        assert (await runs.status(KEY)).state.lasting is None


async def test_a_worker_that_takes_over_knows_lasting_denials(store: Ledger) -> None:
    """The state was stored with the answer itself, and with the turn in which a rule denied."""
    counted = CountedTools("stuck")
    tools = [counted.tool("pay", "ask"), counted.tool("look", "deny"), counted.tool("stuck")]
    model = ScriptedModel([called("pay"), called("look", "pay", "stuck")])
    next_model = ScriptedModel([called("pay"), words("rescued")])
    async with worker(store, model, *tools) as first:
        [call] = await asked(first)
    async with worker(store, model, *tools, timing=EXPIRING) as dying:
        run = await post(dying, denial(call, "No.", always=True))
        await counted.begun.wait()
        async with worker(store, next_model, *tools) as runs:
            assert await outcome(runs, run) == Completed()
            assert [tool for tool, _ in await refusals(runs)] == ["pay", "look", "pay", "pay"]
            assert await lasting(runs) == [("pay", False, "No.")]
            assert "pay done" not in await results(runs)


async def test_an_answer_that_waited_in_the_queue_lasts_as_well(memory: Ledger) -> None:
    counted, gate = CountedTools(), anyio.Event()
    script = [["a", gate, *called("pay")], words("b"), [*called("pay")], words("c")]
    async with worker(memory, ScriptedModel(script), counted.tool("pay", "ask")) as runs:
        first = await post(runs, says())
        await post(runs, says("and", "u2"), on_busy="enqueue")
        gate.set()
        assert isinstance(await outcome(runs, first), HandedBack)
        [call] = await call_ids(runs)
        answered: list[PostedMessage] = [denial(call, always=True), says("or", "u3")]
        last = await post(runs, *answered, on_busy="enqueue")
        assert await outcome(runs, last) == Completed()
        assert await lasting(runs) == [("pay", False, "")]
        assert await refusals(runs) == [("pay", FOR_GOOD), ("pay", NEVER)]


async def test_the_data_that_counts_is_found_also_in_a_large_conversation(memory: Ledger) -> None:
    model = ScriptedModel([words("one"), words("two"), words("three")])
    async with worker(memory, model) as runs:
        assert await reply(runs, said_with({"rows": [1]}, "u1")) == "one"
        assert await runs.data(KEY) == {"rows": [1]}
        assert await reply(runs, says("x" * LARGE_HISTORY_BYTES, "u2")) == "two"
        assert await runs.data(KEY) == {"rows": [1]}
        assert await reply(runs, said_with(None, "u3")) == "three"
        assert await runs.data(KEY) is None
        with pytest.raises(UnknownConversation):
            await runs.data(OTHER)


def said_with(data: object, message_id: str) -> UserMessage:
    context = MessageContext(data={"rows": [1]}) if data else MessageContext(forgets=True)
    return UserMessage(MessageId(message_id), "look", context=context)


async def test_seconds_are_counted_also_of_a_model_without_usage(memory: Ledger) -> None:
    gate = anyio.Event()
    async with worker(memory, ScriptedModel([["a", gate, *words("b")]])) as runs:
        run, began = await post(runs, says()), monotonic()
        while monotonic() - began < 0.01:  # seconds, of which thousandths are kept
            await anyio.lowlevel.checkpoint()
        gate.set()
        assert await outcome(runs, run) == Completed()
        state = (await runs.status(KEY)).state
        assert state == State(seconds=state.seconds)
        assert state.seconds > 0
