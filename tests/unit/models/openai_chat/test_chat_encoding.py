"""Encoding of requests for chat services."""

import json
from typing import Any

import pytest
from pydantic import JsonValue

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
    Reasoning,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.models.http.bodies import wire_ids
from passback.models.openai_chat import OpenAIChat
from passback.models.openai_chat.encoding import encode_request

ID = MessageId("m")


def body(*messages: ModelMessage, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages, **fields)
    parsed: dict[str, Any] = json.loads(encode_request("gpt-test", "openai:gpt-test", request))
    return parsed


def sent(*messages: ModelMessage, **fields: Any) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = body(*messages, **fields)["messages"]
    return encoded


def user_content(content: Content) -> JsonValue:
    encoded: JsonValue = sent(UserMessage(ID, content))[0]["content"]
    return encoded


def call(call_id: str, provider_id: str | None = None) -> ToolCall:
    return ToolCall(CallId(call_id), "add", '{"a": 1}', provider_id=provider_id)


def result(call_id: str, content: Content = "2", *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(ID, CallId(call_id), content, is_error=is_error)


# ---------------------------------------------------------------- the request
def test_a_request_asks_for_a_stream_with_usage() -> None:
    assert body(UserMessage(ID, "hi"), system="Be kind.") == {
        "model": "gpt-test",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_tools_are_declared_and_an_empty_description_left_out() -> None:
    schema: dict[str, JsonValue] = {"type": "object", "properties": {}}
    tools = [ToolSpec("now", "The time.", schema), ToolSpec("plain", "", schema)]
    assert body(UserMessage(ID, "hi"), tools=tools)["tools"] == [
        {
            "type": "function",
            "function": {"name": "now", "description": "The time.", "parameters": schema},
        },
        {"type": "function", "function": {"name": "plain", "parameters": schema}},
    ]


def test_only_the_first_answer_has_to_call_a_tool() -> None:
    tools = [ToolSpec("add", "", {"type": "object"})]

    def choice(name: str | None, *more: ModelMessage, tools: list[ToolSpec] = tools) -> Any:
        context = MessageContext(generation=Generation(must_call=name))
        encoded = body(UserMessage(ID, "hi", context=context), *more, tools=tools)
        assert "must_call" not in encoded
        return encoded.get("tool_choice")

    assert choice(None) is None
    assert choice(ANY_TOOL) == "required"
    assert choice("add") == {"type": "function", "function": {"name": "add"}}
    assert choice("gone") is None
    assert choice(ANY_TOOL, tools=[]) is None
    assert choice("add", AssistantMessage(ID, "", (call("c1"),)), result("c1")) is None


def test_options_are_sent_but_do_not_replace_the_servers_fields() -> None:
    encoded = body(UserMessage(ID, "hi"), options={"temperature": 0, "stream": False, "model": "x"})
    assert (encoded["temperature"], encoded["stream"], encoded["model"]) == (0, True, "gpt-test")


def test_an_output_schema_is_sent_as_a_response_format() -> None:
    schema: dict[str, JsonValue] = {"type": "object", "required": ["a"]}
    encoded = body(UserMessage(ID, "hi"), output_schema=schema)
    assert encoded["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": schema},
    }
    assert "response_format" not in body(UserMessage(ID, "hi"))


def test_options_may_set_another_response_format() -> None:
    response_format: dict[str, JsonValue] = {"response_format": {"type": "json_object"}}
    encoded = body(UserMessage(ID, "hi"), output_schema={"type": "object"}, options=response_format)
    assert encoded["response_format"] == {"type": "json_object"}


def test_lone_surrogates_are_sent_as_replacement_characters() -> None:
    assert sent(UserMessage(ID, "a\ud800b😀"))[0]["content"] == "a\ufffdb😀"


# ---------------------------------------------------------------- messages
def test_a_turn_with_calls_and_results() -> None:
    messages = sent(
        SystemMessage(ID, (TextPart("Be"), TextPart("kind."))),
        UserMessage(ID, "add"),
        AssistantMessage(ID, "", (call("c1", "p1"), call("c2", "p2"))),
        result("c1"),
        result("c2", "no", is_error=True),
        AssistantMessage(ID, "It is 2."),
    )
    function = {"name": "add", "arguments": '{"a": 1}'}
    assert messages == [
        {"role": "system", "content": "Be\nkind."},
        {"role": "user", "content": "add"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "p1", "type": "function", "function": function},
                {"id": "p2", "type": "function", "function": function},
            ],
        },
        {"role": "tool", "tool_call_id": "p1", "content": "2"},
        {"role": "tool", "tool_call_id": "p2", "content": "Error: no"},
        {"role": "assistant", "content": "It is 2."},
    ]


