"""Requests that the client repeats, and those that it does not, against a scripted server."""

from collections.abc import Sequence
from typing import Any

import anyio
import httpx
import pytest
from tests.support.python_client import (
    DONE,
    IDLE,
    PAINT,
    Chunks,
    Reply,
    Script,
    document,
    frame,
    owes,
    refusal,
    stream,
)
from tests.unit.client.replies import hello

from passback_client import (
    Answer,
    BadAnswer,
    Busy,
    Client,
    CursorExpired,
    Event,
    LimitExceeded,
    Limits,
    Owed,
    PassbackError,
    Refused,
    Retry,
    RunFailed,
    Stream,
    Text,
    Tool,
    ToolAnswer,
    Unreachable,
)

pytestmark = pytest.mark.anyio

QUICK = Retry(attempts=4, first=0, longest=0)
LOST = httpx.ReadError("gone")
NAMED = {"x-request-id": "req_1"}
INCLUDE = "include=rewind%2Crun%2Cowed%2Coutput"


async def events_of(script: Script, *, limits: Limits | None = None, **how: Any) -> list[Event]:
    """Send a message, and return the events of its answer."""
    tools = [Tool("paint", "Paint.", {"type": "object"}, lambda *_: "blue")]
    async with client_of(script, limits=limits, tools=tools) as client:
        with anyio.fail_after(10):
            return [event async for event in client.send("hi", **how)]


def client_of(
    script: Script, *, limits: Limits | None = None, tools: Sequence[Tool] = ()
) -> Client:
    return Client(
        "http://host/base/",
        retry=QUICK,
        transport=script.transport,
        limits=limits,
        tools=tools,
        claims=False,
    )


# ---------------------------------------------------------------- posts
@pytest.mark.parametrize(
    "reply",
    [
        httpx.ConnectError("no"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut"),
        refusal(429, "queue_full", retry_after="0"),
        refusal(503, "shutting_down"),
        httpx.Response(502, text="<html>"),
        httpx.Response(504),
    ],
    ids=str,
)
async def test_a_post_without_an_answer_is_repeated_as_it_was(reply: Reply) -> None:
    script = Script(reply, reply, hello())
    events = await events_of(script, conversation_id="c")
    assert events == [Text("Hello", id="run.1-2")]
    assert script.routes == ["POST /base/send-message"] * 3
    keys, bodies = script.headers("idempotency-key"), script.bodies
    assert len(set(keys)) == 1
    assert keys[0]
    assert bodies == [bodies[0]] * 3
    assert bodies[0]["conversationId"] == "c"


@pytest.mark.parametrize("status", [301, 307, 400, 401, 409, 413, 422, 500])
async def test_another_refusal_is_an_error_at_once(status: int) -> None:
    script = Script(refusal(status, "some_code", retry_after="3", location="http://elsewhere/"))
    with pytest.raises(Refused, match="it is some_code") as caught:
        await events_of(script)
    error = caught.value
    assert (error.code, error.status, error.retryable) == ("some_code", status, False)
    assert (error.retry_after, error.request_id, error.message) == (3, "req_1", str(error))


async def test_a_busy_conversation_is_waited_for_only_on_request() -> None:
    busy = refusal(409, "conversation_busy", retry_after="0")
    with pytest.raises(Busy):
        await events_of(Script(busy))
    assert len(await events_of(Script(busy, busy, hello()), wait_while_busy=True)) == 1
    with pytest.raises(Busy):
        await events_of(Script(*[busy] * 4), wait_while_busy=True)


async def test_the_key_and_the_options_of_a_post_are_sent() -> None:
    script = Script(hello())
    options: Any = {"on_busy": "enqueue", "on_disconnect": "cancel", "include": ["usage"]}
    await events_of(script, idempotency_key="mine", **options)
    assert script.headers("idempotency-key") == ['"mine"']
    assert script.bodies == [
        {
            "include": ["rewind", "run", "owed", "output", "usage"],
            "onDisconnect": "cancel",
            "onBusy": "enqueue",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"name": "paint", "description": "Paint.", "parameters": {"type": "object"}}],
        }
    ]


