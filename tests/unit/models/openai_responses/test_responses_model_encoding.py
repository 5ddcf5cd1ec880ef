"""Encoding of requests for the Responses API; any history keeps its rules."""

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.support.responses_model_rules import breaches_of

from passback.core.deltas import ModelRequest
from passback.core.messages import (
    ANY_TOOL,
    AssistantMessage,
    CallId,
    Content,
    DataPart,
    Generation,
    MediaPart,
    MessageContext,
    MessageId,
    ModelMessage,
    Part,
    Reasoning,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.transcript import paired_messages
from passback.models.openai_responses import OpenAIResponses
from passback.models.openai_responses.encoding import (
    Item,
    KeptItem,
    encode_response,
    phase_marker,
)

ID = MessageId("m")
PROVIDER = "openai-responses:gpt-test"
HI = UserMessage(ID, "hi")
OBJECT: dict[str, JsonValue] = {"type": "object", "properties": {}}


def body(*messages: ModelMessage, model: str = "gpt-test", **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages, **fields)
    parsed: dict[str, Any] = json.loads(encode_response(model, PROVIDER, request))
    assert breaches_of(parsed) == []
    return parsed


def sent(*messages: ModelMessage, **fields: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = body(*messages, **fields)["input"]
    return items


def says(role: str, content: Any, **fields: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **fields}


def call(call_id: str, provider_id: str | None = None, arguments: str = '{"a": 1}') -> ToolCall:
    return ToolCall(CallId(call_id), "add", arguments, provider_id=provider_id)


def called(wire_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": wire_id, "name": "add", "arguments": '{"a": 1}'}


def result(call_id: str, content: Content = "2", *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(ID, CallId(call_id), content, is_error=is_error)


def returned(wire_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": wire_id, "output": output}


# ---------------------------------------------------------------- the request
def test_a_request_asks_for_a_stream_that_is_not_kept_and_for_its_reasoning() -> None:
    tools = [ToolSpec("now", "The time.", OBJECT), ToolSpec("plain", "", {})]
    assert body(HI, system="Be kind.", tools=tools) == {
        "include": ["reasoning.encrypted_content"],
        "model": "gpt-test",
        "instructions": "Be kind.",
        "input": [says("user", "hi")],
        "stream": True,
        "store": False,
        "tools": [
            {
                "type": "function",
                "name": "now",
                "description": "The time.",
                "parameters": OBJECT,
                "strict": False,
            },
            {"type": "function", "name": "plain", "parameters": OBJECT, "strict": False},
        ],
    }


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        *((name, True) for name in ("gpt-5", "gpt-5.3-codex", "o3", "gpt-6-astra", "my-gpt-4o")),
        *((name, False) for name in ("gpt-4o", "gpt-4.1-mini", "gpt-3.5-turbo", "ft:gpt-4o:x:y")),
        *((name, False) for name in ("chatgpt-4o-latest", "gpt-5-chat-latest", "gpt-5.1-chat")),
    ],
)
def test_a_model_that_does_not_reason_is_not_asked_for_its_reasoning(
    model: str, reasons: bool
) -> None:
    assert ("include" in body(HI, model=model)) == reasons
    asked = body(HI, model=model, options={"include": ["x"]})
    assert asked["include"] == ["x"]


def test_options_are_sent_but_do_not_replace_the_servers_fields() -> None:
    options: dict[str, JsonValue] = {"temperature": 0, "stream": False, "store": True, "input": "x"}
    asked = body(HI, options={**options, "model": "x", "instructions": "x"}, system="mine")
    assert (asked["temperature"], asked["stream"], asked["store"]) == (0, True, False)
    assert (asked["model"], asked["instructions"]) == ("gpt-test", "mine")
    assert asked["input"] == [says("user", "hi")]


def test_keywords_that_the_service_refuses_at_the_top_of_a_schema_are_left_out() -> None:
    schema: Item = {**OBJECT, "anyOf": [{"required": ["a"]}], "not": {}, "required": ["a"]}
    [tool] = body(HI, tools=[ToolSpec("f", "", schema)])["tools"]
    assert tool["parameters"] == {**OBJECT, "required": ["a"]}


def test_only_the_first_answer_has_to_call_a_tool() -> None:
    tools = [ToolSpec("add", "", OBJECT)]

    def choice(name: str | None, *more: ModelMessage) -> Any:
        context = MessageContext(generation=Generation(must_call=name))
        encoded = body(UserMessage(ID, "hi", context=context), *more, tools=tools)
        assert "must_call" not in encoded
        return encoded.get("tool_choice")

    assert choice(None) is None
    assert choice(ANY_TOOL) == "required"
    assert choice("add") == {"type": "function", "name": "add"}
    assert choice("gone") is None
    assert choice("add", AssistantMessage(ID, "", (call("c1"),)), result("c1")) is None


def test_lone_surrogates_are_sent_as_replacement_characters() -> None:
    assert sent(UserMessage(ID, "a\ud800b😀")) == [says("user", "a\ufffdb😀")]


# ---------------------------------------------------------------- options for an answer
def asking(**generation: Any) -> UserMessage:
    return UserMessage(ID, "hi", context=MessageContext(generation=Generation(**generation)))


def test_generation_parameters_have_the_services_names() -> None:
    options: Item = {"temperature": 0, "top_k": 3}
    asked = body(asking(temperature=1.5, top_p=0.5, max_tokens=70), options=options)
    assert asked.keys() - body(HI).keys() == {"temperature", "top_p", "max_output_tokens", "top_k"}
    assert (asked["temperature"], asked["top_p"], asked["max_output_tokens"]) == (1.5, 0.5, 70)


def test_the_limit_of_tokens_is_not_below_the_services_least() -> None:
    assert body(asking(max_tokens=16))["max_output_tokens"] == 16
    assert body(asking(max_tokens=1))["max_output_tokens"] == 16


def test_parameters_without_a_field_are_sent_where_the_options_have_them() -> None:
    asks = asking(stop=("END",), seed=1, frequency_penalty=0.5, presence_penalty=0.25)
    assert body(asks) == body(HI)
    request = ModelRequest([asks], options={"stop": None, "seed": 7, "presence_penalty": 0})
    asked = json.loads(encode_response("m", PROVIDER, request))
    assert (asked["stop"], asked["seed"], asked["presence_penalty"]) == (["END"], 1, 0.25)
    assert "frequency_penalty" not in asked


def test_the_effort_is_sent_where_the_options_name_one() -> None:
    own: Item = {"effort": "low", "summary": "auto"}
    assert body(asking(effort="high"), options={"reasoning": own})["reasoning"] == {
        "effort": "high",
        "summary": "auto",
    }
    assert body(HI, options={"reasoning": own})["reasoning"] == own
    without: list[JsonValue] = [{"summary": "auto"}, {"effort": None}, None, "x"]
    for reasoning in without:
        asked = body(asking(effort="high"), options={"reasoning": reasoning})
        assert asked["reasoning"] == reasoning
    assert body(asking(effort="high")) == body(HI)


SCHEMA: dict[str, JsonValue] = {"type": "object", "required": ["a"]}
BY_SCHEMA = {"type": "json_schema", "name": "output", "schema": SCHEMA}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, {"format": BY_SCHEMA}),
        ({"verbosity": "low"}, {"verbosity": "low", "format": BY_SCHEMA}),
        ({"format": {"type": "json_object"}}, {"format": {"type": "json_object"}}),
        ({"format": None}, None),
        ({"format": None, "verbosity": "low"}, {"verbosity": "low"}),
    ],
)
def test_an_output_schema_is_sent_unless_the_options_have_a_format(
    text: JsonValue, expected: JsonValue
) -> None:
    assert body(HI, options={"text": text}, output_schema=SCHEMA).get("text") == expected


