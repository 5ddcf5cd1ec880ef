"""Reads of the conversations in a store: records become what they stand for."""

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Final, Self

from pydantic_core import to_json

from passback.core.changes import (
    ConversationPage,
    ConversationPlace,
    Inbox,
    InboxPlace,
    ListedConversation,
    LoadedConversation,
    OwingConversation,
    Page,
    RunRecord,
    Status,
    load_events,
    load_message,
    load_run,
)
from passback.core.conversation.head import (
    STATUS,
    STATUS_FIELDS,
    TOOLS,
    head_of,
    loaded_conversation,
    reading_records,
    status_of,
)
from passback.core.conversation.store import (
    Found,
    LogEntry,
    Place,
    Query,
    QueueEntry,
    Span,
    Store,
    Wanted,
    Watch,
)
from passback.core.conversation.tree import Tree
from passback.core.errors import (
    TRIMMED,
    CursorExpired,
    StoreError,
    UnknownRun,
)
from passback.core.events import START, Cursor, Logged, Position
from passback.core.ids import MadeId, tag_of
from passback.core.messages import (
    ConversationId,
    ConversationKey,
    Message,
    MessageId,
    OwnerId,
    RunRef,
)
from passback.core.posts import ReceiptName
from passback.core.titles import title_filter
from passback.core.values import milliseconds

REMEMBERED: Final = 1000
REMEMBERED_BYTES: Final = 32 * 1024  # of one reading: larger ones are read again
ENTRIES_AT_ONCE: Final = 64  # entries of a log that one read asks for
SEARCHED_AT_ONCE: Final = 256  # messages among which one is looked for
SCAN_LIMIT: Final = 1000
# of owed arguments in one page, unless its first conversation has more
PAGE_BYTES: Final = 8 * 2**20
_MOST: Final = 2**53 - 1  # the largest number that every store counts exactly


