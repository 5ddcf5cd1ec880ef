"""The state of a conversation beside its messages, and what a moved boundary takes along."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import JsonValue

from passback.context.prompt import PromptLayers
from passback.core.budgets import Spent
from passback.core.changes import dump_message, dump_state, load_message, load_state
from passback.core.deltas import ModelRequest, default_effort
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationId,
    ConversationKey,
    Generation,
    Message,
    MessageContext,
    MessageId,
    OwnerId,
    PlanEntry,
    RunId,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.permissions import LastingPermission
from passback.core.posts import StartRun, content_fingerprint, message_fingerprint
from passback.core.state import (
    MAX_REFUSALS,
    ConversationState,
    Refusal,
    State,
    TitleCall,
    owner_view,
    total_usage,
)
from passback.core.transcript import paired_messages
from passback.models.anthropic.encoding import encode_message
from passback.models.openai_chat.encoding import encode_request

PLAN = (PlanEntry("look"),)


def said(usage: Usage | None = None) -> AssistantMessage:
    return AssistantMessage(MessageId("a"), "text", usage=usage)


def approval(tool: str, *, approved: bool = True, always: bool = True) -> ApprovalMessage:
    call = CallId("c")
    return ApprovalMessage(MessageId("p"), call, approved, always=always, tool=tool, digest="1")


USER = UserMessage(MessageId("u"), "hi")
MESSAGES: list[Message] = [USER, said(Usage(1, 2)), USER, said(), said(Usage(10, 20, 30, 40))]


def test_usage_is_that_of_the_messages_that_tell_it() -> None:
    assert total_usage(MESSAGES) == Usage(11, 22, 30, 40)
    assert total_usage([]) == Usage()


def test_usage_is_also_that_of_sub_agents() -> None:
    inner = ChildMessage(CallId("b"), said(Usage(1)))
    messages: list[Message] = [
        ChildMessage(CallId("a"), inner),
        ChildMessage(CallId("a"), USER),
        said(Usage(10)),
    ]
    assert total_usage(messages) == Usage(11)


def test_a_boundary_takes_along_who_was_asked_last_before_it() -> None:
    second, first = replace(USER, agent="second"), replace(USER, agent="")
    moved = State().with_history_start(2, [second, said(), first])
    assert moved.agent == "second"
    assert moved.with_history_start(3, [said()]).agent == "second"
    assert moved.with_history_start(3, [first]).agent == ""


def test_a_boundary_takes_along_which_model_was_chosen_for_that_answer_and_who_looks_on() -> None:
    chosen = replace(USER, context=MessageContext(model="x:a", answered=False))
    moved = State().with_history_start(2, [chosen, said(), USER])
    assert moved.addressed_agent == ("", "x:a", False)
    assert moved.with_history_start(3, [said()]).addressed_agent == ("", "x:a", False)
    assert moved.with_history_start(3, [USER]).addressed_agent == ("", "", None)


def test_what_is_taken_back_was_not_used_but_stays_paid() -> None:
    known = State(PLAN, Usage(5), cost=0.25, seconds=3, history_start=7)
    added = replace(known, usage=known.usage_with(MESSAGES))
    assert added == replace(known, usage=Usage(16, 22, 30, 40))
    assert added.after_rollback(MESSAGES, None) == known


# ---------------------------------------------------------------- lasting answers
def lasting(tool: str, *, approved: bool = True) -> LastingPermission:
    return LastingPermission(tool, "1", approved)


def test_lasting_answers_in_messages_are_gathered_with_a_boundary() -> None:
    messages: list[Message] = [approval("rm"), approval("once", always=False), USER, approval("x")]
    known = State(PLAN, history_start=10)
    gathered = (lasting("rm"), lasting("x"))
    assert known.permissions(messages) == gathered
    moved = known.with_history_start(13, messages)
    assert moved == State(PLAN, history_start=13, lasting=gathered)
    assert moved.with_history_start(14, messages[3:]) == replace(moved, history_start=14)


def test_a_lasting_answer_changes_what_was_known_and_is_never_gathered_again() -> None:
    messages: list[Message] = [approval("rm"), approval("cat")]
    no = approval("rm", approved=False)
    denied = State(PLAN).with_answers([no], messages)
    assert denied == State(PLAN, lasting=(lasting("cat"), lasting("rm", approved=False)))
    assert denied.permissions([*messages, no, approval("later")]) == denied.lasting
    taken_back = replace(denied, lasting=())
    assert taken_back.permissions(messages) == ()
    assert load_state(dump_state(taken_back)) == taken_back


@pytest.mark.parametrize("approvals", [(True, False), (False, True)])
def test_of_lasting_answers_given_together_denial_counts(approvals: Sequence[bool]) -> None:
    given = [approval("rm", approved=each) for each in approvals]
    assert State().with_answers(given, []).lasting == (lasting("rm", approved=False),)


def refused(number: int, text: str = "No.") -> ToolMessage:
    call_id = CallId(f"c{number}")
    return ToolMessage(MessageId("t"), call_id, text, is_error=True, synthetic="denied")


def asking(*numbers: int) -> AssistantMessage:
    calls = tuple(ToolCall(CallId(f"c{n}"), f"tool_{n}", "{}") for n in numbers)
    return AssistantMessage(MessageId("a"), "", calls)


def test_refusals_are_kept_with_their_tools_the_newest_only() -> None:
    nested = ChildMessage(CallId("a"), refused(2, "x" * 2000))
    messages: list[Message] = [asking(1, 4), ChildMessage(CallId("a"), asking(2))]
    closed = ToolMessage(MessageId("t"), CallId("c4"), "over", True, "interrupted")
    append: list[Message] = [refused(1), nested, asking(3), refused(3), closed, refused(9)]
    state = State(PLAN).with_answers(append, messages)
    first = (
        Refusal(CallId("c1"), "tool_1", "No."),
        Refusal(CallId("c2"), "tool_2", "x" * 1000),
        Refusal(CallId("c3"), "tool_3", "No."),
        Refusal(CallId("c9"), "", "No."),
    )
    assert state == State(PLAN, refusals=first)
    assert state.with_answers([closed, USER], messages) is state
    many = state.with_answers([refused(n) for n in range(MAX_REFUSALS - 1)], [])
    assert [each.call_id for each in many.refusals][:2] == ["c9", "c0"]
    assert len(many.refusals) == MAX_REFUSALS


def test_a_refusal_goes_with_the_run_that_is_taken_back() -> None:
    state = State().with_answers([asking(1, 2), refused(1), refused(2)], [])
    kept = state.after_rollback([asking(2), ChildMessage(CallId("a"), refused(2))], None)
    assert kept.refusals == state.refusals[:1]


def test_its_owner_sees_of_a_state_what_concerns_him() -> None:
    state = State(PLAN, Usage(1), cost=0.5, seconds=2, lasting=(lasting("rm"),))
    state = state.with_answers([asking(1), refused(1)], [])
    seen = ConversationState(
        PLAN, Usage(1), 0.5, 2, state.refusals, (lasting("rm"),), {"rows": [1]}
    )
    assert owner_view(state, {"rows": [1]}) == seen
    assert owner_view(State()) == ConversationState()


def test_its_owner_sees_what_the_title_has_used_with_the_rest() -> None:
    call = TitleCall(Usage(10, 2), Spent(12, 0.5, 0.25))
    state = State(usage=Usage(1), cost=0.5, seconds=2, tokens=9, title_call=call)
    assert owner_view(state) == ConversationState(usage=Usage(11, 2), cost=0.75, seconds=2.5)
    # it is stored by itself
    assert load_state(dump_state(state)) == replace(state, title_call=None)


# ---------------------------------------------------------------- the plan
ONE, TWO = RunId("r1"), RunId("r2")
NEXT = (PlanEntry("then"),)


def test_the_plan_of_a_run_that_is_taken_back_is_the_one_before_it() -> None:
    known = State(PLAN, Usage(1))
    replanned = known.with_plan(NEXT, ONE).with_plan((), ONE)
    assert replanned.plan == ()
    assert replanned.after_rollback([], ONE) == known
    # a later run's plan, too, comes back only as far as that run is taken back
    assert replanned.with_plan(NEXT, TWO).after_rollback([], TWO).plan == ()


def test_a_run_without_a_plan_of_its_own_takes_none_back() -> None:
    replanned = State(PLAN).with_plan(NEXT, ONE)
    assert replanned.after_rollback([], TWO) == State(NEXT)
    assert replanned.after_own_end() == State(NEXT)
    assert replanned.after_own_end().after_rollback([], ONE) == State(NEXT)
    assert State(PLAN).after_own_end() == State(PLAN)


# ---------------------------------------------------------------- generation
GENERATION = Generation(1.5, 0.5, 7, ("END",), 1, 0.25, -0.25, "high")
ASKED = UserMessage(
    MessageId("u"), "hi", context=MessageContext(intent="rest", generation=GENERATION)
)
PLAIN = UserMessage(MessageId("p"), "ho")
ANSWER = AssistantMessage(MessageId("a"), "yes")
CORRECTED = SystemMessage(MessageId("s"), "no JSON", synthetic="invalid")
KEY = ConversationKey(OwnerId("o"), ConversationId("c"))


def _request(*messages: Message, **options: JsonValue) -> ModelRequest:
    return ModelRequest(
        paired_messages([PromptLayers().shown(each) for each in messages]), options=options
    )


def _openai(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encode_request("m", "openai:m", request))
    return body


def _anthropic(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encode_message("m", "anthropic:m", request).body)
    return body


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([ASKED], GENERATION),
        ([ASKED, ANSWER, PLAIN], Generation()),
        ([ASKED, ANSWER], GENERATION),
        ([PLAIN, ANSWER, ASKED], GENERATION),
        ([ASKED, ANSWER, CORRECTED], GENERATION),
        ([PLAIN, ANSWER, CORRECTED], Generation()),
        ([CORRECTED], Generation()),
        ([], Generation()),
        ([replace(PLAIN, context=MessageContext(intent="rest"))], Generation()),
    ],
)
def test_the_options_of_the_last_user_message_count(
    messages: list[Message], expected: Generation
) -> None:
    assert _request(*messages).generation == expected


def test_the_generation_options_are_not_in_the_prompt() -> None:
    shown = PromptLayers().shown(ASKED)
    assert isinstance(shown, UserMessage)
    assert shown.context == MessageContext(generation=GENERATION)
    assert shown.content == "<user_context>\n<intent>rest</intent>\n</user_context>\n\nhi"


def test_chat_completions_get_the_generation_options_by_their_names() -> None:
    asked = _openai(_request(ASKED, temperature=0.0, top_k=3))
    assert {key: asked[key] for key in asked.keys() - {"messages", "stream_options"}} == {
        "model": "m",
        "stream": True,
        "top_k": 3,
        "temperature": 1.5,
        "top_p": 0.5,
        "max_tokens": 7,
        "stop": ["END"],
        "seed": 1,
        "frequency_penalty": 0.25,
        "presence_penalty": -0.25,
    }
    assert "temperature" not in _openai(_request(PLAIN))


def test_where_the_options_limit_tokens_by_the_newer_name_so_does_the_post() -> None:
    asked = _openai(_request(ASKED, max_completion_tokens=100))
    assert (asked["max_completion_tokens"], "max_tokens" in asked) == (7, False)
    kept = _openai(_request(PLAIN, max_completion_tokens=100))
    assert kept["max_completion_tokens"] == 100


def test_the_messages_api_gets_the_generation_options_that_it_knows() -> None:
    asked = _anthropic(_request(ASKED))
    assert {key: asked[key] for key in asked.keys() - {"messages"}} == {
        "model": "m",
        "stream": True,
        "max_tokens": 7,
        "temperature": 1.0,
        "top_p": 0.5,
        "stop_sequences": ["END"],
    }
    assert "stop_sequences" not in _anthropic(_request(PLAIN))


def test_the_generation_options_are_kept_in_the_record() -> None:
    assert load_message(dump_message(ASKED)) == ASKED


def test_posts_with_other_generation_options_are_other_posts() -> None:
    hot, plain = (
        replace(ASKED, context=MessageContext(generation=each)) for each in (GENERATION, None)
    )
    assert StartRun(KEY, (hot,)).fingerprint != StartRun(KEY, (plain,)).fingerprint
    assert content_fingerprint("x", False, hot.context) != content_fingerprint(
        "x", False, plain.context
    )


# ---------------------------------------------------------------- effort
@pytest.mark.parametrize(
    ("options", "effort"),
    [
        ({}, None),
        ({"reasoning_effort": "medium"}, "medium"),
        ({"reasoning_effort": "xhigh", "temperature": 1}, "xhigh"),
        ({"reasoning_effort": None}, None),
        ({"reasoning_effort": ""}, None),
        ({"reasoning_effort": 5}, None),
        ({"output_config": {"effort": "low"}}, "low"),
        ({"output_config": {"effort": None}}, None),
        ({"output_config": {"format": None}}, None),
        ({"output_config": "low"}, None),
        ({"reasoning_effort": "low", "output_config": {"effort": "high"}}, "low"),
        ({"reasoning_effort": None, "output_config": {"effort": "high"}}, "high"),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, "low"),
        ({"reasoning": {"summary": "auto"}}, None),
        ({"reasoning": None, "output_config": {"effort": "high"}}, "high"),
    ],
)
def test_the_effort_is_named_by_the_options_of_any_service(
    options: dict[str, JsonValue], effort: str | None
) -> None:
    assert default_effort(options) == effort


def test_chat_completions_get_the_effort_where_the_options_name_one() -> None:
    assert _openai(_request(ASKED, reasoning_effort="low"))["reasoning_effort"] == "high"
    assert _openai(_request(PLAIN, reasoning_effort="low"))["reasoning_effort"] == "low"
    assert _openai(_request(ASKED, reasoning_effort=None))["reasoning_effort"] is None
    nested: dict[str, JsonValue] = {"effort": "low", "exclude": True}
    asked = _openai(_request(ASKED, reasoning=nested))  # as gateways have it
    assert asked["reasoning"] == {"effort": "high", "exclude": True}
    assert _openai(_request(PLAIN, reasoning=nested))["reasoning"] == nested
    asked = _openai(_request(ASKED, output_config={"effort": "low"}))
    assert (asked.keys() & {"effort", "reasoning_effort"}, asked["output_config"]) == (
        set(),
        {"effort": "low"},
    )


def test_the_messages_api_gets_the_effort_where_the_options_name_one() -> None:
    output: dict[str, JsonValue] = {"format": {"type": "json_schema"}, "effort": "low"}
    assert _anthropic(_request(ASKED, output_config=output))["output_config"] == {
        **output,
        "effort": "high",
    }
    assert _anthropic(_request(PLAIN, output_config=output))["output_config"] == output
    assert output["effort"] == "low"  # the agent's own options stay
    nothing: list[dict[str, JsonValue]] = [{"effort": None}, {}]
    for none in nothing:
        assert "output_config" not in _anthropic(_request(ASKED, output_config=none))
    asked = _anthropic(_request(ASKED, reasoning_effort="low"))
    assert (asked["reasoning_effort"], asked.keys() & {"effort", "output_config"}) == ("low", set())


def test_another_effort_is_another_post() -> None:
    contexts = [
        None,
        *(MessageContext(generation=Generation(effort=each)) for each in ("low", "high")),
    ]
    messages = [replace(PLAIN, context=context) for context in contexts]
    assert len({StartRun(KEY, (message,)).fingerprint for message in messages}) == 3
    assert len({message_fingerprint(message) for message in messages}) == 3
    loaded = [load_message(dump_message(message)) for message in messages]
    assert loaded == messages
