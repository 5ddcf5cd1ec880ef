"""The published client of the AI SDK, `Chat` of `@ai-sdk/react`, against real servers."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import anyio
import pytest
from tests.e2e.asking import asking_worker, flags_for
from tests.e2e.workers import SECONDS, Worker, broken_off, held
from tests.support.ai_sdk import API, Chats, Json, published_chats, text_of, tools_of, user
from tests.support.model_server import ModelServer, calls, fails, says
from tests.support.wire import ZONE, Client, result
from tests.support.wire import user as native_user

from passback.wire.ai_sdk.json_values import REFUSED_INPUT

pytestmark = [pytest.mark.anyio, pytest.mark.node]

Opens: TypeAlias = Callable[..., Awaitable[Json]]
QUESTION = '{"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}'


@pytest.fixture
async def chats() -> AsyncGenerator[Chats]:
    async with published_chats() as chats:
        yield chats


@pytest.fixture(scope="module")
async def workers(store: str, model: ModelServer) -> AsyncGenerator[Sequence[Worker]]:
    flags = flags_for(store, model)
    async with asking_worker(*flags) as one, asking_worker(*flags) as other:
        yield one, other


@pytest.fixture
def client(workers: Sequence[Worker]) -> Client:
    return workers[0].client


@pytest.fixture
def opens(chats: Chats, workers: Sequence[Worker], conversation: str) -> Opens:
    """Open a chat of the conversation, at the first worker unless the test says another one."""

    async def open_chat(*, chat: str = "chat", at: Worker = workers[0], **more: Any) -> Json:
        api = f"{at.server.url}{API}"
        body = {"tools": [ZONE, {"name": "ask_user"}], **more.pop("body", {})}
        return await chats("open", chat, id=conversation, api=api, body=body, **more)

    return open_chat


def shown(state: Json) -> list[tuple[str, str]]:
    return [(each["role"], text_of({"messages": [each]})) for each in state["messages"]]


def check_ready(state: Json, requests: int) -> None:
    assert (state["status"], state["error"]) == ("ready", None)
    assert len(state["requests"]) == requests


# ---------------------------------------------------------------- talking
async def test_a_chat_goes_on_and_has_model_and_usage_in_its_metadata(
    chats: Chats, opens: Opens, model: ModelServer, client: Client, conversation: str
) -> None:
    model.play(says("Hel", "lo"), says("Bye"))
    await opens()
    await chats.send("hi")
    state = await chats.send("bye")
    check_ready(state, 2)
    assert shown(state) == [
        ("user", "hi"),
        ("assistant", "Hello"),
        ("user", "bye"),
        ("assistant", "Bye"),
    ]
    metadata = state["messages"][-1]["metadata"]
    assert (metadata["conversationId"], metadata["reason"]) == (conversation, "end_turn")
    run = await client.http.get(f"/conversations/{conversation}/runs/{metadata['runId']}")
    assert (run.json()["model"], run.json()["outcome"]) == (metadata["model"], "completed")
    stored = await client.messages(conversation)
    assert [each["content"] for each in stored] == ["hi", "Hello", "bye", "Bye"]
    assert stored[0]["id"] == state["messages"][0]["id"]


async def test_an_app_may_post_the_newest_message_only(
    chats: Chats, opens: Opens, model: ModelServer
) -> None:
    model.play(says("one"), says("two"), says("two again"), says("three"))
    await opens(short=True)
    await chats.send("1")
    asked = (await chats.send("2"))["messages"][2]["id"]
    again = await chats("regenerate")
    assert shown(again)[-1] == ("assistant", "two again")
    state = await chats.send("3", messageId=asked)
    check_ready(state, 4)
    assert shown(state) == [
        ("user", "1"),
        ("assistant", "one"),
        ("user", "3"),
        ("assistant", "three"),
    ]
    assert [each["content"] for each in model.requests[-1].shown] == ["1", "one", "3"]


async def test_an_attachment_reaches_the_model(
    chats: Chats, opens: Opens, model: ModelServer
) -> None:
    model.play(says("a pixel"))
    await opens()
    url = "data:image/png;base64,iVBORw0KGgo="
    await chats.send("look", files=[{"type": "file", "mediaType": "image/png", "url": url}])
    [message] = model.requests[-1].shown
    assert {"type": "image_url", "image_url": {"url": url}} in message["content"]


# ---------------------------------------------------------------- tools of the client
async def test_a_client_tool_is_made_and_its_result_sent_automatically(
    chats: Chats, opens: Opens, model: ModelServer
) -> None:
    model.play(calls(("a", "get-time-zone", "{}")), says("It is UTC."))
    await opens(results={"get-time-zone": {"output": {"zone": "UTC"}}})
    state = await chats.send("which zone?")
    check_ready(state, 2)
    assert shown(state)[1:] == [("assistant", "It is UTC.")]
    [part] = tools_of(state)
    assert (part["state"], part["output"]) == ("output-available", {"zone": "UTC"})
    assert model.requests[-1].shown[-1]["content"] == '{"zone": "UTC"}'


async def test_a_client_tool_may_fail(chats: Chats, opens: Opens, model: ModelServer) -> None:
    model.play(calls(("a", "get-time-zone", "{}")), says("I see."))
    await opens(results={"get-time-zone": {"error": "no clock"}})
    check_ready(await chats.send("which zone?"), 2)
    assert "no clock" in model.requests[-1].shown[-1]["content"]


async def test_an_invalid_call_is_not_made_and_nothing_is_sent_automatically(
    chats: Chats, opens: Opens, model: ModelServer
) -> None:
    model.play(calls(("a", "ask_user", "{}")), says("Sorry."))
    await opens(results={"ask_user": {"output": "x"}})
    state = await chats.send("ask me")
    check_ready(state, 1)
    assert [part["state"] for part in tools_of(state)] == ["output-error"]


async def test_a_server_tool_is_a_dynamic_part_with_its_result(
    chats: Chats, opens: Opens, model: ModelServer
) -> None:
    model.play(calls(("a", "price", '{"drink":"tea"}')), says("3 euros."))
    await opens()
    state = await chats.send("what is tea?")
    check_ready(state, 1)
    [part] = tools_of(state)
    assert (part["type"], part["toolName"], part["input"], part["output"]) == (
        *("dynamic-tool", "price"),
        {"drink": "tea"},
        "3 euros",
    )


async def test_the_user_answers_questions(chats: Chats, opens: Opens, model: ModelServer) -> None:
    model.play(calls(("a", "ask_user", QUESTION)), says("a it is."))
    await opens()
    [part] = tools_of(await chats.send("ask me"))
    assert part["input"]["questions"][0]["question"] == "Which?"
    answer = {"tool": "ask_user", "toolCallId": part["toolCallId"]}
    wrong = {**answer, "output": {"answers": [{"selected": ["c"]}]}}
    state = await chats("output", answer=wrong)
    assert state["status"] == "error"
    assert "what is selected is none of the options" in state["error"]
    right = {**answer, "output": {"answers": [{"selected": ["a"]}]}}
    state = await chats("output", answer=right)
    state = await chats("send")
    assert text_of(state) == "a it is."


# ---------------------------------------------------------------- approvals
@pytest.mark.parametrize("approved", [True, False])
async def test_a_person_decides_and_the_message_goes_on(
    chats: Chats, opens: Opens, model: ModelServer, approved: bool
) -> None:
    model.play(calls(("a", "wipe", "{}")), says("Done."))
    await opens()
    state = await chats.send("wipe it")
    [part] = tools_of(state)
    assert part["state"] == "approval-requested"
    assert part["approval"]["requestReason"] == "It cannot be undone."
    call = part["approval"]["id"]
    state = await chats("approve", id=call, approved=approved, reason="because")
    check_ready(state, 2)
    [part] = tools_of(state)
    assert part["state"] == ("output-available" if approved else "output-denied")
    assert shown(state)[1:] == [("assistant", "Done.")]
    told = model.requests[-1].shown[-1]["content"]
    assert told == "wiped" if approved else "because" in told


async def test_a_result_waits_for_the_decision_on_another_call_and_is_not_posted_for_ever(
    chats: Chats, opens: Opens, model: ModelServer
) -> None:
    model.play(calls(("a", "get-time-zone", "{}"), ("b", "wipe", "{}")), says("Both."))
    await opens(results={"get-time-zone": {"output": "UTC"}})
    state = await chats.send("do both")
    check_ready(state, 1)
    wipe = next(part for part in tools_of(state) if part.get("toolName") == "wipe")
    state = await chats("approve", id=wipe["toolCallId"], approved=True)
    check_ready(state, 2)
    assert [part["state"] for part in tools_of(state)] == ["output-available"] * 2
    assert text_of(state) == "Both."


async def test_answers_in_two_requests_are_stored_and_the_last_one_begins_the_run(
    chats: Chats, opens: Opens, model: ModelServer
) -> None:
    model.play(calls(("a", "get-time-zone", "{}"), ("b", "wipe", "{}")), says("Both."))
    await opens(auto=False)
    parts = {part["state"]: part for part in tools_of(await chats.send("do both"))}
    zone, wipe = parts["input-available"], parts["approval-requested"]
    output = {"tool": "get-time-zone", "toolCallId": zone["toolCallId"], "output": "UTC"}
    await chats("output", answer=output)
    waits = await chats("send")
    check_ready(waits, 2)
    assert len(waits["messages"]) == 2
    await chats("approve", id=wipe["toolCallId"], approved=True)
    state = await chats("send")
    check_ready(state, 3)
    assert text_of(state) == "Both."


# ---------------------------------------------------------------- branches
async def test_a_user_edits_twice_and_regenerates(
    chats: Chats, opens: Opens, model: ModelServer, client: Client, conversation: str
) -> None:
    model.play(*(says(text) for text in ("one", "two", "TWO", "Two", "Two!", "one!")))
    await opens()
    await chats.send("1")
    asked = (await chats.send("2"))["messages"][2]["id"]
    await chats.send("2b", messageId=asked)
    await chats.send("2c", messageId=asked)
    assert [each["content"] for each in model.requests[-1].shown] == ["1", "one", "2c"]
    state = await chats("regenerate")
    check_ready(state, 5)
    assert shown(state) == [
        ("user", "1"),
        ("assistant", "one"),
        ("user", "2c"),
        ("assistant", "Two!"),
    ]
    assert [each["content"] for each in model.requests[-1].shown] == ["1", "one", "2c"]
    state = await chats("regenerate", messageId=state["messages"][1]["id"])
    assert shown(state) == [("user", "1"), ("assistant", "one!")]
    stored = await client.messages(conversation)
    assert [each["content"] for each in stored] == ["1", "one!"]
    shown_there = (await client.http.get(f"/conversations/{conversation}")).json()
    assert [len(each["versions"]) for each in shown_there["branches"]] == [2]


# ---------------------------------------------------------------- errors and stops
async def test_a_refused_message_shows_its_reason_and_the_chat_goes_on(
    chats: Chats, opens: Opens, model: ModelServer
) -> None:
    model.play(says("fine"))
    await opens()
    state = await chats.send(" ")
    assert (state["status"], state["error"]) == (
        *("error", "messages.0: the content of a message is empty"),
    )
    state = await chats.send("hi", messageId=state["messages"][0]["id"])
    check_ready(state, 2)
    assert shown(state) == [("user", "hi"), ("assistant", "fine")]


async def test_a_failed_run_shows_its_reason_and_is_regenerated(
    chats: Chats, opens: Opens, model: ModelServer, client: Client, conversation: str
) -> None:
    model.play(fails(400, {"error": {"message": "secret"}}), says("fine"))
    await opens()
    state = await chats.send("hi")
    assert state["status"] == "error"
    assert "secret" not in state["error"]
    assert state["messages"][-1]["metadata"]["failure"]["code"] == "model_rejected"
    state = await chats("regenerate")
    check_ready(state, 2)
    assert shown(state) == [("user", "hi"), ("assistant", "fine")]
    assert [each["content"] for each in await client.messages(conversation)] == ["hi", "fine"]


async def test_stopping_cancels_the_run_and_the_next_message_goes_on(
    chats: Chats, opens: Opens, model: ModelServer, client: Client, conversation: str
) -> None:
    model.play(broken_off("half "), says("whole"))
    await opens()
    await chats("begin", message={"text": "hi"})
    await chats("says", text="half ")
    assert (await client.http.post(f"{API}/{conversation}/stop")).status_code == 204
    state = await chats("ended")
    check_ready(state, 1)
    assert state["ends"][-1]["finishReason"] == "interrupted"
    state = await chats.send("again")
    assert shown(state)[1:] == [("assistant", "half "), ("user", "again"), ("assistant", "whole")]


# ---------------------------------------------------------------- resuming
async def test_another_tab_resumes_at_another_worker_from_the_start(
    chats: Chats, opens: Opens, model: ModelServer, workers: Sequence[Worker]
) -> None:
    gate = anyio.Event()
    model.play(held("half ", gate, "and ", "half"))
    await opens()
    await chats("begin", message={"text": "hi"})
    state = await chats("says", text="half ")
    await opens(chat="tab", at=workers[1], messages=state["messages"][:1])
    await chats("begin_resume", "tab")
    await chats("says", "tab", text="half ")
    gate.set()
    one, other = await chats("ended"), await chats("ended", "tab")
    assert shown(one)[1:] == shown(other)[1:] == [("assistant", "half and half")]
    assert one["messages"][1]["id"] == other["messages"][1]["id"]
    nothing = await chats("resume", "tab")
    check_ready(nothing, 2)
    assert shown(nothing) == shown(other)


async def test_a_tab_resumes_a_message_that_went_on_after_answers(
    chats: Chats, opens: Opens, model: ModelServer, workers: Sequence[Worker]
) -> None:
    gate = anyio.Event()
    model.play(calls(("a", "get-time-zone", "{}")), held("It ", gate, "is UTC."))
    await opens(results={"get-time-zone": {"output": "UTC"}})
    await chats("begin", message={"text": "which zone?"})
    await chats("says", text="It ")
    await opens(chat="tab", at=workers[1], messages=[])
    await chats("begin_resume", "tab")
    await chats("says", "tab", text="It ")
    gate.set()
    one, other = await chats("ended"), await chats("ended", "tab")
    assert other["messages"][0]["id"] == one["messages"][1]["id"]
    [part] = tools_of(other)
    assert (part["state"], part["output"], text_of(other)) == (
        *("output-available", "UTC", "It is UTC."),
    )
    check_ready(other, 1)


@pytest.mark.promise("P10")
async def test_a_reader_at_another_worker_survives_a_take_over(
    chats: Chats, opens: Opens, model: ModelServer, store: str, workers: Sequence[Worker]
) -> None:
    model.play(broken_off("old "), says("new ", "answer"))
    async with asking_worker(*flags_for(store, model)) as victim:
        await opens(at=victim)
        await chats("begin", message={"text": "hi"})
        state = await chats("says", text="old ")
        await opens(chat="tab", at=workers[1], messages=state["messages"][:1])
        await chats("begin_resume", "tab")
        await chats("says", "tab", text="old ")
        victim.server.kill()
        assert (await chats("ended"))["status"] == "error"
        with anyio.fail_after(SECONDS):
            state = await chats("ended", "tab")
    check_ready(state, 1)
    assert shown(state) == [("user", "hi"), ("assistant", "new answer")]
    assert {"type": "data-rewind", "data": {}, "transient": True} in state["data"]


# ---------------------------------------------------------------- other wires
async def test_a_chat_begun_on_another_wire_goes_on_here_and_back(
    chats: Chats, opens: Opens, model: ModelServer, client: Client, conversation: str
) -> None:
    model.play(
        says("Hello"),
        calls(("a", "get-time-zone", "{}")),
        says("It is UTC."),
        calls(("b", "get-time-zone", "{}")),
        says("Still UTC."),
    )
    await client.post(conversation, native_user("hi"))
    await opens(results={"get-time-zone": {"output": "UTC"}})
    check_ready(await chats.send("which zone?"), 2)
    asked = await client.post(conversation, native_user("and now?"))
    [call] = [each.event["toolCallId"] for each in asked.frames if each.type == "tool-call-start"]
    done = await client.post(conversation, result(call, "UTC"))
    assert done.text == "Still UTC."
    assert [each["content"] for each in model.requests[-1].shown if each["role"] == "user"] == [
        *("hi", "which zone?", "and now?")
    ]


async def test_a_call_of_another_wire_is_answered_here(
    client: Client, model: ModelServer, conversation: str
) -> None:
    model.play(calls(("a", "get-time-zone", "{}")), says("It is UTC."))
    asked = await client.post(conversation, native_user("which zone?"), tools=[ZONE])
    [call] = [each.event["toolCallId"] for each in asked.frames if each.type == "tool-call-start"]
    part = {"type": "tool-get-time-zone", "toolCallId": call, "state": "output-available"}
    message = {**user("", "m"), "role": "assistant", "parts": [{**part, "output": "UTC"}]}
    answer = await client.http.post(API, json={"id": conversation, "message": message})
    assert answer.status_code == 200
    assert '"delta":"It is UTC."' in answer.text


# ---------------------------------------------------------------- hostile JSON
async def test_no_arguments_of_a_model_end_the_stream(
    chats: Chats, opens: Opens, model: ModelServer
) -> None:
    hostile = '{"__proto__": {"admin": true}, "drink": "tea"}'
    wrapped = '{"a": [{"constructor": {"prototype": {}}}]}'
    model.play(
        calls(("call_1", "price", hostile), ("call_2", "get-time-zone", wrapped)),
        says("Enough"),
    )
    await opens(results={"get-time-zone": {"output": "never"}})
    state = await chats.send("hi")
    assert (state["status"], state["error"]) == ("ready", None)
    assert len(state["requests"]) == 2  # the client has posted the error of its own call
    priced, own = tools_of(state)[:2]
    assert json.loads(priced["input"]) == json.loads(hostile)
    assert (own["state"], own["errorText"]) == ("output-error", REFUSED_INPUT)
    assert json.loads(own["input"]) == json.loads(wrapped)
    assert text_of(state) == "Enough"
    told = [each["content"] for each in model.requests[1].shown]
    assert f"Error: {REFUSED_INPUT}" in told
