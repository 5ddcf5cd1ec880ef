"""A worker dies while a client of AG-UI reads: its verifier accepts what it gets."""

import json
from typing import Any

import anyio
import pytest
from tests.e2e.workers import SECONDS, Worker, broken_off, transcript
from tests.support.ag_ui_client import ag_ui_client, user
from tests.support.model_server import ModelServer, says
from tests.support.wire import Client
from tests.unit.wire.ag_ui_site import Reading, message_of, posted, types_of

pytestmark = [pytest.mark.anyio, pytest.mark.node, pytest.mark.promise("P10")]


async def test_void_events_end_the_stream_and_the_thread_goes_on(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    model.play(broken_off("old "), says("new ", "answer"), says("later"))
    said = user("hi")
    post = posted(said, thread=conversation)
    stream = f"/ag-ui/threads/{conversation}/stream"
    async with (
        victim.client.http.stream("POST", "/ag-ui", json=post) as answer,
        survivor.http.stream("GET", stream) as followed,
    ):
        first, second = Reading(answer.aiter_lines()), Reading(followed.aiter_lines())
        await first.until("TEXT_MESSAGE_CONTENT")
        await second.until("TEXT_MESSAGE_CONTENT")
        victim.server.kill()
        with anyio.fail_after(SECONDS):
            error = await second.until("RUN_ERROR")
    assert (error["code"], error["metadata"]) == ("rewound", {"retryable": True})
    assert types_of(second.events)[-4:] == [
        *("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_ERROR")
    ]
    with anyio.fail_after(SECONDS):
        again = await survivor.http.get(stream)
    reloaded = [each for each in _events(again.text) if each["type"] != "STEP_STARTED"]
    assert reloaded[1]["messages"][0] == {"id": said["id"], "role": "user", "content": "hi"}
    # the client still has what is void, and its thread goes on all the same
    void = message_of(first.events)
    more = posted(said, void, user("and?"), thread=conversation)
    await survivor.http.post("/ag-ui", json=more)
    texts = [text for _, text, _ in await transcript(survivor, conversation)]
    assert texts == ["hi", "new answer", "and?", "later"]
    await _check_accepted(second.events, conversation)


def _events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]


async def _check_accepted(events: list[dict[str, Any]], thread: str) -> None:
    """Let the published client read what was read before the worker died, and after."""
    text = "".join(f"data: {json.dumps(each)}\n\n" for each in events)

    async def answer(_post: dict[str, Any]) -> tuple[int, str, str]:
        return 200, "text/event-stream", text

    async with ag_ui_client() as client:
        await client.open(thread, bridge=answer)
        seen = await client.run(user("hi"))
        assert seen.check_accepted().end["code"] == "rewound"
