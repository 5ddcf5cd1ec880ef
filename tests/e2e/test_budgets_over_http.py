"""Limits over HTTP, on two workers: the rest is reported, and an exhausted budget ends runs."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
from tests.support.model_server import ModelServer, Reply, model_server, says
from tests.support.server import running_server
from tests.support.wire import DONE, Answer, Client, client_of, user

pytestmark = pytest.mark.anyio

USAGE = {
    "choices": [],
    "usage": {
        "prompt_tokens": 6,
        "completion_tokens": 4,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
    },
}
COST = (4 * 1 + 2 * 0.5 + 4 * 10) / 1e6
LIMITS = {
    "PASSBACK_PRICES": "openai:other=1/1, openai:mock=1/10/0.5",
    "PASSBACK_RUN_BUDGET": "seconds=600",
    "PASSBACK_CONVERSATION_BUDGET": "tokens=20 cost=1",
    "PASSBACK_OWNER_BUDGET": "tokens=35",
}


def answers() -> Reply:
    steps = says("hello").steps
    return Reply([*steps[:-1], USAGE, steps[-1]])


@pytest.fixture
async def model() -> AsyncGenerator[ModelServer]:
    async with model_server(answers()) as server:
        yield server


@pytest.fixture
async def pair(model: ModelServer, store: str) -> AsyncGenerator[tuple[Client, Client]]:
    environment = {
        "PASSBACK_MODEL": "openai:mock",
        "PASSBACK_MODEL_BASE_URL": model.base_url,
        "PASSBACK_API_KEYS": "ann:0123456789abcdef, bob:fedcba9876543210",
        **LIMITS,
    }
    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        for _ in range(2):
            serving = running_server("--store", store, environment=environment)
            server = await stack.enter_async_context(serving)
            clients.append(await stack.enter_async_context(client_of(server.url)))
        yield clients[0], clients[1]


async def ask(client: Client, conversation: str, owner: str = "ann") -> Answer:
    key = {"ann": "0123456789abcdef", "bob": "fedcba9876543210"}[owner]
    headers = {"authorization": f"Bearer {key}"}
    async with client.stream(
        conversation, [user("go")], headers=headers, include=["usage", "run"]
    ) as stream:
        return await stream.whole()


def ending(answer: Answer) -> str:
    reason: str = answer.frames[-2].event["reason"]
    return reason


async def test_the_rest_of_a_budget_is_reported_and_counted_on_all_workers(
    pair: tuple[Client, Client], model: ModelServer, conversation: str
) -> None:
    one, other = pair
    first = await ask(one, conversation)
    assert first.headers["x-budget-left-tokens"] == "20"
    assert first.headers["x-budget-left-cost"] == "1"
    assert "x-budget-left-seconds" not in first.headers  # the run's own is not shown there
    [usage] = [frame.event for frame in first.frames[:-1] if frame.type == "usage"]
    left = usage["left"]
    assert 0 < left.pop("seconds") < 600
    assert left == {"turns": 19, "tokens": 10, "cost": round(1 - COST, 6)}
    assert ending(first) == "end_turn"

    second = await ask(other, conversation)
    assert (second.headers["x-budget-left-tokens"], ending(second)) == ("10", "end_turn")
    third = await ask(one, conversation)
    assert (third.headers["x-budget-left-tokens"], ending(third)) == ("0", "budget")
    assert third.types == ["run-start", "usage", "run-end", DONE]

    # what is left to the owner is less than what a new conversation may use
    elsewhere = [await ask(each, f"{conversation}-{n}") for n, each in enumerate((*pair, *pair))]
    assert [each.headers["x-budget-left-tokens"] for each in elsewhere] == ["15", "5", "0", "0"]
    assert [ending(each) for each in elsewhere] == ["end_turn", "end_turn", "budget", "budget"]
    assert (await ask(one, conversation, "bob")).headers["x-budget-left-tokens"] == "20"
    assert len(model.requests) == 5
