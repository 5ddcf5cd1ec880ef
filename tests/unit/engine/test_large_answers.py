"""Large answers: bounded memory, and small texts are stored without waiting for them (P11)."""

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest
from tests.support.killable_worker import Faults
from tests.support.runs import contents, followed, post, says, worker
from tests.support.store_values import LONG, begin_run, new_key

from passback.core.changes import LeaseState, LogWrite
from passback.core.deltas import Finish, ModelDelta, ModelRequest, TextChunk
from passback.core.errors import StoreError
from passback.core.events import Completed, RunFinished, TextDelta
from passback.core.messages import ConversationId, ConversationKey, MediaPart, OwnerId
from passback.engine.ledger import Ledger
from passback.engine.log import LogWriter, RunLog
from passback.models.scripted import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P11")]

ANSWERS = 8
PIECES = 8
PIECE = 2**17 + 2**12
SIZE = PIECES * (PIECE + 1)
MUCH = "\u00e9" + "w" * PIECE


class Talker:
    """A model whose answers are large, each in pieces of its own; all of them end together."""

    name = "talker"

    def __init__(self) -> None:
        self._talking = ANSWERS
        self._all_said = anyio.Event()

    @asynccontextmanager
    async def stream(
        self, _: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        yield self._said()

    async def _said(self) -> AsyncGenerator[Sequence[ModelDelta]]:
        for _ in range(PIECES):
            yield (TextChunk("".join(("\u00e9", "w" * PIECE))),)
        self._talking -= 1
        if not self._talking:
            self._all_said.set()
        await self._all_said.wait()
        yield (Finish("stop"),)

    def refuses(self, _: MediaPart, /) -> str | None:
        return None

    async def check(self) -> None:
        """Nothing can be wrong."""

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("store", ["file"], indirect=True)  # what is stored is not in memory
async def test_answers_that_end_together_take_no_more_than_two_and_a_half_times_their_size(
    store: Ledger,
) -> None:
    async with worker(store, Talker(), seconds=30) as runs:

        async def read(number: int) -> int:
            """Forgets what it has read."""
            key = ConversationKey(OwnerId("owner"), ConversationId(f"conversation-{number}"))
            run, size = await post(runs, says(), key=key), 0
            async with runs.follow(run) as batches:
                async for batch in batches:
                    texts = (each.event for each in batch)
                    size += sum(len(each.text) for each in texts if isinstance(each, TextDelta))
            return size

        tracemalloc.start()
        try:
            size = await asyncio.gather(*map(read, range(ANSWERS)))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert size == [SIZE] * ANSWERS
    assert peak <= 2.5 * SIZE * ANSWERS


async def test_a_late_reader_gets_the_whole_answer(store: Ledger) -> None:
    pieces = [f"{number}{MUCH}" for number in range(PIECES)]
    last = anyio.Event()
    model = ScriptedModel([[*pieces, last, Finish("stop")]])
    async with worker(store, model) as runs:
        run = await post(runs, says())
        text = ""
        async with runs.follow(run) as batches:
            async for batch in batches:
                text += "".join(e.event.text for e in batch if isinstance(e.event, TextDelta))
                if len(text) == len("".join(pieces)):
                    break
            late = asyncio.create_task(followed(runs, run))
            last.set()
            seen = await late
    assert text == "".join(pieces)
    assert [each.position.seq for each in seen] == list(range(1, len(seen) + 1))
    assert "".join(e.event.text for e in seen if isinstance(e.event, TextDelta)) == text
    assert seen[-1].event == RunFinished(Completed())


async def test_an_answer_goes_on_when_a_store_that_was_away_is_there_again(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["append"] = ["refuse", "lose reply", "refuse"]
    model = ScriptedModel([[MUCH, MUCH, MUCH, Finish("stop")]])
    async with worker(faults.store, model) as runs:
        await followed(runs, await post(runs, says()))
        assert await contents(runs) == ["hi", MUCH * 3]


class Notes:
    """A store that notes of which runs each write is."""

    def __init__(self, store: Ledger) -> None:
        self._store = store
        self.sees_followers = False
        self.wrote: list[list[RunLog]] = []
        self.logs: list[RunLog] = []
        self.all_written = anyio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        leases = [write.lease for write in writes]
        self.wrote.append([log for log in self.logs if log.lease in leases])
        if sum(map(len, self.wrote)) == len(self.logs):
            self.all_written.set()
        return await self._store.append(writes, lease=lease)


async def test_small_texts_are_written_together_and_large_ones_each_alone(memory: Ledger) -> None:
    notes = Notes(memory)
    writer = LogWriter(cast("Ledger", notes), delay=0.001, lease=LONG, write_timeout=10)
    for _ in range(4):
        held = await begin_run(memory, new_key())
        notes.logs.append(RunLog(held, [TextDelta("stored")], writer, lambda _: None))
    large_1, small_1, large_2, small_2 = notes.logs
    for log in notes.logs:
        log.append([TextDelta(MUCH if log in (large_1, large_2) else "word")])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        with anyio.fail_after(10):
            await notes.all_written.wait()
        tasks.cancel_scope.cancel()
    assert notes.wrote == [[small_1, small_2], [large_1], [large_2]]
