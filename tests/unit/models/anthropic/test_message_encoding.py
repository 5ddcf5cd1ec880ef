"""Encoding of requests for Anthropic's service; any history keeps its rules."""

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.anthropic_rules import breaches_of
from tests.unit.models.anthropic.asking import (
    CACHED,
    HI,
    ID,
    NOTHING,
    OBJECT,
    PARTS,
    body,
    call,
    encoded,
    result,
    sent,
    text,
    tool_use,
)

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    ANY_TOOL,
    AssistantMessage,
    CallId,
    Content,
    Generation,
    MessageContext,
    ModelMessage,
    Reasoning,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolSpec,
    UserMessage,
)
from passback.core.transcript import paired_messages
from passback.models.anthropic.encoding import MAX_TOKENS, Block, Thought, encode_message


# ---------------------------------------------------------------- the request
def test_a_request_asks_for_a_stream_and_marks_the_cacheable_parts() -> None:
    tools = [ToolSpec("now", "The time.", OBJECT), ToolSpec("plain", "", {})]
    assert body(HI, system="Be kind.", tools=tools) == {
        "max_tokens": MAX_TOKENS,
        "model": "claude-test",
        "messages": [{"role": "user", "content": [text("hi") | CACHED]}],
        "stream": True,
        "tools": [
            {"name": "now", "description": "The time.", "input_schema": OBJECT},
            {"name": "plain", "input_schema": {"type": "object"}} | CACHED,
        ],
        "system": [text("Be kind.") | CACHED],
    }


def test_the_last_two_turns_of_the_user_are_marked_for_the_cache() -> None:
    answer = AssistantMessage(ID, "a")
    turns = body(HI, answer, HI, HI, answer, HI)["messages"]
    marked = [["cache_control" in block for block in turn["content"]] for turn in turns]
    assert marked == [[False], [False], [False, True], [False], [True]]


@pytest.mark.parametrize(
    ("name", "choice"), [(ANY_TOOL, {"type": "any"}), ("now", {"type": "tool", "name": "now"})]
)
def test_a_model_that_has_to_call_a_tool_does_not_think(name: str, choice: Block) -> None:
    context = MessageContext(generation=Generation(must_call=name))
    thinks: Block = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    fields: dict[str, Any] = {"tools": [ToolSpec("now", "", OBJECT)], "options": thinks}
    forced = body(UserMessage(ID, "hi", context=context), **fields)
    assert (forced["tool_choice"], "thinking" in forced) == (choice, False)
    free = body(HI, **fields)
    assert ("tool_choice" in free, "thinking" in free) == (False, True)


def test_options_are_sent_and_may_limit_the_answer() -> None:
    options = {"temperature": 0, "stream": False, "model": "x", "max_tokens": 5, "system": "x"}
    sent_body = body(HI, options=options, system="mine")
    assert (sent_body["temperature"], sent_body["max_tokens"]) == (0, 5)
    assert (sent_body["stream"], sent_body["model"]) == (True, "claude-test")
    assert sent_body["system"] == [text("mine") | CACHED]


def test_the_prompt_of_one_run_comes_behind_the_cached_prompt() -> None:
    system = body(HI, system="Be kind.\n\nIt is Monday.", static=len("Be kind."))["system"]
    assert system == [text("Be kind.") | CACHED, text("\n\nIt is Monday.")]
    assert body(HI, system="It is Monday.", static=0)["system"] == [text("It is Monday.") | CACHED]


def test_messages_of_the_system_join_the_system() -> None:
    rules = SystemMessage(ID, (TextPart("Be"), TextPart("kind.")))
    assert body(rules, HI, SystemMessage(ID, " "), system="You are Bob.")["system"] == [
        text("You are Bob.\n\nBe\nkind.") | CACHED
    ]


def test_keywords_that_the_service_refuses_at_the_top_of_a_schema_are_left_out() -> None:
    schema: Block = {**OBJECT, "anyOf": [{"required": ["a"]}], "oneOf": []}
    [tool] = body(HI, tools=[ToolSpec("f", " ", schema)])["tools"]
    assert tool == {"name": "f", "input_schema": OBJECT} | CACHED


def test_lone_surrogates_are_replaced() -> None:
    assert sent(UserMessage(ID, "a\ud800b😀")) == [("user", [text("a\ufffdb😀")])]


