"""A run that has ended is sent again in any dialect, as long as its log is kept."""

import json
from collections.abc import Sequence

import httpx
import pytest
from tests.support.ai_sdk import API, Json, chunks_of, said
from tests.support.asgi_client import ask
from tests.support.logged_runs import RUN
from tests.unit.wire.ag_ui_site import Thread, events_of, threads, types_of, user
from tests.unit.wire.ai_sdk_site import recorded, site, streamed

from passback import Agent
from passback.core.errors import CursorExpired
from passback.core.events import Cancelled, Completed, RunFinished, RunQueued, RunStarted, TextDelta
from passback.core.ids import new_run_id
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationId,
    ConversationKey,
    MessageId,
    OwnerId,
    RunId,
    UserMessage,
)
from passback.testing import ScriptedModel, calls, says

pytestmark = pytest.mark.anyio

PAINT: Json = {"name": "paint"}
STREAMS = {
    "/send-message": "/conversations/{}/stream",
    "AG-UI": "/ag-ui/threads/{}/stream",
    "AI SDK": f"{API}/{{}}/stream",
    "Agent API": "/process/{}/stream",
}
KEYS = {"api_keys": "alice:alices-key-0123456789,bob:bobs-key-0123456789"}
ALICE, BOB = ({"authorization": f"Bearer {name}s-key-0123456789"} for name in ("alice", "bob"))


def painter() -> Agent:
    """An agent that calls a client's tool, says what came of it, and then answers."""
    return Agent(model=ScriptedModel([calls(("paint", {})), says("done"), says("two"), says("3")]))


