"""The history of an AG-UI thread: sent on an empty post, and on our own route, with what goes on."""

import json
from collections.abc import Sequence

import anyio
import pytest
from tests.support.asgi_client import ask, ask_json, exchange
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.ag_ui_site import (
    HEADERS,
    PATH,
    Json,
    Reading,
    Thread,
    call_of,
    events_of,
    message_of,
    post,
    posted,
    site,
    threads,
    types_of,
    user,
)

from passback import Agent, tool
from passback.core.changes import Status
from passback.core.deltas import Finish
from passback.core.errors import ConversationBusy, StoreUnavailable
from passback.core.events import Completed, RunFinished, RunStarted, TextDelta, TurnStarted
from passback.core.messages import (
    UNNAMED,
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    DataPart,
    MediaPart,
    Message,
    MessageId,
    PlanEntry,
    Reasoning,
    RefusalPart,
    SummaryMessage,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.state import State
from passback.testing import ScriptedModel, calls, says
from passback.wire.ag_ui.matching import MOST_MESSAGES
from passback.wire.ag_ui.snapshot import message_views, read_snapshot

pytestmark = pytest.mark.anyio

PAINT: Json = {"name": "paint", "description": "Paints."}
ENDED = {"type": "RUN_FINISHED", "threadId": "c", "runId": "r1"}
STREAM = f"{PATH}/threads/c/stream"


@tool(permission="ask")
def erase() -> str:
    """Erase it."""
    return "erased"


async def test_an_empty_post_gets_the_whole_thread() -> None:
    async with threads(Agent(model=ScriptedModel([says("one")]))) as client:
        thread = Thread(client)
        answer = message_of(await thread.post(user("a")))
        assert await thread.post(runId="r1") == [
            {"type": "RUN_STARTED", "threadId": "c", "runId": "r1", "protocolVersion": "1.0"},
            {"type": "MESSAGES_SNAPSHOT", "messages": [user("a"), answer]},
            ENDED,
        ]
        assert thread.answer is not None
        assert "id:" not in thread.answer.text


async def test_an_empty_post_to_an_unknown_thread_begins_none() -> None:
    async with threads(Agent(model=ScriptedModel([]))) as client:
        thread = Thread(client)
        [_, snapshot, end] = await thread.post(runId="r1")
        assert (snapshot["messages"], end) == ([], ENDED)
        assert (await client.get("/conversations/c")).status_code == 404


async def test_what_is_owed_comes_with_the_history() -> None:
    script = [calls(("erase", {}), ("paint", {}))]
    agent = Agent(model=ScriptedModel(script), tools=[erase])
    async with threads(agent, tool_timeout="3600") as client:
        thread = Thread(client)
        events = await thread.post(user("a"), tools=[PAINT])
        history = await thread.post()
        ours, theirs = events[-1]["outcome"], history[-1]["outcome"]
        assert theirs["interrupts"][0].pop("expiresAt").endswith("Z")
        assert theirs == ours
        assert history[-1]["metadata"] == events[-1]["metadata"]
        assert history[1]["messages"][1]["id"] == call_of(events)["id"]


async def test_a_run_that_goes_on_follows_the_history() -> None:
    going_on = anyio.Event()
    model = ScriptedModel([says("one"), ["on", going_on, Finish("stop")]])
    async with threads(Agent(model=model)) as client:
        thread = Thread(client)
        first = message_of(await thread.post(user("a")))
        async with thread.stream(user("a"), first, user("b", "u2")) as one:
            await one.until("TEXT_MESSAGE_CONTENT")
            async with thread.stream(runId="r2") as two, client.stream("GET", STREAM) as raw:
                three = Reading(raw.aiter_lines())
                await two.until("TEXT_MESSAGE_CONTENT")
                await three.until("TEXT_MESSAGE_CONTENT")
                going_on.set()
                await two.until("RUN_FINISHED")
                await three.until("RUN_FINISHED")
        for seen in (two.events, three.events):
            assert types_of(seen)[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
            assert seen[1]["messages"] == [user("a"), first, user("b", "u2")]
            assert message_of(seen)["content"] == "on"
        assert (two.events[0]["runId"], three.events[0]["runId"][:4]) == ("r2", "run_")


async def test_a_stream_that_was_cut_goes_on_after_the_last_event() -> None:
    agent = Agent(model=ScriptedModel([calls(("erase", {})), says("one", "two")]), tools=[erase])
    async with threads(agent) as client:
        thread = Thread(client)
        asked = await thread.post(user("a"))
        [interrupt] = asked[-1]["outcome"]["interrupts"]
        resume = [
            {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        ]
        whole = await thread.post(user("a"), call_of(asked), resume=resume, runId="r2")
        assert thread.answer is not None
        ids = [line[4:] for line in thread.answer.text.split("\n") if line.startswith("id: ")]
        for number, last in enumerate(ids):
            url = f"{STREAM}?runId=r2"
            rest = await client.get(url, headers={"last-event-id": last})
            assert events_of(rest.text) == whole[number + 1 :]
        by_address = await client.get(f"{STREAM}?lastEventId={ids[0]}")
        assert types_of(events_of(by_address.text)) == types_of(whole[1:])


async def test_the_history_of_our_route_has_the_newest_run_by_its_name() -> None:
    async with threads(Agent(model=ScriptedModel([says("one")]))) as client:
        thread = Thread(client)
        await thread.post(user("a"))
        assert thread.answer is not None
        run_id = thread.answer.headers["x-run-id"]
        seen = events_of((await client.get(STREAM)).text)
        assert [each["runId"] for each in (seen[0], seen[-1])] == [run_id, run_id]
        named = events_of((await client.get(f"{STREAM}?runId=mine")).text)
        assert named[0]["runId"] == "mine"
    runs = LoggedRuns()
    runs.known[RUN.key] = Status(1)
    empty = events_of((await ask(site(runs), "GET", STREAM)).body)
    assert (empty[0]["runId"], empty[1]["messages"]) == ("run", [])


# ---------------------------------------------------------------- over a log
HELLO = (
    RunStarted(RUN.run_id, 1, 1),
    TurnStarted(MessageId("m1")),
    TextDelta("hi"),
    RunFinished(Completed()),
)


GOING_ON = Status(1, RUN.run_id, running=True, message_count=3, run_start=1)


async def test_the_plan_comes_with_the_history() -> None:
    runs = LoggedRuns()
    runs.known[RUN.key] = Status(1, state=State(plan=(PlanEntry("look"),)))
    entry = {"content": "look", "priority": "medium", "status": "pending"}
    seen = events_of((await post(runs, posted(state={"a": 1}))).body)
    assert seen[2] == {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1, "plan": [entry]}}
    for state in ([1], None):
        [_, _, snapshot, _] = events_of((await post(runs, posted(state=state))).body)
        assert snapshot["snapshot"] == {"plan": [entry]}
    on_route = await ask(site(runs), "GET", STREAM)
    assert types_of(events_of(on_route.body))[2] == "STATE_DELTA"


async def test_the_history_ends_where_the_run_begins() -> None:
    runs = LoggedRuns(*HELLO)
    runs.known[RUN.key] = GOING_ON
    runs.history = tuple(UserMessage(MessageId(f"u{n}"), "a") for n in range(3))
    seen = events_of((await post(runs, posted())).body)
    assert [each["id"] for each in seen[1]["messages"]] == ["u0", "u1"]
    assert message_of(seen)["content"] == "hi"


async def test_a_log_without_its_beginning_is_read_all_the_same() -> None:
    runs = LoggedRuns(*HELLO[1:])
    runs.known[RUN.key] = GOING_ON
    runs.history = tuple(UserMessage(MessageId(f"u{n}"), "a") for n in range(3))
    seen = events_of((await post(runs, posted())).body)
    assert [each["id"] for each in seen[1]["messages"]] == ["u0"]


async def test_a_run_that_has_ended_since_is_not_followed() -> None:
    """A client has nothing new, and the run that kept it waiting is over."""
    runs = LoggedRuns()
    runs.known[RUN.key] = Status(1, RUN.run_id)
    runs.answer = ConversationBusy("a run goes on")
    answer = await post(runs, posted(user("a")))
    assert (answer.status, answer.code) == (409, "conversation_busy")


async def test_a_cut_stream_says_so_and_can_be_read_on() -> None:
    runs = LoggedRuns(*HELLO[:3])
    runs.breaks(StoreUnavailable("the store is away"))
    answer = await post(runs, posted(user("a")))
    seen = events_of(answer.body)
    assert types_of(seen)[-2:] == ["TEXT_MESSAGE_CONTENT", "RUN_ERROR"]
    assert (seen[-1]["code"], seen[-1]["metadata"]) == ("stream_cut", {"retryable": True})
    assert answer.body.decode().split("\n\n")[-2].startswith("data: ")  # it has no id
    assert b"retry:" not in answer.body


@pytest.mark.promise("P10")
async def test_a_reader_of_void_events_gets_an_error() -> None:
    runs = LoggedRuns(*HELLO[:3])
    runs.is_taken_over(runs.log[0].position, *HELLO[1:])
    headers = {**HEADERS, "last-event-id": "run_1.1-3"}
    seen = await ask_json(site(runs), "POST", PATH, posted(user("a")), headers=headers)
    [error] = events_of(seen.body)
    assert (error["type"], error["code"]) == ("RUN_ERROR", "rewound")
    assert seen.body.rpartition(b"\nid: ")[2].startswith(b"run_1.0-0\n")
    again = events_of((await post(runs, posted(user("a")))).body)
    assert (message_of(again)["content"], again[-1]["type"]) == ("hi", "RUN_FINISHED")


@pytest.mark.promise("P10")
async def test_a_stream_with_void_events_ends_what_is_open_before_the_error() -> None:
    runs = LoggedRuns(*HELLO[:3])
    body = json.dumps(posted(user("a"))).encode()
    headers = {**HEADERS, "content-type": "application/json"}
    async with exchange(site(runs), "POST", PATH, headers=headers, body=body) as one:
        text = b""
        while b'"hi"' not in text:
            text += await one.chunk()
        runs.is_taken_over(runs.log[0].position, *HELLO[1:])
        text += await one.rest()
    assert types_of(events_of(text))[-4:] == [
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_ERROR",
    ]


# ---------------------------------------------------------------- messages
CALL = ToolCall(CallId("c1"), "paint", '{"a":1}')
M = MessageId("m1")
PNG = "data:image/png;base64,aGk="


@pytest.mark.parametrize(
    ("message", "views"),
    [
        (UserMessage(M, "a"), [user("a", "m1")]),
        (SystemMessage(M, "obey"), [{"id": "m1", "role": "system", "content": "obey"}]),
        (SystemMessage(M, "not so", "invalid"), []),
        (AssistantMessage(M, "hi"), [{"id": "m1", "role": "assistant", "content": "hi"}]),
        (
            AssistantMessage(M, "", (CALL,), (Reasoning("h", "x"), Reasoning("m", "x", "opaque"))),
            [
                {"id": "m1_reasoning", "role": "reasoning", "content": "hm"},
                {
                    "id": "m1",
                    "role": "assistant",
                    "content": "",
                    "toolCalls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "paint", "arguments": '{"a":1}'},
                        }
                    ],
                },
            ],
        ),
        (
            ToolMessage(M, CALL.id, (TextPart("a"), DataPart({"b": 1}))),
            [{"id": "m1", "role": "tool", "toolCallId": "c1", "content": 'a\n{"b": 1}'}],
        ),
        (
            ToolMessage(M, CALL.id, "no", is_error=True),
            [{"id": "m1", "role": "tool", "toolCallId": "c1", "content": "no", "error": "no"}],
        ),
        (ApprovalMessage(M, CALL.id, True), []),
        (SummaryMessage(M, "so far", 1), []),
        (ChildMessage(CALL.id, UserMessage(M, "task")), []),
        (ChildMessage(CALL.id, SystemMessage(M, "task")), []),
        (
            ChildMessage(CALL.id, ChildMessage(CallId("c2"), AssistantMessage(M, "deep"))),
            [{"id": "m1", "role": "assistant", "content": "deep", "subagentRunId": "c2"}],
        ),
    ],
)
def test_a_message_as_the_protocol_has_it(message: Message, views: Sequence[Json]) -> None:
    assert list(message_views(message)) == views


