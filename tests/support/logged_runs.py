"""The door `Runs` over logs that a test writes: for tests of what stands in front of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from passback.core.changes import Page, Status
from passback.core.errors import PassbackError, UnknownConversation, UnknownRun
from passback.core.events import START, Logged, Position, RunEvent, RunFinished
from passback.core.messages import ConversationId, ConversationKey, Message, OwnerId, RunId, RunRef
from passback.core.ports import Parked, StartRun, Take

RUN = RunRef(ConversationKey(OwnerId("anonymous"), ConversationId("c")), RunId("run_1"))


class LoggedRuns:
    """Every post gets `answer`; the log of `RUN` grows by `say` and is read as a real one is."""

    def __init__(self, *events: RunEvent) -> None:
        self.log: list[Logged] = []
        self.commands: list[StartRun] = []
        self.answer: RunRef | Parked | PassbackError = RUN
        self.broken: PassbackError | None = None
        self.unready: PassbackError | None = None
        self.known: dict[ConversationKey, Status] = {}
        self.history: tuple[Message, ...] = ()
        self.cancelled: list[RunRef] = []
        self.readers = 0
        self._grown = anyio.Event()
        self.say(*events)

    def say(self, *events: RunEvent) -> None:
        """Let the run say something; what is said at once is one batch."""
        for event in events:
            self.log.append(Logged(Position(1, len(self.log) + 1), event))
        self._wake()

    def breaks(self, error: PassbackError) -> None:
        """Let every reader fail."""
        self.broken = error
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = anyio.Event()

    async def start(self, command: StartRun, /) -> RunRef | Parked:
        self.commands.append(command)
        if isinstance(self.answer, PassbackError):
            raise self.answer
        return self.answer

    @asynccontextmanager
    async def follow(
        self, run: RunRef, /, *, after: Position = START, take: Take | None = None
    ) -> AsyncGenerator[AsyncIterator[Sequence[Logged]]]:
        if run != RUN:
            raise UnknownRun("there is no such run")
        self.readers += 1
        try:
            yield self._read(after, take)
        finally:
            self.readers -= 1

    async def _read(self, after: Position, take: Take | None) -> AsyncGenerator[Sequence[Logged]]:
        waited = False
        while True:
            batch = [logged for logged in self.log if logged.position > after]
            if batch:
                offered = waited and take and not isinstance(batch[-1].event, RunFinished)
                if not (offered and take and take(batch)):
                    yield batch
                after = batch[-1].position
            if self.log and isinstance(self.log[-1].event, RunFinished):
                return
            if self.broken:
                raise self.broken
            if after == (self.log[-1].position if self.log else START):
                await self._grown.wait()
                waited = True

    async def cancel(self, run: RunRef, /) -> bool:
        self.cancelled.append(run)
        return True

    async def status(self, key: ConversationKey, /) -> Status:
        if key not in self.known:
            raise UnknownConversation("there is no such conversation")
        return self.known[key]

    async def messages(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        await self.status(key)
        return Page(self.history[start : start + limit], start, len(self.history))

    async def delete(self, key: ConversationKey, /) -> None:
        await self.status(key)
        del self.known[key]

    async def ready(self) -> None:
        if self.unready:
            raise self.unready
