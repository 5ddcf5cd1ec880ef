"""Edit, regenerate, switch and fork over HTTP, as a page does it."""

from typing import Any, cast

import httpx
import pytest
from tests.support.model_server import ModelServer, calls, says
from tests.support.wire import ZONE, Client, Json, check_refusal, keyed, result, user

pytestmark = pytest.mark.anyio


async def texts(client: Client, conversation: str) -> list[str]:
    return [str(each["content"]) for each in await client.messages(conversation)]


async def said(client: Client, conversation: str, text: str, **more: object) -> Json:
    """Post a message, if the text is not empty, and return the conversation afterwards."""
    answer = await client.post(conversation, *([user(text)] if text else []), **more)
    assert answer.status == 200, answer.body
    return await client.conversation(conversation)


async def post_json(client: Client, path: str, body: Any) -> httpx.Response:
    return await client.http.post(path, json=body)


async def test_a_page_edits_answers_anew_and_switches(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(*(says(str(number)) for number in range(4)))
    first = await said(raw, conversation, "one")
    assert "branches" not in first
    [one, answer] = [each["id"] for each in first["messages"]]
    again = await said(raw, conversation, "", after=one)
    newer = again["messages"][-1]["id"]
    assert again["branches"] == [{"after": one, "versions": [answer, newer], "current": newer}]
    edited = await said(raw, conversation, "other", after="")
    other = edited["messages"][0]["id"]
    assert edited["branches"] == [{"after": None, "versions": [one, other], "current": other}]
    assert [each["content"] for each in edited["messages"]] == ["other", "2"]

    switched = await post_json(raw, f"/conversations/{conversation}/leaf", {"message": one})

    assert switched.status_code == 200
    assert switched.json()["branches"][0]["current"] == one
    assert switched.json()["messageCount"] == 2
    assert await texts(raw, conversation) == ["one", "1"]
    await post_json(raw, f"/conversations/{conversation}/leaf", {"message": answer})
    assert await texts(raw, conversation) == ["one", "0"]
    await said(raw, conversation, "more")
    assert await texts(raw, conversation) == ["one", "0", "more", "3"]
    assert [each["content"] for each in model.requests[-1].shown] == ["one", "0", "more"]


async def test_watchers_hear_what_replaces_what_they_know(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(says("0"), says("1"), says("2"))
    await said(raw, conversation, "one")
    found = await said(raw, conversation, "two")
    async with raw.watch(conversation) as events:
        await said(raw, conversation, "three", after=found["messages"][1]["id"])
        posted = await events.until("posted")
    assert posted.event["first"] == 2
    assert [each["content"] for each in posted.event["messages"]] == ["three"]


async def test_calls_that_are_left_are_closed(
    model: ModelServer, raw: Client, conversation: str
) -> None:
    model.play(calls(("call_0", "get-time-zone", "{}")), says("0"))
    asked = await raw.post(conversation, user("zone"), tools=[ZONE])
    [one, _] = [each["id"] for each in await raw.messages(conversation)]
    found = await said(raw, conversation, "other", after="")
    assert found["owed"] == []
    late = await raw.post(conversation, result(asked.call.id, "UTC"))
    assert (late.status, late.json["code"]) == (409, "tool_result_conflict")
    await post_json(raw, f"/conversations/{conversation}/leaf", {"message": one})
    assert (await raw.messages(conversation))[-1]["synthetic"] == "superseded"


async def test_a_repeated_edit_is_one(model: ModelServer, raw: Client, conversation: str) -> None:
    model.play(says("0"), says("1"))
    found = await said(raw, conversation, "one")
    one, headers = found["messages"][0]["id"], keyed(f"again-{conversation}")
    answers = [await raw.post(conversation, after=one, headers=headers) for _ in range(2)]
    assert answers[0].headers["x-run-id"] == answers[1].headers["x-run-id"]
    assert answers[0].text == answers[1].text == "1"
    other = await raw.post(conversation, user("one"), after=one, headers=headers)
    assert (other.status, other.json["code"]) == (422, "reused")


async def test_a_conversation_is_forked(model: ModelServer, raw: Client, conversation: str) -> None:
    model.play(says("0"), says("1"), says("2"))
    await said(raw, conversation, "one")
    found = await said(raw, conversation, "two")
    path, copy = f"/conversations/{conversation}/fork", f"{conversation}-copy"
    body = {"conversationId": copy, "after": found["messages"][1]["id"]}
    for _ in range(2):  # a repeat changes nothing
        answer = await post_json(raw, path, body)
        assert answer.status_code == 201
        assert (answer.json()["id"], answer.json()["messageCount"]) == (copy, 2)
        assert answer.json()["title"] == found["title"]
    await said(raw, copy, "three")
    assert await texts(raw, copy) == ["one", "0", "three", "2"]
    assert await texts(raw, conversation) == ["one", "0", "two", "1"]
    check_refusal(await post_json(raw, path, {"conversationId": copy}), 409, "conflict")
    headers = keyed(f"fork-{conversation}")
    new = [(await raw.http.post(path, headers=headers)).json()["id"] for _ in range(2)]
    assert new[0] == new[1] != copy
    assert await texts(raw, new[0]) == await texts(raw, conversation)


REFUSED: dict[str, tuple[str, Any, int, str]] = {
    "a switch to nothing": ("leaf", {}, 422, "invalid_request"),
    "a switch to no text": ("leaf", {"message": 1}, 422, "invalid_request"),
    "a switch to an empty id": ("leaf", {"message": ""}, 422, "invalid_request"),
    "a switch to an unknown message": ("leaf", {"message": "no"}, 404, "message_not_found"),
    "a switch that is a list": ("leaf", ["a"], 400, "bad_request"),
    "a fork behind an unknown message": ("fork", {"after": "no"}, 404, "message_not_found"),
    "a fork behind a number": ("fork", {"after": 1}, 422, "invalid_request"),
    "a fork with an id of a megabyte": (
        "fork",
        {"conversationId": "x" * 2**20},
        422,
        "invalid_request",
    ),
    "a fork into a template": ("fork", {"conversationId": "{a}"}, 422, "invalid_request"),
    "a fork into itself": ("fork", {"conversationId": "<itself>"}, 409, "conflict"),
    "a post behind an unknown message": ("", {"after": "no"}, 404, "message_not_found"),
    "a post behind a number": ("", {"after": 1}, 422, "invalid_request"),
    "a post behind a control character": ("", {"after": "a\n"}, 422, "invalid_request"),
    "a post behind a megabyte": ("", {"after": "x" * 2**20}, 422, "invalid_request"),
    "a post within a turn": ("", {"after": "<calls>"}, 422, "invalid_request"),
    "nothing to answer anew": ("", {"after": "", "messages": []}, 422, "nothing_to_do"),
}


@pytest.mark.promise("P12")
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
async def test_what_cannot_be_is_refused(
    model: ModelServer, raw: Client, conversation: str, case: tuple[str, Any, int, str]
) -> None:
    model.play(calls(("call_0", "get-time-zone", "{}")), says("0"))
    asked = await raw.post(conversation, user("zone"), tools=[ZONE])
    await raw.post(conversation, result(asked.call.id, "UTC"))
    before = await raw.conversation(conversation)
    route, given, status, code = case
    known = {"<calls>": before["messages"][1]["id"], "<itself>": conversation}
    if isinstance(given, dict):
        fields = cast("Json", given)
        given = {name: known.get(str(value), value) for name, value in fields.items()}
        if not route:
            given = {"conversationId": conversation, "messages": [user("hi")], **given}
    path = f"/conversations/{conversation}/{route}" if route else "/send-message"
    check_refusal(await post_json(raw, path, given), status, code)
    assert await raw.conversation(conversation) == before
