"""Decisions about calls of server tools: made, refused or asked about, by rules and policies."""

import threading
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest
from pydantic import JsonValue
from tests.support.runs import (
    PAINT,
    approval,
    call_ids,
    events,
    outcome,
    post,
    record,
    reply,
    result,
    says,
    worker,
)
from tests.support.transcript_rules import faults_of
from tests.unit.engine.counted_tools import CountedTools, answers_in, one_of

from passback.core.deltas import Finish, ModelDelta, ToolCallChunk
from passback.core.errors import ConfigurationError, ToolNameClash
from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    RunFinished,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
)
from passback.core.messages import (
    AssistantMessage,
    DataPart,
    MessageContext,
    Owed,
    RunRef,
    ToolCall,
    ToolMessage,
    ToolSpec,
)
from passback.core.permissions import ALLOWED, Decision, Permission, Rule, pattern_rule
from passback.core.questions import ASK_USER
from passback.engine.agents import AgentSpec, ServedAgent
from passback.engine.judging import CallJudge
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.toolbox import ToolSources
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.schemas.arguments import find_objection
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


async def becomes(runs: RunService) -> str:
    """Return the fate of a run's only call: done, asked about, or the reason why not."""
    ending = await outcome(runs, await post(runs, says()))
    if isinstance(ending, HandedBack):
        [owed] = ending.owed
        return f"{owed.kind}: {owed.reason}"
    [answer] = await answers_in(runs)
    assert answer.is_error is (answer.synthetic == "denied")
    return str(answer.content)


# ---------------------------------------------------------------- decisions
async def no_opinion(_call: ToolCall, _run: RunRef) -> None:
    """Async, and of no help."""


def fails(_call: ToolCall, _run: RunRef) -> Decision:
    raise RuntimeError("secret")


async def fails_later(_call: ToolCall, _run: RunRef) -> Decision:
    raise RuntimeError("secret")


async def gives_up(_call: ToolCall, _run: RunRef) -> Decision:
    raise TimeoutError


def changes_it(call: ToolCall, _run: RunRef) -> Decision:
    # a rule is not bound to pass the type checkers
    call.arguments = '{"to": "me"}'  # type: ignore[misc]
    return "allow"


def stops_the_process(_call: ToolCall, _run: RunRef) -> Decision:
    raise SystemExit(1)


def always(answer: object) -> Rule:
    async def judge(_call: ToolCall, _run: RunRef) -> Decision:
        return cast("Decision", answer)

    return judge


ALLOW, DENY, ASK = (pattern_rule({"pay": each}) for each in ("allow", "deny", "ask"))
DONE, ASKED = "pay done", "approval: The agent wants to call pay."
DENIED = "Not executed: this tool may not be called"
UNKNOWN = "Not executed: whether it may be called could not be found out"
NOT_TODAY = Permission("deny", "Not today.")
CASES: dict[str, tuple[Permission | Decision, list[Rule], str]] = {
    "nobody says a word": (ALLOWED, [], DONE),
    "the tool asks": ("ask", [], ASKED),
    "the tool says why": (Permission("ask", "It is a lot."), [], "approval: It is a lot."),
    "the tool is not to be called": ("deny", [], DENIED),
    "the tool says why not": (NOT_TODAY, [], "Not executed: Not today."),
    "a rule allows what the tool asks for": ("ask", [ALLOW], DONE),
    "a rule asks": ("allow", [ASK], ASKED),
    "a rule denies": ("ask", [DENY], DENIED),
    "a rule says why": ("allow", [always(NOT_TODAY)], "Not executed: Not today."),
    "the first rule counts": ("deny", [ALLOW, DENY, ASK], DONE),
    "one without an opinion is passed over": ("allow", [no_opinion, ASK], ASKED),
    "a pattern that does not fit has no opinion": ("ask", [pattern_rule({"p": "allow"})], ASKED),
    "nobody has an opinion": ("ask", [no_opinion, always(None)], ASKED),
    "a rule fails": ("allow", [fails, ALLOW], UNKNOWN),
    "a rule fails later": ("allow", [fails_later], UNKNOWN),
    "a rule has a deadline of its own": ("allow", [gives_up, ALLOW], UNKNOWN),
    "a rule would change the call": ("allow", [changes_it], UNKNOWN),
    "a rule would end the process": ("allow", [stops_the_process], UNKNOWN),
    **{
        f"a rule says {word!r}": ("allow", [always(word)], UNKNOWN)
        for word in ("yes", "denied", "", True, False, 0)
    },
}


