"""A client beside a service that answers as a test likes, in memory or over a real connection."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import httpx
from tests.support.model_server import (
    DONE,
    ModelServer,
    Reply,
    event,
    model_server,
)
from typing_extensions import override

from passback.core.deltas import Finish, ModelDelta, ModelRequest, TextChunk
from passback.core.errors import (
    ModelError,
)
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

Answer = httpx.Response | Exception


class Body(httpx.AsyncByteStream):
    """A body in pieces, some of which are failures."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


class Service:
    """Answers one request after the other, the last answer again and again."""

    def __init__(self, *answers: Callable[[], Answer]) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        make = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        answer = make()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def client(self, base_url: str = "http://model.test/v1") -> AsyncGenerator[OpenAIChat]:
        transport = httpx.MockTransport(self.answer)
        client = OpenAIChat(
            "gpt-test", base_url=base_url, api_key=KEY, bounds=HURRIED, transport=transport
        )
        try:
            yield client
        finally:
            await client.aclose()


def ok(*pieces: bytes | Exception, **headers: str) -> Callable[[], Answer]:
    return lambda: httpx.Response(200, headers=STREAM | headers, stream=Body(*pieces))


def status(code: int, **headers: str) -> Callable[[], Answer]:
    return lambda: httpx.Response(code, headers=headers, json={"error": {"message": KEY}})


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
        async with (
            model_server(*replies) as server,
            client_at(server.base_url, bounds) as client,
        ):
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
