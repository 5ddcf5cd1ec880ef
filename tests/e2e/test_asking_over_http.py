"""Approvals and questions as clients see them: frames, documents, the inbox, claims, bad input, and servers that die."""

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


# ---------------------------------------------------------------- what is seen
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


async def test_it_is_told_wherever_what_is_owed_is_told(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(WIPE)
    document = await raw.post(conversation, user("go"), path=f"{PATH}?wait=true")
    [owed] = document.json["owed"]
    kept = {"name": "wipe", "arguments": "{}", "kind": "approval", "reason": REASON}
    assert owed == {"id": owed["id"], **kept}
    assert document.json["outcome"] == "handed-back"
    [standing] = (await raw.conversation(conversation))["owed"]
    assert standing.items() >= owed.items()
    model.play(says("good"))
    text = await raw.post(conversation, resume=yes(owed["id"]), headers={"accept": "text/plain"})
    assert text.body.decode() == "good\n"


async def test_a_text_ends_with_what_is_owed(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(WIPE)
    answer = await raw.post(conversation, user("go"), headers={"accept": "text/plain"})
    assert b'\x1e{"outcome": "handed-back", "owed": [{"id": "call_' in answer.body
    assert b'"kind": "approval", "reason": "It cannot be undone."}]}\n' in answer.body


async def test_a_document_of_an_answer_that_is_not_all_names_the_rest(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(calls(("a", "wipe", "{}"), ("b", "send", "{}")), says("good"))
    first = await raw.post(conversation, user("go"), path=f"{PATH}?wait=true")
    wipe, send = (each["id"] for each in first.json["owed"])
    parked = await resume(raw, conversation, yes(send), path=f"{PATH}?wait=true")
    assert parked.headers["x-owed-tool-calls"] == wipe
    assert (parked.json["runId"], [each["id"] for each in parked.json["owed"]]) == (None, [wipe])
    done = await resume(raw, conversation, [yes(wipe)], path=f"{PATH}?wait=true")
    assert (done.json["outcome"], done.json["text"]) == ("completed", "good")


async def test_it_can_be_claimed_and_the_answer_counts_whoever_gives_it(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    call = await asked(model, raw, conversation)
    path = f"/conversations/{conversation}/tool-calls/{call}/claim"
    assert (await raw.http.post(path, json={"claimant": "tab"})).status_code == 200
    refused = await raw.http.post(path, json={"claimant": "phone"})
    check_refusal(refused, 409, "call_claimed")
    assert (await raw.conversation(conversation))["owed"][0]["claimedUntil"]
    assert (await resume(raw, conversation, yes(call))).text == "good"
    check_refusal(await raw.http.post(path, json={"claimant": "tab"}), 409, "tool_result_conflict")


# ---------------------------------------------------------------- bad input
BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "a payload that says nothing": (
        {"resume": {"interruptId": "CALL", "payload": {}}},
        422,
        "invalid_request",
    ),
    "no payload": ({"resume": {"interruptId": "CALL"}}, 422, "invalid_request"),
    "an unknown word": (
        {"resume": {"interruptId": "CALL", "payload": "ok then"}},
        422,
        "invalid_request",
    ),
    "a reason without end": (
        {"resume": {"interruptId": "CALL", "payload": {"approved": False, "reason": "x" * 10_001}}},
        422,
        "invalid_request",
    ),
    "no id": ({"resume": {"payload": True}}, 422, "invalid_request"),
    "too many": ({"resume": [yes("CALL")] * 1001}, 422, "invalid_request"),
    "a good one with a bad message": (
        {"resume": yes("CALL"), "messages": [{"role": "robot"}]},
        422,
        "invalid_request",
    ),
    "a good one with a bad tool": (
        {"resume": yes("CALL"), "tools": [{"name": ""}]},
        422,
        "invalid_tool",
    ),
    "nothing of this id": ({"resume": yes("call_none")}, 404, "tool_call_not_found"),
    "a thousand, one of them unknown": (
        {"resume": [*[yes("CALL")] * 999, yes("call_none")]},
        404,
        "tool_call_not_found",
    ),
    "a result instead": ({"messages": [result("CALL", "done")]}, 404, "tool_call_not_found"),
    "two answers": (
        {"resume": [yes("CALL"), {"interruptId": "CALL", "payload": False}]},
        409,
        "tool_result_conflict",
    ),
    "no answer": ({"resume": []}, 422, "nothing_to_do"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_a_bad_answer_changes_nothing(
    model: ModelServer, raw: Client, conversation: str, bad: tuple[Json, int, str]
) -> None:
    body, status, code = bad
    call = await asked(model, raw, conversation)
    before = await raw.conversation(conversation)
    text = {"conversationId": conversation, "messages": [], **body}
    answer = await raw.http.post(PATH, json=_with_id(text, call))
    check_refusal(answer, status, code)
    assert await raw.conversation(conversation) == before
    assert (await resume(raw, conversation, [yes(call)] * 1000)).text == "good"


def _with_id(value: Any, call: str) -> Any:
    if isinstance(value, dict):
        return {key: _with_id(each, call) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_id(each, call) for each in value]
    return call if value == "CALL" else value


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


async def test_who_does_not_want_to_answer_says_so(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    call = await asked(model, raw, conversation, calls(("a", "ask_user", FORM)))
    told = await raw.post(conversation, {**result(call, "rather not"), "isError": True})
    assert told.text == "good"
    assert model.requests[-1].json["messages"][-1]["content"] == "Error: rather not"


async def test_one_question_is_answered_by_a_text_and_a_text_without_end_is_refused(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    form = '{"questions": [{"question": "Its name?"}]}'
    call = await asked(model, raw, conversation, calls(("a", "ask_user", form)))
    refused = await raw.post(conversation, result(call, "x" * 100_001))
    assert (refused.status, refused.json["code"]) == (422, "invalid_answer")
    assert (await raw.post(conversation, result(call, "Sky"))).text == "good"


async def test_an_ask_user_of_the_clients_own_takes_any_result(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    own = {"name": "ask_user", "parameters": {"type": "object"}}
    model.play(calls(("a", "ask_user", '{"any": 1}')), says("good"))
    answer = await raw.post(conversation, user("go"), tools=[own], include=["owed"])
    [owed] = next(f.event["toolCalls"] for f in answer.frames if f.type == "owed")
    assert owed["kind"] == "tool_result"
    assert (await raw.post(conversation, result(owed["id"], {"whatever": [1]}))).text == "good"


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
    told = [each["content"] for each in await raw.messages(conversation) if each["role"] == "tool"]
    assert told == ["wiped"]


@pytest.mark.promise("P8", "P9")
async def test_a_yes_and_its_repeat_at_once_on_two_workers_make_one_call(
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