# ---------------------------------------------------------------- turns
def test_a_turn_with_calls_and_their_results() -> None:
    messages = sent(
        UserMessage(ID, "add"),
        AssistantMessage(ID, "Let me see.", (call("c1", "p1"), call("c2", "p2"))),
        result("c1"),
        result("c2", "no", is_error=True),
        UserMessage(ID, "and?"),
        UserMessage(ID, "Well?"),
        AssistantMessage(ID, "It is 2."),
        HI,
    )
    assert messages == [
        ("user", [text("add")]),
        ("assistant", [text("Let me see."), tool_use("p1"), tool_use("p2")]),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "p1", "content": "2"},
                {"type": "tool_result", "tool_use_id": "p2", "is_error": True, "content": "no"},
                text("and?"),
                text("Well?"),
            ],
        ),
        ("assistant", [text("It is 2.")]),
        ("user", [text("hi")]),
    ]


def test_blank_messages_are_left_out_or_get_a_placeholder() -> None:
    blank = AssistantMessage(ID, " \n")
    answer = AssistantMessage(ID, "a")
    assert sent() == [("user", [NOTHING])]
    assert sent(UserMessage(ID, "")) == [("user", [NOTHING])]
    assert sent(HI, blank, HI) == [("user", [text("hi"), text("hi")])]
    assert sent(answer, answer) == [
        ("user", [NOTHING]),
        ("assistant", [text("a")]),
        ("user", [NOTHING]),
        ("assistant", [text("a")]),
        ("user", [NOTHING]),
    ]


@pytest.mark.parametrize(
    ("provider_id", "wire_id"),
    [("toolu_1", "toolu_1"), ("functions.get:0", "c1"), ("a b", "c1"), ("", "c1"), (None, "c1")],
)
def test_a_call_keeps_a_valid_id_of_its_provider(provider_id: str | None, wire_id: str) -> None:
    turns = sent(HI, AssistantMessage(ID, "", (call("c1", provider_id),)), result("c1"))
    assert turns[1] == ("assistant", [tool_use(wire_id)])
    assert turns[2][1][0]["tool_use_id"] == wire_id


@pytest.mark.parametrize("arguments", ["[1]", "{", '"x"', '{"a": "\\ud800"}'])
def test_arguments_that_are_no_object_are_an_empty_one(arguments: str) -> None:
    made = call("c1", arguments=arguments)
    turns = sent(HI, AssistantMessage(ID, "", (made,)), result("c1"))
    assert turns[1][1][0]["input"] == {}


# ---------------------------------------------------------------- thoughts
def thought(signature: str, prefix: str, text: int = 0, calls: int = 0) -> Reasoning:
    block: Block = {"type": "thinking", "thinking": f"of {signature}", "signature": signature}
    return Reasoning("hm", "anthropic", Thought(block, text, calls, prefix).dump())


def thoughts_in(turns: list[tuple[str, list[Any]]]) -> list[str]:
    return [block["signature"] for _, blocks in turns for block in blocks if "signature" in block]


def test_thoughts_are_sent_back_unchanged_in_their_places() -> None:
    prefix = encoded(HI).prefix
    redacted: Block = {"type": "redacted_thinking", "data": "xyz"}
    thoughts = (
        thought("s1", prefix),
        thought("s2", prefix, text=3),
        Reasoning("", "anthropic", Thought(redacted, 3, 1, prefix).dump()),
    )
    answer = AssistantMessage(ID, "one two", (call("c1"), call("c2")), thoughts)
    [_, (_, blocks), _] = sent(HI, answer, result("c1"), result("c2"))
    assert blocks == [
        {"type": "thinking", "thinking": "of s1", "signature": "s1"},
        text("one"),
        {"type": "thinking", "thinking": "of s2", "signature": "s2"},
        tool_use("c1"),
        redacted,
        text(" two"),
        tool_use("c2"),
    ]


def test_thoughts_of_other_services_or_without_a_signature_are_not_sent() -> None:
    prefix = encoded(HI).prefix
    thoughts = (
        Reasoning("x", "openai:gpt", "reasoning_content"),
        Reasoning("y", "anthropic@127.0.0.1", thought("s1", prefix).opaque),
        Reasoning("z", "anthropic"),
    )
    assert thoughts_in(sent(HI, AssistantMessage(ID, "a", (), thoughts), HI)) == []


def test_an_answer_does_not_end_in_a_thought() -> None:
    prefix = encoded(HI).prefix
    at_the_end = AssistantMessage(ID, "a", (), (thought("s1", prefix, text=1),))
    alone = AssistantMessage(ID, " ", (), (thought("s1", prefix),))
    assert sent(HI, at_the_end, HI)[1] == ("assistant", [text("a")])
    assert sent(HI, alone, HI) == [("user", [text("hi"), text("hi")])]


def conversation(**fields: Any) -> list[ModelMessage]:
    """Return two turns, each with a thought that is bound to the request before it."""
    messages: list[ModelMessage] = [HI]
    for number in (1, 2):
        prefix = encoded(*messages, **fields).prefix
        asks = (call(f"c{number}"),)
        messages.append(AssistantMessage(ID, "", asks, (thought(f"s{number}", prefix),)))
        messages.append(result(f"c{number}"))
    return messages


