"""`/process`: what a request means for the conversation, and the forms of its answer."""

import json
from typing import Any

import pytest
from starlette.types import ASGIApp
from tests.support.agent_api import (
    PATH,
    Json,
    bodies,
    check_legal,
    decision,
    events_of,
    function,
    output,
    said,
    text,
    user,
)
from tests.support.bridge import Answer, ask, ask_json
from tests.support.logged_runs import RUN, LoggedRuns

from passback.core.changes import Status
from passback.core.errors import CursorExpired
from passback.core.events import (
    Completed,
    Failed,
    Position,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallEnded,
    ToolResulted,
    TurnStarted,
)
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    Brief,
    CallId,
    ChildMessage,
    DataPart,
    Generation,
    MediaPart,
    Message,
    MessageId,
    Owed,
    OwnerId,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.ports import Parked
from passback.transport.access import Access
from passback.transport.signal import Signal
from passback.transport.site import build_site
from passback.transport.sse import OPENING
from passback.transport.wires import Limits, Services
from passback.wire.agent_api import build

pytestmark = pytest.mark.anyio

HELLO: Json = {"input": [user("hello")], "session_id": "c"}
STREAM = f"{PATH}/c/stream"
SAID: tuple[RunEvent, ...] = (
    RunStarted(RUN.run_id),
    TurnStarted(MessageId("msg_1")),
    TextDelta("hi"),
    RunFinished(Completed()),
)


def _app(runs: LoggedRuns, access: Access | None = None, **settings: Any) -> ASGIApp:
    services = Services(runs, Signal(), dict, **settings)
    return build_site([build(services)], access or Access())


async def _post(runs: LoggedRuns, value: object, **request: Any) -> Answer:
    return await ask_json(_app(runs), "POST", PATH, value, **request)


async def _read(*messages: object, **more: Any) -> tuple[Message, ...]:
    """What is posted by a request's messages, without the ids that were made for them."""
    runs = LoggedRuns(*SAID)
    answer = await ask_json(
        _app(runs, allow_roles=frozenset({"user", "tool", "system"})),
        "POST",
        PATH,
        {"session_id": "c", "input": list(messages), **more},
    )
    assert answer.status == 200, answer.body
    return runs.posts[0].messages


def _events(answer: Answer) -> list[Json]:
    assert answer.body.startswith(OPENING.encode())
    return events_of(answer.body)


# ---------------------------------------------------------------- answers
async def test_a_request_is_answered_with_the_events_of_its_run() -> None:
    runs = LoggedRuns(*SAID)
    answer = await _post(runs, HELLO)
    last = check_legal(_events(answer))
    assert (answer.status, said(last)) == (200, "hi")
    assert (last["id"], last["session_id"]) == ("response_1", "c")
    assert (
        dict(answer.headers).items()
        >= {
            "content-type": "text/event-stream; charset=utf-8",
            "x-accel-buffering": "no",
            "x-conversation-id": "c",
            "x-run-id": "run_1",
        }.items()
    )
    assert (runs.posts[0].key, runs.posts[0].tools) == (RUN.key, None)


async def test_the_path_is_a_setting() -> None:
    runs = LoggedRuns(*SAID)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    app = _app(runs, process_path="/agents/one")
    assert (await ask_json(app, "POST", "/agents/one", HELLO)).status == 200
    assert (await ask(app, "GET", "/agents/one/c/stream")).status == 200
    assert (await ask_json(app, "POST", PATH, HELLO)).status == 404


async def test_the_request_names_its_response_and_its_agent() -> None:
    runs = LoggedRuns(*SAID)
    answer = await _post(runs, {**HELLO, "id": "mine", "agent_id": "painter"})
    assert {event["id"] for event in _events(answer) if event["object"] == "response"} == {"mine"}
    [message] = runs.posts[0].messages
    assert isinstance(message, UserMessage)
    assert message.agent == "painter"


