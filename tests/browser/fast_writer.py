"""An agent that writes Markdown as fast as a quick model.

`passback serve tests.browser.fast_writer:agent`. It answers "first" with few words, and all else
with TEXT, in pieces of CHARACTERS, DELTAS_PER_SECOND of them a second.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

import anyio
from tests.browser.markdown_samples import DOCUMENT
from tests.support.waiting import pause

from passback import Agent
from passback.core.deltas import Finish, ModelDelta, ModelRequest, TextChunk
from passback.core.messages import MediaPart, UserMessage

DELTAS_PER_SECOND: Final = 2000
CHARACTERS: Final = 4
TICK: Final = 0.005  # seconds
ITEM: Final = "- an item with **bold** words, `code` and [a link](https://docs.example/a)\n"
CODE: Final = "    print(f'Hello {name}', 42)  # a comment\n"
ROW: Final = "| Python | 1991 | *optional* | words, words, words |\n"
TEXT: Final = "\n".join(
    (
        DOCUMENT * 4,
        ITEM * 100,
        f"```python\n{CODE * 150}```\n",
        f"| Language | Year | Typed | More |\n|---|---|---|---|\n{ROW * 100}",
        "A sentence of a long paragraph, with *emphasis*. " * 120,
    )
)


class FastWriter:
    """Implements `ModelClient`."""

    name = "fast-writer"

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        async with aclosing(_write(request)) as batches:
            yield batches

    def refuses(self, part: MediaPart, /) -> None: ...

    async def check(self) -> None: ...

    async def aclose(self) -> None: ...


async def _write(request: ModelRequest) -> AsyncGenerator[Sequence[ModelDelta]]:
    last = request.messages[-1]
    if isinstance(last, UserMessage) and last.content == "first":
        yield [TextChunk("**Hi** there"), Finish("stop")]
        return
    start, written = anyio.current_time(), 0
    pieces = [TEXT[at : at + CHARACTERS] for at in range(0, len(TEXT), CHARACTERS)]
    while written < len(pieces):
        due = int((anyio.current_time() - start) * DELTAS_PER_SECOND) + 1
        yield [TextChunk(piece) for piece in pieces[written:due]]
        written = due
        await pause(TICK)
    yield [Finish("stop")]


agent = Agent(model=FastWriter())