@pytest.mark.promise("P5")
@pytest.mark.parametrize(("permission", "rules", "expected"), CASES.values(), ids=CASES)
async def test_the_first_opinion_counts_and_what_cannot_be_judged_is_not_made(
    memory: Ledger, permission: Permission | Decision, rules: list[Rule], expected: str
) -> None:
    counted = CountedTools()
    async with worker(memory, one_of("pay"), counted.tool("pay", permission), rules=rules) as runs:
        assert await becomes(runs) == expected
    assert counted.done == ({"pay": 1} if expected == DONE else {})


async def test_a_rule_sees_the_call_and_its_run(memory: Ledger) -> None:
    seen: list[tuple[str, str, RunRef]] = []

    def judge(call: ToolCall, run: RunRef) -> None:
        seen.append((call.name, call.arguments, run))

    @tool
    def send(to: str) -> str:
        return f"sent to {to}"

    model = ScriptedModel([calls(("send", {"to": "bob"})), words("so")])
    async with worker(memory, model, send, rules=[judge]) as runs:
        run = await post(runs, says())
        assert await outcome(runs, run) == Completed()
    assert seen == [("send", '{"to": "bob"}', run)]


async def test_a_rule_that_fails_is_logged_and_its_words_go_nowhere(
    memory: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    async with worker(memory, one_of("pay"), CountedTools().tool("pay"), rules=[fails]) as runs:
        seen = await events(runs, await post(runs, says()))
        assert "secret" not in repr(seen)
        assert "secret" not in repr(await record(runs))
    assert "permission failed" in caplog.messages


async def never(_call: ToolCall, _run: RunRef) -> Decision:
    await anyio.sleep_forever()
    raise AssertionError


LATE = "Not executed: whether it may be called was not found out in time"


@pytest.mark.promise("P11")
@pytest.mark.parametrize("permission", [ALLOWED, "ask"])
async def test_a_rule_that_never_answers_is_a_denial_and_the_run_goes_on(
    store: Ledger, caplog: pytest.LogCaptureFixture, permission: Permission | Decision
) -> None:
    counted, model = CountedTools(), one_of("pay", "pay")
    quick_judge = CallJudge(find_objection, [no_opinion, never], seconds=0.01)
    async with worker(store, model, counted.tool("pay", permission), judge=quick_judge) as runs:
        run = await post(runs, says())
        assert await outcome(runs, run) == Completed()
        results = [(each.content, each.synthetic) for each in await answers_in(runs)]
        assert results == [(LATE, "denied")] * 2
    assert counted.done == {}
    assert caplog.messages == ["permission not judged within 0.01 s"] * 2
    assert {getattr(each, "run_id", None) for each in caplog.records} == {run.run_id}


async def test_a_hanging_rule_holds_up_nothing(memory: Ledger) -> None:
    done = threading.Event()

    def hangs(_call: ToolCall, _run: RunRef) -> Decision:
        assert threading.current_thread() is not threading.main_thread()
        done.wait(10)
        return "allow"

    counted, quick_judge = CountedTools(), CallJudge(find_objection, [hangs], seconds=0.01)
    async with worker(memory, one_of("pay"), counted.tool("pay"), judge=quick_judge) as runs:
        try:
            assert await becomes(runs) == LATE
        finally:
            done.set()
    assert counted.done == {}


async def test_a_call_that_was_allowed_is_not_made_when_its_rule_does_not_answer_any_more(
    store: Ledger,
) -> None:
    counted, model = CountedTools(), one_of("pay")
    pay = counted.tool("pay", "ask")
    async with worker(store, model, pay) as runs:
        await outcome(runs, await post(runs, says()))
        (call_id,) = await call_ids(runs)
    quick_judge = CallJudge(find_objection, [never], seconds=0.01)
    async with worker(store, model, pay, judge=quick_judge) as runs:
        assert await reply(runs, approval(call_id)) == "so"
        assert [each.content for each in await answers_in(runs)] == [LATE]
    assert counted.done == {}


async def test_a_run_can_be_cancelled_while_a_rule_thinks(memory: Ledger) -> None:
    counted, asked = CountedTools(), anyio.Event()

    async def thinks(call: ToolCall, run: RunRef) -> Decision:
        asked.set()
        return await never(call, run)

    async with worker(memory, one_of("pay"), counted.tool("pay"), rules=[thinks]) as runs:
        run = await post(runs, says())
        await asked.wait()
        await runs.cancel(run)
        assert await outcome(runs, run) == Cancelled()
        assert faults_of(await record(runs), running=False) == []
    assert counted.done == {}


@pytest.mark.parametrize("broken", ["maybe", ""])
def test_an_unknown_permission_of_a_tool_is_refused(broken: Any) -> None:
    with pytest.raises(ConfigurationError, match="one of allow, deny, ask"):
        tool(permission=broken)


# ---------------------------------------------------------------- events and results
@pytest.mark.promise("P1", "P4")
async def test_a_call_that_needs_approval_hands_the_run_back(store: Ledger) -> None:
    counted = CountedTools()
    pay = counted.tool("pay", Permission("ask", "It is a lot."))
    async with worker(store, one_of("pay"), pay) as runs:
        run = await post(runs, says())
        seen = await events(runs, run)
        (call_id,) = await call_ids(runs)
        owed = (Owed(call_id, "pay", "{}", "approval", "It is a lot."),)
        assert (await runs.status(run.key)).owed == owed
    assert [
        type(event) for event in seen if isinstance(event, ToolCallStarted | ToolCallEnded)
    ] == [ToolCallStarted]
    assert seen[-1] == RunFinished(HandedBack(owed))
    assert counted.done == {}


@pytest.mark.promise("P4", "P5")
async def test_a_denied_call_has_a_result_and_the_model_goes_on(store: Ledger) -> None:
    model = one_of("pay", "look")
    counted = CountedTools()
    tools = [counted.tool("pay", NOT_TODAY), counted.tool("look")]
    async with worker(store, model, *tools) as runs:
        seen = await events(runs, await post(runs, says()))
        paid, looked = (message for message in model.requests[1].messages[2:])
        assert [event for event in seen if isinstance(event, ToolCallEnded | ToolResulted)] == [
            ToolResulted(
                _call_of(paid), "Not executed: Not today.", is_error=True, synthetic="denied"
            ),
            ToolCallEnded(_call_of(looked)),
            ToolResulted(_call_of(looked), "look done"),
        ]
        assert seen[-1] == RunFinished(Completed())
    assert counted.done == {"look": 1}


def _call_of(message: object) -> Any:
    assert isinstance(message, ToolMessage)
    return message.call_id


async def test_a_model_that_is_denied_again_and_again_ends_with_its_turns(memory: Ledger) -> None:
    model = ScriptedModel([calls(("pay", {}))] * 4)
    async with worker(memory, model, CountedTools().tool("pay", "deny")) as runs:
        assert await outcome(runs, await post(runs, says())) == Completed("max_turns")


async def test_nobody_is_asked_about_a_call_that_could_not_be_made(memory: Ledger) -> None:
    @tool(permission="ask")
    def send(to: str) -> str:
        return f"sent to {to}"

    model = ScriptedModel([calls(("send", {"whom": "bob"})), words("so")])
    async with worker(memory, model, send) as runs:
        assert await reply(runs, says()) == "so"
        assert await call_ids(runs) == []
    content = str(model.requests[1].messages[-1].content)
    assert content.startswith("Not executed: the arguments do not fit the tool's schema: ")


async def test_nobody_is_asked_about_a_call_that_reads_in_two_ways(memory: Ledger) -> None:
    counted = CountedTools()
    twice: list[ModelDelta] = [
        ToolCallChunk(0, name="pay", arguments='{"to":"alice","to":"mallory"}'),
        Finish("tool_calls"),
    ]
    model = ScriptedModel([twice, words("so")])
    async with worker(memory, model, counted.tool("pay", "ask")) as runs:
        assert await reply(runs, says()) == "so"
        assert await call_ids(runs) == []
    content = model.requests[1].messages[-1].content
    assert content == "Not executed: the arguments have the key 'to' twice in one object."


async def test_what_the_rules_deny_by_now_is_not_made_though_it_was_allowed(store: Ledger) -> None:
    counted: list[str] = []

    @tool(permission="ask")
    def send() -> str:
        counted.append("sent")
        return "sent"

    model = ScriptedModel([calls(("send", {})), words("so")])
    async with worker(store, model, send) as runs:
        await outcome(runs, await post(runs, says()))
        (call_id,) = await call_ids(runs)
    async with worker(store, model, send, rules=[pattern_rule({"send": "deny"})]) as strict:
        run = await post(strict, approval(call_id))
        resulted = [each for each in await events(strict, run) if isinstance(each, ToolResulted)]
        denial = "Not executed: this tool may not be called"
        assert resulted == [ToolResulted(call_id, denial, is_error=True, synthetic="denied")]
        [answer] = [m for m in await record(strict) if isinstance(m, ToolMessage)]
        assert (answer.content, answer.synthetic) == (denial, "denied")
    assert counted == []


# ---------------------------------------------------------------- calls that are asked about
FORM: dict[str, JsonValue] = {
    "questions": [{"question": "?", "options": [{"label": "a"}], "freeText": False}]
}


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "offered by the agent"])
async def test_a_call_of_ask_user_is_owed_as_a_question(store: Ledger, declared: bool) -> None:
    model = ScriptedModel([calls(("ask_user", FORM)), words("so")])
    offers = [] if declared else [ASK_USER]
    async with worker(store, model, offers=offers) as runs:
        run = await post(runs, says(), tools=[ASK_USER] if declared else None)
        ending = await outcome(runs, run)
        assert isinstance(ending, HandedBack)
        assert [(each.name, each.kind) for each in ending.owed] == [("ask_user", "question")]
        (call_id,) = await call_ids(runs)
        assert ToolCallEnded(call_id) in await events(runs, run)
        answer = (DataPart({"answers": [{"selected": ["a"]}]}),)
        assert await reply(runs, result(call_id, answer)) == "so"
    assert ASK_USER in model.requests[0].tools


