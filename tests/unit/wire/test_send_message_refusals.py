"""`/send-message` refuses malformed posts before anything is stored, and names the error."""

from typing import Any

import pytest
from tests.support.asgi_client import ask, exchange
from tests.unit.wire.send_message_site import HELLO, PATH, greeting, send, site

from passback.core.errors import ConversationBusy, NothingToDo, QueueFull, Reused, UnknownRun

pytestmark = pytest.mark.anyio


def _message(**message: object) -> dict[str, Any]:
    return {"messages": [message]}


MALFORMED: dict[str, tuple[dict[str, Any], int, str]] = {
    "an unknown role": (_message(role="robot", content="x"), 422, "invalid_request"),
    "no role": (_message(content="x"), 422, "invalid_request"),
    "a role that is no text": (_message(role=1, content="x"), 422, "invalid_request"),
    "a forged system message": (_message(role="system", content="x"), 422, "invalid_request"),
    "a forged answer": (_message(role="assistant", content="x"), 422, "invalid_request"),
    "no content": (_message(role="user"), 422, "invalid_request"),
    "empty content": (_message(role="user", content=" "), 422, "invalid_request"),
    "content of the wrong kind": (_message(role="user", content=1), 422, "invalid_request"),
    "content that is an object": (_message(role="user", content={}), 422, "invalid_request"),
    "an unknown part": (_message(role="user", content=[{"type": "x"}]), 422, "invalid_request"),
    "a result without call": (_message(role="tool", content="x"), 422, "invalid_request"),
    "a result with an empty call": (
        _message(role="tool", content="x", toolCallId=""),
        422,
        "invalid_request",
    ),
    "a result with a call that is no text": (
        _message(role="tool", content="x", toolCallId=1),
        422,
        "invalid_request",
    ),
    "a result with a huge call": (
        _message(role="tool", content="x", toolCallId="x" * 1_000_000),
        422,
        "invalid_request",
    ),
    "a result without content": (_message(role="tool", toolCallId="c"), 422, "invalid_request"),
    "an error flag that is no flag": (
        _message(role="tool", content="x", toolCallId="c", isError="no"),
        422,
        "invalid_request",
    ),
    "a message that is no object": ({"messages": ["hello"]}, 422, "invalid_request"),
    "messages that are no list": ({"messages": "hello"}, 422, "invalid_request"),
    "messages that are null": ({"messages": None}, 422, "invalid_request"),
    "too many messages": ({"messages": HELLO["messages"] * 1001}, 422, "invalid_request"),
    "an id that is no text": ({"conversationId": 7}, 422, "invalid_request"),
    "an empty id": ({"conversationId": ""}, 422, "invalid_request"),
    "an id of 257 characters": ({"conversationId": "x" * 257}, 422, "invalid_request"),
    "an id of a megabyte": ({"conversationId": "x" * 1_000_000}, 422, "invalid_request"),
    "an id that is a step in a path": ({"conversationId": ".."}, 422, "invalid_request"),
    "an id that is a template": ({"conversationId": "{id}"}, 422, "invalid_request"),
    "an id with NUL": ({"conversationId": "a\0b"}, 422, "invalid_request"),
    "an id with a line break": ({"conversationId": "a\r\nX-Y: z"}, 422, "invalid_request"),
    "an id with a C1 control": ({"conversationId": "a\u0085b"}, 422, "invalid_request"),
    "tools that are no list": ({"tools": {}}, 422, "invalid_request"),
    "a tool without name": ({"tools": [{"parameters": {}}]}, 422, "invalid_tool"),
    "a tool that is no object": ({"tools": [1]}, 422, "invalid_tool"),
    "two tools of one name": ({"tools": [{"name": "t"}, {"name": "T"}]}, 422, "tool_name_clash"),
    "a schema that is no JSON": (
        {"tools": [{"name": "t", "parameters": "{"}]},
        422,
        "invalid_tool",
    ),
    "a schema that is none": (
        {"tools": [{"name": "t", "parameters": {"type": 5}}]},
        422,
        "invalid_tool",
    ),
    "a schema with a remote reference": (
        {"tools": [{"name": "t", "parameters": {"$ref": "http://127.0.0.1:1/"}}]},
        422,
        "invalid_tool",
    ),
    "an empty message id": (_message(role="user", content="x", id=""), 422, "invalid_request"),
    "a message id that is no text": (
        _message(role="user", content="x", id=1),
        422,
        "invalid_request",
    ),
    "a message id of 257 characters": (
        _message(role="user", content="x", id="x" * 257),
        422,
        "invalid_request",
    ),
    "a message id with a control character": (
        _message(role="user", content="x", id="a\nb"),
        422,
        "invalid_request",
    ),
    "a place that is no text": ({"after": 1}, 422, "invalid_request"),
    "a place of 257 characters": ({"after": "x" * 257}, 422, "invalid_request"),
    "a place with a control character": ({"after": "a\nb"}, 422, "invalid_request"),
    "an unknown policy": ({"onBusy": "wait"}, 422, "invalid_request"),
    "an unknown policy in the other spelling": ({"on_busy": "wait"}, 422, "invalid_request"),
    "a policy that is no text": ({"onBusy": True}, 422, "invalid_request"),
    "an unknown end without readers": ({"onDisconnect": "stop"}, 422, "invalid_request"),
    "include that is no list": ({"include": "run"}, 422, "invalid_request"),
    "include of other things": ({"include": [1]}, 422, "invalid_request"),
    "include of an unknown word": ({"include": ["run", "tomorrow"]}, 422, "invalid_request"),
    "resume that is no object": ({"resume": "yes"}, 422, "invalid_request"),
    "resume without id": ({"resume": {"payload": 1}}, 422, "invalid_request"),
    "resume with an id that is no text": (
        {"resume": {"interruptId": 1, "payload": True}},
        422,
        "invalid_request",
    ),
    "resume with an empty id": (
        {"resume": {"interruptId": "", "payload": True}},
        422,
        "invalid_request",
    ),
    "resume with a huge id": (
        {"resume": {"interruptId": "x" * 1_000_000, "payload": True}},
        422,
        "invalid_request",
    ),
    "resume without payload": ({"resume": {"interruptId": "i"}}, 422, "invalid_request"),
    "a list of answers, one of which is none": (
        {"resume": [{"interruptId": "i", "payload": True}, {"interruptId": "j", "payload": 1}]},
        422,
        "invalid_request",
    ),
    "too many answers": (
        {"resume": [{"interruptId": "i", "payload": True}] * 1001},
        422,
        "invalid_request",
    ),
    "resume with a payload that says nothing": (
        {"resume": {"interruptId": "i", "payload": {}}},
        422,
        "invalid_request",
    ),
    "resume with a word that means nothing": (
        {"resume": {"interruptId": "i", "payload": "perhaps"}},
        422,
        "invalid_request",
    ),
    "resume with broken JSON": (
        {"resume": [{"interruptId": "i", "payload": "{"}]},
        422,
        "invalid_request",
    ),
}


