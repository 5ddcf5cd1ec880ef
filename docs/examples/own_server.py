"""A server of your own that speaks the Agent API: Starlette, sse-starlette, and the builders.

pip install sse-starlette
uvicorn own_server:app --port 8090

curl -N http://127.0.0.1:8090/process -H 'Content-Type: application/json' \
      -d '{"input": [{"role": "user", "content": [{"type": "text", "text": "Say it again"}]}]}'
"""

import json
from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from passback.builders import Event, ResponseBuilder, encode


async def process(request: Request) -> Response:
    try:
        posted = await request.json()
        asked = str(posted["input"][-1]["content"][-1]["text"])
    except (json.JSONDecodeError, LookupError, TypeError):
        error = {"code": "invalid_request", "message": "the last part of the input must be a text"}
        return JSONResponse({"error": error}, status_code=422)
    return EventSourceResponse(stream_events(asked))


async def stream_events(asked: str) -> AsyncIterator[ServerSentEvent]:
    async for event in answer(asked):
        yield ServerSentEvent(encode(event))


async def answer(asked: str) -> AsyncIterator[Event]:
    response = ResponseBuilder()
    yield response.created()
    yield response.in_progress()
    message = response.create_message_builder()
    yield message.get_message_data()
    content = message.create_content_builder("text")
    for word in asked.split():  # the tokens of your model
        yield content.add_text_delta(f"{word} ")
    yield content.complete()
    yield message.complete()
    yield response.completed()


app = Starlette(routes=[Route("/process", process, methods=["POST"])])
