"""`/send-message`: the context of a post is that of its last user message, or is refused."""

import json
from typing import Any

import pytest
from pydantic import JsonValue
from tests.support.asgi_client import Answer, ask_json
from tests.support.logged_runs import LoggedRuns
from tests.unit.wire.send_message_site import PATH, greeting, site

from passback.core.messages import MessageContext, SystemMessage, ToolMessage, UserMessage
from passback.http.wires import RequestLimits
from passback.native.history import message_view
from passback.native.message_context import context_view

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, JsonValue] = {"type": "object", "required": ["a"]}
HELLO: dict[str, Any] = {"role": "user", "content": "hello"}
RESULT: dict[str, Any] = {"role": "tool", "toolCallId": "c", "content": "done"}
PICTURE: dict[str, Any] = {
    "role": "user",
    "content": [{"type": "image", "url": f"data:image/png;base64,{'A' * 200}"}],
}


async def _post(
    *messages: dict[str, Any], data_bytes: int = 20, **fields: Any
) -> tuple[Answer, LoggedRuns]:
    runs = greeting()
    limits = RequestLimits(data_bytes=data_bytes, attachment_bytes=100)
    app = site(runs, limits=limits, allow_roles=frozenset({"user", "tool", "system"}))
    return await ask_json(app, "POST", PATH, {"messages": list(messages), **fields}), runs


async def _read(*messages: dict[str, Any], **fields: Any) -> list[MessageContext | None]:
    """Return the contexts of the user messages."""
    answer, runs = await _post(*messages, **fields)
    assert answer.status == 200, answer.body
    [post] = runs.posts
    return [each.context for each in post.messages if isinstance(each, UserMessage)]


@pytest.mark.parametrize(
    ("fields", "context"),
    [
        ({"structuredData": {"a": [1, None]}}, MessageContext({"a": [1, None]})),
        ({"structured_data": 0}, MessageContext(0)),
        ({"structuredData": False}, MessageContext(False)),
        ({"intent": " buy "}, MessageContext(intent="buy")),
        ({"constraints": ["cheap", " ", "soon"]}, MessageContext(constraints=("cheap", "soon"))),
        ({"instructions": "Be kind."}, MessageContext(instructions="Be kind.")),
        ({"outputSchema": SCHEMA}, MessageContext(output_schema=SCHEMA)),
        ({"outputSchema": json.dumps(SCHEMA)}, MessageContext(output_schema=SCHEMA)),
        ({"outputSchema": {}}, MessageContext(output_schema={"type": "object"})),
    ],
)
async def test_the_fields_of_a_context_are_read(
    fields: dict[str, Any], context: MessageContext
) -> None:
    assert await _read(HELLO, **fields) == [context]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"intent": None, "constraints": None, "outputSchema": None},
        {"intent": " ", "constraints": [""], "instructions": "\n"},
    ],
)
async def test_empty_fields_are_no_context(fields: dict[str, Any]) -> None:
    assert await _read(HELLO, **fields) == [None]
    answer, _ = await _post(RESULT, **fields)
    assert answer.status == 200


async def test_null_clears_the_data_and_is_shown_in_the_history() -> None:
    assert await _read(HELLO, structuredData=None) == [MessageContext(forgets=True)]
    assert await _read(HELLO, structuredData=None, intent="buy") == [
        MessageContext(intent="buy", forgets=True)
    ]
    assert context_view(MessageContext(forgets=True)) == {"structuredData": None}
    answer, runs = await _post(RESULT, structuredData=None, intent=None)
    assert (answer.status, len(runs.posts)) == (200, 1)


