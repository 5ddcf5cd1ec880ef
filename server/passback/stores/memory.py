"""Conversations in the memory of one process.

It is the reference of the door `Store`: each rule is here in its plainest form, and the other
stores are compared with it step by step. All is gone when it is closed.
"""

import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise, takewhile
from operator import attrgetter
from typing import TypeVar

from anyio.lowlevel import checkpoint

from passback.core.changes import dump_events
from passback.core.conversation.store import (
    REMEMBERED_WRITES,
    WHOLE,
    Amounts,
    Append,
    Appended,
    Applied,
    Due,
    Found,
    FoundLease,
    Guard,
    LeaseChange,
    Listed,
    LogChange,
    LogEntry,
    LogPage,
    Place,
    Query,
    QueryPage,
    QueueEntry,
    RenewLease,
    Span,
    SpentUnder,
    TakeLease,
    View,
    Wanted,
    Watch,
    Write,
)
from passback.core.errors import StoreError, StoreUnavailable
from passback.core.events import Position
from passback.core.ids import ConversationTag, conversation_tag
from passback.core.messages import ConversationKey, OwnerId, RunId
from passback.stores.coordination import LogNotifications, LogWaiter
from passback.stores.layout import PAGE_SIZE, SPENT_MOST, SPENT_TTL
from passback.stores.options import KeepTimes, StoreOptions

GAP = dump_events(())  # the record of an entry without events
SWEPT = 2  # conversations, and counts, that a write looks at to remove what has expired
NOTHING = Amounts(0, 0, 0)

T = TypeVar("T")
KeyT = TypeVar("KeyT")


# ---------------------------------------------------------------- a conversation
@dataclass
class _Log:
    """A log; `size` is that of its records, in bytes."""

    entries: list[LogEntry] = field(default_factory=list[LogEntry])
    size: int = 0
    expires: float = math.inf

    def after(self, position: Position) -> list[LogEntry]:
        return self.entries[bisect_right(self.entries, position, key=attrgetter("position")) :]

    def void_after(self, position: Position) -> None:
        gone = self.after(position)
        del self.entries[len(self.entries) - len(gone) :]
        self.size -= sum(len(each.record) for each in gone)
        if not self.entries:  # the entry at the position has been trimmed
            self.entries, self.size = [LogEntry(position, 0, GAP)], len(GAP)

    def add(self, entry: LogEntry, log_bytes: int) -> None:
        """Add an entry, unless it is there already, and trim the log."""
        if self.entries and entry.position <= self.entries[-1].position:
            return
        self.entries.append(entry)
        self.size += len(entry.record)
        first, rest = 0, self.size
        for number, (before, each) in enumerate(pairwise(self.entries), 1):
            if self.size <= log_bytes:
                break
            rest -= len(before.record)
            # an opening has the number 1: readers would not see that something is missing before it
            if each.first > 1:
                first, self.size = number, rest
        del self.entries[:first]


@dataclass
class _Lease:
    """A lease; `fence` is empty once it was released."""

    fence: str
    expires: int
    seq: int
    signal: str

    def is_over(self, now: int) -> bool:
        return not self.fence or self.expires <= now

    def as_found(self) -> FoundLease:
        return FoundLease(self.fence, self.expires, self.seq, self.signal)

    def is_followed_by(self, entry: LogEntry | None) -> bool:
        """Tell if an entry follows on the last event of the log, or is there already."""
        return entry is None or entry.first == self.seq + 1 or entry.position.seq <= self.seq