def test_without_an_output_schema_the_options_alone_say_how_a_text_is_to_be() -> None:
    assert body(HI, options={"text": {"verbosity": "low"}})["text"] == {"verbosity": "low"}
    assert "text" not in body(HI, options={"text": None})
    assert (
        json.loads(encode_response("m", PROVIDER, ModelRequest([HI], options={"text": "x"})))[
            "text"
        ]
        == "x"
    )


# ---------------------------------------------------------------- items
def test_a_turn_with_calls_and_results() -> None:
    items = sent(
        SystemMessage(ID, (TextPart("Be"), TextPart("kind."))),
        UserMessage(ID, "add"),
        AssistantMessage(ID, "Let me see.", (call("c1", "p1"), call("c2", "p2"))),
        result("c1"),
        result("c2", "no", is_error=True),
        AssistantMessage(ID, "It is 2."),
        AssistantMessage(ID, " \n"),
        HI,
    )
    assert items == [
        says("system", "Be\nkind."),
        says("user", "add"),
        says("assistant", "Let me see."),
        called("p1"),
        called("p2"),
        returned("p1", "2"),
        returned("p2", "Error: no"),
        says("assistant", "It is 2."),
        says("user", "hi"),
    ]


@pytest.mark.parametrize(
    ("provider_id", "wire_id"),
    [
        ("call_1", "call_1"),
        ("functions.get:0", "functions.get:0"),
        ("i" * 64, "i" * 64),
        ("i" * 65, "c1"),
        ("a b", "c1"),
        ("", "c1"),
        (None, "c1"),
    ],
)
def test_a_call_keeps_an_id_that_the_service_takes(provider_id: str | None, wire_id: str) -> None:
    items = sent(HI, AssistantMessage(ID, "", (call("c1", provider_id),)), result("c1"))
    assert items[1:] == [called(wire_id), returned(wire_id, "2")]