async def test_a_context_is_that_of_the_last_user_message() -> None:
    last = {"role": "system", "content": "be kind"}
    assert await _read(HELLO, HELLO, RESULT, last, intent="buy") == [
        None,
        MessageContext(intent="buy"),
    ]


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"structuredData": ["x" * 20]}, 413, "data_too_large"),
        ({"structuredData": ["ü" * 9]}, 413, "data_too_large"),
        ({"intent": 1}, 422, "invalid_request"),
        ({"intent": "x" * 4001}, 422, "invalid_request"),
        ({"constraints": "cheap"}, 422, "invalid_request"),
        ({"constraints": ["x"] * 101}, 422, "invalid_request"),
        ({"constraints": ["x" * 4001]}, 422, "invalid_request"),
        ({"instructions": "x" * 32_769}, 422, "invalid_request"),
        ({"outputSchema": [1]}, 422, "invalid_request"),
        ({"outputSchema": "{"}, 422, "invalid_output_schema"),
        ({"outputSchema": {"type": "array"}}, 422, "invalid_output_schema"),
        ({"outputSchema": {"required": 1}}, 422, "invalid_output_schema"),
        ({"outputSchema": {"title": "x" * 70_000}}, 422, "invalid_output_schema"),
        ({"outputSchema": {"$ref": "https://x/"}}, 422, "invalid_output_schema"),
    ],
)
async def test_a_malformed_context_is_refused(
    fields: dict[str, Any], status: int, code: str
) -> None:
    answer, runs = await _post(HELLO, **fields)
    assert (answer.status, answer.json["code"], runs.posts) == (status, code, [])


async def test_a_refusal_says_what_is_wrong() -> None:
    answer, _ = await _post(HELLO, outputSchema={"type": "array"})
    assert answer.json["message"] == "outputSchema is refused: its schema is not of type 'object'"
    answer, _ = await _post(HELLO, structuredData=["x" * 20])
    assert answer.json["details"] == {"limit": 20}


def _table(text: str) -> dict[str, Any]:
    return {"mediaType": "text/csv", "text": text}


@pytest.mark.parametrize("rows", [1, 20_000])
async def test_a_table_is_kept_as_it_was_posted(rows: int) -> None:
    data: JsonValue = {"orders": _table("a,b\n" + "1,x\n" * rows), "year": 2026}
    answer, runs = await _post(HELLO, structuredData=data, data_bytes=200_000)
    assert answer.status == 200
    [message] = runs.posts[0].messages
    assert isinstance(message, UserMessage)
    assert message.context == MessageContext(data)


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            _table("a,a\n"),
            "structuredData is a table that cannot be read: its header has the column 'a' twice",
        ),
        (
            {"x": 1, "orders": _table("a,b\n" + "1,2\n" * 20_000 + "3\n")},
            (
                "structuredData.orders is a table that cannot be read: "
                "line 20002 has 1 field, and the header 2"
            ),
        ),
    ],
)
async def test_a_table_that_cannot_be_read_is_refused(data: Any, message: str) -> None:
    answer, runs = await _post(HELLO, structuredData=data, data_bytes=200_000)
    assert (answer.status, answer.json["code"], runs.posts) == (422, "invalid_request", [])
    assert answer.json["message"] == message


@pytest.mark.promise("P12")
async def test_a_context_needs_a_user_message() -> None:
    answer, runs = await _post(RESULT, intent="buy")
    assert (answer.status, answer.json["code"], runs.posts) == (422, "invalid_request", [])
    assert "need a user message" in answer.json["message"]


@pytest.mark.promise("P11", "P12")
async def test_attachments_have_a_limit() -> None:
    answer, runs = await _post(PICTURE)
    assert (answer.status, answer.json["code"], runs.posts) == (413, "attachment_too_large", [])


# ---------------------------------------------------------------- in the history
async def test_the_history_shows_what_was_posted() -> None:
    fields: dict[str, Any] = {
        "structuredData": {"a": 1},
        "intent": "buy",
        "constraints": ["cheap"],
        "instructions": "Be kind.",
        "outputSchema": SCHEMA,
    }
    _, runs = await _post(HELLO | {"id": "u"}, **fields)
    [message] = runs.posts[0].messages
    assert not isinstance(message, ToolMessage)
    assert message_view(message) == HELLO | {"id": "u"} | fields


async def test_the_history_shows_the_time_of_a_message_and_synthetic_ones() -> None:
    _, runs = await _post(HELLO | {"id": "u"})
    [plain] = runs.posts[0].messages
    assert message_view(plain) == HELLO | {"id": "u"}
    assert isinstance(plain, UserMessage)
    assert message_view(
        UserMessage(plain.id, "hello", context=MessageContext(at="now"))
    ) == HELLO | {
        "id": "u",
        "at": "now",
    }
    refused = SystemMessage(plain.id, "no", synthetic="invalid")
    assert message_view(refused) == {
        "id": "u",
        "role": "system",
        "content": "no",
        "synthetic": "invalid",
    }