async def test_a_clients_own_ask_user_is_a_tool_like_any_other(memory: Ledger) -> None:
    own = PAINT.__class__("ask_user", "Mine.", PAINT.parameters)
    model = ScriptedModel([calls(("ask_user", {"any": 1})), words("so")])
    async with worker(memory, model, offers=[ASK_USER]) as runs:
        ending = await outcome(runs, await post(runs, says(), tools=[own]))
        assert isinstance(ending, HandedBack)
        assert [each.kind for each in ending.owed] == ["tool_result"]
        assert await reply(runs, result(ending.owed[0].id, "whatever")) == "so"
    assert model.requests[0].tools == (own,)


@pytest.mark.parametrize(
    ("answered", "offers", "declared", "names"),
    [
        (True, [], None, ["ask_user"]),
        (True, [ASK_USER], [PAINT, ASK_USER], ["ask_user", "paint"]),
        (False, [ASK_USER], None, []),
        (False, [], [PAINT, ASK_USER], ["paint"]),
        (None, [], None, []),
        (None, [ASK_USER], None, ["ask_user"]),
    ],
)
async def test_questions_are_offered_while_somebody_is_there_to_answer(
    memory: Ledger,
    answered: bool | None,
    offers: list[ToolSpec],
    declared: list[ToolSpec] | None,
    names: list[str],
) -> None:
    model = ScriptedModel([words("one"), words("two")])
    said = replace(says(), context=MessageContext(answered=answered))
    async with worker(memory, model, offers=offers) as runs:
        await outcome(runs, await post(runs, said, tools=declared))
        await outcome(runs, await post(runs, says(message_id="v")))
    one, two = ([spec.name for spec in request.tools] for request in model.requests)
    assert sorted(one) == names
    assert sorted(two) == sorted({each.name for each in (*offers, *(declared or []))})


