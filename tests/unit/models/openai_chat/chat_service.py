"""A client, and a service with scripted answers, in memory or over a real connection."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx
import respx
from tests.support.model_server import DONE, ModelServer, Reply, event, model_server
from tests.unit.models.streams import body_in_pieces, joined

from passback.core.deltas import Finish, ModelDelta, ModelRequest, TextChunk
from passback.core.errors import ModelError
from passback.core.messages import MessageId, UserMessage
from passback.models.openai_chat import Bounds, OpenAIChat

KEY = "sk-very-secret"
HI = ModelRequest([UserMessage(MessageId("m1"), "hi")])
NO_PAUSE = Bounds(retry_delay=0, connect_timeout=2)
SHORT_TIMEOUT = Bounds(retry_delay=0, content_timeout=0.2)
STREAM = {"content-type": "text/event-stream"}
AB = b"".join(b"data: %b\n\n" % json.dumps(event(content=text)).encode() for text in "ab")
AB_STOP = AB + b"data: %b\n\n" % json.dumps(event("stop")).encode() + DONE
AB_DELTAS: list[ModelDelta] = [TextChunk("ab"), Finish("stop")]


def ok(*pieces: bytes | Exception, **headers: str) -> httpx.Response:
    """Return an answer in pieces, the last of which may be a failure."""
    return httpx.Response(200, headers=STREAM | headers, content=body_in_pieces(*pieces))


def status(code: int, **headers: str) -> httpx.Response:
    return httpx.Response(code, headers=headers, json={"error": {"message": KEY}})


def answering(*answers: httpx.Response | Exception) -> respx.Router:
    """Return a service that gives one answer after the other to any requests."""
    router = respx.Router()
    router.route().mock(side_effect=answers)
    return router


@asynccontextmanager
async def client_of(
    service: respx.Router, base_url: str = "http://model.test/v1"
) -> AsyncGenerator[OpenAIChat]:
    """Open a client of a service in memory."""
    transport = httpx.MockTransport(service.async_handler)
    client = OpenAIChat(
        "gpt-test", base_url=base_url, api_key=KEY, bounds=NO_PAUSE, transport=transport
    )
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def client_at(url: str, bounds: Bounds = NO_PAUSE) -> AsyncGenerator[OpenAIChat]:
    """Open a client with its usual transport."""
    client = OpenAIChat("mock", base_url=url, api_key=KEY, bounds=bounds)
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def connected(
    *replies: Reply, bounds: Bounds = NO_PAUSE
) -> AsyncGenerator[tuple[ModelServer, OpenAIChat]]:
    """Open a client with its usual transport, and a real server."""
    with anyio.fail_after(10):
        async with model_server(*replies) as server, client_at(server.base_url, bounds) as client:
            yield server, client


async def deltas_of(client: OpenAIChat, request: ModelRequest = HI) -> list[ModelDelta]:
    """Return the whole answer, with neighbouring texts joined over batches."""
    deltas: list[ModelDelta] = []
    with anyio.fail_after(10):
        async with client.stream(request) as batches:
            async for batch in batches:
                deltas += batch
    return joined(deltas)


async def failure_of(client: OpenAIChat) -> tuple[list[ModelDelta], ModelError]:
    """Return the deltas before the failure, and the failure."""
    deltas: list[ModelDelta] = []
    try:
        with anyio.fail_after(10):
            async with client.stream(HI) as batches:
                async for batch in batches:
                    deltas += batch
    except ModelError as failure:
        return joined(deltas), failure
    raise AssertionError(f"no failure, but {deltas}")
