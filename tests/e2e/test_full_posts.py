"""Posts with more than words, by each client and a real server: they arrive and are answered."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

import anyio
import pytest
from pydantic import BaseModel
from tests.e2e.test_js_client import drive
from tests.e2e.workers import SECONDS
from tests.support.model_server import ModelServer, calls, model_server, says
from tests.support.server import Server, running_server
from tests.support.wire import Client as RawClient
from tests.support.wire import client_of

from passback_client import Client, Left, Output, SendOptions, Tool, ToolContext
from passback_client import sync as plain

pytestmark = [pytest.mark.anyio, pytest.mark.measured]


class Reminder(BaseModel):
    customer: str
    open: float


WORDS = "Who owes us most?"
DATA: Any = {"invoices": [{"customer": "Ann", "open": 120}]}
OUTPUT = {"customer": "Ann", "open": 120}
LEFT = {"tokens": 1000}
POSTED: dict[str, Any] = {
    "structuredData": DATA,
    "intent": "prepare a reminder",
    "constraints": ["amounts in euros"],
    "instructions": "Be brief.",
    "outputSchema": Reminder.model_json_schema(),
}


def said_in(conversation: str) -> SendOptions:
    return {
        "conversation_id": conversation,
        "agent_id": "second",
        "structured_data": DATA,
        "intent": "prepare a reminder",
        "constraints": ["amounts in euros"],
        "instructions": "Be brief.",
        "output_schema": Reminder,
    }


def colored(_: object, __: ToolContext) -> str:
    return "blue"


TOOL = Tool("set-color", "Set the color", {"type": "object"}, colored)

Ask: TypeAlias = Callable[[str, str], Awaitable[tuple[Any, Any]]]
"""Asks the server of this address, in this conversation; gives the output, and what is left."""


async def ask(url: str, conversation: str) -> tuple[Any, Any]:
    async with Client(url, tools=[TOOL]) as client:
        answer = await client.ask(WORDS, **said_in(conversation))
    assert answer.left == Left(**LEFT)
    return answer.output, LEFT


async def ask_plainly(url: str, conversation: str) -> tuple[Any, Any]:
    def work() -> tuple[Any, Any]:
        with plain.Client(url, tools=[TOOL]) as client:
            stream = client.send(WORDS, **said_in(conversation))
            values = [event.value for event in stream if isinstance(event, Output)]
            assert stream.left == Left(**LEFT)
            return values[0], LEFT

    return await anyio.to_thread.run_sync(work)


async def ask_in_javascript(url: str, conversation: str) -> tuple[Any, Any]:
    options = {"agentId": "second", **POSTED}
    seen = await drive("send", url, conversation, message=WORDS, options=options)
    assert seen["error"] is None
    return seen["output"], seen["left"]


@pytest.fixture
async def model() -> AsyncGenerator[ModelServer]:
    wants = calls(("c", "set-color", '{"color": "blue"}'))
    unfit, fit = says('{"customer": "Ann"}'), says('{"customer": "Ann", ', '"open": 120}')
    async with model_server(wants, unfit, fit) as server:
        yield server


@pytest.fixture
async def server(model: ModelServer) -> AsyncGenerator[Server]:
    agents = [f"tests.support.served_agents:{name}" for name in ("first", "second")]
    environment = {
        "PASSBACK_MODEL": "openai:mock",
        "PASSBACK_MODEL_BASE_URL": model.base_url,
        "PASSBACK_CONVERSATION_BUDGET": "tokens=1000",
    }
    async with running_server(*agents, "--store", "memory:", environment=environment) as server:
        yield server


@pytest.fixture
async def raw(server: Server) -> AsyncGenerator[RawClient]:
    async with client_of(server.url) as client:
        yield client


CLIENTS = [
    pytest.param(ask, id="python"),
    pytest.param(ask_plainly, id="python without async"),
    pytest.param(ask_in_javascript, id="javascript", marks=pytest.mark.node),
]


@pytest.mark.parametrize("ask", CLIENTS)
async def test_all_that_is_said_counts_also_behind_the_results_of_tools(
    server: Server, raw: RawClient, model: ModelServer, conversation: str, ask: Ask
) -> None:
    with anyio.fail_after(SECONDS):
        assert await ask(server.url, conversation) == (OUTPUT, LEFT)
    asked, called, result, unfit, correction, fit = await raw.messages(conversation)
    expected = {"role": "user", "content": WORDS, "agentId": "second", **POSTED}
    set_here = {name: asked[name] for name in ("id", "at", "createdAt", "runId")}
    assert asked == {**set_here, **expected}
    assert [each["role"] for each in (called, result, unfit, fit)] == [
        *("assistant", "tool", "assistant", "assistant")
    ]
    assert (correction["role"], correction["synthetic"]) == ("system", "invalid")
    assert model.violations == []
    assert "You are the second." in str(model.requests[-1].json["messages"][0])
