"""The AI SDK's routes: the forms of their answers, resuming and stopping."""

import json

import pytest
from tests.support.ai_sdk import API, Json, agent, chunks_of, said, tool_part, user
from tests.support.asgi_client import ask, ask_json, exchange
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.ai_sdk_site import GREETING, HELLO, post, recorded, site, streamed

from passback.core.changes import Status
from passback.core.errors import CursorExpired, StoreUnavailable
from passback.core.events import (
    Completed,
    Position,
    RunFinished,
    TextDelta,
    ToolResulted,
    TurnStarted,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    MessageId,
    Owed,
    OwnerId,
    RunId,
    RunRef,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import Parked
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services
from passback.wire.ai_sdk import AiSdkSettings, build

pytestmark = pytest.mark.anyio

SENT: Json = {
    "headers": {"content-type": "application/json"},
    "body": json.dumps(HELLO).encode(),
}
STREAM, STOP = f"{API}/c/stream", f"{API}/c/stop"
CALL = CallId("call_1")
ANSWERED = agent(
    {"type": "step-start"},
    tool_part("output-available", CALL, output="done"),
    message_id="mine",
    metadata={"usage": {"inputTokens": 5, "outputTokens": True, "totalTokens": -1, "x": 1}},
)


# ---------------------------------------------------------------- posts
async def test_a_post_is_answered_with_the_message_of_its_run() -> None:
    runs = LoggedRuns(*GREETING)
    answer = await post(runs, HELLO)
    chunks = streamed(answer)
    assert [each["type"] for each in chunks] == [
        *("start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish")
    ]
    assert (chunks[0]["messageId"], said(chunks)) == ("run_1", "hi")
    assert (
        dict(answer.headers).items()
        >= {
            "content-type": "text/event-stream; charset=utf-8",
            "x-vercel-ai-ui-message-stream": "v1",
            "x-accel-buffering": "no",
            "x-conversation-id": "c",
            "x-run-id": "run_1",
        }.items()
    )


async def test_a_run_after_answers_goes_on_with_the_message_that_was_posted() -> None:
    runs = LoggedRuns(*GREETING)
    chunks = streamed(await post(runs, {"id": "c", "messages": [user("go"), ANSWERED]}))
    assert chunks[0]["messageId"] == "mine"
    # what the client has answered is no call that is still open at the end
    assert {each["type"] for each in chunks}.isdisjoint({"tool-output-error"})
    usage = chunks[-1]["messageMetadata"]["usage"]
    assert (usage["inputTokens"], usage["outputTokens"], usage["totalTokens"]) == (5, 1, 6)


async def test_results_of_calls_that_wait_for_approval_are_shown_in_their_message() -> None:
    runs = LoggedRuns(ToolResulted(CALL, "wiped"), *GREETING)
    part = tool_part("approval-responded", CALL, approval={"id": CALL, "approved": True})
    chunks = streamed(await post(runs, {"id": "c", "message": agent(part)}))
    assert chunks[1]["type"] == "tool-output-available"
    assert chunks[1]["output"] == "wiped"


async def test_results_that_leave_calls_open_get_a_message_without_a_step() -> None:
    runs = LoggedRuns()
    runs.answer = Parked(RUN.key, (Owed(CallId("call_2"), "paint", "{}"),))
    answer = await post(runs, {"id": "c", "messages": [user("go"), ANSWERED]})
    assert streamed(answer) == [
        {"type": "start", "messageId": "mine"},
        {"type": "finish", "finishReason": "tool-calls"},
    ]
    assert answer.headers["x-owed-tool-calls"] == "call_2"
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert "x-run-id" not in answer.headers


async def test_a_repeat_that_leaves_calls_open_has_no_message() -> None:
    runs = LoggedRuns()
    runs.answer = Parked(RUN.key, ())
    assert streamed(await post(runs, HELLO))[0] == {"type": "start"}


async def test_the_path_is_a_setting() -> None:
    runs = LoggedRuns(*GREETING)
    wire = build(Services(runs, Signal()), AiSdkSettings(ai_sdk_path="/chats"))
    app = build_site([wire], Access())
    assert (await ask_json(app, "POST", "/chats", HELLO)).status == 200
    assert (await ask(app, "GET", "/chats/c/stream")).status == 204
    assert (await ask_json(app, "POST", API, HELLO)).status == 404


@pytest.mark.promise("P13")
async def test_a_chat_belongs_to_the_owner_of_the_key() -> None:
    runs = LoggedRuns(*GREETING)
    app = site(runs, Access(keys={"a-key": OwnerId("alice")}))
    await ask_json(app, "POST", API, HELLO, headers={"authorization": "Bearer a-key"})
    assert runs.posts[0].key.owner == "alice"


async def test_an_error_is_a_text_for_the_user_and_has_its_code_in_a_header() -> None:
    answer = await post(LoggedRuns(), {"id": "c", "messages": []})
    assert (answer.status, answer.body) == (
        422,
        b"there is no message: send the chat in messages, or the new message alone in message",
    )
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-error-code"] == "nothing_to_do"
    assert answer.headers["x-request-id"].startswith("req_")


async def test_the_gate_refuses_with_a_text_too() -> None:
    app = site(LoggedRuns(), Access(keys={"a-key": OwnerId("alice")}))
    answer = await ask_json(app, "POST", API, HELLO)
    assert (answer.status, answer.headers["x-error-code"]) == (401, "unauthenticated")
    assert not answer.body.startswith(b"{")


# ---------------------------------------------------------------- cuts and take-overs
async def test_a_stream_whose_run_goes_on_is_broken_off() -> None:
    """A client takes the end of a transfer for the end of the answer."""
    runs = LoggedRuns(*GREETING[:2])
    runs.breaks(StoreUnavailable("the store is gone"))
    async with exchange(site(runs), "POST", API, **SENT) as read:
        body = await read.rest()
    assert b'"delta":"hi"' in body
    assert body.endswith(b"retry: 1000\n\n")
    assert not read.ended


async def test_a_stream_that_nobody_can_go_on_with_ends_with_an_error() -> None:
    runs = LoggedRuns(*GREETING[:2])
    runs.breaks(CursorExpired("the log is gone"))
    async with exchange(site(runs), "POST", API, **SENT) as read:
        body = await read.rest()
    assert chunks_of(body)[-1] == {"type": "error", "errorText": "the log is gone"}
    assert read.ended


async def test_a_turn_that_another_worker_says_anew_takes_the_first_one_back() -> None:
    runs = LoggedRuns(TurnStarted(MessageId("m")), TextDelta("hal"))
    async with exchange(site(runs), "POST", API, **SENT) as read:
        while b"hal" not in await read.chunk():
            pass
        runs.is_taken_over(Position(1, 0), *GREETING)
        body = await read.rest()
    assert b'data: {"type":"reset-step"}' in body
    assert body.count(b'"start-step"') == 0
    assert b'"delta":"hi"' in body


# ---------------------------------------------------------------- resuming
async def test_a_message_that_is_being_written_is_sent_from_its_start() -> None:
    runs = recorded(UserMessage(MessageId("u"), "hello"), running=True)
    chunks = streamed(await ask(site(runs), "GET", STREAM))
    assert (chunks[0]["messageId"], said(chunks)) == ("run_1", "hi")


async def test_a_run_after_answers_is_sent_with_what_came_before_it() -> None:
    call = ToolCall(CALL, "paint", "{}", client=True)
    of = RunId("run_0")
    told = [AssistantMessage(MessageId(f"a{n}"), f"{n} ", run_id=of) for n in range(300)]
    runs = recorded(
        UserMessage(MessageId("u0"), "hi"),
        UserMessage(MessageId("u1"), "go"),
        *told,
        AssistantMessage(MessageId("a"), "on it", (call,), run_id=of),
        ToolMessage(MessageId("t"), CALL, "done", run_id=RUN.run_id),
        running=True,
        run_start=304,
    )
    chunks = streamed(await ask(site(runs), "GET", STREAM))
    assert chunks[0]["messageId"] == "run_0"
    assert said(chunks) == "".join(f"{n} " for n in range(300)) + "on ithi"
    outputs = [each for each in chunks if each["type"] == "tool-output-available"]
    assert outputs == [{"type": "tool-output-available", "toolCallId": CALL, "output": "done"}]


async def test_a_run_that_a_message_of_the_user_began_has_no_beginning_before_it() -> None:
    runs = recorded(
        UserMessage(MessageId("u0"), "hi"),
        AssistantMessage(MessageId("a"), "before ", run_id=RunId("run_0")),
        UserMessage(MessageId("u1"), "go"),
        running=True,
        run_start=2,
    )
    chunks = streamed(await ask(site(runs), "GET", STREAM))
    assert (chunks[0]["messageId"], said(chunks)) == ("run_1", "hi")


async def test_a_run_after_answers_that_says_nothing_adds_a_step_when_it_is_resumed() -> None:
    told = AssistantMessage(MessageId("a"), "on it", run_id=RunId("run_0"))
    runs = recorded(UserMessage(MessageId("u"), "go"), told, running=True, run_start=2)
    runs.log.clear()
    runs.say(RunFinished(Completed()))
    chunks = streamed(await ask(site(runs), "GET", STREAM))
    assert [each["type"] for each in chunks].count("start-step") == 2


async def test_a_beginning_without_a_message_of_the_user_is_all_there_is() -> None:
    told = AssistantMessage(MessageId("a"), "imported ")
    runs = recorded(told, running=True, run_start=1)
    chunks = streamed(await ask(site(runs), "GET", STREAM))
    assert (chunks[0]["messageId"], said(chunks)) == ("a", "imported hi")


async def test_a_branch_that_becomes_shorter_meanwhile_ends_the_reading() -> None:
    runs = recorded(running=True, run_start=5)
    assert said(streamed(await ask(site(runs), "GET", STREAM))) == "hi"


async def test_a_run_that_waits_is_followed() -> None:
    runs = recorded(UserMessage(MessageId("u"), "hello"), queued=(RUN.run_id,))
    chunks = streamed(await ask(site(runs), "GET", STREAM))
    assert (chunks[0]["messageId"], said(chunks)) == ("run_1", "hi")


@pytest.mark.parametrize("known", [True, False])
async def test_there_is_nothing_to_resume_where_nothing_goes_on(known: bool) -> None:
    runs = LoggedRuns()
    if known:
        runs.known[RUN.key] = Status(1, RUN.run_id)
    answer = await ask(site(runs), "GET", STREAM)
    assert (answer.status, answer.body) == (204, b"")


async def test_a_run_whose_log_has_lost_its_beginning_is_a_410() -> None:
    runs = recorded(running=True)
    runs.unreadable = CursorExpired("read the messages instead")
    answer = await ask(site(runs), "GET", STREAM)
    assert (answer.status, answer.body) == (410, b"read the messages instead")


# ---------------------------------------------------------------- stopping
@pytest.mark.parametrize(
    ("status", "cancelled"),
    [
        (Status(1, RUN.run_id, running=True, queued=(RunId("run_2"),)), ["run_1"]),
        (Status(1, RUN.run_id, queued=(RunId("run_2"), RunId("run_3"))), ["run_2"]),
        (Status(1, RUN.run_id), []),
    ],
)
async def test_what_goes_on_is_stopped_or_else_what_waits(
    status: Status, cancelled: list[str]
) -> None:
    runs = LoggedRuns()
    runs.known[RUN.key] = status
    answer = await ask(site(runs), "POST", STOP)
    assert (answer.status, answer.body) == (204, b"")
    assert runs.cancelled == [RunRef(RUN.key, RunId(each)) for each in cancelled]


async def test_a_chat_that_there_is_not_cannot_be_stopped() -> None:
    answer = await ask(site(LoggedRuns()), "POST", STOP)
    assert (answer.status, answer.headers["x-error-code"]) == (404, "conversation_not_found")