@pytest.mark.parametrize(
    ("part", "view"),
    [
        (TextPart("a"), {"type": "text", "text": "a"}),
        (RefusalPart("no"), {"type": "text", "text": "no"}),
        (DataPart({"a": 1}), {"type": "text", "text": '{"a": 1}'}),
        (
            MediaPart("image", PNG),
            {
                "type": "image",
                "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"},
            },
        ),
        (
            MediaPart("file", "data:;base64,aGk="),
            {
                "type": "document",
                "source": {"type": "data", "value": "aGk=", "mimeType": "text/plain"},
            },
        ),
        (
            MediaPart("audio", "https://a.b/c"),
            {"type": "audio", "source": {"type": "url", "value": "https://a.b/c"}},
        ),
        (
            MediaPart("file", "https://a.b/c", "video/mp4"),
            {
                "type": "video",
                "source": {"type": "url", "value": "https://a.b/c", "mimeType": "video/mp4"},
            },
        ),
    ],
)
def test_a_part_as_the_protocol_has_it(
    part: TextPart | RefusalPart | DataPart | MediaPart, view: Json
) -> None:
    [message] = message_views(UserMessage(UNNAMED, (part,)))
    assert message["content"] == [view]


async def test_of_a_large_conversation_the_newest_messages_are_sent() -> None:
    runs = LoggedRuns()
    runs.known[RUN.key] = Status(1)
    runs.history = tuple(UserMessage(MessageId(f"u{n}"), "x" * 100) for n in range(250))
    for most, fits in ((10**9, range(250, 251)), (2000, range(10, 20)), (10, range(1))):
        text = await read_snapshot(runs, RUN.key, 250, most=most)
        ids = [each["id"] for each in json.loads(text)]
        assert len(ids) in fits
        assert len(text) <= most
        assert ids == [f"u{n}" for n in range(250 - len(ids), 250)]