# ---------------------------------------------------------------- cuts
@pytest.mark.parametrize("error", [None, LOST, httpx.DecodingError("what?")], ids=str)
async def test_a_cut_stream_is_resumed_behind_the_last_event(error: Exception | None) -> None:
    text = {"type": "text", "content": "a"}
    cut = [frame("run.1-2", **text) + b"id: run.1-3\nda", b"ta: {}\n"]
    script = Script(
        stream(b": open\n\nretry: 0\n\n", run="run", error=error),
        stream(*cut, run="run", error=error),
        refusal(503, "store_unavailable"),
        stream(b"id: run.1-7\n\n", run="run", error=error),
        stream(frame("run.1-8", **text), DONE, run="run"),
    )
    events = await events_of(script, include=["usage"])
    assert events == [Text("a", id="run.1-2"), Text("a", id="run.1-8")]
    follows = f"GET /base/conversations/c%20d/stream?{INCLUDE}%2Cusage&runId=run"
    assert script.routes == ["POST /base/send-message", *[follows] * 4]
    assert set(script.headers("accept-encoding")) == {"identity"}
    places = [None, None, "run.1-2", "run.1-2", "run.1-7"]
    assert script.headers("last-event-id") == places


async def test_connections_that_bring_nothing_too_often_are_given_up() -> None:
    script = Script(*[stream(b": open\n\n") for _ in range(4)])
    with pytest.raises(Unreachable) as caught:
        await events_of(script)
    assert (caught.value.code, caught.value.retryable) == ("unreachable", True)
    assert len(script.requests) == 4


async def test_the_pause_that_a_stream_asks_for_is_kept() -> None:
    script = Script(stream(b"retry: 0\n\n"), hello())
    never = Retry(first=3600, longest=3600)
    with anyio.fail_after(10):
        async with Client("http://host", retry=never, transport=script.transport) as client:
            assert (await client.ask("hi")).text == "Hello"


async def test_the_cursor_is_the_id_of_the_last_event_given() -> None:
    pieces = [frame(f"run.1-{n}", type="text", content="a") for n in (2, 3)]
    script = Script(stream(b"".join(pieces) + DONE))
    async with client_of(script) as client, client.send("hi") as events:
        assert (events.conversation_id, events.run_id, events.cursor) == (None, None, None)
        assert await anext(events) == Text("a", id="run.1-2")
        assert (events.conversation_id, events.run_id) == ("c d", "run")
        assert events.cursor == "run.1-2"


async def test_each_event_resets_the_count_of_failures() -> None:
    pieces = [stream(frame(f"run.1-{n}", type="text", content="a")) for n in range(20)]
    events = await events_of(Script(*pieces, stream(b"id: run.1-20\n" + DONE)))
    assert len(events) == 20


async def test_an_expired_cursor_is_an_error_of_its_own() -> None:
    cut = stream(frame("run.1-2", type="text", content="a"))
    with pytest.raises(CursorExpired) as caught:
        await events_of(Script(cut, refusal(410, "cursor_expired")))
    assert (caught.value.status, caught.value.retryable) == (410, False)


@pytest.mark.parametrize("place", ["a b.1-2", "ä.1-2", f"{'x' * 2000}.1-2"])
async def test_an_id_that_cannot_be_sent_back_is_a_bad_answer(place: str) -> None:
    cut = stream(frame(place, type="text", content="a"))
    with pytest.raises(BadAnswer):
        await events_of(Script(cut))


async def test_results_that_left_others_owed_are_posted_again_after_a_cut() -> None:
    parked = stream(b": still owed: other\n\n", run=None)
    script = Script(owes(PAINT), httpx.ConnectError("no"), parked, owes(PAINT, run=None))
    events = await events_of(script)
    assert [each.call_id for each in events if isinstance(each, ToolAnswer)] == ["call"]
    assert script.routes == ["POST /base/send-message"] * 4
    first, *results = script.headers("idempotency-key")
    assert len(set(results)) == 1
    assert first not in results
    assert script.bodies[1:] == [script.bodies[1]] * 3
    assert script.bodies[1]["conversationId"] == "c d"


# ---------------------------------------------------------------- answers
async def test_a_tool_answer_is_an_event_only_when_it_was_posted() -> None:
    conversation = document(IDLE | {"owed": [PAINT], "runId": "run"})
    script = Script(owes(PAINT), refusal(409, "tool_result_conflict"), conversation)
    tools = [Tool("paint", "", {}, lambda *_: "blue")]
    events: list[Event] = []
    async with client_of(script, tools=tools) as client:
        with pytest.raises(Refused, match="tool_result_conflict"):
            await collect(client.send("hi"), events)
    assert [type(each) for each in events] == [Owed]


async def collect(stream: Stream, events: list[Event]) -> None:
    """Collect the events, also those before an error."""
    while (event := await anext(stream, None)) is not None:
        events.append(event)


async def test_only_results_are_answered() -> None:
    approval = PAINT | {"kind": "approval"}
    assert len(await events_of(Script(owes(approval)))) == 1


async def test_a_long_error_text_is_shortened_and_an_incomplete_one_left_out() -> None:
    for reply, chars in (
        (httpx.Response(400, json={"code": "c", "message": "m" * 5000, "request_id": "r"}), 1000),
        (httpx.Response(400, stream=Chunks([b"{"], LOST)), 35),
    ):
        async with client_of(Script(hello(), reply)) as client:
            await client.ask("hi")
            with pytest.raises(Refused) as caught:
                await client.ask("hi")
        assert len(caught.value.message) == chars


