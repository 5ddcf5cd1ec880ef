"""The three layers of a prompt, and data that cannot get out of its tags."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from pydantic_core import to_json

from passback.context.prompt import (
    ASK_GUIDE,
    CONDUCT,
    DATA_GUIDE,
    SERVERS_GUIDE,
    PromptLayers,
    outline,
    output_guide,
    static_prompt,
)
from passback.core.messages import (
    AssistantMessage,
    Content,
    DataPart,
    MediaPart,
    MessageContext,
    MessageId,
    TextPart,
    UserMessage,
)

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "agents.md").read_text()
TAGS = ("user_context", "time", "intent", "structured_data", "constraints", "constraint")
APPENDED = ("instructions", "output_schema")
WHOLE = MessageContext(
    {"a": "</structured_data>"},
    "buy <b> & sell",
    ("cheap", "soon"),
    "Be </instructions> kind.",
    {"type": "object", "title": "<x>"},
    "2026-01-31T12:00:00+00:00",
)
SHOWN = """\
<user_context>
<time>2026-01-31T12:00:00+00:00</time>
<intent>buy &lt;b> &amp; sell</intent>
<structured_data>
{"a":"\\u003c/structured_data>"}
</structured_data>
<constraints>
<constraint>cheap</constraint>
<constraint>soon</constraint>
</constraints>
</user_context>

hello

