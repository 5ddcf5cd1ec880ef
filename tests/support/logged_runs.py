"""The door `Runs` over a log that a test writes: for tests of what stands in front of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from passback.core.changes import Page, Status
from passback.core.errors import InvalidCursor, PassbackError, UnknownConversation, UnknownRun
from passback.core.events import START, Logged, Position, Rewound, RunEvent, RunFinished
from passback.core.messages import ConversationId, ConversationKey, Message, OwnerId, RunId, RunRef
from passback.core.ports import Parked, Take
from passback.core.posts import StartRun

RUN = RunRef(ConversationKey(OwnerId("anonymous"), ConversationId("c")), RunId("run_1"))


class LoggedRuns:
    """Every post gets `answer`; the log of `RUN` grows by `say` and is read as a real one is.

    Nobody can begin to read it while it is `unreadable`, and all who read it fail when it `breaks`.
    """

    def __init__(self, *events: RunEvent) -> None:
        self.log: list[Logged] = []
        self.posts: list[StartRun] = []
        self.answer: RunRef | Parked | PassbackError = RUN
        self.broken: PassbackError | None = None
        self.unreadable: PassbackError | None = None
        self.unready: PassbackError | None = None
        self.known: dict[ConversationKey, Status] = {}
        self.history: tuple[Message, ...] = ()
        self.cancelled: list[RunRef] = []
        self.over = False
        self.readers = 0
        self._epoch = 1
        self._grown = anyio.Event()
        self.say(*events)

    def say(self, *events: RunEvent) -> None:
        """Let the run say something; what is said at once is one batch."""
        before = sum(logged.position.epoch == self._epoch for logged in self.log)
        for number, event in enumerate(events, before + 1):
            self.log.append(Logged(Position(self._epoch, number), event))
        self._wake()

    def is_taken_over(self, to: Position, *events: RunEvent) -> None:
        """Let another worker go on behind `to`; what it says first is one batch with the rewind."""
        self.log = [logged for logged in self.log if logged.position <= to]
        self._epoch += 1
        self.say(Rewound(to), *events)

    def breaks(self, error: PassbackError) -> None:
        """Let every reader fail."""
        self.broken = error
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = anyio.Event()

    async def start(self, post: StartRun, /) -> RunRef | Parked:
        self.posts.append(post)
        if isinstance(self.answer, PassbackError):
            raise self.answer
        return self.answer

    @asynccontextmanager
    async def follow(
        self, run: RunRef, /, *, after: Position = START, take: Take | None = None
    ) -> AsyncGenerator[AsyncIterator[Sequence[Logged]]]:
        if run != RUN:
            raise UnknownRun("there is no such run")
        if self.unreadable:
            raise self.unreadable
        if after > self._end:
            raise InvalidCursor("the run has not come so far")
        self.readers += 1
        try:
            yield self._read(after, take)
        finally:
            self.readers -= 1

    async def _read(self, after: Position, take: Take | None) -> AsyncGenerator[Sequence[Logged]]:
        waited = False
        while True:
            batch, after = self._after(after), self._end
            if batch:
                offered = waited and take and not isinstance(batch[-1].event, RunFinished)
                if not (offered and take and take(batch)):
                    yield batch
            if after != self._end:  # it has grown while the reader was busy
                continue
            if self.log and isinstance(self.log[-1].event, RunFinished):
                return
            if self.broken:
                raise self.broken
            await self._grown.wait()
            waited = True

    @property
    def _end(self) -> Position:
        return self.log[-1].position if self.log else START

    def _after(self, seen: Position) -> Sequence[Logged]:
        """What follows; a reader who saw none of the void events is not told of them."""
        return [
            logged
            for logged in self.log
            if logged.position > seen
            and not (isinstance(logged.event, Rewound) and logged.event.to >= seen)
        ]

    async def cancel(self, run: RunRef, /) -> bool:
        """Ask for it; when the run is `over`, it has ended since somebody looked."""
        self.cancelled.append(run)
        return not self.over

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