async def test_a_client_from_before_1_0_has_no_messages_of_sub_agents() -> None:
    runs = LoggedRuns(*HELLO)
    said = AssistantMessage(MessageId("m1"), "secret")
    runs.history = (UserMessage(MessageId("u1"), "go"), ChildMessage(CallId("c1"), said))
    runs.known[RUN.key] = Status(1, message_count=2)
    for helpers, ids in ((True, ["u1", "m1"]), (False, ["u1"])):
        text = await read_snapshot(runs, RUN.key, 2, helpers=helpers)
        assert [each["id"] for each in json.loads(text)] == ids
    older = posted()
    del older["protocolVersion"]
    answer = await post(runs, older)
    assert "secret" not in answer.body.decode()
    assert "secret" in (await post(runs, posted())).body.decode()


async def test_messages_of_a_long_time_ago_are_not_searched_for() -> None:
    runs = LoggedRuns(*HELLO)
    runs.known[RUN.key] = Status(1, message_count=MOST_MESSAGES + 1)
    runs.history = tuple(UserMessage(MessageId(f"u{n}"), "a") for n in range(MOST_MESSAGES + 1))
    answer = await post(runs, posted(user("a", "u0")))
    assert (answer.status, answer.code) == (422, "invalid_request")
    assert "post an empty list of messages" in answer.json["message"]
    assert (await post(runs, posted(user("a", "u1")))).status == 200
