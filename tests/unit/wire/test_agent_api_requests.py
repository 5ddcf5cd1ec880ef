"""`/process`: requests, and what they post to the conversation."""

import json
from typing import Any

import pytest
from tests.support.agent_api import PATH, Json, decision, function, output, text, user
from tests.support.asgi_client import ask, ask_json
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.agent_api_site import GREETING, HELLO, post, site

from passback.core.changes import Status
from passback.core.messages import Answer as ToAnswer
from passback.core.messages import (
    ApprovalMessage,
    CallId,
    DataPart,
    Generation,
    MediaPart,
    Message,
    MessageContext,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
    as_text,
)
from passback.core.posts import StartRun
from passback.http.wires import RequestLimits

pytestmark = pytest.mark.anyio


async def _read(*messages: object, **more: Any) -> tuple[Message, ...]:
    """Return the messages that a request posts."""
    runs = LoggedRuns(*GREETING)
    answer = await ask_json(
        site(runs, allow_roles=frozenset({"user", "tool", "system"})),
        "POST",
        PATH,
        {"session_id": "c", "input": list(messages), **more},
    )
    assert answer.status == 200, answer.body
    return runs.posts[0].messages


# ---------------------------------------------------------------- new messages
ASSISTANT = {"role": "assistant", "type": "message", "content": [text("I said")]}
CALL = {"type": "function_call", "role": "assistant", "content": [{"type": "data", "data": {}}]}
SERVERS_RESULT = {"type": "plugin_call_output", "role": "tool", "content": None}


@pytest.mark.parametrize(
    ("given", "new"),
    [
        ([user("a"), user("b")], ["a", "b"]),
        ([user("a"), ASSISTANT, user("b")], ["b"]),
        ([user("a"), CALL, output("c1", "x")], ["c1"]),
        ([user("a"), CALL, output("c1", "x"), CALL, output("c2", "y")], ["c1", "c2"]),
        ([CALL, output("c1", "x"), ASSISTANT, user("b")], ["b"]),
        ([output("c1", "x"), user("b")], ["c1", "b"]),
        ([user("a"), SERVERS_RESULT, CALL, output("c1", "x"), user("b")], ["c1", "b"]),
        ([user("a"), {"type": "heartbeat"}, user("b"), {"type": "error"}], ["a", "b"]),
        ([user("a"), {"type": "error", "role": "assistant"}, user("b")], ["a", "b"]),
        ([{**CALL, "type": "mcp_approval_request"}, decision("c1", True)], ["c1"]),
        ([{"role": "user", "type": "a2ui_action", "content": [text("a")]}], ["a"]),
    ],
)
async def test_only_messages_behind_the_answer_are_new(given: list[Json], new: list[str]) -> None:
    messages = await _read(*given)
    found = [
        m.call_id if isinstance(m, ToAnswer) else as_text(m.content, media=lambda part: part.url)
        for m in messages
        if isinstance(m, ToolMessage | ApprovalMessage | UserMessage)
    ]
    assert found == new


@pytest.mark.parametrize(
    ("given", "continues"),
    [
        ([user("a")], False),
        ([user("a"), {"type": "error", "role": "assistant"}, user("b")], False),
        ([output("c1", "x")], False),
        ([user("a"), ASSISTANT, user("b")], True),
        ([CALL, output("c1", "x")], True),
    ],
)
async def test_answers_prove_that_a_conversation_exists(given: list[Json], continues: bool) -> None:
    runs = LoggedRuns(*GREETING)
    await post(runs, {"session_id": "c", "input": given})
    assert (runs.posts[0].continues, runs.posts[0].resends) == (continues, True)


async def test_a_message_is_known_by_its_id() -> None:
    runs = LoggedRuns(*GREETING)
    given = [user("a", id="m1"), user("b", id=""), user("c", id=None, metadata={"x": 1})]
    await post(runs, {**HELLO, "input": given, "biz_params": {}, "response_id": "old"})
    assert runs.posts[0].named == {"m1"}
    assert runs.posts[0].messages[0].id == "m1"


