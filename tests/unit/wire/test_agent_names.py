"""An agent is asked by its name on each wire; an unknown name is refused, also of one agent."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from passback import Agent
from passback.testing import ScriptedModel, calls, says, serve_in_memory

pytestmark = pytest.mark.anyio

SAID = {"role": "user", "content": "hi"}
AG_UI: dict[str, Any] = {"threadId": "c", "runId": "r", "messages": [{**SAID, "id": "u"}]}
CHAT = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
NAMED = "no agent of that name: name one that GET /agents lists"


def agent(name: str | None) -> Agent:
    """An agent that says its name."""
    return Agent(model=ScriptedModel([says(name or "nobody")] * 9), name=name)


def requests(name: str) -> dict[str, tuple[str, Any]]:
    """Return what asks an agent: the path and the body, by wire."""
    agent_api = {"input": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
    return {
        "send-message": (f"/v1/aibot/bots/{name}/send-message", {"messages": [SAID]}),
        "AG-UI": (f"/ag-ui/{name}", AG_UI),
        "AI SDK": ("/api/chat", {"message": CHAT, "agent": name}),
        "Agent API": ("/process", {**agent_api, "agent_id": name}),
    }


WIRES = list(requests(""))
SERVED: dict[str, Sequence[str | None]] = {
    "without a name": [None],
    "with a name": ["x"],
    "two": ["x", "y"],
}


async def ask(client: httpx.AsyncClient, wire: str, name: str) -> httpx.Response:
    path, body = requests(name)[wire]
    return await client.post(path, json=body)


@pytest.mark.parametrize("names", SERVED.values(), ids=SERVED)
@pytest.mark.parametrize("wire", WIRES)
async def test_an_unknown_name_is_refused_and_nothing_is_said(
    wire: str, names: Sequence[str | None]
) -> None:
    async with (
        serve_in_memory(*map(agent, names)) as transport,
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        answer = await ask(client, wire, "zzz")
        if wire == "send-message" and not any(names):  # an app names its bot in any case
            assert answer.status_code == 200
            return
        assert answer.status_code == 404
        code = answer.headers["x-error-code"] if wire == "AI SDK" else answer.json()["code"]
        assert code == "agent_not_found"
        assert NAMED in answer.text
        assert (await client.get("/conversations")).json()["conversations"] == []
        assert (await client.get("/commands?agentId=zzz")).status_code == 404


@pytest.mark.parametrize(
    ("names", "name", "who"),
    [
        ([None], "default", "nobody"),
        (["x"], "default", "x"),
        (["x"], "x", "x"),
        (["x", "y"], "default", "x"),
        (["x", "y"], "y", "y"),
        (["x", "default"], "default", "default"),
        (["x", None], "default", "x"),
    ],
)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_name_and_default_reach_an_agent(
    wire: str, names: Sequence[str | None], name: str, who: str
) -> None:
    async with (
        serve_in_memory(*map(agent, names)) as transport,
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        answer = await ask(client, wire, name)
        assert answer.status_code == 200
        assert f'"{who}"' in answer.text
        conversation = answer.headers["x-conversation-id"]
        page = (await client.get(f"/conversations/{conversation}/messages")).json()
        asked = page["messages"][0]
        assert asked.get("agentId") == (name if who == name and len(names) > 1 else None)


async def test_what_an_agent_has_asked_for_stays_its_own_if_another_one_is_left(
    tmp_path: Any,
) -> None:
    settings = {"store": f"sqlite:///{tmp_path}/talks.db"}
    ask_user = {"messages": [SAID], "conversationId": "c", "tools": [{"name": "paint"}]}
    path = "/v1/aibot/bots/y/send-message?wait=true"
    asks = Agent(model=ScriptedModel([calls(("paint", {}))]), name="y")
    async with (
        serve_in_memory(agent("x"), asks, settings=settings) as transport,
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        [owed] = (await client.post(path, json=ask_user)).json()["owed"]
    done = {"role": "tool", "content": "done", "toolCallId": owed["id"]}
    async with (
        serve_in_memory(agent("x"), settings=settings) as transport,
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        body = {"conversationId": "c", "messages": [done]}
        refused = await client.post("/send-message", json=body)
        assert (refused.status_code, refused.json()["code"]) == (404, "agent_not_found")
        assert "send a message to another agent to continue" in refused.json()["message"]
        again = {"conversationId": "c", "messages": [SAID]}
        answer = (await client.post("/send-message?wait=true", json=again)).json()
        assert answer["text"] == "x"