def test_the_text_beside_calls_is_kept() -> None:
    [message] = sent(AssistantMessage(ID, "Let me see.", (call("c1"),)))
    assert message["content"] == "Let me see."


@pytest.mark.parametrize(
    ("provider_ids", "expected"),
    [
        (("p1", "p2"), ["p1", "p2"]),
        (("p1", "p1"), ["c0", "c1"]),
        (("p1", None), ["p1", "c1"]),
        (("c1", "p2"), ["c0", "p2"]),
        (("", "p2"), ["c0", "p2"]),
    ],
)
def test_a_call_has_the_services_id_where_that_is_unique(
    provider_ids: tuple[str | None, ...], expected: list[str]
) -> None:
    turns = [AssistantMessage(ID, "", (call(f"c{n}", p),)) for n, p in enumerate(provider_ids)]
    ids = wire_ids(turns)
    assert [ids[CallId(f"c{n}")] for n in range(len(turns))] == expected


def test_a_result_without_its_call_keeps_its_own_id() -> None:
    assert sent(result("stray"))[0]["tool_call_id"] == "stray"


# ---------------------------------------------------------------- content
def test_texts_and_data_are_one_string() -> None:
    assert (
        user_content((TextPart("a"), DataPart({"b": "ä"}), RefusalPart("c"))) == 'a\n{"b": "ä"}\nc'
    )


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            MediaPart("image", "https://x/y.png"),
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        ),
        (
            MediaPart("audio", "data:audio/MPEG;base64,QUJD"),
            {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "mp3"}},
        ),
        (
            MediaPart("audio", "data:audio/wav;rate=8000;base64,QUJD"),
            {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
        ),
        (MediaPart("audio", "data:audio/ogg;base64,QUJD"), {"type": "text", "text": "[audio]"}),
        (
            MediaPart("audio", "https://x/y.mp3"),
            {"type": "text", "text": "[audio: https://x/y.mp3]"},
        ),
        (
            MediaPart("file", "data:application/pdf;base64,QUJD", name="a.pdf"),
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"},
            },
        ),
        (
            MediaPart("file", "https://x/a.pdf", name="a.pdf"),
            {"type": "text", "text": "[file a.pdf: https://x/a.pdf]"},
        ),
        (MediaPart("file", "data:text/plain,abc"), {"type": "text", "text": "[file]"}),
    ],
)
def test_media_have_parts_of_their_own_or_are_named(part: MediaPart, expected: JsonValue) -> None:
    assert user_content((TextPart("see"), part)) == [{"type": "text", "text": "see"}, expected]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (MediaPart("image", "https://x/a.png"), None),
        (MediaPart("image", "data:image/png;base64,QUJD"), None),
        (MediaPart("audio", "data:audio/wav;base64,QUJD"), None),
        (MediaPart("file", "data:application/pdf;base64,QUJD"), None),
        (MediaPart("audio", "data:audio/ogg;base64,QUJD"), "a sound has to be wav or mp3"),
        (
            MediaPart("audio", "https://x/a.mp3"),
            "a sound has to be posted itself, not by its address",
        ),
        (
            MediaPart("file", "https://x/a.pdf"),
            "a file has to be posted itself, not by its address",
        ),
    ],
)
def test_media_without_a_part_in_the_protocol_are_refused(part: MediaPart, why: str | None) -> None:
    assert OpenAIChat("gpt-test").refuses(part) == why
    if why is None:  # then it is sent as a part of its own
        encoded = user_content((part,))
        assert isinstance(encoded, list)
        assert "text" not in str(encoded[0])


def test_a_result_is_text_whatever_its_parts() -> None:
    picture = MediaPart("image", "data:image/png;base64,QUJD")
    [_, message] = sent(
        AssistantMessage(ID, "", (call("c1"),)),
        result("c1", (TextPart("a"), DataPart([1]), picture)),
    )
    assert message["content"] == "a\n[1]\n[image]"


# ---------------------------------------------------------------- reasoning
def test_reasoning_is_sent_back_to_its_own_service_in_the_turns_of_one_message() -> None:
    own = Reasoning("hm", "openai:gpt-test", "reasoning_content")
    foreign = Reasoning("x", "openai:other", "reasoning_content")
    other_field = Reasoning("y", "openai:gpt-test", "reasoning")
    old = AssistantMessage(ID, "a", (call("c1"),), (own,))
    new = AssistantMessage(ID, "b", (call("c2"),), (own, foreign, other_field))
    plain = AssistantMessage(ID, "c", (), (foreign,))
    messages = sent(
        UserMessage(ID, "1"), old, result("c1"), UserMessage(ID, "2"), new, result("c2"), plain
    )
    assert [message.get("reasoning_content") for message in messages] == [
        None,
        None,
        None,
        None,
        "hm",
        None,
        None,
    ]