# ---------------------------------------------------------------- content
DATA_URL = "data:image/png;base64,aGk="
PARTS: list[tuple[Json, object]] = [
    (text("hi"), TextPart("hi")),
    ({"type": "image", "image_url": "https://x/a.png"}, MediaPart("image", "https://x/a.png")),
    ({"type": "image", "image_url": DATA_URL}, MediaPart("image", DATA_URL)),
    ({"type": "data", "data": {"a": [1]}}, DataPart({"a": [1]})),
    ({"type": "data", "data": None}, DataPart({})),
    ({"type": "audio", "data": "https://x/a.wav"}, MediaPart("audio", "https://x/a.wav")),
    (
        {"type": "audio", "data": "aGk=", "format": "wav"},
        MediaPart("audio", "data:audio/wav;base64,aGk=", "audio/wav"),
    ),
    (
        {"type": "audio", "data": "aGk=", "format": "MP3"},
        MediaPart("audio", "data:audio/mpeg;base64,aGk=", "audio/mpeg"),
    ),
    (
        {"type": "file", "file_url": "https://x/a", "filename": "a.txt", "file_size": 1},
        MediaPart("file", "https://x/a", name="a.txt"),
    ),
    (
        {"type": "file", "file_data": "aGk=", "file_name": "a.pdf"},
        MediaPart("file", "data:application/pdf;base64,aGk=", "application/pdf", "a.pdf"),
    ),
    (
        {"type": "file", "file_data": "aGk="},
        MediaPart("file", "data:application/octet-stream;base64,aGk=", "application/octet-stream"),
    ),
    (
        {"type": "file", "file_data": "data:text/plain;base64,aGk="},
        MediaPart("file", "data:text/plain;base64,aGk="),
    ),
    ({"type": "video", "video_url": "https://x/a.mp4"}, MediaPart("file", "https://x/a.mp4")),
    ({"type": "refusal", "refusal": "no"}, RefusalPart("no")),
    ({"type": "refusal", "refusal": ""}, RefusalPart("")),
]


@pytest.mark.parametrize(("part", "read"), PARTS)
async def test_each_part_is_read(part: Json, read: object) -> None:
    [message] = await _read({"role": "user", "content": [part, {"type": "text", "text": None}]})
    assert isinstance(message, UserMessage)
    assert message.content == (read,)


async def test_a_system_message_is_read_if_it_is_allowed() -> None:
    first, second = await _read({**user("be kind"), "role": "system"}, {**user("hi"), "role": None})
    assert first == SystemMessage(first.id, (TextPart("be kind"),))
    assert second == UserMessage(second.id, (TextPart("hi"),))


async def test_results_and_decisions_are_read() -> None:
    failed = {**output("c2", {"a": 1}), "status": "failed"}
    messages = await _read(
        output("c1", "blue"),
        failed,
        output("c3", "x", is_error=True),
        decision("c4", True, id="x", always=True),
        decision("c5", False, reason=" no ", always=True),
        decision("c6", True, reason=None),
    )
    ids = [message.id for message in messages]
    assert messages == (
        ToolMessage(ids[0], CallId("c1"), "blue"),
        ToolMessage(ids[1], CallId("c2"), (DataPart({"a": 1}),), is_error=True),
        ToolMessage(ids[2], CallId("c3"), "x", is_error=True),
        ApprovalMessage(ids[3], CallId("c4"), True, always=True),
        ApprovalMessage(ids[4], CallId("c5"), False, "no", always=True),
        ApprovalMessage(ids[5], CallId("c6"), True),
    )


COLOR: Json = {"color": {"type": "string"}}
SPEC = ToolSpec("paint", "", {"type": "object", "properties": COLOR, "required": ["color"]})


@pytest.mark.parametrize(
    ("tools", "read"),
    [
        (None, None),
        ([], ()),
        ([function("paint", **COLOR)], (SPEC,)),
        ([{"type": "function", **function("paint", **COLOR)["function"]}], (SPEC,)),
        ([{"name": "ask_user", "function": None}], 1),
    ],
)
async def test_tools_are_declared_in_the_protocols_form_or_flat(tools: Any, read: object) -> None:
    runs = LoggedRuns(*GREETING)
    await post(runs, {**HELLO, "tools": tools})
    found = runs.posts[0].tools
    assert (len(found or ()) if isinstance(read, int) else found) == read


PARAMETERS: Json = {
    "temperature": 1,
    "top_p": 0.5,
    "max_tokens": 7,
    "seed": -1,
    "frequency_penalty": 2.0,
    "presence_penalty": -2.0,
    "n": 1,
    "model": "any",
}


@pytest.mark.parametrize(("stop", "read"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], None)])
async def test_generation_parameters_belong_to_the_last_user_message(
    stop: object, read: tuple[str, ...] | None
) -> None:
    first, last = await _read(user("a"), user("b"), stop=stop, instructions="briefly", **PARAMETERS)
    assert isinstance(first, UserMessage)
    assert isinstance(last, UserMessage)
    generation = Generation(1.0, 0.5, 7, read, -1, 2.0, -2.0)
    assert first.context is None
    assert last.context == MessageContext(
        instructions="briefly", generation=generation, model="any"
    )


