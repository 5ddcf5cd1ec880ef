"""The JavaScript client library against the real server."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.text import TextReceiveStream
from tests.e2e.workers import broken_off, held, worker
from tests.support.model_server import ModelServer, says
from tests.support.programs import program
from tests.support.proxies import frame_cutter, lossy_proxy
from tests.support.server import Server, running_server
from tests.support.wire import ZONE, Client, client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.node]

SCRIPT = Path(__file__).resolve().parents[1] / "js" / "client-drive.mjs"
SECONDS = 20
COUNTED = " ".join(str(number) for number in range(1, 21)) + " - counted by the demo model."
FOUR = "use get-time-zone, get-moon and get-mood, then set-color to blue"


def command(scenario: str, **order: object) -> list[str]:
    return [program("node", variable="TEST_NODE"), str(SCRIPT), scenario, json.dumps(order)]


async def drive(scenario: str, url: str, conversation: str, **order: object) -> dict[str, Any]:
    """Let the client do something; what it saw."""
    asked = command(scenario, url=url, conversationId=conversation, **order)
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(asked)
    seen: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    return seen


async def roles(client: Client, conversation: str) -> list[str]:
    return [message["role"] for message in await client.messages(conversation)]


# ---------------------------------------------------------------- the loop
async def test_the_client_gives_the_text_of_an_answer(server: Server, conversation: str) -> None:
    seen = await drive("send", server.url, conversation, message="count to 20")
    assert (seen["text"], seen["types"], seen["error"]) == (
        COUNTED,
        ["run-start", "text", "run-end"],
        None,
    )


async def test_the_client_runs_four_tools_together_and_goes_on(
    server: Server, client: Client, conversation: str
) -> None:
    seen = await drive("send", server.url, conversation, message=FOUR, together=4)
    assert seen["error"] is None, seen
    assert sorted(seen["runs"]) == ["get-mood", "get-moon", "get-time-zone", "set-color blue"]
    assert (seen["most"], len(seen["calls"])) == (4, 4)
    assert seen["text"].startswith("Done. ")
    assert 'get-time-zone answered: "UTC".' in seen["text"]
    assert await roles(client, conversation) == ["user", "assistant", *["tool"] * 4, "assistant"]


@pytest.mark.parametrize("on_busy", ["enqueue", "interrupt"])
async def test_a_chat_takes_a_message_while_an_answer_comes(
    server: Server, client: Client, conversation: str, on_busy: str
) -> None:
    order = {"message": "count to 20", "more": "count to 2", "onBusy": on_busy}
    seen = await drive("meanwhile", server.url, conversation, **order)
    assert (seen["error"], seen["status"]) == (None, "idle"), seen
    asked, first, more, second = seen["texts"]
    assert (asked, more, second) == (
        "count to 20",
        "count to 2",
        "1 2 - counted by the demo model.",
    )
    assert first == COUNTED if on_busy == "enqueue" else COUNTED.startswith(first)
    kept = [message["content"] for message in await client.messages(conversation)]
    assert kept == seen["texts"]


async def test_two_chats_on_one_conversation_show_the_same(slow: Server, conversation: str) -> None:
    ends = " - counted by the demo model."
    answers = [COUNTED, f"1 2{ends}", f"1 2 3{ends}"]
    messages = ["count to 20", "count to 2", "count to 3", "count to 1000"]
    seen = await drive("live", slow.url, conversation, messages=messages, answers=answers)
    said = ["count to 20", COUNTED, "count to 2", answers[1]]
    assert seen["seen"] == [said, said]
    assert seen["rolledBack"] == 2 * [["count to 3", answers[2]]]


async def test_an_error_that_a_tool_throws_is_sent_to_the_model(
    server: Server, client: Client, conversation: str
) -> None:
    seen = await drive("send", server.url, conversation, message="use break-it")
    assert seen["error"] is None, seen
    [failure] = [m for m in await client.messages(conversation) if m["role"] == "tool"]
    assert (failure["content"], failure["isError"]) == ("it is broken", True)


async def test_a_result_that_the_server_refuses_does_not_block_the_others(
    server: Server, client: Client, conversation: str
) -> None:
    seen = await drive("large", server.url, conversation, message=FOUR)
    assert (seen["error"], len(seen["runs"])) == (None, 4), seen
    results = [m for m in await client.messages(conversation) if m["role"] == "tool"]
    [refused] = [message for message in results if message.get("isError")]
    assert (len(results), refused["content"].split(":")[0]) == (4, "The answer was refused")


async def test_its_errors_are_those_of_the_server(server: Server, conversation: str) -> None:
    options = {"onBusy": "nonsense"}
    seen = await drive("send", server.url, conversation, message="hi", options=options)
    assert seen["error"] == {
        "name": "ApiError",
        "code": "invalid_request",
        "status": 422,
        "retryable": False,
    }


async def test_the_client_reads_pages_lists_renames_cancels_and_deletes(
    server: Server, conversation: str
) -> None:
    named = f"The page of {conversation}"
    assert await drive("routes", server.url, conversation) == {
        "status": "idle",
        "roles": ["assistant"],
        "total": 2,
        "titles": ["hi", named, named],
        "next": None,
        "pages": [[named], ["one"]],
        "cancelled": False,
        "code": "conversation_not_found",
    }


# ---------------------------------------------------------------- cuts
@pytest.mark.parametrize(("frames", "extra"), [(1, 0), (1, 9), (2, 30)])
@pytest.mark.parametrize("message", ["count to 60", FOUR])
async def test_a_cut_behind_every_event_loses_and_doubles_nothing(
    slow: Server, conversation: str, frames: int, extra: int, message: str
) -> None:
    async with frame_cutter(slow.url) as cutter:
        cutter.frames, cutter.more, cutter.grows = frames, extra, True
        seen = await drive("send", cutter.url, conversation, message=message)
    assert cutter.cuts >= 5
    assert (seen["error"], seen["doubled"]) == (None, 0), seen
    async with client_of(slow.url) as client:
        *_, answer = await client.messages(conversation)
    assert seen["text"] == answer["content"]
    assert len(seen["runs"]) == (4 if message == FOUR else 0)


async def test_a_post_whose_answer_was_lost_is_posted_once(
    server: Server, client: Client, conversation: str
) -> None:
    async with lossy_proxy(int(server.url.rpartition(":")[2])) as proxy:
        proxy.lose_replies(3)
        url = f"http://127.0.0.1:{proxy.port}"
        seen = await drive("send", url, conversation, message="count to 20")
    assert (proxy.lost, seen["text"], seen["error"]) == (3, COUNTED, None)
    assert await roles(client, conversation) == ["user", "assistant"]


# ---------------------------------------------------------------- leaving, coming back, cancelling
async def test_a_page_that_is_reloaded_reads_on(slow: Server, conversation: str) -> None:
    seen = await drive("reload", slow.url, conversation, message="count to 20")
    assert seen == {"whole": COUNTED, "joined": COUNTED}


async def test_what_was_owed_before_a_reload_is_answered_after_it(
    server: Server, client: Client, conversation: str
) -> None:
    await client.post(conversation, user("time zone"), tools=[ZONE])
    seen = await drive("resume", server.url, conversation)
    assert (seen["runs"], seen["text"]) == (
        ["get-time-zone"],
        'Done. get-time-zone answered: "UTC".',
    )


@pytest.mark.promise("P9")
@pytest.mark.parametrize(
    ("results", "other"),
    [
        (["UTC", "UTC"], 'Done. get-time-zone answered: "UTC".'),
        (["UTC", "CET"], "tool_result_conflict"),
    ],
)
async def test_of_two_tabs_without_claims_the_first_answer_counts(
    server: Server, client: Client, conversation: str, results: list[str], other: str
) -> None:
    await client.post(conversation, user("time zone"), tools=[ZONE])
    seen = await drive("tabs", server.url, conversation, results=results, claims=False)
    contents = [m["content"] for m in await client.messages(conversation) if m["role"] == "tool"]
    assert len(contents) == 1
    first = f'Done. get-time-zone answered: "{contents[0]}".'
    assert sorted(seen["texts"]) == sorted([first, other])


async def test_the_client_sends_its_key_to_the_server_alone(conversation: str) -> None:
    keys = {"PASSBACK_API_KEYS": "me:a-key-that-is-mine"}
    async with running_server("--model", "demo:fast", environment=keys) as server:
        let_in = await drive(
            "send", server.url, conversation, message="hi", apiKey="a-key-that-is-mine"
        )
        refused = await drive(
            "send", server.url, conversation, message="hi", apiKey="a-key-of-others"
        )
    assert (let_in["text"][:6], refused["error"]["code"]) == ("Hello!", "unauthenticated")


async def test_a_cancel_stops_the_run_and_ends_the_iteration(
    slow: Server, conversation: str
) -> None:
    seen = await drive("cancel", slow.url, conversation, message="count to 20")
    assert (seen["cancelled"], seen["partial"], seen["error"]) == (True, True, None)
    assert (seen["types"], COUNTED.startswith(seen["text"])) == (
        ["run-start", "text", "run-end"],
        True,
    )


async def test_a_busy_conversation_is_waited_for_where_the_caller_asks_for_it(
    model: ModelServer, survivor: Client, conversation: str
) -> None:
    gate, url, again = anyio.Event(), str(survivor.http.base_url), {"retryBusy": True}
    model.play(held("first", gate), says("Hello!"))
    async with survivor.stream(conversation, [user("one")]) as stream:
        await stream.until("text")
        refused = await drive("send", url, conversation, message="hi")
        gate.set()
        waited = await drive("send", url, conversation, message="hi", options=again)
    assert refused["error"]["code"] == "conversation_busy"
    assert (waited["error"], waited["text"]) == (None, "Hello!")


# ---------------------------------------------------------------- a worker that dies
@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/passback.db"


async def test_what_a_dead_worker_said_is_taken_back(
    model: ModelServer, flags: Sequence[str], survivor: Client, conversation: str
) -> None:
    model.play(broken_off("old "), says("new ", "answer"))
    lives = str(survivor.http.base_url)
    async with worker(*flags) as victim, frame_cutter(victim.server.url, lives) as proxy:
        asked = command("told", url=proxy.url, conversationId=conversation, message="hi")
        async with await anyio.open_process(asked) as node:
            assert node.stdout is not None
            lines = TextReceiveStream(node.stdout)
            with anyio.fail_after(SECONDS):
                output = await lines.receive()
                assert output == "text\n"
                victim.server.kill()
                async for more in lines:
                    output += more
    seen = json.loads(output.splitlines()[-1])
    assert (seen["text"], seen["error"]) == ("new answer", None)
    assert seen["types"] == ["run-start", "text", "rewind", "text", "run-end"]
