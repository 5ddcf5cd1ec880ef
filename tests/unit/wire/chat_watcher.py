"""A client of the chat socket that follows real runs, and the record that it is compared with."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from tests.support.runs import KEY, record
from tests.unit.wire.chat_client import ChatClient
from tests.unit.wire.random_turns import HANG

from passback.core.events import (
    Logged,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    innermost_event,
)
from passback.core.messages import UNNAMED, Message, RunRef, UserMessage
from passback.core.posts import StartRun
from passback.engine.service import RunService
from passback.native.earlier import read_range
from passback.wire.chat.history import project, read_turns_before
from passback.wire.chat.projections import JsonDict
from passback.wire.chat.turns import Turns

Stop: TypeAlias = Literal["cancel", "interrupt", "rollback"]
"""How: by a cancellation, or by another message."""


class Watcher:
    """Two ways to be told: one that follows the conversation, and one made anew for each run.

    Args:
        runs: the worker.
        stops: how runs are stopped, one after the other; the rest are cancelled.
    """

    def __init__(self, runs: RunService, stops: Sequence[Stop] = ()) -> None:
        self.runs = runs
        self.turns = Turns()
        self.client = ChatClient()
        self._stops = iter(stops)
        self._next: RunRef | None = None

    async def follow(self, run: RunRef) -> None:
        """Follow a run, and those by which it is stopped."""
        following: RunRef | None = run
        while following is not None:
            self._next = None
            await self._follow_one(following)
            following = self._next

    async def _follow_one(self, run: RunRef) -> None:
        fresh = Turns()
        event: RunEvent | None = None
        async with self.runs.follow(run) as batches:
            async for batch in batches:
                for logged in batch:
                    event = logged.event
                    if isinstance(event, RunStarted):
                        fresh = await self._begin(event)
                    await self._hear(run, logged, fresh)
        assert isinstance(event, RunFinished)

    async def _begin(self, started: RunStarted) -> Turns:
        if started.rolled_back:
            self.turns = await read_turns_before(self.runs, KEY, started.first)
        return await read_turns_before(self.runs, KEY, started.first)

    async def _hear(self, run: RunRef, logged: Logged, fresh: Turns) -> None:
        posted: tuple[Message, ...] = ()
        event = logged.event
        if isinstance(event, RunStarted):
            end = event.first + event.posted
            posted = await read_range(self.runs, KEY, event.first, end)
        said = self.turns.feed(run, logged, posted)
        assert fresh.feed(run, logged, posted) == said
        self.client.take(said)
        if innermost_event(event) == TextDelta(HANG):
            await self._stop(run)

    async def _stop(self, run: RunRef) -> None:
        cancel: Stop = "cancel"
        how = next(self._stops, cancel)
        if how == "cancel":
            await self.runs.cancel(run)
            return
        instead = UserMessage(UNNAMED, "instead")
        started = await self.runs.start(StartRun(KEY, (instead,), on_busy=how))
        assert isinstance(started, RunRef)
        self._next = started


async def recorded_turns(runs: RunService) -> dict[str, JsonDict]:
    """The turns that the record has, by their ids."""
    return {turn["id"]: turn for turn in project(await record(runs))}
