"""A worker dies, another takes its run over: no client of the chat socket keeps void words."""

from collections.abc import Sequence

import pytest
from tests.support.ledgers import open_ledger
from tests.support.runs import FAILING_LOST, KEY, PAINT, followed, post, record, worker
from tests.support.runs import says as user
from tests.unit.engine.test_takeover_beside import (
    dying,
    going_on,
    half_said,
    reading_for_a_while,
)
from tests.unit.wire.chat_client import ChatClient

from passback.core.events import Logged, Rewound, RunStarted
from passback.core.messages import RunRef
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel
from passback.native.earlier import read_range
from passback.wire.chat.history import project, read_turns_before
from passback.wire.chat.said import Said, position_of
from passback.wire.chat.turns import Turns

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3", "P10")]


class Reader:
    """What one worker's clients are told of a run."""

    def __init__(self, runs: RunService, run: RunRef) -> None:
        self.runs = runs
        self.run = run
        self.turns = Turns()

    async def read(self, seen: Sequence[Logged]) -> list[Said]:
        said: list[Said] = []
        for logged in seen:
            event = logged.event
            if isinstance(event, Rewound):
                fresh = await self.fresh(event)
                said += self.turns.rewind(fresh.turns, logged.position)
            elif isinstance(event, RunStarted):
                end = event.first + event.posted
                posted = await read_range(self.runs, KEY, event.first, end)
                self.turns = await read_turns_before(self.runs, KEY, event.first)
                said += self.turns.feed(self.run, logged, posted)
            else:
                said += self.turns.feed(self.run, logged)
        return said

    async def fresh(self, rewound: Rewound) -> "Reader":
        """One that has read the run from its start to where it goes on."""
        reader = Reader(self.runs, self.run)
        events = await followed(self.runs, self.run)
        await reader.read([logged for logged in events if logged.position <= rewound.to])
        return reader


async def assert_told_as_recorded(
    store: Ledger, runs: RunService, run: RunRef, seen: Sequence[Logged]
) -> None:
    """Check clients that left the first worker at any place: those that the second one knows what
    they have, and those of whom it knows the last number only.
    """
    recorded = {turn["id"]: turn for turn in project(await record(runs))}
    for count in range(1, len(seen) + 1):
        rest = await followed(runs, run, seen[count - 1].position)
        known, numbered = Reader(runs, run), Reader(runs, run)
        client, other = ChatClient(), ChatClient()
        said = await known.read(seen[:count])
        client.take(said)
        other.take(said)
        client.take(await known.read(rest))
        assert client.kept == recorded
        if isinstance(rewound := rest[0].event, Rewound):
            numbered = await numbered.fresh(rewound)
            entry = len(await store.read_log(run, after=rewound.to, limit=1))
            await numbered.read(rest[1:entry])
            other.take(numbered.turns.restate(rest[entry - 1].position))
            other.take(await numbered.read(rest[entry:]))
        else:
            await numbered.read(seen[:count])
            other.take(await numbered.read(rest))
        assert other.kept == recorded
        assert position_of(client.numbers[-1]) == rest[-1].position


@pytest.mark.parametrize("deep", [False, True], ids=["children", "grandchildren"])
async def test_turns_add_up_to_the_record_across_a_take_over(deep: bool) -> None:
    first, after = dying(deep=deep), going_on(deep=deep)
    async with (
        open_ledger("memory:") as store,
        after.worker(store) as other,
        first.killable_worker(store) as victim,
    ):
        run = await post(victim.runs, user(), tools=[PAINT])
        async with reading_for_a_while(victim.runs, run) as reader:
            await half_said(reader, first)
        await victim.kill()
        await other.status(KEY)
        await followed(other, run)
        await assert_told_as_recorded(store, other, run, reader.seen)


async def test_a_run_that_nobody_takes_over_leaves_no_void_words() -> None:
    first = dying()
    async with (
        open_ledger("memory:") as store,
        worker(store, ScriptedModel([]), timing=FAILING_LOST) as other,
        first.killable_worker(store) as victim,
    ):
        run = await post(victim.runs, user(), tools=[PAINT])
        async with reading_for_a_while(victim.runs, run) as reader:
            await half_said(reader, first)
        await victim.kill()
        await other.status(KEY)
        await assert_told_as_recorded(store, other, run, reader.seen)
