"""A client of the chat socket that follows real runs, and the record that it is compared with."""

from tests.support.runs import KEY, record
from tests.unit.wire.chat_client import ChatClient

from passback.core.events import RunEvent, RunFinished, RunStarted, TextDelta, innermost_event
from passback.core.messages import Message, RunRef
from passback.engine.service import RunService
from passback.wire.chat.history import project, read_messages, read_turns_before
from passback.wire.chat.projections import JsonDict
from passback.wire.chat.turns import Turns

HANG = "wait for ever"
"""The text at which a run is cancelled."""


class Watcher:
    """Two ways to be told: one that follows the conversation, and one made anew for each run."""

    def __init__(self, runs: RunService) -> None:
        self.runs = runs
        self.turns = Turns()
        self.client = ChatClient()

    async def follow(self, run: RunRef) -> RunFinished:
        fresh = Turns()
        event: RunEvent | None = None
        async with self.runs.follow(run) as batches:
            async for batch in batches:
                for logged in batch:
                    posted: tuple[Message, ...] = ()
                    event = logged.event
                    if isinstance(event, RunStarted):
                        fresh = await read_turns_before(self.runs, KEY, event.first)
                        posted = await read_messages(self.runs, KEY, event.first, event.posted)
                    said = self.turns.feed(run, logged, posted)
                    assert fresh.feed(run, logged, posted) == said
                    self.client.take(said)
                    if innermost_event(event) == TextDelta(HANG):
                        await self.runs.cancel(run)
        assert isinstance(event, RunFinished)
        return event


async def recorded_turns(runs: RunService) -> dict[str, JsonDict]:
    """The turns that the record has, by their ids."""
    return {turn["id"]: turn for turn in project(await record(runs))}