@pytest.mark.promise("P13")
async def test_a_session_belongs_to_the_owner_of_the_key_whatever_user_is_named() -> None:
    runs = LoggedRuns(*SAID)
    app = _app(runs, Access(keys={"a-key": OwnerId("alice")}))
    asked = {**HELLO, "user_id": "bob"}
    await ask_json(app, "POST", PATH, asked, headers={"authorization": "Bearer a-key"})
    assert runs.posts[0].key.owner == "alice"


@pytest.mark.parametrize("missing", [{}, {"session_id": None}, {"session_id": ""}])
async def test_a_request_without_a_session_begins_one_of_its_own(missing: Json) -> None:
    runs = LoggedRuns(*SAID)
    for _ in range(2):
        await _post(runs, {"input": HELLO["input"], **missing})
    first, second = (post.key.id for post in runs.posts)
    assert first != second


@pytest.mark.parametrize(
    ("asked", "accept", "media_type"),
    [
        ({}, "", "text/event-stream"),
        ({"stream": None}, "*/*", "text/event-stream"),
        ({"stream": False}, "*/*", "application/json"),
        ({"stream": False}, "text/event-stream", "text/event-stream"),
        ({"stream": True}, "application/json", "application/json"),
        ({}, "text/html", None),
    ],
)
async def test_the_answer_has_the_form_that_was_asked_for_and_is_accepted(
    asked: Json, accept: str, media_type: str | None
) -> None:
    answer = await _post(LoggedRuns(*SAID), {**HELLO, **asked}, headers={"accept": accept})
    if media_type is None:
        assert (answer.status, answer.code) == (406, "not_acceptable")
    else:
        assert answer.headers["content-type"].partition(";")[0] == media_type


async def test_without_a_stream_the_answer_is_the_last_event() -> None:
    runs = LoggedRuns(*SAID)
    streamed = _events(await _post(runs, HELLO))
    answer = (await _post(runs, {**HELLO, "stream": False})).json
    assert said(answer) == "hi"
    assert answer.keys() == streamed[-1].keys()


async def test_without_a_stream_a_failed_run_has_the_status_of_its_error() -> None:
    runs = LoggedRuns(RunStarted(RUN.run_id), RunFinished(Failed("model_unavailable", "gone")))
    answer = await _post(runs, {**HELLO, "stream": False})
    assert (answer.status, answer.code) == (503, "model_unavailable")
    assert answer.headers["x-run-id"] == "run_1"


@pytest.mark.parametrize("streams", [True, False])
async def test_an_answer_that_is_too_long_is_not_sent_whole(streams: bool) -> None:
    app = _app(LoggedRuns(*SAID), limits=Limits(answer_chars=1))
    answer = await ask_json(app, "POST", PATH, {**HELLO, "stream": streams})
    if streams:
        assert check_legal(_events(answer))["error"]["code"] == "cursor_expired"
    else:
        assert (answer.status, answer.code) == (410, "cursor_expired")


# ---------------------------------------------------------------- what is new
ASSISTANT = {"role": "assistant", "type": "message", "content": [text("I said")]}
CALL = {"type": "function_call", "role": "assistant", "content": [{"type": "data", "data": {}}]}
SERVERS = {"type": "plugin_call_output", "role": "tool", "content": None}


@pytest.mark.parametrize(
    ("given", "new"),
    [
        ([user("a"), user("b")], ["a", "b"]),
        ([user("a"), ASSISTANT, user("b")], ["b"]),
        ([user("a"), CALL, output("c1", "x")], ["c1"]),
        ([user("a"), CALL, output("c1", "x"), CALL, output("c2", "y")], ["c1", "c2"]),
        ([CALL, output("c1", "x"), ASSISTANT, user("b")], ["b"]),
        ([output("c1", "x"), user("b")], ["c1", "b"]),
        ([user("a"), SERVERS, CALL, output("c1", "x"), user("b")], ["c1", "b"]),
        ([user("a"), {"type": "heartbeat"}, user("b"), {"type": "error"}], ["a", "b"]),
        ([{**CALL, "type": "mcp_approval_request"}, decision("c1", True)], ["c1"]),
        ([{"role": "user", "type": "a2ui_action", "content": [text("a")]}], ["a"]),
    ],
)
async def test_only_what_comes_behind_the_agents_words_is_new(
    given: list[Json], new: list[str]
) -> None:
    messages = await _read(*given)
    told = [
        m.call_id if isinstance(m, ToolMessage | ApprovalMessage) else m.content[0].text
        for m in messages
        if isinstance(m, ToolMessage | ApprovalMessage)
        or (isinstance(m, UserMessage) and isinstance(m.content[0], TextPart))
    ]
    assert told == new


