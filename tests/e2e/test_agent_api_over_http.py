"""The Agent API over HTTP, on two workers: the same conversations, resumed anywhere."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.e2e.asking import asking_worker, flags_for
from tests.e2e.workers import SECONDS, Worker, broken_off, held
from tests.support.agent_api import (
    PATH,
    Json,
    bodies,
    check_legal,
    decision,
    events_of,
    function,
    joined_text,
    output,
    rebuilt,
    user,
)
from tests.support.model_server import ModelServer, Reply, calls, fails, says
from tests.support.wire import COLOR, Client, Stream, result
from tests.support.wire import user as native_user

pytestmark = pytest.mark.anyio

PAINT = function("set-color", color={"type": "string"})
ZONE = function("get-time-zone")


async def _post(client: Client, session: str, *messages: Json, **more: Any) -> Json:
    """The last event of a whole stream, which is a legal one."""
    body = {"session_id": session, "input": list(messages), **more}
    answer = await client.http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    return check_legal(events_of(answer.content))


@asynccontextmanager
async def _stream(client: Client, session: str, *messages: Json) -> AsyncGenerator[Stream]:
    body = {"session_id": session, "input": list(messages)}
    async with client.http.stream("POST", PATH, json=body) as response:
        yield Stream(response)


async def _until_said(stream: Stream, words: str) -> None:
    with anyio.fail_after(SECONDS):
        while rebuilt(frame.event for frame in stream.frames).joined_text() != words:
            await stream.next()


# ---------------------------------------------------------------- one conversation
async def test_a_session_goes_on_as_a_conversation_and_the_other_way_round(
    played_pair: tuple[Client, Client], model: ModelServer, conversation: str
) -> None:
    one, other = played_pair
    model.play(
        says("one"), calls(("a", "set-color", '{"color":"blue"}')), says("two"), says("three")
    )
    assert joined_text(await _post(one, conversation, user("first"), biz_params={"a": 1})) == "one"
    asked = await other.post(conversation, native_user("second"), tools=[COLOR])
    assert joined_text(await _post(one, conversation, output(asked.call.id, "blue"))) == "two"
    assert (await other.post(conversation, native_user("third"))).text == "three"
    messages = await other.messages(conversation)
    assert messages[0]["extras"] == {"biz_params": {"a": 1}}
    assert b"biz_params" not in model.requests[0].body
    shown = [(each["role"], each["content"]) for each in messages]
    assert shown == [
        ("user", [{"type": "text", "text": "first"}]),
        ("assistant", "one"),
        ("user", "second"),
        ("assistant", ""),
        ("tool", "blue"),
        ("assistant", "two"),
        ("user", "third"),
        ("assistant", "three"),
    ]


@pytest.mark.parametrize("unanswered", [fails(500), says()], ids=["failed", "silent"])
async def test_a_client_that_sends_all_that_was_said_is_understood_after_an_answer_that_never_came(
    played_pair: tuple[Client, Client],
    model: ModelServer,
    conversation: str,
    unanswered: Reply,
) -> None:
    one, other = played_pair
    model.play(unanswered, unanswered, says("here"))
    first = await _post(one, conversation, user("first"))
    history = [user("first"), *first["output"]]
    failure = {"type": "error", "role": "assistant", "code": "x", "message": "no answer"}
    second = await _post(other, conversation, *history, failure, user("second"))
    history += [user("second"), *second["output"]]
    assert joined_text(await _post(one, conversation, *history, user("third"))) == "here"
    asked = [each["content"] for each in await one.messages(conversation) if each["role"] == "user"]
    assert [part["text"] for [part] in asked] == ["first", "second", "third"]


@pytest.mark.promise("P12", "P13")
async def test_what_was_said_in_no_session_that_there_is_is_refused(
    played_pair: tuple[Client, Client], model: ModelServer, conversation: str
) -> None:
    model.play(says("hello Ann"))
    one = played_pair[0]
    answer = await _post(one, conversation, user("I am Ann"))
    await one.http.delete(f"/conversations/{conversation}")
    history = [user("I am Ann"), *answer["output"], user("who am I?")]
    for client in played_pair:
        for session in (conversation, f"{conversation}-new", None):
            body = {"session_id": session, "input": history}
            refused = await client.http.post(PATH, json=body)
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
            assert "cannot begin with what the agent said" in refused.json()["message"]
        assert (await client.http.get(f"/conversations/{conversation}")).status_code == 404


@pytest.mark.promise("P1", "P4", "P9")
async def test_the_results_of_client_tools_may_come_one_by_one_and_to_any_worker(
    played_pair: tuple[Client, Client], model: ModelServer, conversation: str
) -> None:
    one, other = played_pair
    model.play(
        calls(("a", "set-color", '{"color":"blue"}'), ("b", "get-time-zone", "{}")), says("so")
    )
    asked = await _post(one, conversation, user("go"), tools=[PAINT, ZONE])
    first, second = (data["call_id"] for data in bodies(asked, "function_call"))
    assert asked["metadata"] == {"requires_action": [first, second]}
    parked = await _post(other, conversation, output(second, "UTC"))
    assert (parked["status"], parked["output"]) == ("completed", [])
    assert parked["metadata"] == {"requires_action": [first]}
    history = [user("go"), *asked["output"], output(second, "UTC"), output(first, "blue")]
    assert joined_text(await _post(one, conversation, *history)) == "so"
    assert joined_text(await _post(other, conversation, output(first, "blue"))) == "so"
    body = {"session_id": conversation, "input": [output(first, "red")]}
    refused = await other.http.post(PATH, json=body)
    assert (refused.status_code, refused.json()["code"]) == (409, "tool_result_conflict")
    unknown = {"session_id": conversation, "input": [output("call_unknown", "x")]}
    refused = await other.http.post(PATH, json=unknown)
    assert (refused.status_code, refused.json()["code"]) == (404, "tool_call_not_found")
    assert (await one.post(conversation, result(second, "UTC"))).text == "so"


# ---------------------------------------------------------------- ends


@pytest.mark.promise("P7")
async def test_a_response_that_is_cancelled_on_another_worker_keeps_what_was_said(
    played_pair: tuple[Client, Client], model: ModelServer, conversation: str
) -> None:
    one, other = played_pair
    model.play(broken_off("half ", "an answer"))
    async with _stream(one, conversation, user("hi")) as stream:
        await _until_said(stream, "half an answer")
        await other.cancel(conversation)
        with anyio.fail_after(SECONDS):
            answer = await stream.whole()
    last = check_legal([frame.event for frame in answer.frames])
    assert (last["status"], joined_text(last)) == ("canceled", "half an answer")
    assert [message["status"] for message in last["output"]] == ["incomplete"]


@pytest.mark.promise("P3", "P7")
async def test_a_client_that_left_comes_back_to_another_worker(
    played_pair: tuple[Client, Client], model: ModelServer, conversation: str
) -> None:
    one, other = played_pair
    gate = anyio.Event()
    model.play(held("before ", gate, "and ", "after"))
    async with _stream(one, conversation, user("hi")) as stream:
        await _until_said(stream, "before ")
        had = list(stream.frames)
    headers = {"last-event-id": had[-1].id}
    async with other.http.stream(
        "GET", f"{PATH}/{conversation}/stream", headers=headers
    ) as response:
        again = Stream(response)
        gate.set()
        with anyio.fail_after(SECONDS):
            rest = (await again.whole()).frames
    events = [frame.event for frame in (*had, *rest)]
    assert rebuilt(events).joined_text() == joined_text(events[-1]) == "before and after"
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))


@pytest.mark.promise("P10")
async def test_a_response_whose_worker_died_is_sent_from_its_start(
    victim: Worker, survivor: Client, model: ModelServer, conversation: str
) -> None:
    model.play(broken_off("old "), says("new"))
    async with _stream(victim.client, conversation, user("hi")) as stream:
        await _until_said(stream, "old ")
        place = f"{PATH}/{conversation}/stream"
        async with survivor.http.stream("GET", place) as response:
            seen = Stream(response)
            await _until_said(seen, "old ")
            victim.server.kill()
            await victim.server.exit_code()
            with anyio.fail_after(SECONDS):
                broken = (await seen.whole()).frames[-1].event
    assert (broken["status"], broken["error"]["code"]) == ("failed", "rewound")
    late = await survivor.http.get(place, headers={"last-event-id": stream.frames[-1].id})
    [event] = events_of(late.content)
    assert event["error"]["code"] == "rewound"
    assert event["sequence_number"] > stream.frames[-1].event["sequence_number"]
    answer = await survivor.http.get(place, headers={"last-event-id": seen.frames[-1].id})
    assert joined_text(check_legal(events_of(answer.content))) == "new"


# ---------------------------------------------------------------- approvals
@pytest.fixture(scope="module")
async def asking_pair(store: str, model: ModelServer) -> AsyncGenerator[tuple[Client, Client]]:
    flags = flags_for(store, model)
    async with asking_worker(*flags) as one, asking_worker(*flags) as other:
        yield one.client, other.client


@pytest.mark.parametrize("approve", [True, False])
async def test_a_person_is_asked_and_answers_on_another_worker(
    asking_pair: tuple[Client, Client], model: ModelServer, conversation: str, approve: bool
) -> None:
    one, other = asking_pair
    model.play(calls(("a", "wipe", "{}")), says("good"))
    asked = await _post(one, conversation, user("go"))
    [request] = bodies(asked, "mcp_approval_request")
    assert (request["name"], request["reason"]) == ("wipe", "It cannot be undone.")
    assert asked["metadata"] == {"requires_action": [request["id"]]}
    pair = [asked["output"][-1], decision(request["id"], approve, reason="I say so")]
    answer = await _post(other, conversation, *pair)
    assert joined_text(answer) == "good"
    [made] = bodies(answer, "plugin_call_output")
    assert made["name"] == "wipe"
    assert made.get("is_error", False) is not approve
    assert len(bodies(answer, "plugin_call")) == approve
    again = await _post(one, conversation, decision(request["id"], approve, reason="I say so"))
    assert bodies(again, "plugin_call_output") == [made]
