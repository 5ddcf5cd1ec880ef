"""The JavaScript client with several clients or people: claims, approvals and questions."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.e2e.test_js_client import drive
from tests.support.server import Server, running_server
from tests.support.wire import ZONE, Client, client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.node]

ALL = [f"zone {number}" for number in range(4)]
DELETE = ["delete_file", json.dumps({"path": "a.txt"})]
QUESTIONS = {"questions": [{"question": "Who?", "options": [{"label": "Ada"}, {"label": "Bob"}]}]}
ASK = ["ask_user", json.dumps(QUESTIONS)]


@pytest.fixture(scope="module")
async def guarded() -> AsyncGenerator[Server]:
    """A server whose agent deletes only what a person allows."""
    async with running_server("tests.support.served_agents:guarded") as server:
        yield server


@pytest.fixture
async def record(guarded: Server) -> AsyncGenerator[Client]:
    async with client_of(guarded.url) as client:
        yield client


def calling(*calls: list[str]) -> str:
    return json.dumps({"calls": calls})


async def answers(client: Client, conversation: str) -> list[dict[str, Any]]:
    """Return the record's answers to the calls, without ids."""
    kept = ("role", "content", "approved", "reason", "always", "synthetic")
    return [
        {key: message[key] for key in kept if key in message}
        for message in await client.messages(conversation)
        if message["role"] in {"tool", "approval"}
    ]


# ---------------------------------------------------------------- claims
async def test_of_four_clients_one_runs_the_call_and_all_read_what_comes_of_it(
    server: Server, client: Client, conversation: str
) -> None:
    await client.post(conversation, user("time zone"), tools=[ZONE])
    seen = await drive("tabs", server.url, conversation, results=ALL)
    [content] = [m["content"] for m in await client.messages(conversation) if m["role"] == "tool"]
    assert content in ALL
    assert seen == {
        "texts": [f'Done. get-time-zone answered: "{content}".'] * len(ALL),
        "runs": ["get-time-zone"],
    }


async def test_a_client_that_leaves_gives_its_call_to_one_that_waits(
    server: Server, client: Client, conversation: str
) -> None:
    await client.post(conversation, user("time zone"), tools=[ZONE])
    assert await drive("leaves", server.url, conversation) == {
        "waited": True,
        "text": 'Done. get-time-zone answered: "UTC".',
        "runs": ["get-time-zone"],
    }


# ---------------------------------------------------------------- a chat beside another client
async def test_a_chat_that_decides_too_late_shows_what_the_first_decision_led_to(
    guarded: Server, conversation: str
) -> None:
    seen = await drive("late", guarded.url, conversation, message=calling(DELETE))
    assert seen == {"owed": [], "error": None, "text": "Done.", "results": ["a.txt is deleted"]}


async def test_a_chat_shows_what_its_next_message_gave_up(
    guarded: Server, record: Client, conversation: str
) -> None:
    seen = await drive("superseded", guarded.url, conversation, message=calling(DELETE))
    [result] = await answers(record, conversation)
    assert result["synthetic"] == "superseded"
    assert seen == {"owed": [], "calls": [[result["content"], True]]}


# ---------------------------------------------------------------- approvals and questions
async def test_approve_decides_on_a_tool_of_the_server_beside_tools_of_its_own(
    guarded: Server, record: Client, conversation: str
) -> None:
    order = {
        "message": calling(DELETE, ["get-mood", "{}"], ASK),
        "answer": True,
        "said": {"answers": [{"selected": ["Ada"]}]},
    }
    seen = await drive("approve", guarded.url, conversation, **order)
    [asked] = seen["asked"]
    assert asked == {
        "id": asked["id"],
        "name": "delete_file",
        "arguments": {"path": "a.txt"},
        "reason": "It cannot be undone.",
        "server": True,
    }
    assert (seen["error"], seen["text"], seen["runs"]) == (None, "Done.", ["get-mood"])
    results = {call["name"]: call["result"] for call in seen["calls"]}
    assert results["delete_file"] == "a.txt is deleted"
    assert results["ask_user"] == {"answers": [{"selected": ["Ada"]}]}
    assert (await record.conversation(conversation))["owed"] == []


async def test_what_is_allowed_always_is_asked_about_once(
    guarded: Server, conversation: str
) -> None:
    again = {"message": calling(DELETE), "again": calling(DELETE)}
    always = {"approved": True, "always": True}
    seen = await drive("approve", guarded.url, conversation, answer=always, **again)
    assert (len(seen["asked"]), seen["again"]) == (1, ["a.txt is deleted"])


@pytest.mark.parametrize(("answer", "reason"), [(False, {}), ("Not now.", {"reason": "Not now."})])
async def test_the_model_is_sent_a_denial(
    guarded: Server, record: Client, conversation: str, answer: object, reason: dict[str, str]
) -> None:
    seen = await drive("approve", guarded.url, conversation, message=calling(DELETE), answer=answer)
    assert (seen["error"], seen["text"]) == (None, "Done.")
    decision, result = await answers(record, conversation)
    assert decision == {"role": "approval", "approved": False, **reason}
    assert (result["role"], result["synthetic"]) == ("tool", "denied")
    assert reason.get("reason", "") in result["content"]


async def test_an_approval_that_stayed_owed_is_decided_by_another_client(
    guarded: Server, record: Client, conversation: str
) -> None:
    order = {"message": calling(DELETE), "decision": {"approved": True, "always": True}}
    seen = await drive("decide", guarded.url, conversation, **order)
    assert (seen["error"], seen["text"], seen["reason"]) == (None, "Done.", "It cannot be undone.")
    assert seen["payload"] == {
        "kind": "approval",
        "toolCallId": True,
        "toolCallName": "delete_file",
        "arguments": '{"path": "a.txt"}',
    }
    decision, result = await answers(record, conversation)
    assert decision == {"role": "approval", "approved": True, "always": True}
    assert result == {"role": "tool", "content": "a.txt is deleted"}


async def test_an_answer_that_does_not_fit_its_question_is_refused_and_stays_owed(
    guarded: Server, record: Client, conversation: str
) -> None:
    order = {"message": calling(ASK), "answer": True, "said": {"answers": [{"selected": ["Eve"]}]}}
    seen = await drive("approve", guarded.url, conversation, **order)
    assert (seen["error"]["code"], seen["error"]["status"]) == ("invalid_answer", 422)
    [owed] = (await record.conversation(conversation))["owed"]
    assert (owed["kind"], owed["claimedUntil"]) == ("question", None)