class Records:
    """All conversations of a store, as the engine reads them.

    Every method raises the StoreErrors of `Store`.

    Args:
        store: keeps the records; entered and left with this.
        remembered: conversations whose last reading is kept, to be changed without another.
        scanned: conversations that one page of an index looks at.
    """

    def __init__(
        self, store: Store, *, remembered: int = REMEMBERED, scanned: int = SCAN_LIMIT
    ) -> None:
        self.store = store
        self._most_remembered = remembered
        self._most_scanned = scanned
        # the last reading of a conversation: what is judged on it is written without another
        self._read = OrderedDict[ConversationKey, tuple[Wanted, Found]]()
        self._clock_ahead = time.time() - time.monotonic()  # seconds, of the store's clock

    async def __aenter__(self) -> Self:
        await self.store.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.store.__aexit__(*exc)

    @property
    def location(self) -> str:
        """A URL of the store without its password, for people."""
        return self.store.location

    @property
    def sees_followers(self) -> bool:
        """True if `append` can answer `followed`; others answer `held`."""
        return self.store.sees_followers

    async def check(self) -> Sequence[str]:
        """Check that the store can be used; return warnings about settings that weaken a promise.

        Raises:
            ConfigurationError: its settings would lose data silently.
        """
        return await self.store.check()

    async def ping(self) -> None:
        """Return when the store takes writes, for readiness checks; the wait is bounded."""
        await self.store.check(briefly=True)

    async def status(self, key: ConversationKey, /) -> Status:
        return status_of(await self._look(key, STATUS))

    async def locate(self, owner: OwnerId, made: MadeId, /) -> ConversationKey | None:
        """Return the owner's conversation for which the server has made an id."""
        tag = tag_of(made)
        key = None if tag is None else (await self.store.read(tag, Wanted())).key
        return key if key is not None and key.owner == owner else None

    async def load(
        self,
        key: ConversationKey,
        /,
        *,
        receipts: Collection[ReceiptName] = (),
        within: int | None = None,
    ) -> LoadedConversation:
        """Load a conversation with its messages from `state.history_start` on, and their size.

        `within`: leave messages out that exceed this number of bytes.
        """
        wanted = Wanted(
            (*STATUS_FIELDS, TOOLS),
            tuple(receipts),
            queue=True,
            within=float("inf") if within is None else within,
        )
        return loaded_conversation(await self._look(key, wanted))

    async def _look(self, key: ConversationKey, wanted: Wanted) -> Found:
        found = await self.store.read(key, wanted)
        self._set_clock(found.now)
        self._remember(key, wanted, found)
        return found

    def _remember(self, key: ConversationKey, wanted: Wanted, found: Found) -> None:
        """Keep what a change needs of a reading, unless that is large."""
        self._read.pop(key, None)
        fields = {name: text for name, text in found.fields.items() if name != TOOLS}
        if len(found.head) + sum(map(len, fields.values())) > REMEMBERED_BYTES:
            return
        queue = tuple(QueueEntry(each.run_id) for each in found.queue)
        kept = replace(found, messages=None, fields=fields, queue=queue)
        self._read[key] = wanted, kept
        if len(self._read) > self._most_remembered:
            self._read.popitem(last=False)

    async def page(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        """Return at most `limit` messages; fewer if they are large, but one if there is one."""
        tree = head_of(await self.store.read(key, Wanted())).tree
        messages = await self.read_branch(key, tree, start=start, limit=limit)
        return Page(messages, start, len(tree))

    async def read_branch(
        self, key: ConversationKey, tree: Tree, /, *, start: int, limit: int
    ) -> tuple[Message, ...]:
        """Return messages of a branch, also of one that is not read now, as `page` does."""
        if start >= len(tree) or limit <= 0:
            return ()
        # closed: another writer may append to the branch meanwhile
        spans = tree.spans(start, tree.leaf + 2)
        records = await self.store.page(key, spans, limit=limit)
        with reading_records():
            return tuple(map(load_message, records))

    async def find_message(
        self, key: ConversationKey, message_id: MessageId, stored: int, /
    ) -> int | None:
        """Return the number of a message among all branches, the newest one with this id.

        It reads all of the record where there is none. `stored`: the number of all messages.
        """
        end, found = stored, None
        while end > 0 and found is None:
            start = max(0, end - SEARCHED_AT_ONCE)
            found = await self._find_between(key, message_id, start, end)
            end = start
        return found

    async def _find_between(
        self, key: ConversationKey, message_id: MessageId, start: int, end: int
    ) -> int | None:
        """Return the number of the last message with an id, of those between two numbers."""
        named, found = to_json(message_id), None
        while records := await self.store.page(key, (Span(start, end),), limit=end - start):
            for number, record in enumerate(records, start):
                with reading_records():
                    # most records need not be read for that
                    if named in record and load_message(record).id == message_id:
                        found = number
            start += len(records)
            if start >= end:
                break
        return found

    async def message_ids(
        self, key: ConversationKey, numbers: Sequence[int], /
    ) -> dict[int, MessageId]:
        """Return the ids of messages by their numbers, of those that are there."""
        found: dict[int, MessageId] = {}
        while len(found) < len(numbers):
            spans = [Span(number, number + 1) for number in numbers[len(found) :]]
            records = await self.store.page(key, spans, limit=len(spans))
            if not records:
                break  # it was deleted meanwhile
            with reading_records():
                ids = [load_message(record).id for record in records]
            found |= zip(numbers[len(found) :], ids, strict=False)
        return found

    async def read_log(
        self, run: RunRef, /, *, after: Position = START, limit: int = 1000
    ) -> Sequence[Logged]:
        """Return events of a run after a position, at least `limit` if there are that many.

        Entries of the log are not split, so there may be more.

        Raises:
            UnknownRun: the conversation has no such log, or it has expired.
            CursorExpired: events after the position were trimmed, because the log became too large.
        """
        logged: list[Logged] = []
        place, most = after, min(limit, ENTRIES_AT_ONCE)
        while len(logged) < limit:
            page = await self.store.log(run.key, run.run_id, after=place, limit=most)
            if page is None:
                if logged:
                    break  # it has expired meanwhile
                raise UnknownRun(
                    "there is no such run in this conversation, or its log has expired"
                )
            with reading_records():
                for entry in page.entries:
                    # one by one, so that a page ends where its last entry does
                    logged += _events_of(entry, place, after)
                    place = entry.position
                    if len(logged) >= limit:
                        break
            if not page.more:
                break
        return logged

    async def run_record(self, run: RunRef, /) -> RunRecord:
        """Return the record of a run, which outlives its log.

        Raises:
            UnknownRun: the conversation has no such run, or it waits in the queue.
        """
        found = await self.store.read(run.key, Wanted(runs=(run.run_id,)))
        with reading_records():
            if (record := found.runs.get(run.run_id)) is not None:
                return load_run(record)
        head = head_of(found)
        if head.run is None or head.run_id != run.run_id:
            raise UnknownRun("there is no such run in this conversation")
        return head.run

    async def next_run(self, key: ConversationKey, /, *, after: Position) -> Cursor | None:
        """Return the run with the first event after a position, of all runs of a conversation.

        The cursor's position is that of the last event of its log's entry. The run may still wait
        in the queue. None if there is no such event.
        """
        page = await self.store.log(key, None, after=after, limit=1)
        if page is None or not page.entries:
            return None
        return Cursor(page.run_id, page.entries[0].position)

    def watch(self, key: ConversationKey, /) -> AbstractAsyncContextManager[Watch]:
        """Watch for growth of a conversation's logs in other processes, and for its deletion.

        These are hints; the logs are the truth.
        """
        return self.store.watch(key)

    async def take_due(self, limit: int, /, *, lease: float) -> Sequence[ConversationKey]:
        """Take conversations that are due for recovery, as `Store.due`."""
        return await self.store.due(limit, milliseconds=milliseconds(lease))

    async def inbox(
        self, owner: OwnerId, /, *, after: InboxPlace | None = None, limit: int
    ) -> Inbox:
        """Return conversations of an owner that owe answers, with at most `limit` calls in all.

        Conversations are whole. There are fewer if the arguments are large, but at least one if
        there is one, however much it owes. There may be none and a `next` all the same, if not all
        could be read at once.
        """
        owing: list[OwingConversation] = []
        room, size = limit, 0
        query = Query(owner, "owing", _place(after), fields=STATUS_FIELDS)
        async for key, place, status in self._listed(query):
            here = InboxPlace(*place)
            if status is None:
                return Inbox(tuple(owing), here)
            if status.running or not status.owed:
                continue
            room -= len(status.owed)
            size += sum(len(call.arguments) for call in status.owed)
            # a page without its first conversation would never end
            if owing and (room < 0 or size > PAGE_BYTES):
                return Inbox(tuple(owing), owing[-1].place)
            owing.append(OwingConversation(key, here, status))
        return Inbox(tuple(owing))

    async def conversations(
        self,
        owner: OwnerId,
        /,
        *,
        after: ConversationPlace | None = None,
        limit: int,
        search: str = "",
    ) -> ConversationPage:
        """Return at most `limit` conversations of an owner, newest `Status.updated` first.

        Those whose title contains `search`, in upper or lower case. There are fewer if they owe
        large arguments. There may be none and a `next` all the same, if not all could be looked at
        at once. One that changes meanwhile moves to the front: pages behind it are without it.
        """
        listed: list[ListedConversation] = []
        size, matches = 0, title_filter(search)
        query = Query(owner, "all", _place(after), fields=STATUS_FIELDS)
        async for key, place, status in self._listed(query):
            here = ConversationPlace(*place)
            if status is None:
                return ConversationPage(tuple(listed), here)
            if not matches(status.title):
                continue
            size += sum(len(call.arguments) for call in status.owed)
            if len(listed) == limit or (listed and size > PAGE_BYTES):
                return ConversationPage(tuple(listed), listed[-1].place)
            listed.append(ListedConversation(key, here, status))
        return ConversationPage(tuple(listed))

    async def _listed(
        self, query: Query
    ) -> AsyncIterator[tuple[ConversationKey, Place, Status | None]]:
        """Give the conversations of an index that can be read.

        The last one has no status if so many were looked at, and there may be more behind it.
        """
        looked = 0
        while True:
            page = await self.store.query(query)
            for each in page.listed:
                status: Status | None = None
                with suppress(StoreError):  # a damaged one must not hold up the others
                    status = None if each.found is None else status_of(each.found)
                if status is not None and status.version:
                    yield each.key, each.place, status
            looked += len(page.listed)
            if page.next is None:
                return
            if looked >= self._most_scanned:
                break
            query = replace(query, after=page.next)
        yield ConversationKey(query.owner, ConversationId("")), page.next, None

    @property
    def _now(self) -> int:
        """The milliseconds of the store's clock, by what it said last."""
        return round(1000 * (time.monotonic() + self._clock_ahead))

    def _set_clock(self, now: int) -> None:
        self._clock_ahead = now / 1000 - time.monotonic()


def _place(after: InboxPlace | ConversationPlace | None) -> Place | None:
    """Return the place that a client's cursor names, within what any store can count."""
    return None if after is None else Place(max(0, min(after[0], _MOST)), after[1])


def _events_of(entry: LogEntry, place: Position, after: Position) -> list[Logged]:
    """Return the events of an entry that are after `after`; those before `place` were read.

    Raises:
        CursorExpired: entries that followed `place` are missing. A take-over removes the last
            entries of an epoch and opens the next one with number 1; trimming removes from the
            front, and never up to such an opening.
    """
    last, first = entry.position, entry.first
    # an entry of a later epoch has to begin with its opening, number 1
    if first > (place.seq if last.epoch == place.epoch else 0) + 1:
        raise CursorExpired(TRIMMED)
    positions = (Position(last.epoch, seq) for seq in range(first, last.seq + 1))
    return [
        Logged(position, event)
        for position, event in zip(positions, load_events(entry.record), strict=True)
        if position > after
    ]
