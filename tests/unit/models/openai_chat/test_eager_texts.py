"""Texts that are given before their reader's turn: in order, within bounds, and nothing else in their place."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest
from tests.support.model_server import DONE, Act, Reply, Step, event
from tests.unit.models.openai_chat.chat_service import (
    AB,
    AB_DELTAS,
    AB_STOP,
    HI,
    HURRIED,
    Service,
    add,
    connected,
    ok,
)

from passback.core.deltas import Finish, ModelDelta, TextChunk
from passback.core.errors import ModelError, ModelIncomplete, ModelUnavailable
from passback.core.ports import EagerBatches
from passback.models.openai_chat import Bounds, OpenAIChat
from passback.pacing import LARGE

pytestmark = pytest.mark.anyio

WORDS = "abcdefghij"


@dataclass
class Heard:
    """What was heard of an answer, whichever way; `gates` are opened one after the other, each when something came."""

    gates: Sequence[anyio.Event] = ()
    deltas: list[ModelDelta] = field(default_factory=list[ModelDelta])
    taken: int = 0
    """Batches that came before their reader's turn."""
    _batches: int = 0

    def take(self, batch: Sequence[ModelDelta]) -> None:
        self.taken += 1
        self.hear(batch)

    def hear(self, batch: Sequence[ModelDelta]) -> None:
        add(self.deltas, batch)
        for gate in self.gates[self._batches : self._batches + 1]:
            gate.set()
        self._batches += 1

    async def listen(self, client: OpenAIChat) -> ModelError | None:
        """To the end; gives the failure, if there is one."""
        try:
            async with client.stream(HI) as batches:
                assert isinstance(batches, EagerBatches)
                batches.try_deliver(self.take)
                async for batch in batches:
                    self.hear(batch)
        except ModelError as failure:
            return failure
        return None


def one_by_one(last: Step = DONE, **more: object) -> tuple[Reply, Heard]:
    """Words, each of which is sent when the one before has come."""
    gates = [anyio.Event() for _ in WORDS]
    words = [event(content=word) for word in WORDS]
    steps: list[Step] = [step for pair in zip(words, gates, strict=True) for step in pair]
    return Reply([*steps, event("stop", **more), last]), Heard(gates)


async def test_texts_are_taken_while_the_reader_waits_and_the_rest_comes_to_it() -> None:
    reply, heard = one_by_one(content="!")
    async with connected(reply) as (_, client):
        assert await heard.listen(client) is None
    assert heard.deltas == [TextChunk(f"{WORDS}!"), Finish("stop")]
    # the first ones show what the others look like
    assert heard.taken == len(WORDS) - 4


async def test_a_read_that_says_more_than_a_text_comes_to_the_reader_whole() -> None:
    reply, heard = one_by_one()
    last = (json.dumps(event(content="k")), json.dumps(event("stop")))
    together = b"".join(b"data: %b\n\n" % each.encode() for each in last)
    end = anyio.Event()  # the end of the body is another read
    heard.gates = [*heard.gates, end]
    async with connected(Reply([*reply.steps[:-2], together + DONE, end])) as (_, client):
        assert await heard.listen(client) is None
    assert heard.deltas == [TextChunk(f"{WORDS}k"), Finish("stop")]
    assert heard.taken == len(WORDS) - 4


async def test_an_answer_that_breaks_off_behind_texts_that_were_taken_fails() -> None:
    reply, heard = one_by_one()
    async with connected(Reply([*reply.steps[:-2], Act.CUT])) as (_, client):
        assert isinstance(await heard.listen(client), ModelIncomplete)
    assert heard.deltas == [TextChunk(WORDS)]
    assert heard.taken


async def test_texts_that_were_taken_count_in_the_length_of_an_answer() -> None:
    reply, heard = one_by_one()
    async with connected(reply, bounds=Bounds(max_answer=8)) as (_, client):
        failure = await heard.listen(client)
    assert str(failure) == "the model's answer is too long"
    assert heard.taken == 4


async def test_texts_that_were_taken_are_a_sign_of_life() -> None:
    pauses: list[Step] = [step for word in WORDS for step in (event(content=word), 0.1)]
    patient = Bounds(content_timeout=0.5)
    heard = Heard()
    async with connected(Reply([*pauses, event("stop"), DONE]), bounds=patient) as (_, client):
        assert await heard.listen(client) is None
    assert heard.deltas == [TextChunk(WORDS), Finish("stop")]


async def test_keep_alives_behind_texts_that_were_taken_are_none() -> None:
    reply, heard = one_by_one()
    alive = b": still here\n\n"
    quiet: list[Step] = [0.3, alive, 0.3, alive, 0.2, event(content="late"), event("stop"), DONE]
    patient = Bounds(content_timeout=0.5)
    async with connected(Reply([*reply.steps[:-2], *quiet]), bounds=patient) as (_, client):
        assert isinstance(await heard.listen(client), ModelUnavailable)
    assert heard.deltas == [TextChunk(WORDS)]


async def test_a_large_read_waits_for_its_readers_turn() -> None:
    reply, heard = one_by_one()
    large = event(content="x" * (2 * LARGE))
    async with connected(Reply([*reply.steps[:-2], large, event("stop"), DONE])) as (_, client):
        assert await heard.listen(client) is None
    assert heard.deltas == [TextChunk(WORDS + "x" * (2 * LARGE)), Finish("stop")]
    assert heard.taken == len(WORDS) - 4


async def test_where_the_bytes_come_in_the_readers_turn_so_do_all_batches() -> None:
    heard = Heard()
    async with Service(ok(AB, AB_STOP)).client() as client:
        assert await heard.listen(client) is None
    assert (heard.taken, heard.deltas) == (0, [TextChunk("abab"), *AB_DELTAS[1:]])


async def test_nothing_is_given_once_the_stream_was_left() -> None:
    reply, heard = one_by_one()
    async with connected(reply, bounds=HURRIED) as (_, client):
        async with client.stream(HI) as batches:
            assert isinstance(batches, EagerBatches)
            batches.try_deliver(heard.take)
            heard.hear(await anext(batches))
        for gate in heard.gates:
            gate.set()
        await anyio.wait_all_tasks_blocked()
    assert heard.deltas == [TextChunk("a")]
