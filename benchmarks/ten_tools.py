"""An agent whose model calls ten read-only tools at once, each of which takes 100 ms, and then says a word.

passback serve benchmarks.ten_tools:agent
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import anyio

from passback import Agent, tool
from passback.core.deltas import Finish, ModelDelta, ModelRequest, TextChunk, ToolCallChunk
from passback.core.messages import MediaPart, ToolMessage

CALLS = 10
_SECONDS = 0.1


class Caller:
    """The model. It is asked twice for each post."""

    @property
    def name(self) -> str:
        return "caller"

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        answered = isinstance(request.messages[-1], ToolMessage)
        async with aclosing(_says() if answered else _calls()) as batches:
            yield batches

    def refuses(self, _part: MediaPart, /) -> str | None:
        return None

    async def check(self) -> None: ...

    async def aclose(self) -> None: ...


async def _says() -> AsyncGenerator[Sequence[ModelDelta]]:
    yield TextChunk("done"), Finish("stop")


async def _calls() -> AsyncGenerator[Sequence[ModelDelta]]:
    calls = (
        ToolCallChunk(place, f"call_{place}", "look_up", json.dumps({"word": f"word {place}"}))
        for place in range(CALLS)
    )
    yield *calls, Finish("tool_calls")


@tool(read_only=True)
async def look_up(word: str) -> str:
    """Look a word up."""
    await anyio.sleep(_SECONDS)
    return f"{word}: found"


agent = Agent(model=Caller(), tools=[look_up])