def test_thoughts_are_sent_back_while_nothing_before_them_changes() -> None:
    one, two, three, *rest = conversation()
    assert thoughts_in(sent(one, two, three, *rest)) == ["s1", "s2"]
    assert thoughts_in(sent(one, two, three, *rest, HI, AssistantMessage(ID, "a"), HI)) == [
        "s1",
        "s2",
    ]
    assert thoughts_in(sent(UserMessage(ID, "ho"), two, three, *rest)) == []
    assert thoughts_in(sent(one, two, result("c1", "3"), *rest)) == ["s1"]


@pytest.mark.parametrize(
    "change", [{"system": "new"}, {"tools": [ToolSpec("new", "", OBJECT)]}], ids=str
)
def test_thoughts_are_bound_to_the_system_and_the_tools_too(change: dict[str, Any]) -> None:
    assert thoughts_in(sent(*conversation(), **change)) == []
    assert thoughts_in(sent(*conversation(**change), **change)) == ["s1", "s2"]


def test_after_a_change_only_new_thoughts_are_sent_back() -> None:
    messages = conversation()
    changed = {"system": "new"}
    prefix = encoded(*messages, **changed).prefix
    newer = AssistantMessage(ID, "", (call("c3"),), (thought("s3", prefix),))
    assert thoughts_in(sent(*messages, newer, result("c3"), **changed)) == ["s3"]


BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def test_thoughts_of_models_with_a_thinking_budget_are_not_bound() -> None:
    changed = [UserMessage(ID, "ho"), *conversation()[1:]]
    assert thoughts_in(sent(*changed, options=BUDGET)) == ["s1", "s2"]


def test_thinking_is_off_while_a_call_without_a_thought_is_answered() -> None:
    asks = AssistantMessage(ID, "I look.", (call("c1"),))
    assert "thinking" not in body(HI, asks, result("c1"), options=BUDGET)
    assert body(HI, asks, result("c1"), AssistantMessage(ID, "a"), HI, options=BUDGET)["thinking"]
    assert body(HI, options=BUDGET)["thinking"]
    adaptive = {"thinking": {"type": "adaptive"}}
    assert body(HI, asks, result("c1"), options=adaptive)["thinking"] == {"type": "adaptive"}


# ---------------------------------------------------------------- any history
ARGUMENTS = st.sampled_from(["{}", '{"a": 1}', "[", "1"])
PROVIDER_IDS = st.sampled_from([None, "same", "other", "no good"])
WORDS = st.sampled_from(["", " ", "\n", "hi", "see this", "a\ud800"])
CONTENTS: st.SearchStrategy[Content] = WORDS | st.lists(
    st.sampled_from([part for part, _ in PARTS]) | WORDS.map(TextPart), max_size=3
).map(tuple)
THOUGHTS = st.builds(
    thought,
    st.sampled_from(["s1", "s2"]),
    st.sampled_from(["", encoded(HI).prefix]),
    st.integers(0, 5),
    st.integers(0, 3),
)


@st.composite
def histories(draw: st.DrawFn) -> list[ModelMessage]:
    """Draw any history, with answers to some of the calls."""
    messages: list[ModelMessage] = []
    ids = (CallId(f"call_{number}") for number in count())
    for kind in draw(st.lists(st.sampled_from("uuasa"), max_size=8)):
        if kind == "u":
            messages.append(UserMessage(ID, draw(CONTENTS)))
        elif kind == "s":
            messages.append(SystemMessage(ID, draw(CONTENTS)))
        else:
            made = draw(st.lists(st.tuples(ARGUMENTS, PROVIDER_IDS), max_size=3))
            calls = tuple(
                ToolCall(each, "tool", arguments, provider_id=provider_id)
                for each, (arguments, provider_id) in zip(ids, made, strict=False)
            )
            thoughts = tuple(draw(st.lists(THOUGHTS, max_size=2)))
            messages.append(AssistantMessage(ID, draw(CONTENTS), calls, thoughts))
            messages.extend(
                result(each.id, draw(CONTENTS), is_error=draw(st.booleans()))
                for each in calls
                if draw(st.booleans())
            )
    return messages


@pytest.mark.promise("P5")
@given(histories(), st.sampled_from([{}, BUDGET]))
def test_any_history_keeps_the_rules_of_the_service(
    history: list[ModelMessage], options: dict[str, Any]
) -> None:
    specs = [ToolSpec("tool", "", OBJECT)]
    request = ModelRequest(paired_messages(history), "Be kind.", specs, options)
    whole = json.loads(encode_message("claude-test", "anthropic", request).body)
    assert breaches_of(whole) == []
