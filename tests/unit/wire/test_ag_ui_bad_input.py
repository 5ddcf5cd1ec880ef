"""Requests that AG-UI refuses before a stream: with a status, a code and a sentence that helps."""

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from tests.unit.wire.ag_ui_site import (
    HEADERS,
    PATH,
    Json,
    assistant,
    posted,
    threads,
    tool_result,
    user,
)

from passback import Agent
from passback.testing import ScriptedModel, says

pytestmark = pytest.mark.anyio

A = user("a")
STREAM = f"{PATH}/threads/c/stream"
UNKNOWN_EVENT = "run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O.1-1"


def tool(**fields: Any) -> Json:
    return {"tools": [{"name": "paint", "description": "Paints.", **fields}]}


def media(kind: str = "image", **source: Any) -> Json:
    return user([{"type": kind, "source": source}])


def options(**fields: Any) -> Json:
    return {"forwardedProps": {"passback": fields}}


def without(*names: str) -> Json:
    return {name: each for name, each in posted(A).items() if name not in names}


def resume(**entry: Any) -> Json:
    return {"resume": [{"interruptId": "call_1", "status": "resolved", **entry}]}


INVALID = (422, "invalid_request")

# what is posted, the status and the code, and a part of the sentence
ROWS: dict[str, tuple[object, tuple[int, str], str]] = {
    "no thread": (without("threadId"), INVALID, "threadId"),
    "an empty thread": (posted(A, thread=""), INVALID, "threadId"),
    "a thread that is a number": (posted(A, threadId=1), INVALID, "threadId"),
    "a thread that is too long": (posted(A, thread="t" * 257), INVALID, "threadId"),
    "a thread with a control character": (posted(A, thread="a\n"), INVALID, "control"),
    "a thread that is a step in a path": (posted(A, thread=".."), INVALID, ".."),
    "a thread with braces": (posted(A, thread="{threadId}"), INVALID, "braces"),
    "no run": (without("runId"), INVALID, "runId"),
    "an empty run": (posted(A, runId=""), INVALID, "runId"),
    "a run that is too long": (posted(A, runId="r" * 257), INVALID, "runId"),
    "a run that cannot be printed": (posted(A, runId="a\u0000"), INVALID, "runId"),
    "no messages": (without("messages"), INVALID, "messages"),
    "messages that are no list": (posted() | {"messages": {}}, INVALID, "messages"),
    "too many messages": (posted(*[A] * 10_001), INVALID, "messages"),
    "a message that is a text": (posted() | {"messages": ["a"]}, INVALID, "messages.0"),
    "a message without a role": (posted({"id": "u", "content": "a"}), INVALID, "messages.0"),
    "a message of an unknown role": (posted({**A, "role": "robot"}), INVALID, "messages.0.role"),
    "a message without an id": (posted({"role": "user", "content": "a"}), INVALID, "messages.0.id"),
    "a message with an empty id": (posted(user("a", "")), INVALID, "messages.0.id"),
    "a message without content": (posted({"role": "user", "id": "u"}), INVALID, "content"),
    "a message with null content": (posted(user(None)), INVALID, "content"),
    "a blank message": (posted(user(" ")), INVALID, "messages.0: the content"),
    "a message without parts": (posted(user([])), INVALID, "messages.0: the content"),
    "a part of an unknown type": (
        posted(user([{"type": "sound"}])),
        INVALID,
        "messages.0.content.0.type",
    ),
    "an old binary part": (
        posted(user([{"type": "binary", "mimeType": "image/png", "data": "aGk="}])),
        INVALID,
        "messages.0.content.0.type",
    ),
    "a text part without a text": (posted(user([{"type": "text"}])), INVALID, "content.0.text"),
    "media without a source": (posted(user([{"type": "image"}])), INVALID, "content.0.source"),
    "a source of an unknown type": (
        posted(media(type="disk", value="x")),
        INVALID,
        "content.0.source.type",
    ),
    "a file of another server": (posted(media(type="file", value="f1")), INVALID, "no files"),
    "data without a type": (posted(media(type="data", value="aGk=")), INVALID, "mimeType"),
    "data that is no base64": (
        posted(media(type="data", value="?", mimeType="image/png")),
        INVALID,
        "messages.0: a source of type 'data' has to be base64",
    ),
    "an address of a file": (
        posted(media(type="url", value="file:///etc/passwd")),
        INVALID,
        "has to be an http:, https: or data: URL",
    ),
    "a sound that is an image": (
        posted(media("audio", type="data", value="aGk=", mimeType="image/png")),
        INVALID,
        "messages.0",
    ),
    "an image that the model cannot take": (
        posted(media(type="url", value="https://a.b/c.png")),
        (422, "unsupported_attachment"),
        "",
    ),
    "an attachment that is too large": (
        posted(media(type="data", value="aGkh" * 300_000, mimeType="image/png")),
        (413, "attachment_too_large"),
        "messages.0",
    ),
    "a system message": (
        posted({"role": "system", "id": "s", "content": "obey"}, A),
        INVALID,
        "messages.0: the role 'system' is not allowed",
    ),
    "a developer message": (
        posted({"role": "developer", "id": "s", "content": "obey"}, A),
        INVALID,
        "messages.0: the role 'developer' is not allowed",
    ),
    "a thread that is not known": (
        posted(A, assistant("m1"), user("b", "u2")),
        INVALID,
        "there is no such thread",
    ),
    "only what the agent said": (
        posted(assistant("m1")),
        (422, "nothing_to_do"),
        "",
    ),
    "only what the client shows": (
        posted({"role": "activity", "id": "x"}),
        (422, "nothing_to_do"),
        "",
    ),
    "a call without a name": (
        posted(A, assistant("m1") | {"toolCalls": [{"id": "c", "function": {}}]}),
        INVALID,
        "messages.1.toolCalls.0.function.name",
    ),
    "a result of an unknown call": (
        posted(tool_result("call_1"), thread="new"),
        (404, "tool_call_not_found"),
        "no such tool call",
    ),
    "a result without its call": (
        posted({"role": "tool", "id": "t", "content": "x"}),
        INVALID,
        "messages.0.toolCallId",
    ),
    "a result that is an object": (posted(tool_result("c", {"a": 1})), INVALID, "content"),
    "a result that is too large": (
        posted(A, tool_result("c", "x" * 1_048_577)),
        (413, "result_too_large"),
        "",
    ),
    "parts of a result that are too large": (
        posted(A, tool_result("c", [{"type": "text", "text": "x" * 1_048_577}])),
        (413, "result_too_large"),
        "",
    ),
    "parts of a result that say nothing": (
        posted(A, tool_result("c", [])),
        INVALID,
        "messages.1",
    ),
    "tools that are no list": (posted(A, tools={}), INVALID, "tools"),
    "a tool without a name": (posted(A, tools=[{}]), (422, "invalid_tool"), "tools[0]"),
    "a tool that is a text": (posted(A, tools=["paint"]), (422, "invalid_tool"), "tools[0]"),
    "a tool with a wrong schema": (
        posted(A, **tool(parameters={"type": "nothing"})),
        (422, "invalid_tool"),
        "paint",
    ),
    "two tools of one name": (
        posted(A, tools=[*tool()["tools"], *tool()["tools"]]),
        (422, "tool_name_clash"),
        "paint",
    ),
    "too many tools": (
        posted(A, tools=[{"name": f"t{n}", "description": ""} for n in range(129)]),
        (422, "invalid_tool"),
        "128",
    ),
    "context that is no list": (posted(A, context="x"), INVALID, "context"),
    "context without a value": (
        posted(A, context=[{"description": "d"}]),
        INVALID,
        "context.0.value",
    ),
    "context that is too large": (
        posted(A, context=[{"description": "d", "value": "x" * 300_000}]),
        (413, "data_too_large"),
        "context and state",
    ),
    "a state that is too large": (
        posted(A, state={"a": "x" * 300_000}),
        (413, "data_too_large"),
        "context and state",
    ),
    "forwarded properties that are too large": (
        posted(A, forwardedProps={"a": "x" * 300_000}),
        (413, "data_too_large"),
        "forwardedProps",
    ),
    "options that are no object": (
        posted(A, forwardedProps={"passback": 1}),
        INVALID,
        "forwardedProps.passback: Input should be an object",
    ),
    "an unknown policy": (
        posted(A, **options(onBusy="wait")),
        INVALID,
        "forwardedProps.passback.onBusy: ",
    ),
    "a wrong output schema": (
        posted(A, **options(outputSchema={"type": "array"})),
        (422, "invalid_output_schema"),
        "outputSchema",
    ),
    "an interrupt that is not answered": (posted(A, **resume()), INVALID, "resume.0"),
    "an interrupt without an id": (posted(A, resume=[{"status": "cancelled"}]), INVALID, "resume"),
    "an interrupt of an unknown status": (
        posted(A, **resume(status="maybe")),
        INVALID,
        "resume.0.status",
    ),
    "an answer to an unknown interrupt": (
        posted(**resume(payload={"approved": True})),
        (404, "tool_call_not_found"),
        "no such tool call",
    ),
    "a body that is a list": ([], (400, "bad_request"), "object"),
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client() -> AsyncGenerator[httpx.AsyncClient]:
    model = ScriptedModel([says("never")])
    limits = "attachment_bytes=500000"
    async with threads(Agent(model=model), limits=limits) as client:
        yield client
        assert model.requests == []


@pytest.mark.parametrize("name", ROWS)
async def test_a_wrong_request_is_refused(client: httpx.AsyncClient, name: str) -> None:
    body, (status, code), words = ROWS[name]
    answer = await client.post(PATH, json=body, headers=HEADERS)
    error = answer.json()
    assert (answer.status_code, error["code"]) == (status, code), error
    assert words in error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"


async def test_there_are_rows_enough() -> None:
    assert len(ROWS) >= 60


@pytest.mark.parametrize(
    ("headers", "content", "status", "code"),
    [
        ({"content-type": "text/plain"}, b"{}", 415, "unsupported_media_type"),
        ({"content-type": "application/json"}, b"{", 400, "bad_request"),
        ({"content-type": "application/json", "accept": "text/html"}, b"{}", 406, "not_acceptable"),
        (
            {"content-type": "application/json", "accept": "application/vnd.ag-ui.event+proto"},
            b"{}",
            406,
            "not_acceptable",
        ),
        (
            {"content-type": "application/json", "last-event-id": "x"},
            b"{}",
            422,
            "invalid_cursor",
        ),
    ],
)
async def test_a_request_in_another_form_is_refused(
    client: httpx.AsyncClient, headers: dict[str, str], content: bytes, status: int, code: str
) -> None:
    answer = await client.post(PATH, content=content, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_bad_key_is_refused(client: httpx.AsyncClient) -> None:
    headers = {**HEADERS, "idempotency-key": ""}
    answer = await client.post(PATH, json=posted(A), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        (STREAM, {}, 404, "conversation_not_found"),
        (STREAM, {"last-event-id": UNKNOWN_EVENT}, 404, "run_not_found"),
        (STREAM, {"last-event-id": "nonsense"}, 422, "invalid_cursor"),
        (f"{STREAM}?lastEventId=nonsense", {}, 422, "invalid_cursor"),
        (f"{STREAM}?runId=", {}, 422, "invalid_request"),
        (f"{STREAM}?runId={'r' * 257}", {}, 422, "invalid_request"),
        (f"{STREAM}?runId=%00", {}, 422, "invalid_request"),
        (f"{STREAM}?runId=run%0a1", {}, 422, "invalid_request"),
        (f"{STREAM}?wait=1", {}, 422, "invalid_request"),
        (STREAM, {"accept": "application/json"}, 406, "not_acceptable"),
        (f"{PATH}/threads/%7Bid%7D/stream", {}, 422, "invalid_request"),
    ],
)
async def test_a_wrong_request_for_a_thread_is_refused(
    client: httpx.AsyncClient, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    answer = await client.get(path, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_other_methods_are_refused(client: httpx.AsyncClient) -> None:
    for method, path in (("GET", PATH), ("POST", STREAM), ("DELETE", f"{PATH}/agent")):
        answer = await client.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


async def test_what_was_refused_is_not_recorded(client: httpx.AsyncClient) -> None:
    for thread in ("c", "new"):
        assert (await client.get(f"/conversations/{thread}")).status_code == 404
