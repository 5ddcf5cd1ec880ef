"""`Chat` of the JavaScript client on the real server: its history, its versions, what is owed."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.programs import program
from tests.support.server import Server, running_server

pytestmark = [pytest.mark.anyio, pytest.mark.node]

SCRIPT = Path(__file__).resolve().parents[1] / "js" / "chat-drive.mjs"
SECONDS = 40
COUNTED = " - counted by the demo model."
TWO, THREE, FOUR = f"1 2{COUNTED}", f"1 2 3{COUNTED}", f"1 2 3 4{COUNTED}"


@pytest.fixture(scope="module")
async def trusting() -> AsyncGenerator[Server]:
    """A server that takes a history with answers."""
    async with running_server("--model", "demo:fast", "--allow-roles", "assistant") as server:
        yield server


async def drive(scenario: str, url: str, conversation: str, **order: object) -> dict[str, Any]:
    """Let chats do something; what they show."""
    asked = json.dumps({"url": url, "conversationId": conversation, **order})
    with anyio.fail_after(SECONDS):
        command = [program("node", variable="TEST_NODE"), str(SCRIPT), scenario, asked]
        done = await anyio.run_process(command, check=False)
    assert done.returncode == 0, done.stderr.decode()
    seen: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    return seen


async def test_a_chat_that_comes_later_shows_what_was_shown_live(
    server: Server, conversation: str
) -> None:
    messages = ["count to 3", "use get-time-zone and get-mood", "use get-moon"]
    seen = await drive("again", server.url, conversation, messages=messages)
    assert (len(seen["live"]), len(seen["live"][3]["calls"])) == (6, 2)
    assert seen["again"] == seen["live"]
    assert seen["status"] == "idle"


async def test_a_long_history_comes_in_pages(trusting: Server, conversation: str) -> None:
    seen = await drive("pages", trusting.url, conversation, count=250)
    # 252 messages, an answer and a question more
    assert seen["seen"] == [["152", 100, True], ["52", 200, True], ["0", 252, False]]
    assert seen["texts"] == [*(str(number) for number in range(250)), "hi"]
    assert len(seen["pages"]) == 3


@pytest.mark.parametrize("is_switched", [False, True])
async def test_older_messages_are_those_of_the_branch_that_is_read(
    trusting: Server, conversation: str, is_switched: bool
) -> None:
    order = {"count": 250, "after": "m101", "isSwitched": is_switched}
    seen = await drive("edited", trusting.url, conversation, **order)
    assert (seen["before"], seen["hasOlder"]) == (100, True)
    assert seen["shown"] == ["user: count to 2", f"assistant: {TWO}"]
    said = [f"{'assistant' if n % 2 else 'user'}: {n}" for n in range(250)]
    if is_switched:
        assert seen["all"][:-1] == [*said, "user: hi"]
    else:
        assert seen["all"] == [*said[:102], *seen["shown"]]


async def test_a_chat_runs_the_calls_that_are_owed_when_it_comes(
    server: Server, conversation: str
) -> None:
    seen = await drive("owed", server.url, conversation, message="use get-time-zone")
    assert seen["left"] == ["idle", 2]
    assert seen["shown"][1]["text"] == 'Done. get-time-zone answered: "UTC".'
    assert [call["result"] for call in seen["shown"][1]["calls"]] == ["UTC"]
    assert seen["watched"] == seen["shown"]
    assert seen["owed"] == []


async def test_a_question_is_there_for_the_chat_that_comes(
    server: Server, conversation: str
) -> None:
    seen = await drive("question", server.url, conversation)
    assert seen["owed"] == ["question"]
    assert seen["shown"][1]["text"] == 'Done. ask_user failed: "Rather not.".'
    assert seen["other"] == seen["shown"]


async def test_an_unknown_conversation_is_empty_and_no_error(
    server: Server, conversation: str
) -> None:
    seen = await drive("unknown", server.url, conversation)
    assert (seen["error"], seen["empty"]) == (None, [[], False])
    assert seen["shown"] == [
        "user: count to 3",
        f"assistant: {THREE}",
        "user: count to 2",
        f"assistant: {TWO}",
    ]


async def test_versions_are_shown_and_switched(server: Server, conversation: str) -> None:
    seen = await drive("versions", server.url, conversation)
    two, three = (
        ["user: count to 2", f"assistant: {TWO}"],
        ["user: count to 3", f"assistant: {THREE}"],
    )
    assert seen["edited"] == [three, [["2/2"], []]]
    assert seen["back"] == [two, [["1/2"], ["2/2"]]]
    assert seen["first"] == [two, [["1/2"], ["1/2"]]]
    assert seen["switched"] == seen["first"]
    assert seen["aware"] == [*two, "user: count to 4", f"assistant: {FOUR}"]
    assert (seen["error"], seen["status"]) == ("message_not_found", "idle")
    assert seen["last"] == seen["aware"]


@pytest.mark.parametrize("is_sent_again", [False, True])
async def test_a_message_whose_answer_is_lost_is_not_said_twice(
    server: Server, conversation: str, is_sent_again: bool
) -> None:
    seen = await drive("lost", server.url, conversation, isSentAgain=is_sent_again)
    assert (seen["text"], seen["code"], seen["taken"]) == ("count to 3", "connection_lost", [])
    assert seen["isReconnecting"]
    assert seen["shown"] == ["user: count to 3", f"assistant: {THREE}"]
    assert (seen["left"], seen["total"]) == ([None, None], 2)


async def test_a_deletion_that_nobody_saw_is_noticed(server: Server, conversation: str) -> None:
    seen = await drive("deleted", server.url, conversation)
    assert seen == {"shown": ["user: count to 3", f"assistant: {THREE}"], "status": "idle"}
