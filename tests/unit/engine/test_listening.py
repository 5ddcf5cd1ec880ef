"""What a model says is shown within the event that brings it, where its reading can give it so early."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self

import pytest
from anyio.lowlevel import checkpoint
from typing_extensions import override

from passback.core.deltas import Finish, ModelDelta, TextChunk
from passback.core.events import RunEvent, TextDelta
from passback.core.ids import new_call_id, new_message_id
from passback.core.ports import EagerBatches, TakeDeltas
from passback.engine.assembler import Assembler
from passback.engine.loop import read_answer

pytestmark = pytest.mark.anyio


class Early(EagerBatches):
    """Offers its first words while its reader waits for the others."""

    def __init__(self) -> None:
        self._take: TakeDeltas | None = None
        self._left: list[Sequence[ModelDelta]] = [[TextChunk("b"), Finish("stop")]]

    @override
    def try_deliver(self, take: TakeDeltas, /) -> None:
        self._take = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[ModelDelta]:
        if self._take is not None:
            take, self._take = self._take, None
            take([TextChunk("a")])
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


@asynccontextmanager
async def early() -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
    yield Early()


async def test_what_is_offered_is_shown_before_what_is_read() -> None:
    shown: list[RunEvent] = []
    assembler = Assembler(new_message_id(), lambda _: None, new_call_id)
    await read_answer(early(), assembler, shown.extend, checkpoint)
    assert shown == [TextDelta("a"), TextDelta("b")]
    _, turn = assembler.finish()
    assert turn.message.content == "ab"