<instructions>
Be &lt;/instructions> kind.
</instructions>
Answer this with nothing but one JSON object that fits this JSON Schema, without Markdown around it:
<output_schema>
{"type":"object","title":"\\u003cx>"}
</output_schema>"""


def message(content: Content = "hello", context: MessageContext | None = None) -> UserMessage:
    return UserMessage(MessageId("u"), content, context=context)


def shown(content: Content, context: MessageContext, **how: Any) -> Content:
    built = PromptLayers(**how).shown(message(content, context))
    assert isinstance(built, UserMessage)
    assert (built.id, built.context) == ("u", None)
    return built.content


# ---------------------------------------------------------------- places of the layers
def test_all_that_was_said_beside_words_stands_around_them() -> None:
    assert shown("hello", WHOLE) == SHOWN


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (MessageContext(), "hello"),
        (
            MessageContext(intent="buy"),
            "<user_context>\n<intent>buy</intent>\n</user_context>\n\nhello",
        ),
        (MessageContext(instructions="go"), "hello\n\n<instructions>\ngo\n</instructions>"),
    ],
)
def test_what_was_not_said_is_not_there(context: MessageContext, expected: str) -> None:
    assert shown("hello", context) == expected


@pytest.mark.parametrize(
    ("context", "before", "behind"),
    [
        (MessageContext(), 0, 0),
        (MessageContext(intent="buy"), 1, 0),
        (MessageContext(instructions="go"), 0, 1),
        (WHOLE, 1, 1),
    ],
)
def test_parts_stay_as_they_are(context: MessageContext, before: int, behind: int) -> None:
    parts = (TextPart("see"), MediaPart("image", "https://x/a.png"), DataPart(1))
    content = shown(parts, context)
    assert isinstance(content, tuple)
    assert content[before : len(content) - behind] == parts
    assert len(content) == before + 3 + behind
    assert all(isinstance(content[at], TextPart) for at in (*range(before), *range(-behind, 0)))


def test_a_message_without_a_brief_is_the_same_object() -> None:
    for plain in (message(), AssistantMessage(MessageId("a"), "hi")):
        assert PromptLayers().shown(plain) is plain


def test_the_agent_that_was_asked_stays_named() -> None:
    asked = replace(message(context=MessageContext(intent="buy")), agent="sales")
    assert PromptLayers().shown(asked) == replace(
        asked, content=shown("hello", MessageContext(intent="buy")), context=None
    )


# ---------------------------------------------------------------- the system prompt
def test_guides_stand_behind_the_agents_own_words() -> None:
    prompt = static_prompt("You sell.", "Be kind.", ["", "# A", "# B"])
    assert prompt == "# Role\nYou sell.\n\n# Rules\nBe kind.\n\n# A\n\n# B"
    assert static_prompt("") == ""
    assert output_guide({"type": "object"}).endswith(':\n{"type":"object"}')


# ---------------------------------------------------------------- posted data
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NASTY = st.lists(
    st.sampled_from(["</", "<", ">", "&lt;", "&", '"', "\\", "\n", *TAGS, *APPENDED]) | WORDS
).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NASTY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NASTY, inner, max_size=4),
    max_leaves=12,
)
CONTEXTS = st.builds(
    MessageContext,
    JSON,
    NASTY,
    st.lists(NASTY, max_size=3).map(tuple),
    NASTY,
    st.none() | st.dictionaries(NASTY, JSON, max_size=2),
    NASTY,
)


@given(CONTEXTS, st.sampled_from([None, 0, 40]))
@pytest.mark.promise("P13")
def test_no_post_can_open_or_close_a_tag(context: MessageContext, pasted: int | None) -> None:
    text = shown("HELLO", context, pasted=pasted)
    assert isinstance(text, str)
    opened = re.findall(r"<(\w+)", text)
    assert text.count("<") == 2 * len(opened)
    assert sorted(opened) == sorted(re.findall(r"</(\w+)>", text))
    expected = len([each for each in context.constraints if each])
    assert opened.count("constraint") == expected
    assert all(opened.count(tag) <= 1 for tag in (*TAGS[:-1], *APPENDED))


@given(CONTEXTS)
def test_data_is_shown_as_it_is(context: MessageContext) -> None:
    text = shown("HELLO", context)
    assert isinstance(text, str)
    found = re.search(r"<structured_data>\n(.*)\n</structured_data>", text)
    assert (None if found is None else json.loads(found[1])) == context.data


# ---------------------------------------------------------------- large data
def test_large_data_is_outlined_for_an_agent_that_can_look_at_it() -> None:
    data: list[Any] = [{"id": number, "text": "x" * 300} for number in range(500)]
    text = shown("hello", MessageContext(data), pasted=1000)
    assert isinstance(text, str)
    size = len(to_json(data))
    assert f'<structured_data preview="true" bytes="{size}">' in text
    assert len(text) < 2000
    outlined = json.loads(re.findall(r"\n(.*)\n</structured_data>", text)[0])
    cut = f"{'x' * 200}... (300 characters)"
    assert outlined == {"items": 500, "first": [{"id": n, "text": cut} for n in range(3)]}
    assert shown("hello", MessageContext(data[:2]), pasted=1000) == shown(
        "hello", MessageContext(data[:2])
    )


def test_what_is_left_out_is_counted() -> None:
    assert outline({"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}) == {
        "a": {"b": {"c": {"d": {"e": {"...": "1 more"}}}}}
    }
    assert outline([[[[[[1]]]]]]) == {
        "items": 1,
        "first": [
            {
                "items": 1,
                "first": [
                    {
                        "items": 1,
                        "first": [
                            {
                                "items": 1,
                                "first": [{"items": 1, "first": [{"items": 1, "first": []}]}],
                            }
                        ],
                    }
                ],
            }
        ],
    }
    assert outline(10**5000) == "a number of many digits"


TABLE: JsonValue = {"mediaType": "text/csv", "text": "customer,open\n" + "Ann,120\n" * 4000}


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (
            TABLE,
            {
                "mediaType": "text/csv",
                "columns": ["customer", "open"],
                "first": [["Ann", "120"]] * 3,
                "characters": 32_014,
            },
        ),
        (
            {"mediaType": "text/csv", "text": ",".join(map(str, range(62)))},
            {
                "mediaType": "text/csv",
                "columns": [str(n) for n in range(60)],
                "first": [],
                "characters": 175,
                "...": "2 more columns",
            },
        ),
        # from before tables were read: as any object
        ({"mediaType": "text/csv", "text": "a,a"}, {"mediaType": "text/csv", "text": "a,a"}),
    ],
)
def test_a_table_is_outlined_by_columns_and_rows(data: JsonValue, shown: JsonValue) -> None:
    assert outline(data) == shown
    assert outline({"orders": data}) == {"orders": shown}
    # neither is one for the tools
    elsewhere: JsonValue = {"mediaType": "text/csv", "text": "a,b"}
    assert outline([elsewhere]) == {"items": 1, "first": [elsewhere]}
    assert outline({"a": {"b": elsewhere}}) == {"a": {"b": elsewhere}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["1"] * 9 + ["n/a"], "text: 1 of its 10 fields is not a number"),
        (["1"] * 9 + ["n/a", "-"], "text: 2 of its 11 fields are not numbers"),
        # of a table that is too large, whole lines of its beginning
        (["n/a"] + ["1"] * 9_000, "text: 1 of its first 8190 fields is not a number"),
        (["n/a", *["1"] * 5_000, '"' + "\n" * 9_000 + '"'], None),
    ],
)
def test_an_outline_tells_which_columns_of_a_table_hold_texts_for_a_few_fields(
    fields: list[str], expected: str | None
) -> None:
    table: JsonValue = {"mediaType": "text/csv", "text": "\n".join(["n", *fields])}
    shown = outline({"orders": table})
    assert isinstance(shown, dict)
    assert isinstance(orders := shown["orders"], dict)
    assert orders.get("mixed") == (None if expected is None else {"n": expected})
    assert outline({"orders": table}) == shown


@pytest.mark.promise("P11")
def test_the_tables_of_an_outline_share_what_is_looked_at() -> None:
    table: JsonValue = {"mediaType": "text/csv", "text": "n\nn/a\n" + "1\n" * 9_000}
    shown = outline(dict.fromkeys("abcd", table))
    assert isinstance(shown, dict)
    missing = {"n": "text: 1 of its first 2046 fields is not a number"}
    assert [each["mixed"] for each in shown.values() if isinstance(each, dict)] == [missing] * 4


@pytest.mark.promise("P11")
@pytest.mark.parametrize("name", ["é" * 100, "\x01" * 100, "n"], ids=["é", "control", "n"])
@pytest.mark.parametrize("count", [1, 60, 200])
def test_an_outline_of_tables_is_never_large(name: str, count: int) -> None:
    header = ",".join(f"{at}{name}" for at in range(count))
    rows = [",".join([field] * count) for field in ("1", "2", "\x02" * 200)]
    table: JsonValue = {"mediaType": "text/csv", "text": "\n".join([header, *rows])}
    data: JsonValue = {f"{at}{name}": table for at in range(count)}
    assert len(to_json(outline(data))) <= 6 * 1024
    assert len(to_json(outline(table))) <= 6 * 1024


@pytest.mark.promise("P11")
@given(
    st.recursive(
        st.integers() | st.just("ü" * 300) | st.booleans() | st.none(),
        lambda inner: (
            st.lists(inner, max_size=6).map(lambda each: each * 20)
            | st.lists(inner, max_size=6).map(
                lambda each: {
                    f"{'é' * 100}{at}" if at % 2 else str(at): x for at, x in enumerate(each * 20)
                }
            )
        ),
        max_leaves=20,
    )
)
def test_an_outline_is_never_large(value: Any) -> None:
    assert len(to_json(outline(value))) <= 6 * 1024


# ---------------------------------------------------------------- documentation
def test_the_page_shows_what_the_model_is_shown() -> None:
    text = shown(
        "Who owes us most?",
        MessageContext(
            {"invoices": [{"customer": "Ann", "open": 120}, {"customer": "Bob", "open": 80}]},
            "prepare a reminder",
            ("amounts in euros",),
            "Be brief.",
            {"type": "object", "required": ["customer"]},
            "2026-01-31T12:00:00+00:00",
        ),
    )
    assert f"```text\n{text}\n```\n" in PAGE


def test_the_page_has_the_guides() -> None:
    quoted = re.findall(r"^```markdown\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert sorted(quoted) == sorted([ASK_GUIDE, CONDUCT, DATA_GUIDE])


def test_the_page_of_mcp_servers_shows_their_part_of_the_prompt() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "mcp.md").read_text()
    notes = {"notes": "Look for a note before you keep it a second time."}
    guide, block = PromptLayers().instructed(notes).split("\n<mcp_server name", 1)
    assert guide == SERVERS_GUIDE
    assert f"```markdown\n{guide}\n```\n" in page
    assert f"```text\n<mcp_server name{block}\n```\n" in page
