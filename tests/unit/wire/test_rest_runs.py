"""The route of a run's record, over HTTP."""

from datetime import datetime

import anyio
import httpx
import pytest

from passback import Agent
from passback.models import Finish
from passback.testing import ScriptedModel, calls, says, serve_in_memory

pytestmark = pytest.mark.anyio

URL = "http://127.0.0.1"
PAINT = {"name": "paint", "description": "Paints.", "parameters": {"type": "object"}}


def posted(text: str, **more: object) -> dict[str, object]:
    return {"conversationId": "c", "messages": [{"role": "user", "content": text}], **more}


async def test_a_run_is_read_while_it_goes_on_and_after_its_end() -> None:
    gate = anyio.Event()
    model = ScriptedModel([["half", gate, "whole", Finish("stop")], calls(("paint", {}))])
    async with (
        serve_in_memory(Agent(model=model, name="cook")) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        async with client.stream("POST", "/send-message", json=posted("hi")) as answer:
            path = f"/conversations/c/runs/{answer.headers['x-run-id']}"
            running = (await client.get(path)).json()
            assert (running["outcome"], running["endedAt"], running["messages"]) == (None, None, 1)
            gate.set()
            await answer.aread()
        ended = (await client.get(path)).json()
        assert datetime.fromisoformat(ended.pop("beganAt")) <= datetime.fromisoformat(
            ended.pop("endedAt")
        )
        assert ended.pop("seconds") >= 0
        assert ended == {
            "conversationId": "c",
            "runId": answer.headers["x-run-id"],
            "outcome": "completed",
            "reason": "end_turn",
            "messages": 2,
            "model": "scripted",
            "usage": {"inputTokens": 0, "outputTokens": 0, "cachedTokens": 0, "reasoningTokens": 0},
            "tokens": 0,
            "cost": 0.0,
        }
        handed = await client.post("/send-message", json=posted("paint", tools=[PAINT]))
        path = f"/conversations/c/runs/{handed.headers['x-run-id']}"
        told = (await client.get(path)).json()
        assert (told["outcome"], told["reason"], told["messages"]) == ("handed-back", None, 2)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/conversations/c/runs/run_unknown", 404, "run_not_found"),
        ("/conversations/other/runs/run_unknown", 404, "conversation_not_found"),
        ("/conversations/c/runs/%00", 404, "run_not_found"),
    ],
)
async def test_a_run_that_is_not_there_is_unknown(path: str, status: int, code: str) -> None:
    async with (
        serve_in_memory(Agent(model=ScriptedModel([says("so")]))) as transport,
        httpx.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        await client.post("/send-message", json=posted("hi"))
        answer = await client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
