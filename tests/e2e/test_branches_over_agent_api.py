"""Edit and regenerate by the Agent API, against a real server: branches, and what is refused."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.e2e.workers import SECONDS, held
from tests.support.agent_api import (
    PATH,
    Json,
    bodies,
    check_legal,
    events_of,
    function,
    joined_text,
    output,
    rebuilt,
    user,
)
from tests.support.model_server import ModelServer, Reply, calls, event, says
from tests.support.wire import Client, Stream, check_refusal

pytestmark = pytest.mark.anyio

ZONE = function("get-time-zone")


async def said(client: Client, session: str, *messages: Json, **more: Any) -> Json:
    """Post, and return the end of the answer."""
    body = {"session_id": session, "input": list(messages), **more}
    answer = await client.http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    return check_legal(events_of(answer.content))


async def shown(client: Client, session: str) -> list[str]:
    """The texts of the branch that is read."""
    found: list[str] = []
    for each in await client.messages(session):
        content = each["content"]
        found.append(content if isinstance(content, str) else content[0]["text"])
    return found


async def test_a_message_is_edited_and_answered_anew(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    thinks = Reply(
        [event(reasoning_content="hm"), event(content="0"), event("stop"), b"data: [DONE]\n\n"]
    )
    model.play(thinks, *(says(str(number)) for number in range(1, 5)))
    first = await said(raw, conversation, user("one", id=f"u-{conversation}"))
    thought, words = [each["id"] for each in first["output"]]
    await said(raw, conversation, user("two"))
    # the answer's own ids name the message that the edited one follows
    for after, text in ((words, "2"), (thought, "3")):
        edited = await said(raw, conversation, user("other"), after=after)
        assert joined_text(edited) == text
        assert await shown(raw, conversation) == ["one", "0", "other", text]
    anew = await said(raw, conversation, after=f"u-{conversation}")
    assert joined_text(anew) == "4"
    assert await shown(raw, conversation) == ["one", "4"]
    [place] = (await raw.conversation(conversation))["branches"]
    assert place == {
        "after": f"u-{conversation}",
        "versions": [thought, anew["output"][0]["id"]],
        "current": anew["output"][0]["id"],
    }
    assert [each["content"] for each in model.requests[-1].shown] == ["one"]


async def test_a_client_that_sends_all_that_was_said_edits_by_name_only(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(says("0"), says(), says("2"))
    first = await said(raw, conversation, user("one"))
    history = [user("one"), *first["output"]]
    silent = await said(raw, conversation, *history, user("two"))
    assert silent["output"] == []
    # without a place, "two" is one that the client repeats; with one, it is new there
    place = first["output"][0]["id"]
    await said(raw, conversation, *history, user("two"), user("three"), after=place)
    assert await shown(raw, conversation) == ["one", "0", "two", "three", "2"]


async def test_a_repeated_edit_is_one_run(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(says("0"), says("1"))
    await said(raw, conversation, user("one", id=f"u-{conversation}"))
    body = {"session_id": conversation, "input": [], "after": f"u-{conversation}"}
    headers = {"idempotency-key": f"again-{conversation}"}
    answers = [await raw.http.post(PATH, json=body, headers=headers) for _ in range(2)]
    assert answers[0].headers["x-run-id"] == answers[1].headers["x-run-id"]
    assert await shown(raw, conversation) == ["one", "1"]
    other = {**body, "after": ""}
    check_refusal(await raw.http.post(PATH, json=other, headers=headers), 422, "reused")


# ---------------------------------------------------------------- during a run
@pytest.mark.parametrize(
    ("on_busy", "left"),
    [
        ("reject", ["one", "0", "two", "slow answer"]),
        ("enqueue", ["one", "0", "two", "slow answer"]),
        ("interrupt", ["one", "0", "two", "slow "]),
        ("rollback", ["one", "0", "two", "slow "]),
    ],
)
async def test_an_edit_during_a_run(
    model: ModelServer, raw: Client, conversation: str, on_busy: str, left: Sequence[str]
) -> None:
    gate = anyio.Event()
    model.play(says("0"), held("slow ", gate, "answer"), says("2"))
    await said(raw, conversation, user("one"))
    two = {"session_id": conversation, "input": [user("two")]}
    edit = {"session_id": conversation, "input": [user("x")], "after": "", "on_busy": on_busy}
    async with raw.http.stream("POST", PATH, json=two) as response:
        running = Stream(response)
        with anyio.fail_after(SECONDS):
            while rebuilt(frame.event for frame in running.frames).joined_text() != "slow ":
                await running.next()
        if on_busy == "reject":
            check_refusal(await raw.http.post(PATH, json=edit), 409, "conversation_busy")
        async with raw.http.stream(
            "POST", PATH, json={**edit, "on_busy": "enqueue"} if on_busy == "reject" else edit
        ) as second:
            waiting = Stream(second)
            with anyio.fail_after(SECONDS):
                assert (await waiting.next()).event["status"] == "created"
                if on_busy in {"reject", "enqueue"}:
                    gate.set()
                await running.whole()
                whole = await waiting.whole()
    assert joined_text(check_legal([frame.event for frame in whole.frames])) == "2"
    assert await shown(raw, conversation) == ["x", "2"]
    one = (await raw.conversation(conversation))["branches"][0]["versions"][0]
    await raw.http.post(f"/conversations/{conversation}/leaf", json={"message": one})
    assert await shown(raw, conversation) == left


# ---------------------------------------------------------------- what cannot be
@pytest.mark.promise("P12")
async def test_what_cannot_be_followed_is_refused(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(calls(("a", "get-time-zone", "{}"), ("b", "get-time-zone", "{}")), says("so"))
    asked = await said(raw, conversation, user("go"), tools=[ZONE])
    first, second = (data["call_id"] for data in bodies(asked, "function_call"))
    await said(raw, conversation, output(first, "UTC"))
    parked = (await raw.messages(conversation))[-1]["id"]
    before = await raw.conversation(conversation)

    async def refuse(status: int, code: str, *messages: Json, **more: Any) -> str:
        body = {"session_id": conversation, "input": list(messages), **more}
        refused = await raw.http.post(PATH, json=body)
        check_refusal(refused, status, code)
        assert await raw.conversation(conversation) == before
        return str(refused.json()["message"])

    await refuse(404, "message_not_found", user("x"), after="no")
    await refuse(404, "message_not_found", after="no")
    # the calls of the last message are owed: it can be followed, and not answered anew
    await refuse(422, "nothing_to_do", after=parked)
    # an answer to a call, on a branch where it was never made
    left = await refuse(422, "invalid_request", output(second, "UTC"), after="")
    assert "post the results without `after`" in left
    assert joined_text(await said(raw, conversation, output(second, "UTC"))) == "so"
    before = await raw.conversation(conversation)
    for message in (await raw.messages(conversation))[1:3]:
        within = await refuse(422, "invalid_request", user("x"), after=message["id"])
        assert "answered only behind it" in within
    await refuse(422, "nothing_to_do", after="")


async def test_a_message_behind_a_part_of_the_results_goes_on_without_the_others(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(calls(("a", "get-time-zone", "{}"), ("b", "get-time-zone", "{}")), says("so"))
    asked = await said(raw, conversation, user("go"), tools=[ZONE])
    [first, _] = (data["call_id"] for data in bodies(asked, "function_call"))
    await said(raw, conversation, output(first, "UTC"))
    parked = (await raw.messages(conversation))[-1]["id"]
    assert joined_text(await said(raw, conversation, user("no"), after=parked)) == "so"
    closed = (await raw.messages(conversation))[3]
    assert (closed["role"], closed["synthetic"]) == ("tool", "superseded")
