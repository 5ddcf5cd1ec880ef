"""A model's thoughts go back unedited, in place, to its own service only; models take over."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.support import responses_model_server as responses
from tests.support.anthropic_server import (
    AnthropicServer,
    anthropic_server,
    call,
    message,
    redacted,
    says,
    text,
    thinking,
)
from tests.support.model_server import Json, ModelServer, Reply, event, fails, model_server
from tests.support.model_server import says as model_says
from tests.support.server import running_server
from tests.support.wire import COLOR, ZONE, Client, client_of, result, user

pytestmark = pytest.mark.anyio

BLUE = '{"color": "blue"}'
THINKS = message(
    thinking(0, "Which color?", "sig-1"),
    text(1, "I paint."),
    redacted(2, "hidden"),
    call(3, "toolu_1", "set-color", BLUE),
    reason="tool_use",
)
FULL = fails(429, retry_after="60")
KINDS = {
    AnthropicServer: "anthropic",
    responses.ResponsesModelServer: "openai-responses",
}


@asynccontextmanager
async def asking(*models: ModelServer) -> AsyncGenerator[Client]:
    """A client of a server with these models, each with a key of its own."""
    kinds = [KINDS.get(type(model), "openai") for model in models]
    environment = {
        "PASSBACK_MODEL": ",".join(f"{kind}:mock" for kind in kinds),
        "PASSBACK_MODEL_BASE_URL": ",".join(model.base_url for model in models),
        "PASSBACK_MODEL_API_KEY": ",".join(f"sk-{kind}" for kind in kinds),
    }
    async with (
        running_server(environment=environment) as server,
        client_of(server.url) as client,
    ):
        yield client


def answers(model: ModelServer) -> list[list[Json]]:
    """The blocks of each answer in the last request."""
    turns = model.requests[-1].json["messages"]
    return [turn["content"] for turn in turns if turn["role"] == "assistant"]


def kinds_of(blocks: list[Json]) -> list[str]:
    return [block["type"] for block in blocks]


async def test_thoughts_are_shown_and_go_back_unedited_in_their_places(conversation: str) -> None:
    async with anthropic_server(THINKS, says("Done.")) as model, asking(model) as client:
        asks = [user("paint")]
        async with client.stream(
            conversation, asks, tools=[COLOR], include=["reasoning", "usage"]
        ) as stream:
            first = await stream.whole()
        answer = await client.post(conversation, result(first.call.id, "done"))
        assert answer.text == "Done."
        [blocks] = answers(model)
    shown = [frame.event for frame in first.frames if frame.type in {"reasoning", "usage"}]
    assert shown[1].pop("contextUsed") > 0
    assert shown == [
        {"type": "reasoning", "delta": "Which color?"},
        {
            "type": "usage",
            "inputTokens": 10,
            "outputTokens": 5,
            "cachedTokens": 3,
            "reasoningTokens": 0,
            "left": {"turns": 19},
            "model": "anthropic:mock",
            "contextWindow": 128_000,
        },
    ]
    assert blocks == [
        {"type": "thinking", "thinking": "Which color?", "signature": "sig-1"},
        {"type": "text", "text": "I paint."},
        {"type": "redacted_thinking", "data": "hidden"},
        {"type": "tool_use", "id": "toolu_1", "name": "set-color", "input": {"color": "blue"}},
    ]


async def test_thoughts_that_are_bound_to_other_tools_stay_here(conversation: str) -> None:
    anew = message(thinking(0, "New tools?", "sig-2"), text(1, "Hm."))
    replies = (THINKS, says("Done."), anew, says("Fine."))
    async with anthropic_server(*replies) as model, asking(model) as client:
        first = await client.post(conversation, user("paint"), tools=[COLOR])
        await client.post(conversation, result(first.call.id, "done"))
        assert (await client.post(conversation, user("and?"), tools=[ZONE])).text == "Hm."
        assert [kinds_of(blocks) for blocks in answers(model)] == [["text", "tool_use"], ["text"]]
        assert (await client.post(conversation, user("so?"))).text == "Fine."
        assert kinds_of(answers(model)[-1]) == ["thinking", "text"]


async def test_another_model_steps_in_and_hears_no_foreign_thoughts(conversation: str) -> None:
    thinks = Reply([event(reasoning_content="Hm."), event(content="Yes."), event("stop")])
    async with (
        model_server(FULL, FULL, thinks, FULL) as first,
        anthropic_server(THINKS, says("Done."), says("Bye.")) as second,
        asking(first, second) as client,
    ):
        painted = await client.post(conversation, user("paint"), tools=[COLOR])
        done = await client.post(conversation, result(painted.call.id, "done"))
        sure = await client.post(conversation, user("sure?"))
        over = await client.post(conversation, user("bye"))
        assert [each.text for each in (painted, done, sure, over)] == [
            "I paint.",
            "Done.",
            "Yes.",
            "Bye.",
        ]
        assert (len(first.requests), len(second.requests)) == (4, 3)
        assert {each.headers["authorization"] for each in first.requests} == {"Bearer sk-openai"}
        assert {each.headers["x-api-key"] for each in second.requests} == {"sk-anthropic"}
        heard = first.requests[2].body.decode()
        assert "toolu_1" in heard
        assert not [word for word in ("Which color?", "sig-1", "hidden") if word in heard]
        assert [kinds_of(blocks) for blocks in answers(second)] == [
            ["thinking", "text", "redacted_thinking", "tool_use"],
            ["text"],
            ["text"],
        ]


async def test_encrypted_reasoning_goes_back_in_its_places_to_its_own_model(
    conversation: str,
) -> None:
    thinks = responses.answer(
        responses.reasoning(0, "sealed-1", "Which color?"),
        responses.text(1, "I paint.", phase="commentary"),
        responses.reasoning(2, "sealed-2"),
        responses.call(3, "call_1", "set-color", BLUE),
    )
    replies = (thinks, responses.says("Done."), responses.says("Yes."), FULL)
    async with (
        responses.responses_model_server(*replies) as first,
        model_server(model_says("Bye.")) as second,
        asking(first, second) as client,
    ):
        async with client.stream(
            conversation, [user("paint")], tools=[COLOR], include=["reasoning", "usage"]
        ) as stream:
            painted = await stream.whole()
        done = await client.post(conversation, result(painted.call.id, "done"))
        sure = await client.post(conversation, user("sure?"))
        over = await client.post(conversation, user("bye"))
        assert [each.text for each in (painted, done, sure, over)] == [
            "I paint.",
            "Done.",
            "Yes.",
            "Bye.",
        ]
        items = [each for each in first.requests[2].json["input"] if each.get("role") != "user"]
        heard = second.requests[0].body.decode()
    shown = [frame.event for frame in painted.frames if frame.type == "reasoning"]
    assert shown == [{"type": "reasoning", "delta": "Which color?"}]
    [usage] = [frame.event for frame in painted.frames if frame.type == "usage"]
    assert (usage["cachedTokens"], usage["reasoningTokens"]) == (3, 2)
    assert items == [
        {
            "type": "reasoning",
            "id": "rs_0_sealed-1",
            "summary": [{"type": "summary_text", "text": "Which color?"}],
            "encrypted_content": "sealed-1",
        },
        {"type": "message", "role": "assistant", "content": "I paint.", "phase": "commentary"},
        {
            "type": "reasoning",
            "id": "rs_2_sealed-2",
            "summary": [],
            "encrypted_content": "sealed-2",
        },
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "set-color",
            "arguments": '{"color": "blue"}',
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
        {"type": "message", "role": "assistant", "content": "Done."},
    ]
    assert not [word for word in ("Which color?", "sealed", "commentary") if word in heard]
