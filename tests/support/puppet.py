"""An agent that does what the user's message says, as JSON: `{"say", "think", "calls": [[name, arguments]], "fail"}`.

Served by `passback serve tests.support.puppet:agent`. After a tool's result it says "Done."
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from passback.agent import Agent
from passback.core.deltas import (
    Finish,
    ModelDelta,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from passback.core.errors import ModelUnavailable
from passback.core.messages import MediaPart, UserMessage
from passback.toolsets.functions import tool


class Puppet:
    """A model without a will of its own."""

    @property
    def name(self) -> str:
        return "puppet"

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        async with aclosing(_play(request)) as batches:
            yield batches

    def refuses(self, part: MediaPart, /) -> None: ...

    async def check(self) -> None: ...

    async def aclose(self) -> None: ...


async def _play(request: ModelRequest) -> AsyncGenerator[Sequence[ModelDelta]]:
    last = request.messages[-1]
    if not isinstance(last, UserMessage) or not isinstance(last.content, str):
        yield [TextChunk("Done."), Finish("stop")]
        return
    # before and behind it, a prompt may say more
    order, _ = json.JSONDecoder().raw_decode(last.content, last.content.index("{"))
    if thought := order.get("think"):
        yield [ReasoningChunk(thought)]
    if text := order.get("say"):
        yield [TextChunk(text)]
    for slot, (name, arguments) in enumerate(order.get("calls", [])):
        yield [ToolCallChunk(slot, provider_id=f"call_{slot}", name=name, arguments=arguments)]
    if reason := order.get("fail"):
        raise ModelUnavailable(reason)
    yield [Finish("tool_calls" if "calls" in order else "stop")]


@tool
def echo(text: str) -> str:
    """Give the text back."""
    return text


agent = Agent(model=Puppet(), tools=[echo])