async def test_a_message_is_known_by_its_id() -> None:
    runs = LoggedRuns(*SAID)
    given = [user("a", id="m1"), user("b", id=""), user("c", id=None, metadata={"x": 1})]
    await _post(runs, {**HELLO, "input": given, "biz_params": {}, "response_id": "old"})
    assert runs.posts[0].named == {"m1"}
    assert runs.posts[0].messages[0].id == "m1"


# ---------------------------------------------------------------- what it says
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
    ({"type": "refusal"}, RefusalPart("")),
]


@pytest.mark.parametrize(("part", "read"), PARTS)
async def test_each_part_is_read(part: Json, read: object) -> None:
    [message] = await _read({"role": "user", "content": [part, {"type": "text", "text": None}]})
    assert isinstance(message, UserMessage)
    assert message.content == (read,)


async def test_a_system_message_is_read_where_it_is_allowed() -> None:
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
        decision("c5", False, reason=" no "),
        decision("c6", True, reason=None),
    )
    ids = [message.id for message in messages]
    assert messages == (
        ToolMessage(ids[0], CallId("c1"), "blue"),
        ToolMessage(ids[1], CallId("c2"), (DataPart({"a": 1}),), is_error=True),
        ToolMessage(ids[2], CallId("c3"), "x", is_error=True),
        ApprovalMessage(ids[3], CallId("c4"), True, always=True),
        ApprovalMessage(ids[4], CallId("c5"), False, "no"),
        ApprovalMessage(ids[5], CallId("c6"), True),
    )


COLOR = {"color": {"type": "string"}}
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
    runs = LoggedRuns(*SAID)
    await _post(runs, {**HELLO, "tools": tools})
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
    assert first.brief is None
    assert last.brief == Brief(instructions="briefly", generation=generation)


async def test_parameters_beside_a_result_are_those_of_no_message() -> None:
    [result] = await _read(output("c1", "x"), **PARAMETERS)
    assert isinstance(result, ToolMessage)


async def test_a_request_says_what_it_means_during_a_run_and_without_a_reader() -> None:
    runs = LoggedRuns(*SAID)
    await _post(runs, {**HELLO, "on_busy": "enqueue", "on_disconnect": "cancel"})
    await _post(runs, HELLO)
    told = [(post.on_busy, post.on_disconnect) for post in runs.posts]
    assert told == [("enqueue", "cancel"), ("reject", "continue")]


# ---------------------------------------------------------------- calls of earlier responses
CALLS = (
    AssistantMessage(MessageId("m1"), "", (ToolCall(CallId("c1"), "delete", '{"a":1}'),)),
    ChildMessage(
        CallId("c1"),
        AssistantMessage(MessageId("m2"), "", (ToolCall(CallId("c2"), "inner", "{}"),)),
    ),
    UserMessage(MessageId("m3"), "x"),
)
MADE = (
    RunStarted(RUN.run_id),
    ToolCallEnded(CallId("c1")),
    ToolResulted(CallId("c1"), "gone"),
    ToolResulted(CallId("c2"), "seen"),
    RunFinished(Completed()),
)


