"""The OpenAPI document against events of agents with plans, sub-agents, approvals and schemas."""

import json
from collections.abc import AsyncGenerator

import pytest
from tests.e2e.test_openapi_session import BY_AGENTS, Described
from tests.support.server import Server, running_server
from tests.support.wire import PATH, Client, Json, client_of, user

pytestmark = pytest.mark.anyio

TASK = json.dumps({"task": json.dumps({"say": "I look"})})
EVERYTHING = [
    *("agents", "context", "output", "owed", "plan"),
    *("progress", "state", "tools", "usage"),
]


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Server]:
    async with running_server(
        "tests.support.served_agents:all_events", "--store", "memory:"
    ) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncGenerator[Client]:
    async with client_of(server.url) as client:
        yield client


async def test_every_event_of_an_agent_is_described(client: Client, conversation: str) -> None:
    described = Described((await client.http.get("/openapi.json")).json())

    async def order(script: Json, **more: object) -> None:
        body = {
            "conversationId": conversation,
            "messages": [user(json.dumps(script))],
            "include": EVERYTHING,
            **more,
        }
        described.check(await client.http.post(PATH, json=body))

    await order({"calls": [["update_plan", '{"entries": [{"content": "look"}]}'], ["index", "{}"]]})
    await order({"calls": [["helper", TASK]]})
    await order({"calls": [["delete_file", '{"path": "a"}']]})
    described.check(await client.http.get(f"/conversations/{conversation}"))
    await order({"say": '{"color": "blue"}'}, outputSchema={"type": "object"})
    await order({"say": "words " * 700})
    await order({"say": "more"})
    described.check(await client.http.get(f"/conversations/{conversation}/messages"))
    for path in ("/agents", "/commands"):
        described.check(await client.http.get(path))
    assert described.events >= BY_AGENTS
