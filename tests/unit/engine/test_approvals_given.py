"""A person allows or denies calls of server tools: made once, on any worker, or not at all."""

from collections.abc import Sequence

import anyio
import pytest
from tests.support.runs import (
    OTHER,
    PAINT,
    approval,
    at_once,
    call_ids,
    contents,
    denial,
    events,
    let_pass,
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
from tests.unit.engine.counted_tools import CountedTools, asked, called, of_calls, results

from passback.core.errors import PassbackError, ResultConflict
from passback.core.events import (
    Completed,
    HandedBack,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolBegan,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
    TurnEnded,
    TurnStarted,
)
from passback.core.messages import (
    ApprovalMessage,
    CallId,
    JsonObject,
    RunRef,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
)
from passback.core.permissions import Permission, declaration_digest, pattern_rule
from passback.core.toolsets import ToolContext, Toolset
from passback.core.transcript import SYNTHETIC_TEXT
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words
from passback.toolsets.functions import FunctionTools, tool

pytestmark = pytest.mark.anyio


INTERRUPTED = SYNTHETIC_TEXT["interrupted"]
DENIED = SYNTHETIC_TEXT["denied"]


# ---------------------------------------------------------------- yes and no
@pytest.mark.promise("P1", "P4")
async def test_what_is_allowed_is_made_by_the_run_that_goes_on_on_any_worker(store: Ledger) -> None:
    counted = CountedTools()
    pay = counted.tool("pay", "ask")
    model = ScriptedModel([words("paid")])
    async with (
        worker(store, ScriptedModel([called("pay")]), pay) as one,
        worker(store, model, pay) as other,
    ):
        [call] = await asked(one)
        run = await post(other, approval(call))
        seen = await events(other, run)
        turn = next(each.message_id for each in seen if isinstance(each, TurnStarted))
        assert seen == [
            RunStarted(run.run_id),
            ToolBegan(call),
            ToolCallEnded(call),
            ToolResulted(call, "pay done"),
            TurnStarted(turn),
            TextDelta("paid"),
            TurnEnded(turn, "scripted"),
            RunFinished(Completed()),
        ]
        assert await events(one, run) == seen
        _, _, given, done, _ = await record(one)
        [spec] = await FunctionTools([pay]).specs()
        digest = declaration_digest(spec)
        assert given == ApprovalMessage(given.id, call, True, tool="pay", digest=digest)
        assert isinstance(done, ToolMessage)
        assert (done.content, done.synthetic) == ("pay done", None)
    assert counted.done == {"pay": 1}
    assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "tool"]


@pytest.mark.promise("P5")
async def test_an_approved_call_of_a_removed_tool_says_so(store: Ledger) -> None:
    counted = CountedTools()
    model = ScriptedModel([words("a pity")])
    async with worker(store, ScriptedModel([called("pay")]), counted.tool("pay", "ask")) as one:
        [call] = await asked(one)
    async with worker(store, model, counted.tool("send")) as other:
        assert await reply(other, approval(call)) == "a pity"
        answered = (await record(other))[-2]
    assert isinstance(answered, ToolMessage)
    assert (answered.content, answered.is_error, answered.synthetic) == (
        "Not executed: there is no such tool any more",
        True,
        "denied",
    )
    assert counted.done == {}


@pytest.mark.parametrize(
    ("reason", "expected"), [("", DENIED), ("Too much.", f"{DENIED} The user says: Too much.")]
)
async def test_the_model_is_sent_a_denied_call(store: Ledger, reason: str, expected: str) -> None:
    counted = CountedTools()
    model = ScriptedModel([called("pay"), words("pity")])
    async with worker(store, model, counted.tool("pay", "ask")) as runs:
        [call] = await asked(runs)
        run = await post(runs, denial(call, reason))
        refused = ToolResulted(call, expected, is_error=True, synthetic="denied")
        assert of_calls(await events(runs, run)) == [refused]
        assert (await contents(runs))[-1] == "pity"
        assert await results(runs) == [expected]
    shown = model.requests[1].messages[-1]
    assert isinstance(shown, ToolMessage)
    assert (shown.content, shown.is_error, shown.synthetic) == (expected, True, "denied")
    assert counted.done == {}