@pytest.mark.parametrize("follows", [False, True])
async def test_calls_that_were_approved_are_told_with_their_names(follows: bool) -> None:
    runs = LoggedRuns(*MADE)
    runs.history, runs.known[RUN.key] = CALLS, Status(1, RUN.run_id, message_count=3)
    if follows:
        answer = await ask(_app(runs), "GET", STREAM)
    else:
        answer = await _post(runs, {"session_id": "c", "input": [decision("c1", True)]})
    last = check_legal(_events(answer))
    call = {"call_id": "c1", "name": "delete", "arguments": '{"a":1}'}
    assert bodies(last, "plugin_call") == [call]
    assert bodies(last, "plugin_call_output") == [
        {"call_id": "c1", "name": "delete", "output": "gone"},
        {"call_id": "c2", "name": "inner", "output": "seen"},
    ]


async def test_the_answer_to_a_result_needs_no_record_of_the_call() -> None:
    answer = await _post(LoggedRuns(*MADE), {"session_id": "c", "input": [output("c1", "x")]})
    outputs = bodies(check_legal(_events(answer)), "plugin_call_output")
    assert outputs == [{"call_id": "c1", "output": "gone"}, {"call_id": "c2", "output": "seen"}]


@pytest.mark.parametrize("streams", [True, False])
async def test_results_that_are_not_all_are_stored_and_the_rest_is_named(streams: bool) -> None:
    runs = LoggedRuns()
    runs.answer = Parked(RUN.key, (Owed(CallId("c2"), "paint", "{}"),))
    answer = await _post(
        runs, {"session_id": "c", "input": [output("c1", "x")], "stream": streams, "id": "mine"}
    )
    last = check_legal(events_of(answer.body)) if streams else answer.json
    assert (last["status"], last["id"], last["output"]) == ("completed", "mine", [])
    assert last["metadata"] == {"requires_action": ["c2"]}
    assert answer.headers["x-owed-tool-calls"] == "c2"
    assert "x-run-id" not in answer.headers


# ---------------------------------------------------------------- coming back
@pytest.mark.promise("P3")
async def test_a_client_comes_back_by_the_same_post_or_by_the_stream() -> None:
    runs = LoggedRuns(*SAID)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    whole = (await _post(runs, HELLO)).body.removeprefix(OPENING.encode())
    frames = [frame + b"\n\n" for frame in whole.split(b"\n\n")[:-1]]
    for seen in range(1, len(frames)):
        last = frames[seen - 1].partition(b"\n")[0].removeprefix(b"id: ").decode()
        rest = OPENING.encode() + b"".join(frames[seen:])
        headers = {"last-event-id": last}
        posted = await _post(runs, HELLO, headers=headers)
        followed = await ask(_app(runs), "GET", STREAM, headers=headers)
        first = await ask(_app(runs), "GET", f"{STREAM}?lastEventId={last}")
        assert [_steady(each.body) for each in (posted, followed, first)] == [_steady(rest)] * 3


def _steady(body: bytes) -> list[Json]:
    """Without the time of the answer."""
    return [{**event, "created_at": 0, "completed_at": 0} for event in events_of(body)]


async def test_a_response_is_followed_under_the_id_that_its_request_gave_it() -> None:
    runs = LoggedRuns(*SAID)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    answer = await ask(_app(runs), "GET", f"{STREAM}?id=mine&stream=false&runId=run_1")
    assert answer.json["id"] == "mine"


async def test_an_id_beyond_the_end_is_refused_before_the_stream() -> None:
    runs = LoggedRuns(*SAID)
    headers = {"last-event-id": "run_1.1-9"}
    answer = await _post(runs, HELLO, headers=headers)
    assert (answer.status, answer.code) == (422, "invalid_cursor")


@pytest.mark.promise("P10")
async def test_a_reader_is_told_that_what_it_saw_is_void() -> None:
    runs = LoggedRuns(*SAID[:3])
    runs.is_taken_over(Position(1, 2), TurnStarted(MessageId("msg_2")), TextDelta("ho"))
    runs.say(RunFinished(Completed()))
    answer = await _post(runs, HELLO, headers={"last-event-id": "run_1.1-3"})
    last = _events(answer)[-1]
    assert (last["status"], last["error"]["code"]) == ("failed", "rewound")
    assert answer.body.rpartition(b"\nid: ")[2].startswith(b"run_1.0-0\n")
    again = check_legal(_events(await _post(runs, HELLO)))
    assert said(again) == "ho"