def test_a_result_without_its_call_keeps_its_own_id() -> None:
    request = ModelRequest([result("stray")])
    assert json.loads(encode_response("m", PROVIDER, request))["input"] == [returned("stray", "2")]


# ---------------------------------------------------------------- content
PDF = "data:application/pdf;base64,QUJD"
PNG = "data:image/png;base64,QUJD"
PARTS: list[tuple[Part, dict[str, Any]]] = [
    (TextPart("a"), {"type": "input_text", "text": "a"}),
    (DataPart({"b": "ä"}), {"type": "input_text", "text": '{"b": "ä"}'}),
    (RefusalPart("c"), {"type": "input_text", "text": "c"}),
    (
        MediaPart("image", "https://x/y.png"),
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
    ),
    (MediaPart("image", PNG), {"type": "input_image", "image_url": PNG, "detail": "auto"}),
    (
        MediaPart("file", PDF, name="a.pdf"),
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
    ),
    (MediaPart("file", PDF), {"type": "input_file", "filename": "file", "file_data": PDF}),
    (
        MediaPart("file", "http://x/a.pdf", name="a.pdf"),
        {"type": "input_file", "file_url": "http://x/a.pdf"},
    ),
    (MediaPart("file", "data:text/plain,abc"), {"type": "input_text", "text": "[file]"}),
    (MediaPart("image", "ftp://x/y"), {"type": "input_text", "text": "[image: ftp://x/y]"}),
    (MediaPart("audio", "data:audio/wav;base64,QUJD"), {"type": "input_text", "text": "[audio]"}),
]


def test_texts_and_data_are_one_string() -> None:
    parts = (TextPart("a"), DataPart({"b": "ä"}), RefusalPart("c"))
    assert sent(UserMessage(ID, parts)) == [says("user", 'a\n{"b": "ä"}\nc')]


@pytest.mark.parametrize(("part", "expected"), PARTS, ids=str)
def test_parts_beside_media_have_items_of_their_own_or_are_named(
    part: Part, expected: dict[str, Any]
) -> None:
    [item] = sent(UserMessage(ID, (MediaPart("image", PNG), part)))
    assert item["content"][1] == expected


def test_a_result_has_media_and_a_failure_is_text() -> None:
    asks = AssistantMessage(ID, "", (call("c1"), call("c2"), call("c3")))
    seen = (TextPart("a"), MediaPart("image", PNG))
    [*_, whole, failed, plain] = sent(
        HI, asks, result("c1", seen), result("c2", seen, is_error=True), result("c3", "")
    )
    assert whole["output"] == [PARTS[0][1], PARTS[4][1]]
    assert failed["output"] == "Error: a\n[image]"
    assert plain["output"] == ""


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (MediaPart("image", "https://x/a.png"), None),
        (MediaPart("image", PNG), None),
        (MediaPart("file", PDF), None),
        (MediaPart("file", "https://x/a.pdf"), None),
        (
            MediaPart("image", "data:image/png,abc"),
            "an image has to be at an https: address, or in a data: URL with base64",
        ),
        (
            MediaPart("file", "data:text/plain,abc"),
            "a file has to be at an https: address, or in a data: URL with base64",
        ),
        (MediaPart("audio", "data:audio/wav;base64,QUJD"), "this model takes no sounds"),
    ],
)
def test_media_that_the_responses_api_does_not_take_are_refused(
    part: MediaPart, why: str | None
) -> None:
    assert OpenAIResponses("gpt-test").refuses(part) == why


# ---------------------------------------------------------------- reasoning
def sealed(name: str) -> Item:
    return {"type": "reasoning", "id": f"rs_{name}", "summary": [], "encrypted_content": name}


def reasoned(name: str, text: int = 0, calls: int = 0, provider: str = PROVIDER) -> Reasoning:
    return Reasoning("hm", provider, KeptItem(sealed(name), text, calls).dump())


def phased(phase: str | None, text: int = 0, calls: int = 0) -> Reasoning:
    return Reasoning("", PROVIDER, phase_marker(phase, text, calls).dump())


def test_reasoning_is_sent_back_unchanged_in_its_places() -> None:
    kept = (reasoned("s1"), reasoned("s2", text=3), reasoned("s3", text=3, calls=1))
    answer = AssistantMessage(ID, "one two", (call("c1"), call("c2")), kept)
    assert sent(HI, answer, result("c1"), result("c2"))[1:-2] == [
        sealed("s1"),
        says("assistant", "one"),
        sealed("s2"),
        called("c1"),
        sealed("s3"),
        says("assistant", " two"),
        called("c2"),
    ]