async def send(client: httpx.AsyncClient, *messages: Json, **fields: object) -> httpx.Response:
    body = {"conversationId": "c", "messages": messages, "tools": [PAINT], **fields}
    answer = await client.post("/send-message", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def three_runs(client: httpx.AsyncClient) -> Sequence[str]:
    """Begin, go on after a result, and answer another message; return the ids of the runs."""
    first = await send(client, {"role": "user", "content": "a"})
    call = next(each for each in chunks_of(first.content) if each["type"] == "tool-call-start")
    result = {"role": "tool", "toolCallId": call["toolCallId"], "content": "blue"}
    second = await send(client, result)
    third = await send(client, {"role": "user", "content": "b"})
    return [each.headers["x-run-id"] for each in (first, second, third)]


async def replay(client: httpx.AsyncClient, wire: str, run: str) -> httpx.Response:
    answer = await client.get(STREAMS[wire].format("c"), params={"runId": run})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-run-id"] == run
    return answer


# ---------------------------------------------------------------- AG-UI
async def test_an_ag_ui_run_is_sent_again_as_it_was_under_the_servers_id() -> None:
    async with threads(painter()) as client:
        thread = Thread(client)
        first = await thread.post(user("a"), tools=[PAINT])
        assert thread.answer is not None
        run = thread.answer.headers["x-run-id"]
        await client.post(
            "/send-message",
            json={"conversationId": "c", "messages": [{"role": "user", "content": "b"}]},
        )
        again = events_of((await replay(client, "AG-UI", run)).text)
        named = [{**each, **({"runId": run} if "runId" in each else {})} for each in first]
        assert again == named
        assert again[-1]["outcome"]["pendingToolCallIds"]


async def test_each_run_of_an_ag_ui_thread_is_sent_alone() -> None:
    async with threads(painter()) as client:
        runs = await three_runs(client)
        lasts = ("TOOL_CALL_END", "TEXT_MESSAGE_END", "TEXT_MESSAGE_END")
        for run, last in zip(runs, lasts, strict=True):
            events = events_of((await replay(client, "AG-UI", run)).text)
            assert events[0]["runId"] == events[-1]["runId"] == run
            assert types_of(events)[-3:] == [last, "STEP_FINISHED", "RUN_FINISHED"]
            assert "MESSAGES_SNAPSHOT" not in types_of(events)


@pytest.mark.parametrize("name", ["call_", "msg_", "run-", ""])
async def test_a_name_that_only_looks_like_the_servers_is_the_clients(name: str) -> None:
    async with threads(painter()) as client:
        (run, *_) = await three_runs(client)
        mine = name + run.removeprefix("run_")
        answer = await client.get(STREAMS["AG-UI"].format("c"), params={"runId": mine})
        events = events_of(answer.text)
        assert types_of(events) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        assert events[0]["runId"] == mine


# ---------------------------------------------------------------- AI SDK
async def test_a_message_of_the_ai_sdk_is_sent_as_far_as_the_run_brought_it() -> None:
    async with threads(painter()) as client:
        first, second, third = await three_runs(client)
        begun, gone_on, other = [
            chunks_of((await replay(client, "AI SDK", run)).content)
            for run in (first, second, third)
        ]
        assert [each["type"] for each in begun] == [
            *("start", "start-step", "tool-input-start", "tool-input-delta"),
            *("tool-input-available", "finish-step", "finish"),
        ]
        assert (begun[0]["messageId"], begun[-1]["finishReason"]) == (first, "tool-calls")
        # the same message, with its beginning and the result
        assert gone_on[0]["messageId"] == first
        assert gone_on[0]["messageMetadata"]["runId"] == second
        outputs = [each["output"] for each in gone_on if each["type"] == "tool-output-available"]
        assert (outputs, said(gone_on)) == (["blue"], "done")
        assert (other[0]["messageId"], said(other)) == (third, "two")


async def test_a_run_on_a_branch_that_was_left_is_sent_without_its_beginning() -> None:
    async with threads(painter()) as client:
        first, second, _ = await three_runs(client)
        await send(client, {"role": "user", "content": "anew"}, after="")
        chunks = chunks_of((await replay(client, "AI SDK", second)).content)
        assert (chunks[0]["messageId"], said(chunks)) == (second, "done")
        assert not [each for each in chunks if each["type"].startswith("tool-")]
        begun = chunks_of((await replay(client, "AI SDK", first)).content)
        assert begun[0]["messageId"] == first


STREAM = f"{API}/c/stream?runId={RUN.run_id}"
TOLD = AssistantMessage(MessageId("a"), "before ", run_id=RunId("run_0"))


async def test_a_named_run_that_waits_or_is_the_newest_is_sent() -> None:
    runs = recorded(UserMessage(MessageId("u"), "hello"), queued=(RUN.run_id,))
    assert said(streamed(await ask(site(runs), "GET", STREAM))) == "hi"
    runs = recorded(UserMessage(MessageId("u"), "go"), TOLD, run_start=2)
    chunks = streamed(await ask(site(runs), "GET", STREAM))
    assert (chunks[0]["messageId"], said(chunks)) == ("run_0", "before hi")


async def test_a_sub_agents_message_tells_whose_run_it_was() -> None:
    inner = AssistantMessage(MessageId("b"), "hi", run_id=RUN.run_id)
    history = (UserMessage(MessageId("u"), "go"), TOLD, ChildMessage(CallId("call_1"), inner))
    runs = recorded(*history, run_id=RunId("run_9"))
    runs.log.clear()
    runs.say(RunStarted(RUN.run_id, 1, 1), TextDelta("hi"), RunFinished(Completed()))
    chunks = streamed(await ask(site(runs), "GET", STREAM))
    assert (chunks[0]["messageId"], said(chunks)) == ("run_0", "before hi")


async def test_an_earlier_run_that_never_began_has_its_end() -> None:
    runs = recorded(TOLD, run_id=RunId("run_9"))
    runs.log.clear()
    runs.say(RunQueued(RUN.run_id), RunFinished(Cancelled()))
    chunks = streamed(await ask(site(runs), "GET", STREAM))
    assert [each["type"] for each in chunks] == ["start", "abort", "finish"]


async def test_an_earlier_run_whose_log_has_lost_its_beginning_is_a_410() -> None:
    runs = recorded(run_id=RunId("run_9"))
    runs.unreadable = CursorExpired("read the messages instead")
    answer = await ask(site(runs), "GET", STREAM)
    assert (answer.status, answer.body) == (410, b"read the messages instead")


async def test_a_run_of_an_unknown_chat_is_a_404_and_not_nothing() -> None:
    runs = recorded()
    runs.known.clear()
    answer = await ask(site(runs), "GET", STREAM)
    assert (answer.status, answer.headers["x-error-code"]) == (404, "conversation_not_found")


# ---------------------------------------------------------------- all wires
@pytest.mark.parametrize("wire", STREAMS)
async def test_a_run_that_is_not_there_is_refused_before_the_stream(wire: str) -> None:
    key = ConversationKey(OwnerId("anonymous"), ConversationId("c"))
    async with threads(painter()) as client:
        await three_runs(client)
        other = await send(client, {"role": "user", "content": "x"}, conversationId="d")
        for run in (new_run_id(key), other.headers["x-run-id"]):
            answer = await client.get(STREAMS[wire].format("c"), params={"runId": run})
            code = answer.headers.get("x-error-code") or answer.json()["code"]
            assert (answer.status_code, code) == (404, "run_not_found")


@pytest.mark.parametrize("wire", STREAMS)
async def test_a_run_of_another_owner_is_not_there(wire: str) -> None:
    async with threads(painter(), **KEYS) as client:
        client.headers.update(ALICE)
        (run, *_) = await three_runs(client)
        stream = STREAMS[wire].format("c")
        mine = await client.get(stream, params={"runId": run})
        theirs = await client.get(stream, params={"runId": run}, headers=BOB)
        unknown = await client.get(stream, params={"runId": run}, headers={"authorization": ""})
        assert [each.status_code for each in (mine, theirs, unknown)] == [200, 404, 401]


@pytest.mark.parametrize("wire", STREAMS)
async def test_the_openapi_document_has_the_route_of_each_wire_that_is_served(wire: str) -> None:
    """The playground looks there for the dialects that it may show."""
    operations = {
        "/send-message": "streamRun",
        "AG-UI": "followThread",
        "AI SDK": "resumeChat",
        "Agent API": "followResponse",
    }
    served = {"ai_sdk_path": "/chats", "process_path": "/agents"}
    async with threads(painter(), **served) as client:
        document = json.loads((await client.get("/openapi.json")).text)
        found = [
            (path, get)
            for path, item in document["paths"].items()
            if (get := item.get("get", {})).get("operationId") == operations[wire]
        ]
        ((path, get),) = found
        assert [each["in"] for each in document["paths"][path]["parameters"]] == ["path"]
        assert "runId" in [each["name"] for each in get["parameters"]]
        run = (await three_runs(client))[0]
        route = path.format(id="c", threadId="c", session_id="c")
        assert (await client.get(route, params={"runId": run})).status_code == 200
    only = {"wires": "send_message,rest,page"}
    async with threads(painter(), **only) as client:
        document = json.loads((await client.get("/openapi.json")).text)
        ids = {
            get["operationId"]
            for item in document["paths"].values()
            for get in item.values()
            if isinstance(get, dict)
        }
        assert (operations[wire] in ids) == (wire == "/send-message")