@pytest.mark.promise("P12", "P13")
@pytest.mark.parametrize(("fields", "status", "code"), MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_post_is_refused_and_not_stored(
    fields: dict[str, Any], status: int, code: str
) -> None:
    runs = greeting()
    answer = await send(runs, HELLO | fields, headers={"x-request-id": "r"})
    assert (answer.status, answer.code, answer.json["request_id"]) == (status, code, "r")
    assert len(answer.body) < 2000
    assert runs.posts == []


@pytest.mark.promise("P12")
async def test_a_malformed_event_id_is_refused_before_anything_is_stored() -> None:
    runs = greeting()
    answer = await send(runs, HELLO, headers={"last-event-id": "nonsense"})
    assert (answer.status, answer.code) == (422, "invalid_cursor")
    assert runs.posts == []


async def test_an_error_names_its_place() -> None:
    answer = await send(greeting(), _message(role="tool", content="secret", toolCallId=5))
    assert answer.json["details"] == {
        "problems": [{"at": "messages.0.toolCallId", "problem": "Input should be a valid string"}]
    }
    assert b"secret" not in answer.body


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NothingToDo("no"), 422),
        (Reused("other content"), 422),
        (ConversationBusy("later"), 409),
        (QueueFull("later"), 429),
    ],
)
async def test_a_refusal_by_the_engine_is_an_answer_and_no_stream(error: Any, status: int) -> None:
    runs = greeting()
    runs.answer = error
    answer = await send(runs, HELLO)
    assert (answer.status, answer.code) == (status, error.code)


async def test_a_repeat_after_the_log_expired_is_an_error() -> None:
    runs = greeting()
    runs.unreadable = UnknownRun("its log has expired")
    answer = await send(runs, HELLO, headers={"idempotency-key": "k-1"})
    assert (answer.status, answer.code) == (404, "run_not_found")


@pytest.mark.promise("P12")
async def test_an_event_id_beyond_the_end_of_the_run_is_refused() -> None:
    answer = await send(greeting(), HELLO, headers={"last-event-id": "run_1.7-1"})
    assert (answer.status, answer.code) == (422, "invalid_cursor")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded"])
async def test_a_form_of_a_foreign_page_is_refused(media_type: str) -> None:
    runs = greeting()
    headers = {"content-type": media_type}
    async with exchange(site(runs), "POST", PATH, headers=headers, body=b'{"a":1}') as one:
        assert one.status == 415
    assert runs.posts == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_only_posts_are_routed(method: str) -> None:
    answer = await ask(site(greeting()), method, PATH)
    assert (answer.status, answer.code, answer.headers["allow"]) == (
        405,
        "method_not_allowed",
        "POST",
    )


@pytest.mark.promise("P11")
@pytest.mark.parametrize(
    "post",
    [
        {"messages": [1] * 200_000},
        {"messages": [{"role": "user", "content": [1] * 200_000}]},
        {"messages": [{"role": "user", "content": "x"}] * 1001},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 1001}]},
        {**HELLO, "include": [1] * 200_000},
        {**HELLO, "include": ["x"] * 101},
        {**HELLO, "resume": [1] * 90_000},
    ],
    ids=["messages", "parts", "many messages", "many parts", "include", "many words", "resume"],
)
async def test_only_the_first_errors_of_a_list_are_reported(post: dict[str, object]) -> None:
    runs = greeting()
    answer = await send(runs, post)
    assert (answer.status, answer.json["code"]) == (422, "invalid_request")
    assert len(answer.json["details"]["problems"]) <= 2
    assert runs.posts == []


@pytest.mark.promise("P12")
@pytest.mark.parametrize("keys", [[""], ["x" * 257], ["a\x01"], ["a b"], ["a", "a"]])
async def test_a_malformed_key_is_refused_before_the_body_is_read(keys: list[str]) -> None:
    runs = greeting()
    headers = [("idempotency-key", key) for key in keys]
    async with exchange(
        site(runs), "POST", PATH, headers=headers, body=b"{", stalled_body=True
    ) as one:
        assert one.status == 400
        assert b'"code":"bad_request"' in await one.rest()
    assert runs.posts == []
