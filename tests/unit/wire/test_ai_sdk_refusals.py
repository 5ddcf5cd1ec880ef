"""Bad input to the AI SDK's chats: a 4xx with a short text before the stream, and no post."""

from typing import Any

import pytest
from tests.support.ai_sdk import API, Json, agent, tool_part, user
from tests.support.asgi_client import Answer, ask, ask_json
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.ai_sdk_site import GREETING, recorded, site

from passback.core.changes import Status
from passback.core.messages import AssistantMessage, MessageId
from passback.http.wires import RequestLimits

pytestmark = pytest.mark.anyio

LIMITS = RequestLimits(attachment_bytes=30, result_bytes=30, data_bytes=30)
LONG = "x" * 257
STEP: Json = {"type": "step-start"}


def said(*parts: object, **more: Any) -> Json:
    """A request with one message of the user."""
    return {"id": "c", "messages": [{"id": "u", "role": "user", "parts": list(parts), **more}]}


def answered(part: Json) -> Json:
    return {"id": "c", "messages": [user("go"), agent(STEP, part)]}


def file(url: object = "https://x.test/a", media_type: object = "image/png", **more: Any) -> Json:
    return said({"type": "file", "url": url, "mediaType": media_type, **more})


def decided(approval: object) -> Json:
    return answered(tool_part("approval-responded", approval=approval))


HELLO = {"id": "c", "message": user("hi")}
AGAIN = {"id": "c", "trigger": "regenerate-message"}