async def test_a_log_without_its_beginning_cannot_be_told() -> None:
    runs = LoggedRuns(*SAID)
    runs.unreadable = CursorExpired("its beginning is gone")
    answer = await _post(runs, HELLO)
    assert (answer.status, answer.code) == (410, "cursor_expired")


# ---------------------------------------------------------------- refusals
def _content(*parts: object) -> Json:
    return {"input": [{"role": "user", "content": list(parts)}]}


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
    ({"input": [ASSISTANT, user("x")], "session_id": None}, "invalid_request", "session_id"),
    (_content({"text": "x"}), "invalid_request", "input.0.content.0"),
    (_content({"type": "magic"}), "invalid_request", "input.0.content.0"),
    (_content({"type": "text", "text": 1}), "invalid_request", "input.0.content.0"),
    (_content(text("x"), {"type": "image"}), "invalid_request", "input.0: content.1: image_url"),
    (_content({"type": "image", "image_url": "file:///x"}), "invalid_request", "http:"),
    (_content({"type": "image", "image_url": "data:x"}), "invalid_request", "not base64"),
    (_content({"type": "audio"}), "invalid_request", "data is missing"),
    (_content({"type": "audio", "data": "aGk="}), "invalid_request", "format is missing"),
    (_content({"type": "audio", "data": "?", "format": "wav"}), "invalid_request", "base64"),
    (_content({"type": "file"}), "invalid_request", "file_url is missing"),
    (_content({"type": "file", "file_id": "f"}), "invalid_request", "file_id"),
    (_content({"type": "video"}), "invalid_request", "video_url is missing"),
    ({"input": [{"type": "function_call_output"}]}, "invalid_request", "no part of type 'data'"),
    ({"input": [output("", "x")]}, "invalid_request", "call_id"),
    ({"input": [{**output("c", "x"), "content": [text("x")]}]}, "invalid_request", "'data'"),
    ({"input": [decision("c", "yes")]}, "invalid_request", "approve"),
    ({"input": [decision("c", False, always=True)]}, "invalid_request", "always"),
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
    ({"output_schema": {"type": "string"}}, "invalid_output_schema", ""),
]


@pytest.mark.promise("P12")
@pytest.mark.parametrize(("body", "code", "words"), REFUSED)
async def test_what_is_wrong_is_refused_before_a_stream_begins(
    body: Json, code: str, words: str
) -> None:
    runs = LoggedRuns(*SAID)
    value = body if "input" in body or not body else {**HELLO, **body}
    answer = await _post(runs, {"session_id": "c", **value} if value else {})
    assert (answer.status, answer.code) == (422, code), answer.body
    assert words in answer.json["message"]
    assert runs.posts == []


@pytest.mark.promise("P11")
async def test_large_results_and_attachments_are_refused() -> None:
    app = _app(LoggedRuns(*SAID), limits=Limits(result_bytes=10, attachment_bytes=10))
    data = "data:image/png;base64," + "aGk=" * 10
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
async def test_what_is_no_request_is_refused(body: bytes, headers: Json, status: int) -> None:
    runs = LoggedRuns(*SAID)
    answer = await ask(_app(runs), "POST", PATH, headers=headers, body=body)
    assert (answer.status, runs.posts) == (status, [])


async def test_a_stream_is_asked_for_in_words_that_are_known() -> None:
    runs = LoggedRuns(*SAID)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    answer = await ask(_app(runs), "GET", f"{STREAM}?stream=perhaps")
    assert (answer.status, answer.code) == (422, "invalid_request")
    unknown = await ask(_app(runs), "GET", f"{PATH}/other/stream")
    assert (unknown.status, unknown.code) == (404, "conversation_not_found")
