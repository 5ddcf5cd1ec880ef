"""The door `Runs` over a log that a test writes: for tests of what stands in front of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import anyio
from pydantic import JsonValue

from passback.core.budgets import Left
from passback.core.changes import (
    CallClaim,
    ConversationPage,
    ConversationPlace,
    Erased,
    Inbox,
    InboxPlace,
    ListedConversation,
    OwingConversation,
    Page,
    RunRecord,
    Status,
)
from passback.core.conversation.document import (
    DOCUMENT_END,
    FORMAT,
    VERSION,
    ConversationDocument,
    begin_document,
)
from passback.core.conversation_settings import NO_SETTINGS, ConversationSettings, check_settings
from passback.core.errors import (
    CallClaimed,
    Conflict,
    CursorExpired,
    InvalidCursor,
    PassbackError,
    UnknownAgent,
    UnknownConversation,
    UnknownRun,
    UnknownToolCall,
)
from passback.core.events import START, Cursor, Logged, Position, Rewound, RunEvent, RunFinished
from passback.core.ids import MadeId, conversation_tag, tag_of
from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    Medium,
    Message,
    MessageId,
    OwnerId,
    RunId,
    RunRef,
)
from passback.core.posts import Parked, StartRun
from passback.core.runs import BranchPoint, Command, RunBatch, TakeBatch, TakeRunBatch, TellSwitch
from passback.core.titles import check_title
from passback.core.toolsets import Toolset

RUN = RunRef(ConversationKey(OwnerId("anonymous"), ConversationId("c")), RunId("run_1"))
OPENING = ": conversation c\n\n"
"""The beginning of its streams."""


class LoggedRuns:
    """Every post gets `answer`; the log of `logged` grows by `say` and is read as a real one is.

    Nobody can begin to read it while it is `unreadable`, and all who read it fail when it `breaks`.
    """

    def __init__(self, *events: RunEvent) -> None:
        self.log: list[Logged] = []
        self.logged = RUN
        self.posts: list[StartRun] = []
        self.answer: RunRef | Parked | PassbackError = RUN
        self.broken: PassbackError | None = None
        self.unreadable: PassbackError | None = None
        self.unready: PassbackError | None = None
        self.known: dict[ConversationKey, Status] = {}
        self.history: tuple[Message, ...] = ()
        self.records: dict[RunId, RunRecord] = {}
        self.cancelled: list[RunRef] = []
        self.pages: list[tuple[OwnerId, InboxPlace | None, int]] = []
        self.lists: list[tuple[OwnerId, ConversationPlace | None, int, str]] = []
        self.claims: dict[tuple[ConversationKey, CallId], str] = {}
        self.retracted: list[tuple[ConversationKey, str]] = []
        self.lent: list[tuple[ConversationKey, Sequence[Toolset]]] = []
        self.points: Sequence[BranchPoint] = ()
        self.switched: list[tuple[ConversationKey, MessageId]] = []
        self.forked: list[tuple[ConversationKey, ConversationKey, MessageId | None]] = []
        self.imports: list[ConversationDocument] = []
        self.remains: Left | None = None
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
        self, run: RunRef, /, *, after: Position = START, take: TakeBatch | None = None
    ) -> AsyncGenerator[AsyncIterator[Sequence[Logged]]]:
        if run != self.logged:
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

    async def _read(
        self, after: Position, take: TakeBatch | None
    ) -> AsyncGenerator[Sequence[Logged]]:
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
        """Return what follows; voiding is left out for a reader who saw no void events."""
        return [
            logged
            for logged in self.log
            if logged.position > seen
            and not (isinstance(logged.event, Rewound) and logged.event.to >= seen)
        ]

    @asynccontextmanager
    async def watch(
        self,
        key: ConversationKey,
        /,
        *,
        after: Cursor | Position | None = None,
        take: TakeRunBatch | None = None,
        tell_switch: TellSwitch | None = None,
        waits: bool = False,
    ) -> AsyncGenerator[AsyncIterator[RunBatch]]:
        await self.status(key)
        place = Cursor(RUN.run_id, START) if after is None else after
        assert isinstance(place, Cursor)
        if place.run_id != RUN.run_id:
            raise CursorExpired("the history is whole")
        offer = None if take is None else (lambda batch: take(RunBatch(RUN, batch)))
        async with self.follow(RUN, after=place.position, take=offer) as batches:
            yield (RunBatch(RUN, batch) async for batch in batches)

    async def run(self, run: RunRef, /) -> RunRecord:
        await self.status(run.key)
        if run.run_id not in self.records:
            raise UnknownRun("there is no such run in this conversation")
        return self.records[run.run_id]

    async def hide(self, run: RunRef, /) -> None:
        self.records[run.run_id] = replace(await self.run(run), note=None, hidden=True)

    def left(self, _run: RunRef, /) -> Left | None:
        return self.remains

    async def cancel(self, run: RunRef, /) -> bool:
        """Ask for it; when the run is `over`, it has ended since somebody looked."""
        self.cancelled.append(run)
        return not self.over

    async def status(self, key: ConversationKey, /) -> Status:
        if key not in self.known:
            raise UnknownConversation("there is no such conversation")
        return self.known[key]

    async def claim_call(
        self, key: ConversationKey, call_id: CallId, claimant: str, /, *, seconds: float
    ) -> CallClaim:
        """The first claim of a call holds, for so many seconds after the year 1970 began."""
        self._refuse(await self.status(key), call_id)
        if self.claims.setdefault((key, call_id), claimant) != claimant:
            raise CallClaimed("another client is at work on this call", retry_after=seconds)
        return CallClaim(True, round(1000 * seconds), round(1000 * seconds))

    async def release_call(self, key: ConversationKey, call_id: CallId, claimant: str, /) -> None:
        await self.claim_call(key, call_id, claimant, seconds=0)
        del self.claims[key, call_id]

    def _refuse(self, status: Status, call_id: CallId) -> None:
        if call_id not in {call.id for call in status.owed}:
            raise UnknownToolCall("no such tool call is waiting in this conversation")

    async def close_calls(self, key: ConversationKey, /) -> RunRef | None:
        status = await self.status(key)
        self.known[key] = replace(status, owed=())
        return RUN if status.owed else None

    async def compact(self, key: ConversationKey, /) -> RunRef:
        await self.status(key)
        return RUN

    async def locate(self, owner: OwnerId, made: MadeId, /) -> ConversationKey | None:
        tag = tag_of(made)
        mine = (key for key in self.known if key.owner == owner)
        return next((key for key in mine if conversation_tag(key) == tag), None)

    async def inbox(
        self, owner: OwnerId, /, *, after: InboxPlace | None = None, limit: int
    ) -> Inbox:
        """A page with one conversation each."""
        self.pages.append((owner, after, limit))
        first = after.since + 1 if after else 0
        owing = [
            (key, each) for key, each in self.known.items() if key.owner == owner and each.owed
        ]
        found = [
            OwingConversation(k, InboxPlace(n, "0" * 32), each) for n, (k, each) in enumerate(owing)
        ]
        page = tuple(found[first : first + 1])
        return Inbox(page, page[-1].place if page and len(found) > first + 1 else None)

    async def conversations(
        self,
        owner: OwnerId,
        /,
        *,
        after: ConversationPlace | None = None,
        limit: int,
        search: str = "",
    ) -> ConversationPage:
        """A page with one conversation each, the last known one first."""
        self.lists.append((owner, after, limit, search))
        mine = [(key, each) for key, each in self.known.items() if key.owner == owner]
        found = [
            ListedConversation(key, ConversationPlace(number, "0" * 32), each)
            for number, (key, each) in enumerate(mine)
            if search in each.title and (after is None or number < after.updated)
        ]
        return ConversationPage(tuple(found[-1:]), found[-1].place if found[:-1] else None)

    async def create(
        self,
        key: ConversationKey,
        /,
        *,
        title: str = "",
        settings: ConversationSettings = NO_SETTINGS,
    ) -> None:
        if key in self.known:
            raise Conflict("there is a conversation with this id already")
        self.known[key] = Status(1, title=title, settings=settings)

    async def rename(self, key: ConversationKey, title: str, /) -> None:
        self.known[key] = replace(await self.status(key), title=check_title(title))

    async def configure(self, key: ConversationKey, settings: ConversationSettings, /) -> None:
        self.known[key] = replace(await self.status(key), settings=check_settings(settings))

    async def messages(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        await self.status(key)
        return Page(self.history[start : start + limit], start, len(self.history))

    async def branches(self, key: ConversationKey, /) -> Sequence[BranchPoint]:
        await self.status(key)
        return self.points

    async def switch(self, key: ConversationKey, message_id: MessageId, /) -> None:
        await self.status(key)
        self.switched.append((key, message_id))

    async def fork(
        self, key: ConversationKey, target: ConversationKey, /, *, after: MessageId | None = None
    ) -> None:
        self.known[target] = await self.status(key)
        self.forked.append((key, target, after))

    async def data(self, key: ConversationKey, /) -> JsonValue:
        return (await self.status(key)).state.data

    async def retract(self, key: ConversationKey, tool: str, /) -> None:
        await self.status(key)
        self.retracted.append((key, tool))

    async def delete(self, key: ConversationKey, /) -> None:
        await self.status(key)
        del self.known[key]

    async def erase(self, owner: OwnerId, /, *, limit: int) -> Erased:
        mine = [key for key in self.known if key.owner == owner]
        for key in mine[:limit]:
            del self.known[key]
        return Erased(len(mine[:limit]), more=len(mine) > limit)

    async def export(self, key: ConversationKey, /) -> AsyncIterator[bytes]:
        """A document in two pieces."""
        await self.status(key)
        return self._pieces(key)

    async def _pieces(self, key: ConversationKey) -> AsyncIterator[bytes]:
        yield begin_document(ConversationDocument(FORMAT, VERSION, key.id))
        if self.broken is not None:
            raise self.broken
        yield DOCUMENT_END

    async def import_conversation(
        self, key: ConversationKey, document: ConversationDocument, /
    ) -> None:
        if key in self.known:
            raise Conflict("there is a conversation with this id already")
        self.imports.append(document)
        self.known[key] = Status(1)

    def models(self, agent: str = "", /) -> Sequence[str]:
        return ("scripted", "other")

    def effort(self, agent: str = "", /) -> str | None:
        return None

    def commands(self, agent: str = "", /) -> Sequence[Command]:
        if agent:
            raise UnknownAgent(
                "this server has no agent of that name: name one that GET /agents lists"
            )
        return (Command("help", "Lists the commands."),)

    def agents(self) -> Sequence[str]:
        return ("",)

    def media(self, agent: str = "", /, *, model: str = "") -> frozenset[Medium]:
        return frozenset({"image", "audio"} if model == "other" else {"image"})

    @contextmanager
    def lend(self, key: ConversationKey, toolsets: Sequence[Toolset], /) -> Generator[None]:
        self.lent.append((key, toolsets))
        yield
        self.lent.remove((key, toolsets))

    async def ready(self) -> None:
        if self.unready:
            raise self.unready
