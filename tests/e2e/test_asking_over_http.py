"""Approvals and questions over HTTP: frames, cursors, bad answers, and servers that die."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from tests.e2e.asking import asking_worker, flags_for
from tests.e2e.workers import Worker
from tests.support.model_server import ModelServer, Reply, calls, says
from tests.support.wire import PATH, Answer, Client, Json, check_refusal, merged, result, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P1", "P2", "P12")]

ASK_USER: Json = {"name": "ask_user"}
FORM = (
    '{"questions": [{"question": "Which?", "options": [{"label": "blue"}, {"label": "green"}], '
    '"freeText": false}, {"question": "Its name?"}]}'
)
WIPE = calls(("a", "wipe", "{}"))
REASON = "It cannot be undone."


@pytest.fixture(scope="module")
async def survivor(store: str, model: ModelServer) -> AsyncGenerator[Worker]:
    async with asking_worker(*flags_for(store, model)) as worker:
        yield worker


@pytest.fixture
async def victim(store: str, model: ModelServer, survivor: Worker) -> AsyncGenerator[Worker]:
    async with asking_worker(*flags_for(store, model), "--timing", "shutdown_grace=0") as worker:
        yield worker


@pytest.fixture
def raw(survivor: Worker) -> Client:
    return survivor.client


def yes(call_id: str) -> Json:
    return {"interruptId": call_id, "payload": {"approved": True}}


def id_of(answer: Answer) -> str:
    begun = next(frame for frame in answer.frames if frame.type == "tool-call-start")
    return str(begun.event["toolCallId"])


async def asked(model: ModelServer, client: Client, conversation: str, then: Reply = WIPE) -> str:
    """The id of the only call that is owed."""
    model.play(then, says("good"))
    answer = await client.post(conversation, user("go"), tools=[ASK_USER])
    assert answer.status == 200
    return id_of(answer)


async def resume(client: Client, conversation: str, given: object, **more: Any) -> Answer:
    return await client.post(conversation, resume=given, **more)


# ---------------------------------------------------------------- frames
@pytest.mark.promise("P4")
async def test_the_frames_of_a_call_that_asks_and_of_the_run_that_makes_it(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(calls(("a", "wipe", "{}"), ("b", "price", '{"drink": "tea"}')), says("good"))
    first = await raw.post(conversation, user("go"), include=["owed", "run"])
    call, price = [f.event["toolCallId"] for f in first.frames if f.type == "tool-call-start"]
    owed = {"id": call, "name": "wipe", "arguments": "{}", "kind": "approval", "reason": REASON}
    *_, made, resulted, interrupt, owing, end, done = first.frames
    assert made.event == {"type": "tool-call-end", "toolCallId": price}
    assert resulted.event == {"type": "tool-result", "toolCallId": price, "result": "3 euros"}
    assert interrupt.event == {
        "type": "interrupt",
        "id": call,
        "reason": REASON,
        "payload": {
            "kind": "approval",
            "toolCallId": call,
            "toolCallName": "wipe",
            "arguments": "{}",
        },
    }
    assert owing.event == {"type": "owed", "toolCalls": [owed]}
    assert (end.event["outcome"], done.data) == ("handed-back", "[DONE]")
    assert [c.id for c in first.calls] == [price]
    second = await resume(raw, conversation, yes(call))
    assert [frame.event for frame in second.frames[:-1]] == [
        {"type": "tool-call-end", "toolCallId": call},
        {"type": "tool-result", "toolCallId": call, "result": "wiped"},
        {"type": "text", "content": "good"},
    ]
    history = await raw.messages(conversation)
    assert [each["role"] for each in history] == [
        *["user", "assistant", "tool", "approval", "tool", "assistant"]
    ]
    approval = history[3]
    assert approval == {
        "id": approval["id"],
        "createdAt": approval["createdAt"],
        "runId": second.headers["x-run-id"],
        "role": "approval",
        "toolCallId": call,
        "approved": True,
    }


@pytest.mark.promise("P3")
async def test_interrupts_are_seen_again_behind_any_place(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(WIPE)
    whole = await raw.post(conversation, user("go"), include=["owed", "run"])
    for position, frame in enumerate(whole.frames[:-1], 1):
        rest = await raw.replay(conversation, after=frame.id, include=["owed", "run"])
        assert merged([*whole.frames[:position], *rest.frames]) == merged(whole.frames)


# ---------------------------------------------------------------- questions
BAD_ANSWERS: list[Any] = [
    "blue",
    {"answers": []},
    {"answers": [{"selected": ["red"]}, {}]},
    {"answers": [{"selected": ["blue", "green"]}, {}]},
    {"answers": [{"text": "red"}, {}]},
    {"answers": [{}, {"selected": ["Sky"]}]},
    {"answers": [{}, {"text": "x" * 100_001}]},
    {"answers": [{}, {}, {}]},
    {"selected": ["blue"]},
    [{"type": "text", "text": "blue"}],
]


async def test_bad_answers_to_questions_are_refused_until_a_good_one_comes(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    call = await asked(model, raw, conversation, calls(("a", "ask_user", FORM)))
    before = await raw.conversation(conversation)
    [owed] = before["owed"]
    assert (owed["kind"], owed["arguments"]) == ("question", FORM)
    for bad in BAD_ANSWERS:
        refused = await raw.http.post(
            PATH, json={"conversationId": conversation, "messages": [result(call, bad)]}
        )
        check_refusal(refused, 422, "invalid_answer")
    check_refusal(
        await raw.http.post(PATH, json={"conversationId": conversation, "resume": yes(call)}),
        404,
        "tool_call_not_found",
    )
    assert await raw.conversation(conversation) == before
    good = {"answers": [{"selected": ["green"]}, {"text": "Sky"}]}
    assert (await raw.post(conversation, result(call, good))).text == "good"
    assert (await raw.post(conversation, result(call, good))).text == "good"
    other = await raw.post(conversation, result(call, {"answers": [{}, {}]}))
    assert (other.status, other.json["code"]) == (409, "tool_result_conflict")


# ---------------------------------------------------------------- servers die
@pytest.mark.promise("P10")
@pytest.mark.parametrize("how", ["kill", "terminate"])
async def test_the_server_that_asked_may_be_gone_when_the_answer_comes(
    model: ModelServer, victim: Worker, raw: Client, conversation: str, how: str
) -> None:
    call = await asked(model, victim.client, conversation)
    if how == "kill":
        victim.server.kill()
    else:
        victim.server.terminate()
    await victim.server.exit_code()
    assert (await resume(raw, conversation, yes(call))).text == "good"
    results = [
        each["content"] for each in await raw.messages(conversation) if each["role"] == "tool"
    ]
    assert results == ["wiped"]


@pytest.mark.promise("P8", "P9")
async def test_an_approval_and_its_repeat_at_once_on_two_workers_make_one_call(
    model: ModelServer, victim: Worker, raw: Client, conversation: str
) -> None:
    call = await asked(model, raw, conversation)
    answers: list[Answer] = []

    async def tell(client: Client) -> None:
        answers.append(await resume(client, conversation, yes(call)))

    async with anyio.create_task_group() as tasks:
        for client in (raw, victim.client):
            tasks.start_soon(tell, client)
    one, other = answers
    assert (one.text, other.text) == ("good", "good")
    assert one.headers["x-run-id"] == other.headers["x-run-id"]
    assert (await raw.conversation(conversation))["messageCount"] == 5