async def test_unknown_keys_are_kept_with_the_last_user_message() -> None:
    extras: Json = {"biz_params": {"shop": 5}, "response_id": None}
    [plain] = await _read(user("b"))
    assert isinstance(plain, UserMessage)
    first, last = await _read(user("a"), user("b"), user_id="u", **extras)
    assert isinstance(first, UserMessage)
    assert isinstance(last, UserMessage)
    assert (first.context, last.context) == (None, MessageContext(extras=extras))
    assert StartRun(RUN.key, (last,)).fingerprint == StartRun(RUN.key, (plain,)).fingerprint
    [result] = await _read(output("c1", "x"), **extras)
    assert isinstance(result, ToolMessage)


async def test_parameters_beside_a_result_alone_are_ignored() -> None:
    [result] = await _read(output("c1", "x"), **PARAMETERS)
    assert isinstance(result, ToolMessage)


async def test_a_request_sets_on_busy_and_on_disconnect() -> None:
    runs = LoggedRuns(*GREETING)
    await post(runs, {**HELLO, "on_busy": "enqueue", "on_disconnect": "cancel"})
    await post(runs, HELLO)
    policies = [(post.on_busy, post.on_disconnect) for post in runs.posts]
    assert policies == [("enqueue", "cancel"), ("reject", "continue")]


# ---------------------------------------------------------------- refusals
STREAM = f"{PATH}/c/stream"


def _content(*parts: object) -> Json:
    return {"input": [{"role": "user", "content": list(parts)}]}


_PNG = "data:image/png;base64,"
TWO_RESULTS = {**output("c", "x"), "content": [{"type": "data", "data": {}}] * 2}
REFUSED: list[tuple[Json, str, str]] = [
    ({}, "invalid_request", "input"),
    ({"input": None}, "invalid_request", "input"),
    ({"input": "hello"}, "invalid_request", "input"),
    ({"input": [{"role": "user", "content": "hello"}]}, "invalid_request", "input.0.content"),
    ({"input": [{"role": "developer", "content": []}]}, "invalid_request", "input.0.role"),
    ({"input": [{"role": "user", "content": None}]}, "invalid_request", "input.0: "),
    ({"input": [{"role": "user", "content": []}]}, "invalid_request", "input.0: "),
    ({"input": [{**user("x"), "role": "system"}]}, "invalid_request", "input.0: the role 'system'"),
    ({"input": [{**user("x"), "role": "tool"}]}, "invalid_request", "function_call_output"),
    ({"input": [user("x", id="a\nb")]}, "invalid_request", "input.0.id"),
    ({"input": [user("x", id=5)]}, "invalid_request", "input.0.id: Input should be a valid string"),
    ({"input": [{**user("I said"), "role": "assistant"}]}, "nothing_to_do", "nothing new"),
    (_content({"text": "x"}), "invalid_request", "input.0.content.0"),
    (_content({"type": "magic"}), "invalid_request", "input.0.content.0"),
    (_content({"type": "text", "text": 1}), "invalid_request", "input.0.content.0"),
    (_content(text("x"), {"type": "image"}), "invalid_request", "input.0.content.1: image_url"),
    (_content({"type": "image", "image_url": "file:///x"}), "invalid_request", "http:"),
    (_content({"type": "image", "image_url": "data:x"}), "invalid_request", "not base64"),
    (_content({"type": "audio"}), "invalid_request", "data is missing"),
    (_content({"type": "audio", "data": "aGk="}), "invalid_request", "format is missing"),
    (_content({"type": "audio", "data": "?", "format": "wav"}), "invalid_request", "base64"),
    (_content({"type": "image", "image_url": f"{_PNG}?"}), "invalid_request", "not base64"),
    (_content({"type": "image", "image_url": f"{_PNG}a==="}), "invalid_request", "not base64"),
    (_content({"type": "image", "image_url": f"{_PNG}é"}), "invalid_request", "image_url"),
    (_content({"type": "image", "image_url": _PNG}), "invalid_request", "not base64"),
    (_content({"type": "video", "video_url": "data:x"}), "invalid_request", "0: video_url is a"),
    (_content({"type": "refusal", "refusal": None}), "invalid_request", "0.refusal: Input should"),
    (_content({"type": "refusal"}), "invalid_request", "0.refusal: Field required"),
    (_content({"type": "file"}), "invalid_request", "file_url is missing"),
    (_content({"type": "file", "file_id": "f"}), "invalid_request", "file_id"),
    (_content({"type": "video"}), "invalid_request", "video_url is missing"),
    (
        {"input": [{"type": "function_call_output"}]},
        "invalid_request",
        "needs one part of type 'data', and has 0",
    ),
    ({"input": [TWO_RESULTS]}, "invalid_request", "input.0: function_call_output needs one part"),
    ({"input": [output("", "x")]}, "invalid_request", "input.0.content.0.data.call_id: "),
    ({"input": [{**output("c", "x"), "content": [text("x")]}]}, "invalid_request", "'data'"),
    ({"input": [decision("c", "yes")]}, "invalid_request", "approve"),
    ({"input": [decision("c", False, reason="x" * 10_001)]}, "invalid_request", "reason"),
    ({"n": 2}, "invalid_request", "n has to be 1"),
    ({"n": "1"}, "invalid_request", "n: "),
    ({"temperature": 3}, "invalid_request", "temperature"),
    ({"top_p": "0.5"}, "invalid_request", "top_p"),
    ({"max_tokens": 0}, "invalid_request", "max_tokens"),
    ({"stop": [""]}, "invalid_request", "stop"),
    ({"seed": 2**63}, "invalid_request", "seed"),
    ({"frequency_penalty": 2.1}, "invalid_request", "frequency_penalty"),
    ({"presence_penalty": -3}, "invalid_request", "presence_penalty"),
    ({"stream": "no"}, "invalid_request", "stream"),
    ({"session_id": "{id}"}, "invalid_request", "braces"),
    ({"on_busy": "wait"}, "invalid_request", "on_busy"),
    ({"tools": [1]}, "invalid_tool", "tools[0]"),
    ({"tools": [{"type": "function", "function": {}}]}, "invalid_tool", "tools[0]"),
    ({"tools": [function("a"), function("A")]}, "tool_name_clash", "look alike"),
    ({"output_schema": {"type": "string"}}, "invalid_output_schema", "output_schema is refused"),
    ({"input": [output("c", "x")], "intent": "x"}, "invalid_request", "structured_data, intent, "),
]