@pytest.mark.promise("P2", "P5")
async def test_several_are_answered_one_by_one_and_made_in_the_models_order(store: Ledger) -> None:
    counted = CountedTools()
    tools = [counted.tool(name, "ask") for name in ("pay", "send", "drop")]
    model = ScriptedModel([called("pay", "drop", "send"), words("so")])
    async with worker(store, model, *tools) as one, worker(store, model, *tools) as other:
        pay, drop, send = await asked(one)
        assert [each.id for each in (await park(other, approval(send))).owed] == [pay, drop]
        assert await call_ids(one) == [pay, drop]
        assert [each.id for each in (await park(one, denial(drop))).owed] == [pay]
        assert counted.done == {}
        run = await post(other, approval(pay))
        assert of_calls(await events(one, run)) == [
            ToolCallEnded(pay),
            ToolResulted(pay, "pay done"),
            ToolCallEnded(send),
            ToolResulted(send, "send done"),
        ]
    shown = [m.call_id for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert shown == [pay, drop, send]
    assert counted.done == {"pay": 1, "send": 1}


@pytest.mark.promise("P1", "P4")
async def test_calls_that_need_no_approval_are_made_at_once(store: Ledger) -> None:
    """The server's own are made at once; the rest is owed together, and goes on together."""
    counted = CountedTools()
    tools = [counted.tool("look"), counted.tool("pay", "ask")]
    model = ScriptedModel([called("pay", "look", "paint"), words("so")])
    async with worker(store, model, *tools) as runs:
        run = await post(runs, says(), tools=[PAINT])
        seen = await events(runs, run)
        pay, paint = await call_ids(runs)
        ends = [each.call_id for each in seen if isinstance(each, ToolCallEnded)]
        assert pay not in ends
        assert ends[-1] == paint
        assert counted.done == {"look": 1}
        assert [each.id for each in (await park(runs, approval(pay))).owed] == [paint]
        assert counted.done == {"look": 1}
        assert await reply(runs, result(paint)) == "so"
        assert await results(runs) == ["look done", "done", "pay done"]
    assert counted.done == {"look": 1, "pay": 1}


# ---------------------------------------------------------------- always
async def test_a_lasting_approval_is_for_one_conversation_and_never_above_deny(
    store: Ledger,
) -> None:
    counted = CountedTools()
    tools = [counted.tool("pay", "ask"), counted.tool("send", "ask")]
    model = ScriptedModel(
        [
            *[called("pay"), called("pay", "send"), words("one")],
            *[called("pay"), words("two"), called("pay"), words("three")],
            called("pay"),
        ]
    )
    async with worker(store, model, *tools) as runs:
        [call] = await asked(runs)
        await outcome(runs, await post(runs, approval(call, always=True)))
        [send] = await call_ids(runs)  # pay was made at once, send is asked about
        assert counted.done == {"pay": 2}
        assert await reply(runs, denial(send)) == "one"
        assert await reply(runs, says("again")) == "two"
        assert counted.done == {"pay": 3}
        async with worker(store, model, *tools, rules=[pattern_rule({"pay": "deny"})]) as strict:
            assert await reply(strict, says("once more")) == "three"
        assert counted.done == {"pay": 3}
        assert len(await asked(runs, OTHER)) == 1


async def test_an_approval_is_for_one_call(memory: Ledger) -> None:
    counted = CountedTools()
    model = ScriptedModel([called("pay"), called("pay")])
    async with worker(memory, model, counted.tool("pay", "ask")) as runs:
        [call] = await asked(runs)
        assert isinstance(await outcome(runs, await post(runs, approval(call))), HandedBack)
        assert await call_ids(runs) != [call]
    assert counted.done == {"pay": 1}


# ---------------------------------------------------------------- said twice, or by two
@pytest.mark.promise("P8", "P9")
async def test_an_equal_answer_joins_and_another_is_a_conflict(store: Ledger) -> None:
    counted = CountedTools()
    pay = counted.tool("pay", "ask")
    model = ScriptedModel([called("pay"), words("paid")])
    async with worker(store, model, pay) as one, worker(store, model, pay) as other:
        [call] = await asked(one)
        run = await post(one, approval(call))
        for runs in (other, one):
            assert await post(runs, approval(call)) == run
            with pytest.raises(ResultConflict):
                await post(runs, denial(call))
            assert await outcome(runs, run) == Completed()
        assert len(await record(one)) == 5
    assert counted.done == {"pay": 1}


@pytest.mark.promise("P9")
async def test_of_an_approval_and_a_denial_at_once_one_counts(store: Ledger) -> None:
    counted = CountedTools()
    pay = counted.tool("pay", "ask")
    model = ScriptedModel([called("pay"), words("so")])
    answers: list[RunRef] = []
    refused: list[PassbackError] = []
    async with worker(store, model, pay) as one, worker(store, model, pay) as other:
        [call] = await asked(one)

        async def answer(runs: RunService, given: ApprovalMessage) -> None:
            try:
                answers.append(await post(runs, given))
            except ResultConflict as error:
                refused.append(error)

        async with at_once() as tasks:
            tasks.start_soon(answer, one, approval(call))
            tasks.start_soon(answer, other, denial(call))
        assert (len(answers), len(refused)) == (1, 1)
        assert await outcome(one, answers[0]) == Completed()
        [given] = [each for each in await record(one) if isinstance(each, ApprovalMessage)]
        assert counted.done == ({"pay": 1} if given.approved else {})


@pytest.mark.promise("P4")
async def test_an_answer_that_comes_before_the_run_hands_back_waits_for_that(store: Ledger) -> None:
    gate = anyio.Event()

    @tool
    async def look() -> str:
        await gate.wait()
        return "seen"

    counted = CountedTools()
    model = ScriptedModel([called("pay", "look"), words("paid")])
    async with worker(store, model, look, counted.tool("pay", "ask")) as runs:
        run = await post(runs, says())
        begun = await until(runs, run, ToolCallStarted)
        await until(runs, run, ToolCallEnded)
        assert isinstance(begun.event, ToolCallStarted)
        answers: list[RunRef] = []

        async def answer(call: CallId) -> None:
            answers.append(await post(runs, approval(call)))

        async with at_once() as tasks:
            tasks.start_soon(answer, begun.event.call_id)
            await let_pass(runs)
            assert answers == []
            gate.set()
        assert await outcome(runs, answers[0]) == Completed()
    assert counted.done == {"pay": 1}


# ---------------------------------------------------------------- answers for good
def _pay(schema: JsonObject, description: str) -> Toolset:
    """A tool as a foreign server declares it."""

    class Foreign:
        async def specs(self) -> Sequence[ToolSpec]:
            return [ToolSpec("pay", description, schema)]

        def is_read_only(self, _name: str, /) -> bool:
            return False

        def is_repeatable(self, _name: str, /) -> bool:
            return False

        def permission(self, _call: ToolCall, /) -> Permission:
            return Permission("ask")

        async def call(self, _call: ToolCall, _context: ToolContext, /) -> ToolResult:
            return ToolResult("paid")

    return Foreign()


@pytest.mark.parametrize(
    ("changed", "description", "is_asked"),
    [
        ({"properties": {"to": {"type": "string"}}, "type": "object"}, "Pay.", False),
        ({"type": "object", "properties": {"to": {"type": "string"}}}, "Pay, and tell.", True),
        ({"type": "object", "properties": {"to": {}, "note": {}}}, "Pay.", True),
    ],
    ids=["the same in another order", "another description", "another schema"],
)
@pytest.mark.promise("P13")
async def test_a_lasting_approval_is_for_the_tool_as_it_was_declared(
    store: Ledger, changed: JsonObject, description: str, is_asked: bool
) -> None:
    first = _pay({"type": "object", "properties": {"to": {"type": "string"}}}, "Pay.")
    model = ScriptedModel([called("pay"), words("one"), called("pay"), words("two")])
    async with worker(store, model, toolsets=[first]) as runs:
        [call] = await asked(runs)
        assert await reply(runs, approval(call, always=True)) == "one"
    async with worker(store, model, toolsets=[_pay(changed, description)]) as runs:
        ending = await outcome(runs, await post(runs, says("again", "u2")))
        assert isinstance(ending, HandedBack) is is_asked
