"""Listening to a model: what it says is shown as it comes."""

from collections.abc import Sequence
from functools import partial

from passback.core.deltas import ModelDelta
from passback.core.ports import Eager
from passback.engine.assembler import Assembler
from passback.engine.brain import Answering
from passback.engine.children import Journal


async def listen(answering: Answering, assembler: Assembler, log: Journal) -> None:
    """To the answer's end.

    Raises:
        ModelError: it has none.
    """
    async with answering as batches:
        if isinstance(batches, Eager):
            batches.offer_to(partial(_take, assembler, log))
        async for deltas in batches:
            _take(assembler, log, deltas)


def _take(assembler: Assembler, log: Journal, deltas: Sequence[ModelDelta]) -> None:
    if events := assembler.feed(deltas):
        log.append(events)