async def test_a_clients_own_ask_user_is_no_question_and_stays_when_nobody_looks_on(
    memory: Ledger,
) -> None:
    own = PAINT.__class__("ask_user", "Mine.", PAINT.parameters)
    model = ScriptedModel([words("so")])
    said = replace(says(), context=MessageContext(answered=False))
    async with worker(memory, model, offers=[ASK_USER]) as runs:
        await outcome(runs, await post(runs, said, tools=[own]))
    assert model.requests[0].tools == (own,)


async def test_sub_agents_ask_only_while_somebody_is_there_to_answer(memory: Ledger) -> None:
    asker = ScriptedModel([words("done"), words("done")])
    model = ScriptedModel([*[calls(("asker", {"task": "go"})), words("so")] * 2])
    actor = ServedAgent(AgentSpec(asker, "be brief", 4), ToolSources((), [ASK_USER]), "asker")
    tools = AgentTools([AgentTool.of(actor, "Asks.")])
    async with worker(memory, model, toolsets=[tools]) as runs:
        for answered in (False, True):
            said = replace(
                says(message_id=f"u{answered}"), context=MessageContext(answered=answered)
            )
            await outcome(runs, await post(runs, said))
    assert [[spec.name for spec in each.tools] for each in asker.requests] == [[], ["ask_user"]]


