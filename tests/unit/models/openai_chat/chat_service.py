"""A client beside a service that answers as a test likes, in memory or over a real connection."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import httpx
import respx
from tests.support.model_server import DONE, ModelServer, Reply, event, model_server

from passback.core.deltas import Finish, ModelDelta, ModelRequest, TextChunk
from passback.core.errors import ModelError
from passback.core.messages import MessageId, UserMessage
from passback.models.openai_chat import Bounds, OpenAIChat

KEY = "sk-very-secret"
HI = ModelRequest([UserMessage(MessageId("m1"), "hi")])
HURRIED = Bounds(retry_delay=0, connect_timeout=2)
IMPATIENT = Bounds(retry_delay=0, content_timeout=0.2)
STREAM = {"content-type": "text/event-stream"}
AB = b"".join(b"data: %b\n\n" % json.dumps(event(content=text)).encode() for text in "ab")
AB_STOP = AB + b"data: %b\n\n" % json.dumps(event("stop")).encode() + DONE
AB_DELTAS: list[ModelDelta] = [TextChunk("ab"), Finish("stop")]


async def _body(*pieces: bytes | Exception) -> AsyncGenerator[bytes]:
    for piece in pieces:
        if isinstance(piece, Exception):
            raise piece
        yield piece


def ok(*pieces: bytes | Exception, **headers: str) -> httpx.Response:
    """An answer in pieces, the last of which may be a failure."""
    return httpx.Response(200, headers=STREAM | headers, content=_body(*pieces))


def status(code: int, **headers: str) -> httpx.Response:
    return httpx.Response(code, headers=headers, json={"error": {"message": KEY}})


def answering(*answers: httpx.Response | Exception) -> respx.Router:
    """A service that gives one answer after the other, whatever it is asked."""
    router = respx.Router()
    router.route().mock(side_effect=answers)
    return router


@asynccontextmanager
async def client_of(
    service: respx.Router, base_url: str = "http://model.test/v1"
) -> AsyncGenerator[OpenAIChat]:
    """A client beside a service in memory."""
    transport = httpx.MockTransport(service.async_handler)
    client = OpenAIChat(
        "gpt-test", base_url=base_url, api_key=KEY, bounds=HURRIED, transport=transport
    )
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def client_at(url: str, bounds: Bounds = HURRIED) -> AsyncGenerator[OpenAIChat]:
    """A client over its usual transport."""
    client = OpenAIChat("mock", base_url=url, api_key=KEY, bounds=bounds)
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def connected(
    *replies: Reply, bounds: Bounds = HURRIED
) -> AsyncGenerator[tuple[ModelServer, OpenAIChat]]:
    """A client over its usual transport, and a real server."""
    with anyio.fail_after(10):
        async with model_server(*replies) as server, client_at(server.base_url, bounds) as client:
            yield server, client


async def asked(client: OpenAIChat, request: ModelRequest = HI) -> list[ModelDelta]:
    """The whole answer, neighbouring texts joined over batches."""
    deltas: list[ModelDelta] = []
    with anyio.fail_after(10):
        async with client.stream(request) as batches:
            async for batch in batches:
                add(deltas, batch)
    return deltas


def add(deltas: list[ModelDelta], batch: Sequence[ModelDelta]) -> None:
    for delta in batch:
        if deltas and isinstance(delta, TextChunk) and isinstance(deltas[-1], TextChunk):
            deltas[-1] = TextChunk(deltas[-1].text + delta.text)
        else:
            deltas.append(delta)


async def failed(client: OpenAIChat) -> tuple[list[ModelDelta], ModelError]:
    """What came before the failure, and the failure."""
    deltas: list[ModelDelta] = []
    try:
        with anyio.fail_after(10):
            async with client.stream(HI) as batches:
                async for batch in batches:
                    add(deltas, batch)
    except ModelError as failure:
        return deltas, failure
    raise AssertionError(f"no failure, but {deltas}")