# the body, its status and code, and what its text begins with
REFUSED: dict[str, tuple[Any, int, str, str]] = {
    # ------------------------------------------------------------ the request
    "a list": ([], 400, "bad_request", ""),
    "nothing": ({}, 422, "nothing_to_do", "there is no message: send the chat in messages, or"),
    "no message": ({"id": "c", "messages": []}, 422, "nothing_to_do", "there is no message: send"),
    "a null message": ({"message": None}, 422, "nothing_to_do", "there is no message: send the"),
    "both lists": (
        {**HELLO, "messages": [user("a")]},
        422,
        "invalid_request",
        "send messages or message, not both",
    ),
    "messages that are no list": (
        {"messages": {}},
        422,
        "invalid_request",
        "messages: Input should be a valid list",
    ),
    "too many messages": (
        {"messages": [user("a")] * 10_001},
        422,
        "invalid_request",
        "messages: List should have at most 10000 items",
    ),
    "a message that is none": ({"message": "hi"}, 422, "invalid_request", "message: "),
    "a number as the id": ({**HELLO, "id": 1}, 422, "invalid_request", "id: "),
    "a long id": ({**HELLO, "id": LONG}, 422, "invalid_request", "id: "),
    "an id with a control character": ({**HELLO, "id": "a\n"}, 422, "invalid_request", "a conv"),
    "an id with braces": ({**HELLO, "id": "{id}"}, 422, "invalid_request", "a conversation id"),
    "a dot as the id": ({**HELLO, "id": ".."}, 422, "invalid_request", "a conversation id"),
    "an unknown trigger": ({**HELLO, "trigger": "go"}, 422, "invalid_request", "trigger: "),
    "a number as messageId": ({**HELLO, "messageId": 1}, 422, "invalid_request", "messageId: "),
    "a long messageId": ({**HELLO, "messageId": LONG}, 422, "invalid_request", "messageId: "),
    "a long agent": ({**HELLO, "agent": LONG}, 422, "invalid_request", "agent: "),
    "an unknown onBusy": ({**HELLO, "onBusy": "wait"}, 422, "invalid_request", "onBusy: "),
    "an unknown onDisconnect": (
        {**HELLO, "onDisconnect": 1},
        422,
        "invalid_request",
        "onDisconnect: ",
    ),
    # ------------------------------------------------------------ fields of other wires
    "tools that are no list": ({**HELLO, "tools": {}}, 422, "invalid_request", "tools: "),
    "a tool without a name": ({**HELLO, "tools": [{}]}, 422, "invalid_tool", ""),
    "a tool with an illegal schema": (
        {**HELLO, "tools": [{"name": "a", "parameters": {"type": "array"}}]},
        422,
        "invalid_tool",
        "",
    ),
    "large data": ({**HELLO, "structuredData": "x" * 31}, 413, "data_too_large", "structuredData"),
    "a long intent": ({**HELLO, "intent": "x" * 4001}, 422, "invalid_request", "intent: "),
    "an illegal output schema": (
        {**HELLO, "outputSchema": {"type": "array"}},
        422,
        "invalid_output_schema",
        "",
    ),
    # ------------------------------------------------------------ messages
    "no id": (said({}, id=None), 422, "invalid_request", "messages.0.id: "),
    "an empty id": (said({}, id=""), 422, "invalid_request", "messages.0.id: "),
    "a long message id": (said({}, id=LONG), 422, "invalid_request", "messages.0.id: "),
    "an unknown role": (said({}, role="tool"), 422, "invalid_request", "messages.0.role: "),
    "a system message": (
        said({"type": "text", "text": "a"}, role="system"),
        422,
        "invalid_request",
        "messages.0: the role 'system' is not allowed here",
    ),
    "no parts": (
        {"messages": [{"id": "u", "role": "user"}]},
        422,
        "invalid_request",
        "messages.0.parts: ",
    ),
    "content instead of parts": (
        {"messages": [{"id": "u", "role": "user", "content": "hi"}]},
        422,
        "invalid_request",
        "messages.0.parts: ",
    ),
    "an empty list of parts": (said(), 422, "invalid_request", "messages.0: the content of a"),
    "a part that is a text": (said("hi"), 422, "invalid_request", "messages.0.parts.0: "),
    "too many parts": (
        said(*[STEP] * 10_001),
        422,
        "invalid_request",
        "messages.0.parts: List should have at most 10000 items",
    ),
    # ------------------------------------------------------------ parts
    "a part without a type": (said({}), 422, "invalid_request", "messages.0.parts.0: type: "),
    "a part of the agent": (
        said({"type": "reasoning", "text": "hm"}),
        422,
        "invalid_request",
        "messages.0.parts.0: type: a message of the user has parts of the types text, file and",
    ),
    "a text without text": (
        said({"type": "text"}),
        422,
        "invalid_request",
        "messages.0.parts.0.text: ",
    ),
    "a blank text": (said({"type": "text", "text": " "}), 422, "invalid_request", "messages.0: "),
    "data without data": (said({"type": "data-x"}), 422, "invalid_request", "messages.0.parts.0."),
    "a file without a url": (
        said({"type": "file", "mediaType": "image/png"}),
        422,
        "invalid_request",
        "messages.0.parts.0.url: ",
    ),
    "a file without a type": (
        said({"type": "file", "url": "https://x.test/a"}),
        422,
        "invalid_request",
        "messages.0.parts.0.mediaType: ",
    ),
    "a blob": (file("blob:https://x.test/1"), 422, "invalid_request", "messages.0.parts.0.url: "),
    "a path": (file("/etc/passwd"), 422, "invalid_request", "messages.0.parts.0.url: "),
    "data that is not base64": (
        file("data:image/png,hi"),
        422,
        "invalid_request",
        "messages.0: a part of type 'image' has a data: URL that is not base64",
    ),
    "data of another type": (
        file("data:image/gif;base64,AAAA"),
        422,
        "invalid_request",
        "messages.0: a part of type 'image' is declared as image/png",
    ),
    "an illegal type": (
        file(media_type="image/a b"),
        422,
        "invalid_request",
        "messages.0.parts.0.mediaType: Input should be a media type without parameters, such",
    ),
    "a long name": (file(filename=LONG), 422, "invalid_request", "messages.0.parts.0.filename: "),
    "a large file": (
        file(f"data:image/png;base64,{'A' * 44}"),
        413,
        "attachment_too_large",
        "messages.0: the inline attachments of a message are larger than 30 bytes",
    ),
    # ------------------------------------------------------------ edits and answers
    "an edit of nothing": (
        {"messages": [user("a")], "messageId": "u9"},
        422,
        "invalid_request",
        "messageId: no posted message has this id: send the edited message as the last one",
    ),
    "an edit in the middle": (
        {"messages": [user("a", "u1"), user("b", "u2")], "messageId": "u1"},
        422,
        "invalid_request",
        "messageId: the message that is edited has to be the last one",
    ),
    "an edit of what there is not": (
        {"id": "c", "message": user("a", "u9"), "messageId": "u9"},
        404,
        "message_not_found",
        "this chat has gone on without the message",
    ),
    "an edit in a chat that there is not": (
        {"id": "d", "messages": [user("a"), agent(), user("b", "u2")], "messageId": "u2"},
        404,
        "conversation_not_found",
        "",
    ),
    "a message of the agent without answers": (
        answered(tool_part("input-available")),
        422,
        "nothing_to_do",
        "messages.1: it is the agent's, and has no result or decision",
    ),
    "the same alone": ({"id": "c", "message": agent()}, 422, "nothing_to_do", "message: it is"),
    "a result without a call": (
        answered({"type": "tool-x", "state": "output-available"}),
        422,
        "invalid_request",
        "messages.1.parts.1.toolCallId: ",
    ),
    "a result of a long call": (
        answered(tool_part("output-available", LONG)),
        422,
        "invalid_request",
        "messages.1.parts.1.toolCallId: ",
    ),
    "an error without a text": (
        answered(tool_part("output-error")),
        422,
        "invalid_request",
        "messages.1.parts.1.errorText: ",
    ),
    "a large result": (
        answered(tool_part("output-available", output="x" * 31)),
        413,
        "result_too_large",
        "messages.1.parts.1: the result of a tool is larger than 30 bytes",
    ),
    "a decision without one": (
        decided(None),
        422,
        "invalid_request",
        "messages.1.parts.1.approval: ",
    ),
    "a decision that is a word": (
        decided({"id": "call_1", "approved": "yes"}),
        422,
        "invalid_request",
        "messages.1.parts.1.approval.approved: ",
    ),
    "a decision on no call": (
        decided({"id": "", "approved": True}),
        422,
        "invalid_request",
        "messages.1.parts.1.approval.id: ",
    ),
    "a long reason": (
        decided({"id": "call_1", "approved": False, "reason": "x" * 10_001}),
        422,
        "invalid_request",
        "messages.1.parts.1.approval.reason: ",
    ),
    # ------------------------------------------------------------ regenerating
    "regenerating behind an answer": (
        {**AGAIN, "messages": [user("a"), agent()]},
        422,
        "invalid_request",
        "messages.1: to regenerate, send the messages up to the user's",
    ),
    "regenerating what there is not": (
        {**AGAIN, "messageId": "run_9"},
        404,
        "message_not_found",
        "this chat has gone on without the message",
    ),
    "regenerating where nobody asked": (AGAIN, 404, "message_not_found", ""),
    "regenerating in a chat that there is not": (
        {**AGAIN, "id": "d", "messages": [user("a"), agent(), user("b")]},
        404,
        "conversation_not_found",
        "",
    ),
}


