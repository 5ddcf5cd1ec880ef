"""`/process`: the forms of its answer, and how a client resumes it."""

import pytest
from tests.support.agent_api import (
    PATH,
    Json,
    bodies,
    check_legal,
    decision,
    events_of,
    joined_text,
    output,
)
from tests.support.asgi_client import ask, ask_json
from tests.support.logged_runs import OPENING, RUN, LoggedRuns
from tests.unit.wire.agent_api_site import GREETING, HELLO, post, site, streamed

from passback.core.changes import Status
from passback.core.errors import CursorExpired
from passback.core.events import (
    Completed,
    Failed,
    Nested,
    Position,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    MessageId,
    Owed,
    OwnerId,
    RunId,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.posts import Parked
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import RequestLimits, Services
from passback.wire.agent_api import AgentApiSettings, build

pytestmark = pytest.mark.anyio

STREAM = f"{PATH}/c/stream"


# ---------------------------------------------------------------- answers
async def test_a_request_is_answered_with_the_events_of_its_run() -> None:
    runs = LoggedRuns(*GREETING)
    answer = await post(runs, HELLO)
    last = check_legal(streamed(answer))
    assert (answer.status, joined_text(last)) == (200, "hi")
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


async def test_the_usage_of_sub_agents_counts_for_the_response_and_no_message() -> None:
    deep = Nested(CallId("b"), UsageReported(Usage(10, 20)))
    runs = LoggedRuns(
        RunStarted(RUN.run_id),
        TurnStarted(MessageId("m")),
        TextDelta("hi"),
        UsageReported(Usage(1, 2)),
        Nested(CallId("a"), deep),
        UsageReported(Usage(100, 200, estimated=True)),
        RunFinished(Completed()),
    )
    last = check_legal(streamed(await post(runs, HELLO)))
    assert (last["usage"]["input_tokens"], last["usage"]["output_tokens"]) == (111, 222)
    [message] = last["output"]
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (1, 2)


async def test_the_path_is_a_setting() -> None:
    runs = LoggedRuns(*GREETING)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    wire = build(Services(runs, Signal()), AgentApiSettings(process_path="/agents/one"))
    app = build_site([wire], Access())
    assert (await ask_json(app, "POST", "/agents/one", HELLO)).status == 200
    assert (await ask(app, "GET", "/agents/one/c/stream")).status == 200
    assert (await ask_json(app, "POST", PATH, HELLO)).status == 404


async def test_the_request_names_its_response_and_its_agent() -> None:
    runs = LoggedRuns(*GREETING)
    answer = await post(runs, {**HELLO, "id": "mine", "agent_id": "painter"})
    assert {event["id"] for event in streamed(answer) if event["object"] == "response"} == {"mine"}
    [message] = runs.posts[0].messages
    assert isinstance(message, UserMessage)
    assert message.agent == "painter"


@pytest.mark.promise("P13")
async def test_a_session_belongs_to_the_owner_of_the_key_whatever_user_is_named() -> None:
    runs = LoggedRuns(*GREETING)
    app = site(runs, Access(keys={"a-key": OwnerId("alice")}))
    body = {**HELLO, "user_id": "bob"}
    await ask_json(app, "POST", PATH, body, headers={"authorization": "Bearer a-key"})
    assert runs.posts[0].key.owner == "alice"


@pytest.mark.parametrize("missing", [{}, {"session_id": None}, {"session_id": ""}])
async def test_a_request_without_a_session_begins_one_of_its_own(missing: Json) -> None:
    runs = LoggedRuns(*GREETING)
    for _ in range(2):
        await post(runs, {"input": HELLO["input"], **missing})
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
async def test_the_form_of_the_answer_follows_stream_and_accept(
    asked: Json, accept: str, media_type: str | None
) -> None:
    answer = await post(LoggedRuns(*GREETING), {**HELLO, **asked}, headers={"accept": accept})
    if media_type is None:
        assert (answer.status, answer.code) == (406, "not_acceptable")
    else:
        assert answer.headers["content-type"].partition(";")[0] == media_type


async def test_without_a_stream_the_answer_is_the_last_event() -> None:
    runs = LoggedRuns(*GREETING)
    *_, last = streamed(await post(runs, HELLO))
    answer = (await post(runs, {**HELLO, "stream": False})).json
    assert joined_text(answer) == "hi"
    assert answer.keys() == last.keys()


async def test_without_a_stream_a_failed_run_has_the_status_of_its_error() -> None:
    runs = LoggedRuns(RunStarted(RUN.run_id), RunFinished(Failed("model_unavailable", "gone")))
    answer = await post(runs, {**HELLO, "stream": False})
    assert (answer.status, answer.code) == (503, "model_unavailable")
    assert answer.headers["x-run-id"] == "run_1"


@pytest.mark.parametrize("streams", [True, False])
async def test_an_answer_that_is_too_long_is_an_error(streams: bool) -> None:
    app = site(LoggedRuns(*GREETING), limits=RequestLimits(answer_chars=1))
    answer = await ask_json(app, "POST", PATH, {**HELLO, "stream": streams})
    if streams:
        assert check_legal(streamed(answer))["error"]["code"] == "cursor_expired"
    else:
        assert (answer.status, answer.code) == (410, "cursor_expired")


# ---------------------------------------------------------------- calls of earlier responses
CALLS = (
    AssistantMessage(MessageId("m1"), "", (ToolCall(CallId("c1"), "delete", '{"a":1}'),)),
    ChildMessage(
        CallId("c1"),
        AssistantMessage(MessageId("m2"), "", (ToolCall(CallId("c2"), "inner", "{}"),)),
    ),
    UserMessage(MessageId("m3"), "x"),
)
APPROVED_CALLS = (
    RunStarted(RUN.run_id),
    ToolCallEnded(CallId("c1")),
    ToolResulted(CallId("c1"), "gone"),
    ToolResulted(CallId("c2"), "seen"),
    RunFinished(Completed()),
)


async def test_a_call_of_the_run_itself_is_sent_once() -> None:
    call = CallId("c1")
    start = (ToolCallStarted(call, "delete", client=False), ToolCallArguments(call, '{"a":1}'))
    runs = LoggedRuns(APPROVED_CALLS[0], *start, *APPROVED_CALLS[1:])
    runs.history, runs.known[RUN.key] = CALLS, Status(1, RUN.run_id, run_start=3)
    last = check_legal(streamed(await ask(site(runs), "GET", STREAM)))
    assert [each["type"] for each in last["output"]] == ["plugin_call", *["plugin_call_output"] * 2]


@pytest.mark.parametrize("newest", [True, False])
async def test_a_call_is_found_before_many_results(newest: bool) -> None:
    runs = LoggedRuns(*APPROVED_CALLS)
    other_results = [ToolMessage(MessageId(f"t{n}"), CallId(f"x{n}"), "") for n in range(250)]
    runs.history = (*CALLS[:2], *other_results)
    later = Status(2, RunId("run_2"), message_count=300)  # after a rollback
    runs.known[RUN.key] = Status(1, RUN.run_id, run_start=252) if newest else later
    answer = await ask(site(runs), "GET", f"{STREAM}?runId={RUN.run_id}")
    [call] = bodies(check_legal(streamed(answer)), "plugin_call")
    assert call["name"] == "delete"


@pytest.mark.parametrize("follows", [False, True])
async def test_approved_calls_are_sent_with_their_names(follows: bool) -> None:
    runs = LoggedRuns(*APPROVED_CALLS)
    runs.history, runs.known[RUN.key] = CALLS, Status(1, RUN.run_id, run_start=3)
    if follows:
        answer = await ask(site(runs), "GET", STREAM)
    else:
        answer = await post(runs, {"session_id": "c", "input": [decision("c1", True)]})
    last = check_legal(streamed(answer))
    call = {"call_id": "c1", "name": "delete", "arguments": '{"a":1}'}
    assert bodies(last, "plugin_call") == [call]
    assert bodies(last, "plugin_call_output") == [
        {"call_id": "c1", "name": "delete", "output": "gone"},
        {"call_id": "c2", "name": "inner", "output": "seen"},
    ]


async def test_an_answer_to_a_result_needs_no_record_of_the_call() -> None:
    answer = await post(
        LoggedRuns(*APPROVED_CALLS), {"session_id": "c", "input": [output("c1", "x")]}
    )
    outputs = bodies(check_legal(streamed(answer)), "plugin_call_output")
    assert outputs == [{"call_id": "c1", "output": "gone"}, {"call_id": "c2", "output": "seen"}]


@pytest.mark.parametrize("streams", [True, False])
async def test_after_some_of_the_results_the_answer_names_the_owed_calls(streams: bool) -> None:
    runs = LoggedRuns()
    runs.answer = Parked(RUN.key, (Owed(CallId("c2"), "paint", "{}"),))
    answer = await post(
        runs, {"session_id": "c", "input": [output("c1", "x")], "stream": streams, "id": "mine"}
    )
    last = check_legal(events_of(answer.body)) if streams else answer.json
    assert (last["status"], last["id"], last["output"]) == ("completed", "mine", [])
    assert last["metadata"] == {"requires_action": ["c2"]}
    assert answer.headers["x-owed-tool-calls"] == "c2"
    assert "x-run-id" not in answer.headers


# ---------------------------------------------------------------- resuming
@pytest.mark.promise("P3")
async def test_a_client_resumes_by_the_same_post_or_by_the_stream() -> None:
    runs = LoggedRuns(*GREETING)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    whole = (await post(runs, HELLO)).body.removeprefix(OPENING.encode())
    frames = [frame + b"\n\n" for frame in whole.split(b"\n\n")[:-1]]
    for seen in range(1, len(frames)):
        last = frames[seen - 1].partition(b"\n")[0].removeprefix(b"id: ").decode()
        rest = OPENING.encode() + b"".join(frames[seen:])
        headers = {"last-event-id": last}
        posted = await post(runs, HELLO, headers=headers)
        followed = await ask(site(runs), "GET", STREAM, headers=headers)
        first = await ask(site(runs), "GET", f"{STREAM}?lastEventId={last}")
        assert [_without_times(each.body) for each in (posted, followed, first)] == [
            _without_times(rest)
        ] * 3


def _without_times(body: bytes) -> list[Json]:
    """Return the events without the times of the response."""
    return [{**event, "created_at": 0, "completed_at": 0} for event in events_of(body)]


async def test_a_response_is_followed_under_a_given_id() -> None:
    runs = LoggedRuns(*GREETING)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    answer = await ask(site(runs), "GET", f"{STREAM}?id=mine&stream=false&runId=run_1")
    assert answer.json["id"] == "mine"


async def test_an_id_beyond_the_end_is_refused_before_the_stream() -> None:
    runs = LoggedRuns(*GREETING)
    headers = {"last-event-id": "run_1.1-9"}
    answer = await post(runs, HELLO, headers=headers)
    assert (answer.status, answer.code) == (422, "invalid_cursor")


@pytest.mark.promise("P10")
async def test_a_reader_of_void_events_gets_an_error() -> None:
    runs = LoggedRuns(*GREETING[:3])
    runs.is_taken_over(Position(1, 2), TurnStarted(MessageId("msg_2")), TextDelta("ho"))
    runs.say(RunFinished(Completed()))
    answer = await post(runs, HELLO, headers={"last-event-id": "run_1.1-3"})
    last = streamed(answer)[-1]
    assert (last["status"], last["error"]["code"]) == ("failed", "rewound")
    assert answer.body.rpartition(b"\nid: ")[2].startswith(b"run_1.0-0\n")
    again = check_legal(streamed(await post(runs, HELLO)))
    assert joined_text(again) == "ho"


@pytest.mark.promise("P10")
async def test_the_error_for_void_events_has_a_higher_sequence_number() -> None:
    deltas = [TextDelta("old")] * 20
    runs = LoggedRuns(*GREETING[:2], *deltas, RunFinished(Completed()))
    sent = streamed(await post(runs, HELLO))[:-3]
    runs.is_taken_over(Position(1, 1), TurnStarted(MessageId("msg_2")), TextDelta("new"))
    runs.say(RunFinished(Completed()))
    answer = await post(runs, HELLO, headers={"last-event-id": "run_1.1-22"})
    [last] = streamed(answer)
    assert last["sequence_number"] > sent[-1]["sequence_number"]
    assert (last["status"], last["error"]["code"]) == ("failed", "rewound")


UNFINISHED = (RunStarted(RUN.run_id), TurnStarted(MessageId("m")), TextDelta("a"))


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("seen", "status"),
    [("1-2~1", 200), ("1-2~2", 422), ("1-3~99", 422), ("1-4~1", 422), ("1-3~2", 200)],
)
async def test_an_id_within_an_event_has_to_be_one_that_was_sent(seen: str, status: int) -> None:
    runs = LoggedRuns(*UNFINISHED, RunFinished(Completed()))
    runs.known[RUN.key] = Status(1, RUN.run_id)
    headers = {"last-event-id": f"run_1.{seen}"}
    for answer in (
        await post(runs, HELLO, headers=headers),
        await ask(site(runs), "GET", STREAM, headers=headers),
    ):
        assert answer.status == status, answer.body
        assert status == 200 or answer.code == "invalid_cursor"


@pytest.mark.promise("P10")
async def test_an_id_within_a_void_event_gets_an_error() -> None:
    runs = LoggedRuns(*UNFINISHED)
    runs.is_taken_over(Position(1, 1), RunFinished(Completed()))
    answer = await post(runs, HELLO, headers={"last-event-id": "run_1.1-2~1"})
    assert streamed(answer)[-1]["error"]["code"] == "rewound"


async def test_a_trimmed_log_is_an_error() -> None:
    runs = LoggedRuns(*GREETING)
    runs.unreadable = CursorExpired("its beginning is gone")
    answer = await post(runs, HELLO)
    assert (answer.status, answer.code) == (410, "cursor_expired")
