"""Listening to a model: what it says is shown as it comes."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from passback.core.deltas import ModelDelta, TextChunk
from passback.core.events import RunEvent
from passback.core.ports import Eager
from passback.engine.assembler import Assembler
from passback.engine.brain import Answering
from passback.pacing import LARGE

Show: TypeAlias = Callable[[Sequence[RunEvent]], object]


_MUCH = LARGE // 4  # characters


async def listen(
    answering: Answering, assembler: Assembler, show: Show, room: Callable[[], Awaitable[None]]
) -> None:
    """To the answer's end. After much text it goes on when there is `room` for more.

    Raises:
        ModelError: it has none.
    """
    async with answering as batches:
        if isinstance(batches, Eager):
            batches.offer_to(partial(_take, assembler, show))
        async for deltas in batches:
            _take(assembler, show, deltas)
            for delta in deltas:
                if isinstance(delta, TextChunk) and len(delta.text) > _MUCH:
                    await room()


def _take(assembler: Assembler, show: Show, deltas: Sequence[ModelDelta]) -> None:
    if events := assembler.feed(deltas):
        show(events)