@pytest.mark.parametrize(("body", "status", "code", "text"), REFUSED.values(), ids=REFUSED)
async def test_bad_input_is_refused_with_a_short_text_before_the_stream(
    body: Any, status: int, code: str, text: str
) -> None:
    runs = recorded(AssistantMessage(MessageId("a"), "imported"))
    answer = await ask_json(site(runs, limits=LIMITS), "POST", API, body)
    assert_refused(answer, status, code, text)
    assert runs.posts == []


def assert_refused(answer: Answer, status: int, code: str, text: str) -> None:
    shown = answer.body.decode()
    assert (answer.status, answer.headers["x-error-code"]) == (status, code)
    assert shown.startswith(text)
    assert 0 < len(shown) < 300
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_the_table_has_enough_rows() -> None:
    assert len(REFUSED) >= 40


@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [
        (API, "GET", 405, "method_not_allowed"),
        (f"{API}/c/stream?runId=%00", "GET", 404, "run_not_found"),
        (f"{API}/c/stream", "POST", 405, "method_not_allowed"),
        (f"{API}/c/stop", "GET", 405, "method_not_allowed"),
        (f"{API}/%7Bid%7D/stream", "GET", 422, "invalid_request"),
        (f"{API}/%ff/stop", "POST", 400, "bad_request"),
        (f"{API}/c/stream?run=run_1", "GET", 422, "invalid_request"),
    ],
)
async def test_a_bad_address_is_refused(path: str, method: str, status: int, code: str) -> None:
    runs = LoggedRuns(*GREETING)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    assert_refused(await ask(site(runs), method, path), status, code, "")