def test_reasoning_of_all_answers_is_sent_back() -> None:
    one = AssistantMessage(ID, "a", (), (reasoned("s1"),))
    two = AssistantMessage(ID, "b", (), (reasoned("s2"),))
    kinds = [item["type"] for item in sent(HI, one, HI, two, HI)]
    assert kinds == [
        "message",
        "reasoning",
        "message",
        "message",
        "reasoning",
        "message",
        "message",
    ]


def test_reasoning_of_other_models_and_services_or_unsealed_is_not_sent() -> None:
    kept = (
        reasoned("s1", provider="openai-responses:other"),
        reasoned("s2", provider="openai-responses:gpt-test@127.0.0.1:4000"),
        Reasoning("x", "openai:gpt-test", "reasoning_content"),
        Reasoning("y", PROVIDER),
    )
    assert sent(HI, AssistantMessage(ID, "a", (), kept), HI)[1] == says("assistant", "a")


def test_an_answer_does_not_end_in_reasoning() -> None:
    at_the_end = AssistantMessage(ID, "a", (), (reasoned("s1", text=1), reasoned("s2", text=1)))
    alone = AssistantMessage(ID, " ", (), (reasoned("s1"),))
    assert sent(HI, at_the_end, HI)[1:] == [says("assistant", "a"), says("user", "hi")]
    assert sent(HI, alone, HI) == [says("user", "hi"), says("user", "hi")]


def test_a_shorter_text_than_was_kept_loses_no_call() -> None:
    answer = AssistantMessage(ID, "a", (call("c1"),), (reasoned("s1", text=9, calls=9),))
    assert sent(HI, answer, result("c1"))[1:] == [
        says("assistant", "a"),
        called("c1"),
        returned("c1", "2"),
    ]


def test_messages_get_their_phases_back() -> None:
    kept = (phased("commentary"), reasoned("s1", 2), phased("final_answer", 2, 1), phased(None, 4))
    answer = AssistantMessage(ID, "abcdef", (call("c1"),), kept)
    assert sent(HI, answer, result("c1"))[1:-1] == [
        says("assistant", "ab", phase="commentary"),
        sealed("s1"),
        called("c1"),
        says("assistant", "cd", phase="final_answer"),
        says("assistant", "ef"),
    ]


def test_a_kept_item_is_read_as_it_was_written() -> None:
    for kept in (KeptItem(sealed("ä"), 2, 1), phase_marker("commentary", 3, 0)):
        assert KeptItem.load(kept.dump()) == kept


# ---------------------------------------------------------------- any history
ARGUMENTS = st.sampled_from(["{}", '{"a": 1}'])
PROVIDER_IDS = st.sampled_from([None, "same", "other", "no good", "i" * 65])
WORDS = st.sampled_from(["", " ", "\n", "hi", "see this", "a\ud800"])
CONTENTS: st.SearchStrategy[Content] = WORDS | st.lists(
    st.sampled_from([part for part, _ in PARTS]) | WORDS.map(TextPart), max_size=3
).map(tuple)
KEPT = st.builds(
    reasoned, st.sampled_from(["s1", "s2"]), st.integers(0, 5), st.integers(0, 3)
) | st.builds(phased, st.sampled_from(["commentary", None]), st.integers(0, 5), st.integers(0, 3))


@st.composite
def histories(draw: st.DrawFn) -> list[ModelMessage]:
    """Draw any history, with answers to some of the calls."""
    messages: list[ModelMessage] = []
    ids = (CallId(f"call_{number}") for number in count())
    for kind in draw(st.lists(st.sampled_from("uuasa"), max_size=8)):
        if kind == "u":
            messages.append(UserMessage(ID, draw(CONTENTS)))
        elif kind == "s":
            messages.append(SystemMessage(ID, draw(WORDS.filter(str.strip))))
        else:
            made = draw(st.lists(st.tuples(ARGUMENTS, PROVIDER_IDS), max_size=3))
            calls = tuple(
                ToolCall(each, "tool", arguments, provider_id=provider_id)
                for each, (arguments, provider_id) in zip(ids, made, strict=False)
            )
            kept = tuple(draw(st.lists(KEPT, max_size=3)))
            messages.append(AssistantMessage(ID, draw(CONTENTS), calls, kept))
            messages.extend(
                result(each.id, draw(CONTENTS), is_error=draw(st.booleans()))
                for each in calls
                if draw(st.booleans())
            )
    return messages


@pytest.mark.promise("P5")
@given(histories())
def test_any_history_keeps_the_rules_of_the_responses_api(history: list[ModelMessage]) -> None:
    specs = [ToolSpec("tool", "", OBJECT)]
    request = ModelRequest(paired_messages([HI, *history]), "Be kind.", specs)
    whole = json.loads(encode_response("gpt-test", PROVIDER, request))
    assert breaches_of(whole) == []
