"""A restarted server answers a trusted client that sends the whole history."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.agent_api import PATH, text, user
from tests.support.model_server import model_server
from tests.support.model_server import says as model_says
from tests.support.server import running_server

pytestmark = pytest.mark.anyio

ROLES = {"PASSBACK_ALLOW_ROLES": "assistant"}


async def test_a_client_that_sends_all_again_is_answered_by_a_server_that_was_started_anew(
    tmp_path: Path,
) -> None:
    """The history has what no model can be shown, and the message is a command."""
    store = ("--store", f"sqlite:///{tmp_path / 'store.db'}")
    sound = {"type": "audio", "data": "https://example.org/a.mp3", "format": "mp3"}
    heard = user("Listen.")
    heard["content"].append(sound)
    replied = {"role": "assistant", "type": "message", "content": [text("A ship.")]}

    async def say(url: str, *messages: Any) -> Any:
        asked = {"session_id": "c", "input": list(messages), "stream": False}
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
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
                assert await say(server.url, heard, replied, user(words)) == (200, "completed")
