"""A trusted client begins conversations with a history, on each wire; the other one goes on with them."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.agent_api import PATH, output, text, user
from tests.support.model_server import model_server
from tests.support.model_server import says as model_says
from tests.support.server import running_server

pytestmark = pytest.mark.anyio

ROLES = {"PASSBACK_ALLOW_ROLES": "assistant"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"sea"}'}}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "What do you see?"},
    {"role": "assistant", "content": None, "toolCalls": [CALL]},
    {"role": "user", "content": "Never mind."},
    {"role": "assistant", "content": "A ship."},
]
NEW = {"role": "user", "content": "hello"}


async def _stored(client: httpx.AsyncClient, conversation: str) -> list[tuple[str, bool]]:
    messages = (await client.get(f"/conversations/{conversation}/messages")).json()["messages"]
    return [(each["role"], each.get("imported", False)) for each in messages]


@pytest.mark.promise("P5", "P8", "P13")
async def test_a_history_begins_a_conversation_and_never_goes_into_one() -> None:
    imported = [(role, True) for role in ("user", "assistant", "tool", "user", "assistant")]
    async with (
        running_server(environment=ROLES) as server,
        httpx.AsyncClient(base_url=server.url, timeout=10) as client,
    ):
        body = {"conversationId": "c", "messages": [*HISTORY, NEW]}
        key = {"idempotency-key": "one"}
        first = await client.post("/send-message?wait=true", json=body, headers=key)
        again = await client.post("/send-message?wait=true", json=body, headers=key)
        assert (first.status_code, again.json()) == (200, first.json())
        assert await _stored(client, "c") == [*imported, ("user", False), ("assistant", False)]
        refused = await client.post("/send-message?wait=true", json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        late = {"role": "tool", "toolCallId": "c1", "content": "late"}
        answer = await client.post(
            "/send-message?wait=true", json={"conversationId": "c", "messages": [late]}
        )
        assert (answer.status_code, answer.json()["code"]) == (404, "tool_call_not_found")
        assert len(await _stored(client, "c")) == 7

        told = {"role": "assistant", "type": "message", "content": [text("A ship.")]}
        called = {"type": "function_call", "content": [{"type": "data", "data": {
            "call_id": "c1", "name": "look", "arguments": "{}"}}]}  # fmt: skip
        said = [user("What do you see?"), called, output("c1", "sea"), told, user("hello")]
        for conversation, count in (("d", 6), ("c", 9)):
            asked = {"session_id": conversation, "input": said, "stream": False}
            assert (await client.post(PATH, json=asked)).json()["status"] == "completed"
            stored = await _stored(client, conversation)
            assert len(stored) == count
            assert stored[-2:] == [("user", False), ("assistant", False)]


async def test_a_client_that_sends_all_again_is_answered_by_a_server_that_was_started_anew(
    tmp_path: Path,
) -> None:
    """Also where its session has what the model of this one cannot be shown, and where it says a command."""
    store = ("--store", f"sqlite:///{tmp_path / 'store.db'}")
    sound = {"type": "audio", "data": "https://example.org/a.mp3", "format": "mp3"}
    heard = user("Listen.")
    heard["content"].append(sound)
    told = {"role": "assistant", "type": "message", "content": [text("A ship.")]}

    async def say(url: str, *messages: Any) -> Any:
        asked = {"session_id": "c", "input": list(messages), "stream": False}
        async with httpx.AsyncClient(base_url=url, timeout=10) as client:
            answer = await client.post(PATH, json=asked)
        return answer.status_code, answer.json()["status"]

    async with running_server(*store, environment=ROLES) as server:
        assert await say(server.url, heard) == (200, "completed")
    async with model_server(model_says("two")) as model:
        settings = {
            **ROLES,
            "PASSBACK_MODEL": "openai:mock",
            "PASSBACK_MODEL_BASE_URL": model.base_url,
            "PASSBACK_MODEL_API_KEY": "sk-test",
        }
        async with running_server(*store, environment=settings) as server:
            for words in ("/help", "And?"):
                assert await say(server.url, heard, told, user(words)) == (200, "completed")