@pytest.mark.promise("P12")
@pytest.mark.parametrize(("body", "code", "text"), REFUSED)
async def test_errors_are_refused_before_the_stream(body: Json, code: str, text: str) -> None:
    runs = LoggedRuns(*GREETING)
    value = body if "input" in body or not body else {**HELLO, **body}
    answer = await post(runs, {"session_id": "c", **value} if value else {})
    assert (answer.status, answer.code) == (422, code), answer.body
    assert text in answer.json["message"]
    assert runs.posts == []


async def test_an_error_names_its_place_in_the_posted_form() -> None:
    image = {"type": "image", "image_url": "ftp://x"}
    answer = await post(LoggedRuns(*GREETING), {"session_id": "c", **_content(text("x"), image)})
    problem = "image_url has to be an http:, https: or data: URL, without control characters"
    assert answer.json["details"] == {"problems": [{"at": "input.0.content.1", "problem": problem}]}
    assert answer.json["message"] == f"input.0.content.1: {problem}"


@pytest.mark.promise("P11")
async def test_large_results_and_attachments_are_refused() -> None:
    app = site(LoggedRuns(*GREETING), limits=RequestLimits(result_bytes=10, attachment_bytes=10))
    data = "data:image/png;base64," + "aGkh" * 10
    large = await ask_json(
        site(LoggedRuns(), limits=RequestLimits(data_bytes=10)),
        "POST",
        PATH,
        {**HELLO, "biz": "x" * 9},
    )
    assert (large.status, large.code) == (413, "data_too_large")
    for message, code in (
        (output("c", "x" * 11), "result_too_large"),
        (
            {"role": "user", "content": [{"type": "image", "image_url": data}]},
            "attachment_too_large",
        ),
    ):
        answer = await ask_json(app, "POST", PATH, {"session_id": "c", "input": [message]})
        assert (answer.status, answer.code) == (413, code)
        assert answer.json["details"] == {"limit": 10}


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {"content-type": "application/json"}, 400),
        (b"[]", {"content-type": "application/json"}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (
            json.dumps(HELLO).encode(),
            {"content-type": "application/json", "last-event-id": "x"},
            422,
        ),
    ],
)
async def test_a_malformed_request_is_refused(body: bytes, headers: Json, status: int) -> None:
    runs = LoggedRuns(*GREETING)
    answer = await ask(site(runs), "POST", PATH, headers=headers, body=body)
    assert (answer.status, runs.posts) == (status, [])


async def test_malformed_queries_of_a_stream_are_refused() -> None:
    runs = LoggedRuns(*GREETING)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    answer = await ask(site(runs), "GET", f"{STREAM}?stream=perhaps")
    assert (answer.status, answer.code) == (422, "invalid_request")
    unnamed = await ask(site(runs), "GET", f"{STREAM}?id={'x' * 257}")
    assert (unnamed.status, unnamed.code) == (422, "invalid_request")
    unknown = await ask(site(runs), "GET", f"{PATH}/other/stream")
    assert (unknown.status, unknown.code) == (404, "conversation_not_found")
