"""The minimal proxy: the least that turns a model's stream into the wire's events in Python.

    python -m benchmarks.proxy --port 9200 --model http://127.0.0.1:9100/v1
        [--history redis://127.0.0.1:6390/0]

Bare ASGI, a reader of its own on asyncio's protocols, a JSON parser in Rust, one `send` for all
that one read of the upstream brought. No checks, no errors, no tools, no log, no resume. With
`--history` it loads the conversation from Redis before and appends the answer after. It is a
measure, not an example.
"""

import argparse
import asyncio
from json.encoder import encode_basestring_ascii
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
import redis.asyncio
import uvicorn
from pydantic_core import from_json, to_json
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import override

_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache, no-transform"),
    ],
}
_HISTORY_SECONDS = 3600


class ModelConnection(asyncio.Protocol):
    """A keep-alive connection to the model server that answers one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._blocks: list[bytes] = []
        self._ended = True
        self._waiter: asyncio.Future[None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.on_message_complete()

    @override
    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if self._blocks:
            self._wake()

    def on_body(self, body: bytes) -> None:
        self._blocks.append(body)

    def on_message_complete(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def is_free(self) -> bool:
        return self._ended and not self._transport.is_closing()

    def post(self, request: bytes) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._ended = False
        self._transport.write(request)

    async def read(self) -> bytes:
        """Wait for something; return what came since the last read, nothing at the answer's end."""
        if not self._blocks and not self._ended:
            self._waiter = self._loop.create_future()
            await self._waiter
        block = b"".join(self._blocks)
        self._blocks.clear()
        return block

    def close(self) -> None:
        self._transport.close()


class Model:
    """Connections to the model server, kept for the next request."""

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        assert url.hostname is not None
        self._address = (url.hostname, url.port or 80)
        self._head = (
            f"POST {url.path}/chat/completions HTTP/1.1\r\nhost: {url.netloc}\r\n"
            "content-type: application/json\r\naccept: text/event-stream\r\ncontent-length: "
        ).encode()
        self._free: list[ModelConnection] = []

    async def ask(self, messages: list[Any]) -> ModelConnection:
        body = to_json({"model": "mock", "stream": True, "messages": messages})
        if self._free:
            connection = self._free.pop()
        else:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(ModelConnection, *self._address)
        connection.post(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        return connection

    def release(self, connection: ModelConnection) -> None:
        if connection.is_free:
            self._free.append(connection)
        else:
            connection.close()


class History:
    """Conversations in Redis, each a list of messages."""

    def __init__(self, url: str) -> None:
        self._redis: redis.asyncio.Redis = redis.asyncio.Redis.from_url(url)

    async def extend(self, conversation: str, messages: list[Any]) -> list[Any]:
        async with self._redis.pipeline(transaction=True) as pipe:
            _ = pipe.lrange(conversation, 0, -1)
            _ = pipe.rpush(conversation, *map(to_json, messages))
            _ = pipe.expire(conversation, _HISTORY_SECONDS)
            stored = (await pipe.execute())[0]
        return [*map(from_json, stored), *messages]

    async def append(self, conversation: str, text: str) -> None:
        message = to_json({"role": "assistant", "content": text})
        await self._redis.rpush(conversation, message)


def encode_events(block: bytes, texts: list[str]) -> bytes:
    """Return the wire's events for lines of the model's stream; append their texts to `texts`."""
    out: list[str] = []
    for line in block.split(b"\n"):
        if line.startswith(b"data: {"):
            choices = from_json(line[6:])["choices"]
            text = choices[0]["delta"].get("content") if choices else None
            if text:
                texts.append(text)
                content = encode_basestring_ascii(text)
                out.append(f'data: {{"type":"text","content":{content}}}\n\n')
    return "".join(out).encode()


class Proxy:
    """The ASGI app."""

    def __init__(self, model: Model, history: History | None) -> None:
        self._model = model
        self._history = history

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = from_json(await read_body(receive))
        conversation, messages = request["conversationId"], request["messages"]
        if self._history is not None:
            messages = await self._history.extend(conversation, messages)
        disconnected = asyncio.ensure_future(receive())  # completes when the client has left
        await send(_START)
        texts = await self._relay_answer(messages, send, disconnected)
        if self._history is not None:
            await self._history.append(conversation, "".join(texts))
        disconnected.cancel()
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def _relay_answer(
        self, messages: list[Any], send: Send, disconnected: "asyncio.Future[Message]"
    ) -> list[str]:
        connection = await self._model.ask(messages)
        texts: list[str] = []
        rest = b""
        while (block := await connection.read()) and not disconnected.done():
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if out := encode_events(whole + newline, texts):
                await send({"type": "http.response.body", "body": out, "more_body": True})
        self._model.release(connection)
        return texts


async def read_body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message["body"]
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    return body


def main() -> None:
    parser = argparse.ArgumentParser(description="minimal proxy")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True, help="base URL of the model server")
    parser.add_argument("--history", help="redis:// URL: keep the conversations there")
    options = parser.parse_args()
    history = History(options.history) if options.history else None
    uvicorn.run(
        Proxy(Model(options.model), history),
        port=options.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        timeout_graceful_shutdown=1,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
