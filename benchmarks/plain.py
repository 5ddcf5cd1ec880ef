"""A plain server of usual packages: starlette, sse-starlette, pydantic and the openai SDK.

    python -m benchmarks.plain --port 9200 --model http://127.0.0.1:9100/v1
        --history redis://127.0.0.1:6390/0

It keeps the conversation in Redis, one write for each message, and sends an event for each delta.
No checks beyond pydantic's, no tools, no log, no resume. It is a measure, not an example.
"""

import argparse
import json
from collections.abc import AsyncGenerator
from typing import Literal

import redis.asyncio
import uvicorn
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel
from pydantic_core import from_json
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route


class Message(BaseModel):
    role: Literal["user"]
    content: str


class Post(BaseModel):
    conversationId: str  # noqa: N815  # the wire's name
    messages: list[Message]


class TextEvent(BaseModel):
    type: Literal["text"] = "text"
    content: str


class PlainServer:
    """The handler of the only route."""

    def __init__(self, model_url: str, redis_url: str) -> None:
        self._openai = AsyncOpenAI(base_url=model_url, api_key="mock")
        self._redis: redis.asyncio.Redis = redis.asyncio.Redis.from_url(redis_url)

    async def send_message(self, request: Request) -> EventSourceResponse:
        post = Post.model_validate_json(await request.body())
        conversation = post.conversationId
        for message in post.messages:
            await self._store_message(conversation, message.model_dump_json())
        stored = await self._redis.lrange(conversation, 0, -1)
        return EventSourceResponse(
            self._stream_events(conversation, [from_json(one) for one in stored])
        )

    async def _stream_events(
        self, conversation: str, messages: list[ChatCompletionMessageParam]
    ) -> AsyncGenerator[dict[str, str]]:
        texts: list[str] = []
        stream = await self._openai.chat.completions.create(
            model="mock", messages=messages, stream=True
        )
        async for chunk in stream:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                texts.append(text)
                yield {"data": TextEvent(content=text).model_dump_json()}
        answer = {"role": "assistant", "content": "".join(texts)}
        await self._store_message(conversation, json.dumps(answer))
        yield {"data": "[DONE]"}

    async def _store_message(self, conversation: str, message: str) -> None:
        await self._redis.rpush(conversation, message)


def main() -> None:
    parser = argparse.ArgumentParser(description="plain server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True, help="base URL of the model server")
    parser.add_argument("--history", required=True, help="redis:// URL: keep conversations there")
    options = parser.parse_args()
    server = PlainServer(options.model, options.history)
    app = Starlette(routes=[Route("/send-message", server.send_message, methods=["POST"])])
    uvicorn.run(
        app,
        port=options.port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        timeout_graceful_shutdown=1,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