@pytest.mark.promise("P4")
async def test_questions_that_do_not_fit_the_schema_are_an_error_for_the_model(
    memory: Ledger,
) -> None:
    bad: dict[str, JsonValue] = {"questions": [{"question": "?", "options": ["a"]}]}
    model = ScriptedModel([calls(("ask_user", bad)), words("sorry")])
    async with worker(memory, model, offers=[ASK_USER]) as runs:
        assert await reply(runs, says()) == "sorry"
        [answer] = await answers_in(runs)
    assert answer.synthetic == "invalid"
    assert "at $.questions[0].options[0]" in str(answer.content)


UNANSWERABLE: dict[str, tuple[dict[str, JsonValue], str]] = {
    "two options of one name": (
        {"questions": [{"question": "?", "options": [{"label": "a"}, {"label": "a"}]}]},
        "at $.questions[0].options[1].label: another option of this question has the same label",
    ),
    "nothing to choose, and no words": (
        {"questions": [{"question": "?"}, {"question": "?", "freeText": False}]},
        (
            "at $.questions[1].freeText: it is false, and there are no options: "
            "nothing could be answered"
        ),
    ),
}


@pytest.mark.promise("P4")
@pytest.mark.parametrize(("form", "expected"), UNANSWERABLE.values(), ids=UNANSWERABLE)
async def test_questions_that_nobody_could_answer_go_back_to_the_model(
    memory: Ledger, form: dict[str, JsonValue], expected: str
) -> None:
    model = ScriptedModel([calls(("ask_user", form)), calls(("ask_user", FORM)), words("so")])
    async with worker(memory, model, offers=[ASK_USER]) as runs:
        ending = await outcome(runs, run := await post(runs, says()))
        assert isinstance(ending, HandedBack)
        assert [each.kind for each in ending.owed] == ["question"]
        [answer] = await answers_in(runs)
        content = f"Not executed: nobody could answer these questions: {expected}"
        assert (answer.content, answer.is_error, answer.synthetic) == (content, True, "invalid")
        assert ToolResulted(
            answer.call_id, content, is_error=True, synthetic="invalid"
        ) in await events(runs, run)


async def test_a_servers_own_ask_user_wins(memory: Ledger) -> None:
    counted = CountedTools()
    async with worker(
        memory, one_of("ask_user"), counted.tool("ask_user"), offers=[ASK_USER]
    ) as runs:
        assert await reply(runs, says()) == "so"
        [turn] = [m for m in await record(runs) if isinstance(m, AssistantMessage) and m.tool_calls]
    assert counted.done == {"ask_user": 1}
    assert turn.tool_calls[0].asks is None


@pytest.mark.promise("P14")
async def test_a_clients_tool_cannot_look_like_one_that_the_agent_offers(memory: Ledger) -> None:
    model = ScriptedModel([words("so")])
    loud = replace(ASK_USER, name="ASK_USER")
    async with worker(memory, model, offers=[ASK_USER]) as runs:
        with pytest.raises(ToolNameClash):
            await post(runs, says(), tools=[loud])
        assert await reply(runs, says()) == "so"