@dataclass
class _Conversation:
    """A conversation; with version 0 there is none.

    `due`: when it is due without a lease. `taken_until`: nobody else is sent to it before.
    """

    key: ConversationKey
    version: int = 0
    writes: deque[str] = field(default_factory=lambda: deque[str](maxlen=REMEMBERED_WRITES))
    head: bytes = b""
    fields: dict[str, bytes] = field(default_factory=dict[str, bytes])
    messages: list[bytes] = field(default_factory=list[bytes])
    spans: tuple[Span, ...] = WHOLE
    receipts: dict[str, str] = field(default_factory=dict[str, str])
    queue: dict[RunId, bytes] = field(default_factory=dict[RunId, bytes])
    logs: dict[RunId, _Log] = field(default_factory=dict[RunId, _Log])
    runs: dict[RunId, bytes] = field(default_factory=dict[RunId, bytes])
    lease: _Lease | None = None
    due: int | None = None
    taken_until: int = 0
    owes_since: int | None = None
    created: int = 0
    updated: int = 0
    expires: float = math.inf

    def held_lease(self, fence: str | None) -> _Lease | None:
        """Return the lease if this fence is held."""
        return self.lease if fence and self.lease and self.lease.fence == fence else None

    def meets(self, guard: Guard, now: int) -> bool:
        known = self.version > 0 if guard.version is None else self.version == guard.version
        return (
            known
            and (guard.fence is None or self.held_lease(guard.fence) is not None)
            and (not guard.lease_over or (self.lease is not None and self.lease.is_over(now)))
            and guard.message_count in (None, len(self.messages))
        )

    def is_due(self, now: int) -> bool:
        if self.lease is None:
            is_due = self.due is not None and self.due <= now
        else:
            is_due = self.lease.is_over(now)
        return is_due and self.taken_until <= now

    def set_due(self, due: Due, now: int) -> None:
        times = [due.after, due.queued if self.queue else None]
        self.due = min((now + each for each in times if each is not None), default=None)

    def change_lease(self, change: LeaseChange, entry: LogEntry | None, now: int) -> None:
        match change:
            case TakeLease(fence, milliseconds, signal):
                seq = entry.position.seq if entry is not None else 0
                self.lease = _Lease(fence, now + milliseconds, seq, signal)
            case "end":
                self.lease = None
            case "release" if self.lease is not None:
                self.lease.fence, self.lease.expires = "", now
            case RenewLease(milliseconds) if self.lease is not None and self.lease.fence:
                self.lease.expires = now + milliseconds
            case _:
                pass  # there is no lease

    def find_log(self, run_id: RunId, now: int) -> _Log | None:
        log = self.logs.get(run_id)
        return log if log is not None and log.expires > now else None

    def select(self, spans: Iterable[Span]) -> list[bytes]:
        return [each for span in spans for each in self.messages[span.start : span.end]]


