"""Listening to a model: what it says is shown as it comes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from passback.core.deltas import ModelDelta
from passback.core.events import RunEvent
from passback.core.ports import Eager
from passback.engine.assembler import Assembler
from passback.engine.brain import Answering

Show: TypeAlias = Callable[[Sequence[RunEvent]], object]


async def listen(answering: Answering, assembler: Assembler, show: Show) -> None:
    """To the answer's end.

    Raises:
        ModelError: it has none.
    """
    async with answering as batches:
        if isinstance(batches, Eager):
            batches.offer_to(partial(_take, assembler, show))
        async for deltas in batches:
            _take(assembler, show, deltas)


def _take(assembler: Assembler, show: Show, deltas: Sequence[ModelDelta]) -> None:
    if events := assembler.feed(deltas):
        show(events)