async def test_a_run_that_fails_is_an_error_of_ask() -> None:
    failure = {"type": "error", "error": "no", "code": "model_error", "retryable": True}
    script = Script(stream(frame("run.1-2", **failure, retryAfter=3), DONE))
    async with client_of(script) as client:
        with pytest.raises(RunFailed, match="no") as caught:
            await client.ask("hi")
    error = caught.value
    assert (error.code, error.retryable, error.retry_after) == ("model_error", True, 3)


# ---------------------------------------------------------------- limits
async def test_too_many_owed_calls_are_refused() -> None:
    calls = [PAINT | {"id": f"call-{n}"} for n in range(3)]
    with pytest.raises(LimitExceeded, match="owed"):
        await events_of(Script(owes(*calls)), limits=Limits(owed_calls=2))


async def test_endless_calls_are_stopped() -> None:
    rounds = [owes(PAINT | {"id": f"call-{n}"}) for n in range(9)]
    script = Script(*rounds)
    with pytest.raises(LimitExceeded, match="end"):
        await events_of(script, limits=Limits(rounds=3))
    assert len(script.requests) == 3


async def test_a_frame_that_is_too_large_is_refused_and_not_asked_for_again() -> None:
    body = Chunks([b"data: 0123456789"] * 9)
    headers = {"content-type": "text/event-stream", "x-run-id": "run", "x-conversation-id": "c"}
    script = Script(httpx.Response(200, headers=headers, stream=body))
    with pytest.raises(LimitExceeded):
        await events_of(script, limits=Limits(frame_chars=64))
    assert body.closed


# ---------------------------------------------------------------- resuming, looking
async def test_resuming_follows_the_running_run_then_answers_what_is_owed() -> None:
    running = IDLE | {"running": {"runId": "run"}, "runId": "run", "queued": ["next"]}
    owing = IDLE | {"owed": [PAINT]}
    script = Script(
        httpx.Response(503),
        document(running),
        hello(),
        document(owing),
        stream(frame("next.1-1", type="text", content="Bye"), DONE),
    )
    tools = [Tool("paint", "", {}, lambda *_: None)]
    answer = Answer()
    async with client_of(script, tools=tools) as client:
        async for event in client.resume("c/.."):
            answer.feed(event)
    assert answer.texts == ["Hello", "Bye"]
    path = "/base/conversations/c%2F%2E%2E"
    assert script.routes[:3] == [f"GET {path}"] * 2 + [f"GET {path}/stream?{INCLUDE}"]
    assert script.bodies[-1]["messages"] == [
        {"role": "tool", "toolCallId": "call", "content": None}
    ]


async def test_a_resumed_run_may_leave_nothing_owed() -> None:
    script = Script(hello(), document(IDLE))
    async with client_of(script) as client:
        events = [event async for event in client.resume("c", after="run.1-1")]
    assert events == [Text("Hello", id="run.1-2")]
    assert script.headers("last-event-id") == ["run.1-1", None]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (refusal(404, "conversation_not_found"), Refused),
        (httpx.Response(200, text="<html>"), BadAnswer),
        (document(IDLE | {"owed": None}), BadAnswer),
        (httpx.Response(200, headers=NAMED, stream=Chunks([b"a" * 100] * 3)), LimitExceeded),
    ],
    ids=["refused", "not JSON", "not ours", "too large"],
)
async def test_reading_a_conversation_may_fail(reply: Reply, error: type[PassbackError]) -> None:
    async with client_of(Script(reply), limits=Limits(body_bytes=256)) as client:
        with pytest.raises(error):
            await client.conversation("c")


async def test_reading_messages_is_repeated_within_bounds_if_the_answer_breaks_off() -> None:
    broken = [httpx.Response(200, headers=NAMED, stream=Chunks([b"{"], LOST)) for _ in range(7)]
    page: dict[str, Any] = {"messages": [], "next": None, "total": 0}
    async with client_of(Script(*broken[:3], document(page))) as client:
        assert (await client.messages("c")).messages == []
    async with client_of(Script(*broken[3:])) as client:
        with pytest.raises(Unreachable):
            await client.messages("c")


async def test_cancelling_without_a_run_id_is_not_repeated_as_it_could_stop_the_next_run() -> None:
    script = Script(httpx.Response(503), httpx.Response(503))
    async with client_of(script) as client:
        with pytest.raises(BadAnswer, match="status 503"):
            await client.cancel("c")
    assert script.routes == ["POST /base/conversations/c/cancel"]
