"""The client over a real connection: timing, cuts, silence, and what stays open."""

import logging

import anyio
import pytest
from tests.support.model_server import DONE, Act, Reply, calls, event, fails, model_server, says
from tests.unit.models.openai_chat.chat_service import (
    AB,
    AB_DELTAS,
    AB_STOP,
    HI,
    KEY,
    NO_PAUSE,
    SHORT_TIMEOUT,
    connected,
    deltas_of,
    failure_of,
)

from passback.core.deltas import Finish, ModelDelta, TextChunk, ToolCallChunk
from passback.core.errors import ModelIncomplete, ModelRejected, ModelUnavailable
from passback.models.openai_chat import Bounds, OpenAIChat

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- answers
async def test_text_comes_as_it_is_sent() -> None:
    gate = anyio.Event()
    reply = Reply([event(content="a"), gate, event(content="b"), event("stop"), DONE])
    async with connected(reply) as (_, client), client.stream(HI) as batches:
        assert await anext(batches) == [TextChunk("a")]
        gate.set()
        rest: list[ModelDelta] = []
        async for batch in batches:
            rest += batch
    assert rest == [TextChunk("b"), Finish("stop")]


async def test_tool_calls_are_read() -> None:
    async with connected(calls(("x", "f", "{}"))) as (_, client):
        assert await deltas_of(client) == [
            ToolCallChunk(0, "x", "f", "{"),
            ToolCallChunk(0, arguments="}"),
            Finish("tool_calls"),
        ]


async def test_the_connection_is_kept_for_the_next_request() -> None:
    async with connected(says("a", "b")) as (server, client):
        assert [await deltas_of(client) for _ in range(3)] == [AB_DELTAS] * 3
        assert (server.connections, len(server.requests)) == (1, 3)


async def test_leaving_early_closes_the_connection() -> None:
    async with connected(Reply([event(content="a"), Act.STALL])) as (server, client):
        async with client.stream(HI) as batches:
            await anext(batches)
        await server.left.wait()


@pytest.mark.parametrize(
    ("status", "media_type"), [(400, "text/plain"), (200, "text/html")], ids=["refusal", "web page"]
)
async def test_an_endless_non_answer_is_not_awaited(status: int, media_type: str) -> None:
    endless = Reply([b"x" * 100_000, Act.STALL], status, {"content-type": media_type})
    async with connected(endless) as (server, client):
        _, failure = await failure_of(client)
        assert type(failure) is ModelRejected
        await server.left.wait()


async def test_a_cut_before_the_first_byte_is_tried_again() -> None:
    async with connected(Reply([Act.CUT]), says("a", "b")) as (server, client):
        assert await deltas_of(client) == AB_DELTAS
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("steps", "before"),
    [([Act.STALL], []), ([AB, Act.STALL], [TextChunk("ab")])],
    ids=["before the first byte", "in the middle"],
)
async def test_silence_ends_the_wait_and_is_not_repeated(
    steps: list[bytes | Act], before: list[ModelDelta]
) -> None:
    async with connected(Reply(steps), bounds=SHORT_TIMEOUT) as (server, client):
        deltas, failure = await failure_of(client)
        assert (deltas, type(failure)) == (before, ModelUnavailable)
        assert "too long" in failure.message
        assert len(server.requests) == 1


async def test_keep_alives_are_no_content() -> None:
    keep_alives: list[bytes | float] = [b": ping\n\n", 0.02] * 200
    async with connected(Reply([AB, *keep_alives]), bounds=SHORT_TIMEOUT) as (_, client):
        deltas, failure = await failure_of(client)
    assert (deltas, type(failure)) == ([TextChunk("ab")], ModelUnavailable)


async def test_silence_after_the_finish_ends_the_answer() -> None:
    reply = Reply([AB_STOP.removesuffix(DONE), Act.STALL])
    async with connected(reply, bounds=SHORT_TIMEOUT) as (_, client):
        assert await deltas_of(client) == AB_DELTAS


async def test_an_answer_ends_although_the_service_keeps_the_connection_open() -> None:
    async with connected(Reply([AB_STOP, Act.STALL])) as (_, client):
        assert await deltas_of(client) == AB_DELTAS


async def test_a_service_that_refuses_connections_cannot_be_reached() -> None:
    async with model_server() as server:
        url = server.base_url
    client = OpenAIChat("mock", base_url=url, bounds=NO_PAUSE)
    _, failure = await failure_of(client)
    await client.aclose()
    assert isinstance(failure, ModelUnavailable)
    assert failure.message == "the model's service cannot be reached"


# ---------------------------------------------------------------- the key
async def test_the_key_is_in_no_log_error_or_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    async with connected(fails(401, echo), Reply([AB, Act.CUT])) as (server, client):
        failures = [(await failure_of(client))[1] for _ in range(2)]
        assert [request.headers["authorization"] for request in server.requests] == [
            f"Bearer {KEY}"
        ] * 2
        shown = [repr(client), str(vars(client)), caplog.text, *map(repr, failures)]
        shown += [repr(failure.__cause__) for failure in failures]
    assert not [text for text in shown if KEY in text]
    assert "status=401" in caplog.text


async def test_an_answer_that_is_too_long_is_incomplete() -> None:
    bounds = Bounds(max_answer=10)
    endless = Reply([AB, AB, AB, AB, AB, AB, Act.STALL])
    async with connected(endless, bounds=bounds) as (_, client):
        deltas, failure = await failure_of(client)
    assert isinstance(failure, ModelIncomplete)
    assert deltas == [TextChunk("ab" * 5 + "a")]