# ---------------------------------------------------------------- the store
class MemoryStore:
    """The `Store` in memory, for tests and throw-away use."""

    def __init__(self, options: StoreOptions | None = None) -> None:
        options = options or StoreOptions()
        self._idle = KeepTimes.when_idle(options)
        self._running = KeepTimes.when_running(options)
        self._log_bytes = options.log_bytes
        self._conversations: dict[ConversationTag, _Conversation] = {}
        self._spent: dict[tuple[OwnerId, str], _Count] = {}  # by day, and by lease
        self._notifications = LogNotifications()
        self._microseconds = 0
        self._is_open = False

    async def __aenter__(self) -> "MemoryStore":
        self._is_open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._is_open = False
        self._conversations.clear()
        self._spent.clear()

    @property
    def location(self) -> str:
        return "memory:"

    @property
    def sees_followers(self) -> bool:
        """False: all readers are in this process."""
        return False

    async def check(self, /, *, briefly: bool = False) -> Sequence[str]:
        await self._begin()
        if briefly:
            return []
        return ["The store is in memory: every conversation is gone when the server stops."]

    async def _begin(self) -> int:
        """Let other tasks run, then return the time. What follows is not interrupted.

        Raises:
            StoreUnavailable: the store is closed.
        """
        await checkpoint()
        if not self._is_open:
            raise StoreUnavailable("the store is closed")
        return time.time_ns() // 1_000_000

    def _next_microsecond(self) -> int:
        self._microseconds = max(self._microseconds + 1, time.time_ns() // 1000)
        return self._microseconds

    def _find(self, tag: ConversationTag, now: int) -> _Conversation | None:
        found = self._conversations.get(tag)
        return found if found is not None and found.expires > now else None

    def _sweep(self, now: int) -> None:
        """Remove some of what has expired."""
        for conversation in _rotate(self._conversations, lambda each: each.expires <= now):
            _rotate(conversation.logs, lambda log: log.expires <= now)
        _rotate(self._spent, lambda count: count.expires <= now)

    # ---------------------------------------------------------------- writes
    async def apply(self, write: Write, /) -> Applied | None:
        now = await self._begin()
        self._sweep(now)
        tag = _tag(write.key)
        known = self._find(tag, now) or _Conversation(write.key)
        if write.id not in known.writes:
            if not _holds(write, known, now):
                return None
            self._conversations[tag] = known
            self._write(known, write, now)
            self._notifications.notify(tag)
        return Applied(known.version, now, bool(known.queue))

    def _write(self, to: _Conversation, write: Write, now: int) -> None:
        is_first = to.version == 0
        to.version = write.first_version if is_first else to.version + 1
        to.writes.append(write.id)
        _write_records(to, write)
        if write.log is not None:
            self._change_log(to, write, write.log, now)
        if write.lease is not None:
            to.change_lease(write.lease, None if write.log is None else write.log.entry, now)
        if write.signal is not None and to.lease is not None:
            to.lease.signal = write.signal
        if write.due is not None:
            to.set_due(write.due, now)
        if write.lease is not None or write.due is not None:
            to.taken_until = 0
        self._write_times(to, write, now, is_first=is_first)

    def _change_log(self, to: _Conversation, write: Write, change: LogChange, now: int) -> None:
        lease = None if isinstance(write.lease, TakeLease) else to.held_lease(write.guard.fence)
        log = to.logs[change.run_id] = to.find_log(change.run_id, now) or _Log()
        if change.void_after is not None:
            log.void_after(change.void_after)
        if change.entry is not None:
            self._add_entry(log, change.entry, lease)
        log.expires = now + (self._idle if change.ends else self._running).log

    def _add_entry(self, log: _Log, entry: LogEntry, lease: _Lease | None) -> None:
        if lease is None:
            log.add(entry, self._log_bytes)
        elif entry.position.seq > lease.seq:
            log.add(entry, self._log_bytes)
            lease.seq = entry.position.seq

    def _write_times(self, to: _Conversation, write: Write, now: int, *, is_first: bool) -> None:
        time_of_write = self._next_microsecond()
        if is_first:
            to.created = time_of_write
        if is_first or write.touches:
            to.updated = time_of_write
        if write.owes is False:
            to.owes_since = None
        elif write.owes and to.owes_since is None:
            to.owes_since = time_of_write
        keep = self._running if to.lease or to.queue else self._idle
        to.expires = math.inf if keep.conversation is None else now + keep.conversation

    async def append(
        self, appends: Sequence[Append], /, *, lease: int
    ) -> Sequence[Appended | StoreError]:
        now = await self._begin()
        return [self._append(each, now, lease) for each in appends]

    def _append(self, append: Append, now: int, milliseconds: int) -> Appended:
        tag, entry = _tag(append.key), append.entry
        found = self._find(tag, now)
        lease = None if found is None else found.held_lease(append.fence)
        if found is None or lease is None or not lease.is_followed_by(entry):
            return Appended(held=False)
        if entry is not None and entry.position.seq > lease.seq:
            log = found.logs[append.run_id] = found.find_log(append.run_id, now) or _Log()
            self._add_entry(log, entry, lease)
            log.expires = now + self._running.log
            self._notifications.notify(tag)
        lease.expires = now + milliseconds
        return Appended(held=True, signal=lease.signal)

    async def delete(self, key: ConversationKey, /) -> bool:
        now = await self._begin()
        found = self._find(_tag(key), now)
        self._conversations.pop(_tag(key), None)
        self._notifications.notify(_tag(key))
        return found is not None

    # ---------------------------------------------------------------- reads
    async def read(self, key: ConversationKey | ConversationTag, wanted: Wanted, /) -> Found:
        now = await self._begin()
        if isinstance(key, str):
            return _read(self._find(key, now), wanted, now, with_key=True)
        return _read(self._find(_tag(key), now), wanted, now)

    async def log(
        self, key: ConversationKey, run_id: RunId | None, /, *, after: Position, limit: int
    ) -> LogPage | None:
        now = await self._begin()
        found = self._find(_tag(key), now)
        logs = {} if found is None else found.logs
        later = {
            each: log.after(after)
            for each, log in logs.items()
            if log.expires > now and run_id in (None, each)
        }
        if run_id is None:
            firsts = {entries[0].position: each for each, entries in later.items() if entries}
            run_id = firsts[min(firsts)] if firsts else None
        if run_id is None or run_id not in later:
            return None
        sizes = (len(each.record) for each in later[run_id])
        entries = tuple(_cut(later[run_id], limit, sizes))
        return LogPage(run_id, entries, more=len(entries) < len(later[run_id]))

    async def page(
        self, key: ConversationKey, spans: Sequence[Span], /, *, limit: int
    ) -> Sequence[bytes]:
        now = await self._begin()
        found = self._find(_tag(key), now)
        messages = [] if found is None else found.select(spans)
        return _cut(messages, limit, [len(each) for each in messages])

    @asynccontextmanager
    async def watch(self, key: ConversationKey, /) -> AsyncGenerator[Watch]:
        with self._notifications.registered(_tag(key), LogWaiter()) as waiter:
            yield waiter

    async def due(self, limit: int, /, *, milliseconds: int) -> Sequence[ConversationKey]:
        now = await self._begin()
        known = self._conversations.values()
        found = [each for each in known if each.expires > now and each.is_due(now)][:limit]
        for each in found:
            each.taken_until = now + milliseconds
        return [each.key for each in found]

    async def query(self, query: Query, /) -> QueryPage:
        now = await self._begin()
        newest_first = query.index == "all"
        found = [
            (place, each)
            for tag, each in self._conversations.items()
            if each.expires > now and (place := _place_of(each, tag, query)) is not None
        ]
        found.sort(key=lambda pair: pair[0], reverse=newest_first)
        if (after := query.after) is not None:
            found = [
                pair for pair in found if pair[0] != after and (pair[0] < after) is newest_first
            ]
        wanted = Wanted(fields=query.fields)
        listed = tuple(
            Listed(each.key, place, _read(each, wanted, now))
            for place, each in found[: query.limit]
        )
        return QueryPage(listed, listed[-1].place if 0 < len(listed) < len(found) else None)

    # ---------------------------------------------------------------- spending
    async def spend(self, spent: SpentUnder, /) -> Amounts:
        now = await self._begin()
        self._sweep(now)
        names = (spent.owner, f"day:{spent.day}"), (spent.owner, f"lease:{spent.lease}")
        day, lease = (self._find_count(name, now) for name in names)
        if spent.seq <= lease.seq:
            return day.amounts
        changes = zip(day.amounts, spent.amounts, lease.amounts, strict=True)
        # a sum that is too large to be exact does not fall
        total = Amounts(
            *(
                SPENT_MOST if sum_ == SPENT_MOST else min(SPENT_MOST, max(0, sum_ + given - known))
                for sum_, given, known in changes
            )
        )
        self._spent[names[0]] = _Count(total, expires=now + SPENT_TTL)
        self._spent[names[1]] = _Count(spent.amounts, spent.seq, now + SPENT_TTL)
        return total

    def _find_count(self, name: tuple[OwnerId, str], now: int) -> "_Count":
        count = self._spent.get(name)
        return count if count is not None and count.expires > now else _Count()


@dataclass
class _Count:
    """Amounts of a day, or those under a lease, whose newest report is number `seq`."""

    amounts: Amounts = NOTHING
    seq: int = 0
    expires: int = 0


# ---------------------------------------------------------------- steps
def _tag(key: ConversationKey) -> ConversationTag:
    return ConversationTag(conversation_tag(key))


def _holds(write: Write, known: _Conversation, now: int) -> bool:
    """Tell if a write may be applied."""
    if not known.meets(write.guard, now):
        return False
    lease = known.held_lease(write.guard.fence)
    # with a new lease, its entry begins the log of that one
    if lease is None or write.log is None or isinstance(write.lease, TakeLease):
        return True
    return lease.is_followed_by(write.log.entry)


def _write_records(to: _Conversation, write: Write) -> None:
    to.head = to.head if write.head is None else write.head
    for name, record in write.fields.items():
        to.fields.pop(name, None)
        if record is not None:
            to.fields[name] = record
    to.messages += write.messages
    to.spans = to.spans if write.view is None else write.view.spans
    to.receipts |= write.receipts
    to.runs |= write.runs
    if write.enqueue is not None:
        to.queue[write.enqueue.run_id] = write.enqueue.record
    if write.dequeue is not None:
        to.queue.pop(write.dequeue, None)


def _place_of(found: _Conversation, tag: ConversationTag, query: Query) -> Place | None:
    """Return the place of a conversation in an index; None if it is not there."""
    if query.index == "stored":
        return Place(0, tag)
    since = found.updated if query.index == "all" else found.owes_since
    return Place(since, tag) if found.key.owner == query.owner and since is not None else None


def _read(
    found: _Conversation | None, wanted: Wanted, now: int, *, with_key: bool = False
) -> Found:
    if found is None:
        return Found(now=now, messages=None if wanted.within is None else ())
    viewed = tuple(found.select(found.spans))
    size = sum(map(len, viewed))
    return Found(
        version=found.version,
        now=now,
        key=found.key if with_key else None,
        head=found.head,
        fields=_named(found.fields, wanted.fields, wanted),
        receipts=_named(found.receipts, wanted.receipts, wanted),
        runs=_named(found.runs, wanted.runs, wanted),
        message_count=len(found.messages),
        view=View(found.spans, size),
        messages=viewed if wanted.within is not None and size <= wanted.within else None,
        queue=tuple(
            QueueEntry(run_id, record if wanted.queue else b"")
            for run_id, record in found.queue.items()
        ),
        lease=None if found.lease is None else found.lease.as_found(),
        due=found.due,
        created=found.created,
        updated=found.updated,
    )


def _named(known: Mapping[KeyT, T], names: Iterable[KeyT], wanted: Wanted) -> dict[KeyT, T]:
    """Return those of the names that are there, or all."""
    return {each: known[each] for each in (known if wanted.whole else names) if each in known}


def _cut(found: Sequence[T], limit: int, sizes: Iterable[int]) -> Sequence[T]:
    """Return at most `limit` of them, as many as fit in a page, but one if there is one."""
    fitting = takewhile(lambda total: total <= PAGE_SIZE, accumulate(sizes))
    return found[: min(limit, max(1, len(list(fitting))))]


def _rotate(kept: dict[KeyT, T], is_over: Callable[[T], bool]) -> list[T]:
    """Look at the first few, remove those that are over, and put the others behind the rest.

    Returns those that stay.
    """
    stay: list[T] = []
    for name in list(islice(kept, SWEPT)):
        each = kept.pop(name)
        if not is_over(each):
            kept[name] = each
            stay.append(each)
    return stay
