"""The demo model: deterministic answers, and calls of the tools that the user names."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from passback.context.prompt import PromptLayers
from passback.core.deltas import (
    Finish,
    ModelDelta,
    ModelRequest,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from passback.core.errors import ConfigurationError
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Content,
    DataPart,
    MediaPart,
    MessageContext,
    MessageId,
    ModelMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from passback.models.demo import DemoModel, answer_deltas, create

COLORS = (
    "Change the background color. The color should be one of the following: blue, red, green, "
    "transparent, yellow, or white. No other colors or any variants."
)


def spec(name: str, description: str = "", **properties: JsonValue) -> ToolSpec:
    return ToolSpec(
        name,
        description,
        {"type": "object", "properties": properties, "required": list(properties)},
    )


COLOR = spec("change-background-color", COLORS, color={"type": "string"})
ZONE = spec("get-time-zone")
CONFIRM = spec("ask-user-to-confirm", question={"type": "string"})
PAGE = (COLOR, ZONE, CONFIRM)


def user(content: Content) -> UserMessage:
    return UserMessage(MessageId("m1"), content)


def ask(words: Content, *tools: ToolSpec) -> list[ModelDelta]:
    return answer_deltas(ModelRequest([user(words)], tools=tools))


def text(deltas: Sequence[ModelDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextChunk))


def tool_calls(deltas: Sequence[ModelDelta]) -> list[tuple[str, JsonValue]]:
    """Return the names and the parsed arguments of the calls, in the order of their slots."""
    chunks = [delta for delta in deltas if isinstance(delta, ToolCallChunk)]
    names = {chunk.slot: chunk.name for chunk in chunks if chunk.name}
    return [
        (name, json.loads("".join(chunk.arguments for chunk in chunks if chunk.slot == slot)))
        for slot, name in names.items()
    ]


def argument(schema: JsonValue, words: str) -> JsonValue:
    """Return the only argument with which the demo model calls a tool named `try`."""
    [(_, arguments)] = tool_calls(ask(words, spec("try", value=schema)))
    return cast("dict[str, JsonValue]", arguments)["value"]


# ---------------------------------------------------------------- words
def test_a_greeting_is_answered_with_an_introduction() -> None:
    deltas = ask("hi")
    assert text(deltas) == (
        "Hello! I am passback's demo model: a few rules, no artificial intelligence. "
        "Ask me to count to 20, or declare a tool and name it in a message: I will call it."
    )
    assert deltas[:2] == [TextChunk("Hello!"), TextChunk(" I")]
    assert deltas[-2:] == [UsageChunk(Usage(1, len(deltas) - 2)), Finish("stop")]


def test_other_words_are_quoted_and_the_declared_tools_offered() -> None:
    assert text(ask("Why is the sky blue?", *PAGE)) == (
        'You said: "Why is the sky blue?". I am only passback\'s demo model and cannot think. '
        "Name one of your tools and I will call it: "
        "change-background-color, get-time-zone, ask-user-to-confirm."
    )


def test_it_counts_when_asked_to() -> None:
    assert text(ask("Please count to 5!")) == "1 2 3 4 5 - counted by the demo model."
    assert " 1000 - counted" in text(ask("count to 999999"))


def test_a_long_message_is_quoted_in_part() -> None:
    assert len(text(ask("x" * 100_000))) < 3_000


def test_parts_are_read_as_text() -> None:
    parts = (TextPart("look"), MediaPart("image", "data:,"), DataPart({"a": "ä"}))
    assert text(ask(parts)).startswith(
        'I got an image (text/plain, 0 bytes). You said: "look\n{"a": "ä"}".'
    )


# ---------------------------------------------------------------- tools
@pytest.mark.parametrize("content", ["what is new?", (TextPart("what is new?"), DataPart(5))])
def test_only_the_text_of_the_user_is_read_and_not_its_context(content: Content) -> None:
    context = MessageContext(intent="get the time zone", at="2026-01-31T12:00:00+00:00")
    shown = PromptLayers().shown(replace(user(content), context=context))
    assert isinstance(shown, UserMessage)
    assert "<time>" in str(shown.content)
    deltas = ask(shown.content, spec("get-time-zone"))
    assert tool_calls(deltas) == []
    assert 'You said: "what is new?' in text(deltas)
    assert "user_context" not in text(deltas)


def test_the_instructions_behind_the_words_are_none_of_them() -> None:
    context = MessageContext(instructions="The user's working directory: /srv/paint")
    shown = PromptLayers().shown(replace(user("what is new?"), context=context))
    assert isinstance(shown, UserMessage)
    assert "<instructions>" in str(shown.content)
    deltas = ask(shown.content, spec("paint"))
    assert tool_calls(deltas) == []
    assert 'You said: "what is new?"' in text(deltas)
    assert "working directory" not in text(deltas)


def test_a_named_tool_is_called_with_its_arguments_in_pieces() -> None:
    assert ask("Change background color to blue.", *PAGE)[:-2] == [
        ToolCallChunk(0, "demo_0", "change-background-color"),
        ToolCallChunk(0, arguments='{"color":'),
        ToolCallChunk(0, arguments=' "blue"}'),
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("What time zone am I in?", [("get-time-zone", {})]),
        ("timezone?", [("get-time-zone", {})]),
        (
            "Ask me to confirm that the file goes away.",
            [("ask-user-to-confirm", {"question": "the file goes away"})],
        ),
        ('Please confirm: "Delete it?"', [("ask-user-to-confirm", {"question": "Delete it?"})]),
        (
            "My time zone, and make the background color RED",
            [("get-time-zone", {}), ("change-background-color", {"color": "red"})],
        ),
        ("What is the time?", []),
        ("the backgrounder colors", []),
    ],
)
def test_tools_named_in_the_message_are_called(
    words: str, expected: list[tuple[str, JsonValue]]
) -> None:
    deltas = ask(words, *PAGE)
    assert tool_calls(deltas) == expected
    assert deltas[-1] == Finish("tool_calls" if expected else "stop")


def test_empty_arguments_come_in_two_pieces_too() -> None:
    assert ask("time zone", ZONE)[1:3] == [
        ToolCallChunk(0, arguments="{"),
        ToolCallChunk(0, arguments="}"),
    ]


def test_the_tool_whose_name_has_more_of_the_words_is_called() -> None:
    assert tool_calls(ask("what is my time zone", spec("get_time"), ZONE)) == [
        ("get-time-zone", {})
    ]


def test_of_tools_with_the_same_matching_words_the_most_similar_is_called() -> None:
    volume = (spec("getVolume"), spec("setVolume"))
    assert tool_calls(ask("set the volume", *volume)) == [("setVolume", {})]
    assert tool_calls(ask("volume?", *volume)) == [("getVolume", {})]


def test_scripts_without_spaces_are_searched() -> None:
    tool = spec("改变背景颜色", 颜色={"type": "string", "enum": ["红色", "蓝色"]})
    assert tool_calls(ask("请改变背景颜色为蓝色", tool)) == [("改变背景颜色", {"颜色": "蓝色"})]


def test_a_letter_that_is_longer_in_lower_case_shifts_no_position() -> None:
    assert tool_calls(ask("İİİ box: hello", spec("box", p={"type": "string"}))) == [
        ("box", {"p": "hello"})
    ]


def test_a_tool_can_be_named_by_its_whole_name() -> None:
    assert tool_calls(ask("run get_x1 now", spec("get_x1"))) == [("get_x1", {})]


# ---------------------------------------------------------------- arguments
@pytest.mark.parametrize(
    ("schema", "words", "value"),
    [
        ({"type": "integer"}, "try 42 times", 42),
        ({"type": "integer"}, "try", 0),
        ({"type": "integer", "minimum": 3}, "try", 3),
        ({"type": "number", "default": 1.5}, "try", 1.5),
        ({"type": "number"}, "try -2.5", -2.5),
        ({"type": "boolean"}, "try it", True),
        ({"type": "boolean"}, "do not try it", False),
        ({"type": "null"}, "try", None),
        ({"const": "fixed"}, "try", "fixed"),
        ({"enum": ["small", "large"]}, "try the LARGE one", "large"),
        ({"enum": ["small", "large"]}, "try", "small"),
        ({"enum": ["small", "large"], "default": "large"}, "try", "large"),
        ({"enum": [1, 2]}, "try 2", 2),
        ({"type": "string"}, "try “quoted” words", "quoted"),
        ({"type": "string"}, 'try ""', ""),
        ({"type": "string"}, "try to rest.", "rest"),
        ({"type": "string"}, "try", "try"),
        ({"type": "string", "description": "one of ham, egg, spam"}, "try an egg", "egg"),
        ({"type": ["null", "integer"]}, "try 7", 7),
        ({"type": ["null"]}, "try 7", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "try 7", 7),
        ({"type": "array", "items": {"enum": ["a1", "b1", "c1"]}}, "try c1 a1", ["a1", "c1"]),
        ({"type": "array", "items": {"enum": ["a1", "b1"]}}, "try", ["a1"]),
        ({"type": "array", "items": {"type": "number"}}, "try 4", [4.0]),
        ({"type": "array"}, "try this", ["this"]),
        ({"properties": {"x": {"type": "integer"}, "y": {}}, "required": ["x"]}, "try 1", {"x": 1}),
        (True, "try anything", "anything"),
        ({"$ref": "#/$defs/missing"}, "try anything", "anything"),
        ({"$ref": "https://example.com/schema"}, "try anything", "anything"),
    ],
)
def test_an_argument_is_found_in_the_message_or_made_from_the_schema(
    schema: JsonValue, words: str, value: JsonValue
) -> None:
    assert argument(schema, words) == value


def test_each_number_and_each_quotation_is_used_once() -> None:
    number: JsonValue = {"type": "integer"}
    quoted: JsonValue = {"type": "string"}
    tool = spec("add", a=number, b=number, c=number, d=quoted, e=quoted)
    assert tool_calls(ask('add 3 and 4 as "x" and "y"', tool)) == [
        ("add", {"a": 3, "b": 4, "c": 0, "d": "x", "e": "y"})
    ]


def test_an_optional_argument_is_given_only_if_the_message_has_it() -> None:
    size: JsonValue = {"enum": ["small", "large"]}
    tool = ToolSpec("pizza", "", {"type": "object", "properties": {"size": size, "note": {}}})
    assert tool_calls(ask("a pizza", tool)) == [("pizza", {})]
    assert tool_calls(ask("a large pizza", tool)) == [("pizza", {"size": "large"})]


def test_a_local_reference_is_followed() -> None:
    parameters = {
        "type": "object",
        "properties": {"point": {"$ref": "#/$defs/Point"}},
        "required": ["point"],
        "$defs": {
            "Point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
        },
    }
    tool = ToolSpec("draw", "", cast("dict[str, JsonValue]", parameters))
    assert tool_calls(ask("draw at 9", tool)) == [("draw", {"point": {"x": 9}})]


def test_a_schema_that_refers_to_itself_ends() -> None:
    node: dict[str, JsonValue] = {"properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    [(name, arguments)] = tool_calls(ask("walk", ToolSpec("walk", "", node)))
    assert (name, str(arguments).count("next")) == ("walk", 6)


def _numbered(kinds: int, tool_description: str, /, **schema: JsonValue) -> ToolSpec:
    return spec("box", tool_description, **{f"p{number}": schema for number in range(kinds)})


@pytest.mark.parametrize(
    ("words", "tools"),
    [
        # the longest description: a search from each letter takes 1.2 s for each parameter
        ("box", [_numbered(4, "a" * 16_384, type="string")]),
        ("box", [_numbered(4, "", type="string", description="a" * 16_384)]),
        ("box", [_numbered(500, "ab, cd, " * 2_000, type="string")]),
        (
            f"x {' '.join(map(str, range(30)))} {'“' * 3_700}",
            [spec(f"x{number}", "", p={"type": "string"}) for number in range(30)],
        ),
    ],
    ids=["letters", "letters of a parameter", "lists", "quotation marks"],
)
def test_a_hostile_tool_is_read_quickly(words: str, tools: list[ToolSpec]) -> None:
    started = time.thread_time()
    assert tool_calls(ask(words, *tools))
    assert time.thread_time() - started < 1


def test_nested_arrays_end() -> None:
    node: dict[str, JsonValue] = {
        "properties": {"rows": {"$ref": "#/$defs/rows"}},
        "required": ["rows"],
        "$defs": {"rows": {"type": "array", "items": {"$ref": "#/$defs/rows"}}},
    }
    [(_, arguments)] = tool_calls(ask("walk", ToolSpec("walk", "", node)))
    assert str(arguments) == "{'rows': [[[[[[]]]]]]}"


# ---------------------------------------------------------------- results
def results(*contents: tuple[Content, bool], then: Sequence[ModelMessage] = ()) -> ModelRequest:
    calls = tuple(ToolCall(CallId(f"c{n}"), f"tool-{n}", "{}") for n in range(len(contents)))
    answers = [
        ToolMessage(MessageId(f"r{n}"), CallId(f"c{n}"), content, is_error=is_error)
        for n, (content, is_error) in enumerate(contents)
    ]
    asked = AssistantMessage(MessageId("m2"), "", calls)
    return ModelRequest([user("time zone"), asked, *answers, *then], tools=PAGE)


def test_the_answer_after_results_quotes_them_also_errors() -> None:
    deltas = answer_deltas(
        results(("blue it is", False), ((TextPart("no such"), TextPart("file")), True))
    )
    assert text(deltas) == 'Done. tool-0 answered: "blue it is". tool-1 failed: "no such\nfile".'
    assert deltas[-1] == Finish("stop")


def test_a_result_without_its_call_is_quoted_too() -> None:
    stray = ToolMessage(MessageId("r9"), CallId("c9"), "left over")
    assert text(answer_deltas(results(("a", False), then=[stray]))).endswith(
        'The tool answered: "left over".'
    )
    assert text(answer_deltas(ModelRequest([stray]))).startswith("Hello!")


def test_a_user_who_speaks_after_the_results_is_answered() -> None:
    assert tool_calls(answer_deltas(results(("a", False), then=[user("time zone")]))) == [
        ("get-time-zone", {})
    ]


# ---------------------------------------------------------------- any input
@given(st.text(alphabet=st.characters()), st.text(min_size=1))
def test_any_words_give_the_same_well_formed_answer_twice(words: str, name: str) -> None:
    tools = (*PAGE, spec(name, words, value={"type": "string", "description": words}))
    first = ask(f"{words} {name}", *tools)
    assert first == ask(f"{words} {name}", *tools)
    assert isinstance(first[-1], Finish)
    assert tool_calls(first) or text(first).encode()


# ---------------------------------------------------------------- the model
@pytest.mark.anyio
async def test_it_streams_one_piece_at_a_time() -> None:
    model = DemoModel(delay=0)
    request = ModelRequest([user("hi")])
    async with model.stream(request) as batches:
        seen = [batch async for batch in batches]
    assert seen == [(delta,) for delta in answer_deltas(request)]
    await model.check()
    await model.aclose()


@pytest.mark.anyio
async def test_it_pauses_before_each_piece() -> None:
    async with DemoModel(delay=3600).stream(ModelRequest([user("hi")])) as batches:
        with anyio.move_on_after(0.02) as scope:
            await anext(batches)
    assert scope.cancelled_caught


def test_it_is_made_from_a_setting() -> None:
    assert (create("").name, create("fast").name) == ("demo", "demo:fast")


def test_settings_of_another_model_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="openai:NAME"):
        create("", api_key="sk-1")
    with pytest.raises(ConfigurationError, match="openai:NAME"):
        create("", base_url="http://127.0.0.1/v1")


PIXEL = MediaPart("image", "data:image/png;base64,iVBORw0KGg==", name="dot.png")
ATTACHMENTS: list[tuple[tuple[MediaPart, ...], str]] = [
    ((PIXEL,), 'an image "dot.png" (image/png, 7 bytes)'),
    (
        (
            MediaPart("audio", "data:audio/wav;base64,AAAA", "audio/wav"),
            MediaPart("file", "data:;base64,AAA="),
        ),
        "a sound (audio/wav, 3 bytes) and a file (text/plain, 2 bytes)",
    ),
    (
        (MediaPart("file", "https://example.com/a.pdf", "application/pdf"),),
        "a file at https://example.com/a.pdf (application/pdf)",
    ),
    (
        (MediaPart("image", f"https://example.com/{'a' * 3_000_000}"),),
        f"an image at https://example.com/{'a' * 180}...",
    ),
    ((PIXEL,) * 22, ", ".join(['an image "dot.png" (image/png, 7 bytes)'] * 20) + " and 2 more"),
]


@pytest.mark.parametrize(("media", "description"), ATTACHMENTS)
def test_its_answer_describes_the_attachments(
    media: tuple[MediaPart, ...], description: str
) -> None:
    assert {DemoModel().refuses(part) for part in media} == {None}
    cannot = "I am only passback's demo model and cannot look at it."
    assert text(ask(media)).startswith(f"I got {description}. {cannot}")
    answer = text(ask((TextPart("count to 2"), *media)))
    assert answer == f"I got {description}. 1 2 - counted by the demo model."


def test_the_name_of_an_attachment_names_no_tool() -> None:
    named = MediaPart("file", "https://example.com/color.txt", name="background color")
    assert tool_calls(ask((named,), *PAGE)) == []
    assert tool_calls(ask((TextPart("the time zone"), named), *PAGE)) == [("get-time-zone", {})]


def test_attachments_of_an_earlier_message_are_not_described_again() -> None:
    earlier = UserMessage(MessageId("m0"), (PIXEL,))
    answer = text(answer_deltas(ModelRequest([earlier, user("hi")])))
    assert answer.startswith("Hello!")


def test_an_attachment_in_a_result_is_described() -> None:
    call = ToolCall(CallId("c"), "look", "{}")
    messages: list[ModelMessage] = [
        user("look"),
        AssistantMessage(MessageId("a"), "", tool_calls=(call,)),
        ToolMessage(MessageId("t"), CallId("c"), (TextPart("here"), PIXEL)),
    ]
    answer = 'Done. look answered: "here\n[an image "dot.png" (image/png, 7 bytes)]".'
    assert text(answer_deltas(ModelRequest(messages))) == answer
