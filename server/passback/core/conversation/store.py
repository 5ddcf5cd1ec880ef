"""The door to a store, and what passes through it: records, counters and times, without rules.

A store keeps conversations. It applies a `Write` atomically if its guard holds, and it does not
know what a run, a message or a tool call is: records are bytes that it never reads.

A conversation in a store has:

* a version, which grows with each write;
* a head: one small record;
* fields: records with names, each written alone, such as the title;
* messages: records, numbered from 0 in the order in which they were written, never changed;
* a view: which of the messages `read` returns, and their size in bytes;
* receipts: texts with names, kept to recognise what was posted before;
* a queue: records in order, each under the id of its run;
* logs, one for each run: entries, each with the position of its last event;
* run records: one for each run, which outlive its log;
* a lease: the right of one worker to write under its fence, for a time.

Arguments are positional-only and values frozen. Times are in milliseconds, by the store's clock.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from passback.core.errors import StoreError
from passback.core.events import Position
from passback.core.ids import ConversationTag
from passback.core.messages import ConversationKey, OwnerId, RunId
from passback.core.values import value

REMEMBERED_WRITES = 16
"""Ids of writes that a store remembers for each conversation."""


@value
class Span:
    """Messages from number `start` up to, and not with, `end`; None: to the last one."""

    start: int
    end: int | None = None


WHOLE: tuple[Span, ...] = (Span(0),)
"""All messages."""


@value
class View:
    """The messages that `Store.read` returns, in order.

    Attributes:
        spans: the last one alone may be open, and then grows with each message that is appended.
        size: bytes of their records, those that the same write appends included; None: the store
            counts them.
    """

    spans: tuple[Span, ...] = WHOLE
    size: int | None = None


@value
class LogEntry:
    """A batch of events of a run, written and read as one.

    Attributes:
        position: of its last event. Positions of a log only grow.
        size: the number of its events, all of the epoch of `position`.
        record: the events.
    """

    position: Position
    size: int
    record: bytes

    @property
    def first(self) -> int:
        """The number of its first event."""
        return self.position.seq - self.size + 1


# ---------------------------------------------------------------- writes
@value
class Guard:
    """A condition of a write: it has to be true of the conversation.

    Attributes:
        version: it has this version; 0: there is none. None: it has any.
        fence: the lease with this fence is held, whether or not its time is over. It is not once it
            was released or ended, or another one was taken.
        lease_over: there is a lease, and its time is over, or it was released.
        message_count: it has so many messages. None: it has any number.
    """

    version: int | None = None
    fence: str | None = None
    lease_over: bool = False
    message_count: int | None = None


@value
class TakeLease:
    """Give the lease to the holder of `fence`, for so many milliseconds from now.

    What earlier fences held is over. The last event of the lease's log is that of the write's log
    entry; number 0 without one. `signal`: the lease's, from its beginning.
    """

    fence: str
    milliseconds: int
    signal: str = ""


@value
class RenewLease:
    """Let the lease last for so many milliseconds from now."""

    milliseconds: int


LeaseChange: TypeAlias = TakeLease | RenewLease | Literal["release", "end"]
"""What becomes of the lease.

`release`: its time is over, and nobody holds its fence. `end`: there is none any more.
"""


@value
class LogChange:
    """A change of one run's log.

    Attributes:
        run_id: of the log, which is made if it is not there.
        entry: added behind the others, unless it is there already.
        void_after: entries after this position are removed first. It is the position of an entry's
            last event; where that entry has been trimmed away, an entry without events takes its
            place, so that readers see the gap.
        ends: nothing follows: it is kept for as long as the log of a run that is over.
    """

    run_id: RunId
    entry: LogEntry | None = None
    void_after: Position | None = None
    ends: bool = False


@value
class QueueEntry:
    """A record in the queue, under the id of the run that it will start."""

    run_id: RunId
    record: bytes = b""


@value
class Due:
    """The time when a conversation without a lease is due for recovery, in ms from the write.

    Attributes:
        after: None: never.
        queued: at the latest, if there is anything in the queue once the write is applied.
    """

    after: int | None = None
    queued: int | None = None


NEVER_DUE = Due()


@value
class Write:
    """One atomic change of a conversation: all of it, or nothing if `guard` does not hold.

    It may be sent again: a store that has applied it under its `id` changes nothing more.

    Attributes:
        key: the conversation. A write whose guard has version 0 makes it.
        id: unique among the writes of a conversation; 1 to 40 of `a-z 0-9 :`.
        guard: what has to be true.
        first_version: the version of a conversation that this write makes; others grow by 1.
        head: replaces the head; None keeps it.
        fields: replaces fields; None removes one.
        messages: appended.
        view: replaces the view; None keeps its spans.
        receipts: set by name; replaces those of the same names.
        enqueue: added behind the others of the queue.
        dequeue: the run whose entry leaves the queue.
        log: changes a log. With `guard.fence`, the entry has to follow on the last event of the
            lease's log or to be there already, else the guard does not hold: what came before it
            was lost in a failover of the store.
        runs: sets run records.
        lease: changes the lease; None keeps it.
        signal: replaces the text that the lease's holder gets with each answer of `append`, if
            there is a lease; None keeps it.
        due: when it is due once it has no lease; None keeps that. While there is a lease, it is due
            when that is over.
        owes: True: it is among its owner's conversations that owe something, from now on; False: it
            is not. None keeps that.
        touches: it is now the newest of its owner's conversations.
    """

    key: ConversationKey
    id: str
    guard: Guard
    first_version: int = 1
    head: bytes | None = None
    fields: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    messages: tuple[bytes, ...] = ()
    view: View | None = None
    receipts: Mapping[str, str] = field(default_factory=dict[str, str])
    enqueue: QueueEntry | None = None
    dequeue: RunId | None = None
    log: LogChange | None = None
    runs: Mapping[RunId, bytes] = field(default_factory=dict[RunId, bytes])
    lease: LeaseChange | None = None
    signal: str | None = None
    due: Due | None = None
    owes: bool | None = None
    touches: bool = False


@value
class Applied:
    """A write is applied, now or before.

    Attributes:
        version: the version of the conversation.
        now: the store's clock.
        queued: there is something in the queue.
    """

    version: int
    now: int = field(compare=False)
    queued: bool = False


@value
class Append:
    """An entry for the log of a run that has the lease, and the renewal of that lease.

    Attributes:
        entry: None: the lease is renewed, and no more.
    """

    key: ConversationKey
    run_id: RunId
    fence: str
    entry: LogEntry | None = None


class Appended(NamedTuple):
    """The answer to an `Append`.

    Attributes:
        held: False: nothing was written. The fence is not held, or the entry does not follow on the
            last event of the lease's log.
        followed: another process has a watch on the conversation, as far as the store can tell.
        signal: the lease's.
    """

    held: bool
    followed: bool = False
    signal: str = ""


# ---------------------------------------------------------------- reads
@value
class Wanted:
    """The parts that `Store.read` is to return beside what it always returns.

    Attributes:
        fields: names of fields.
        receipts: names of receipts.
        runs: ids of runs whose records are wanted.
        queue: with the records of the queue, not only the ids.
        within: the messages of the view if these have at most so many bytes; None: none.
        whole: all fields, receipts and run records, whatever their names.
    """

    fields: tuple[str, ...] = ()
    receipts: tuple[str, ...] = ()
    runs: tuple[RunId, ...] = ()
    queue: bool = False
    within: float | None = None
    whole: bool = False


@value
class FoundLease:
    """The lease of a conversation.

    Attributes:
        fence: empty once it was released.
        expires: when its time is over; moved by each renewal.
        seq: the number of the last event of its log.
        signal: for its holder.
    """

    fence: str
    expires: int = field(compare=False)
    seq: int = 0
    signal: str = ""


@value
class Found:
    """A conversation as it was read; with version 0 there is none.

    Attributes:
        now: the store's clock.
        key: where it was read by its tag.
        fields: those of the wanted names that it has.
        message_count: of all messages.
        view: which of them `messages` are; its size is known.
        messages: those of the view; None if they were not wanted, or are too large.
        queue: in order; with empty records if these were not wanted.
        due: when it is due, if it had no lease.
        created: when its first write was applied, in microseconds.
        updated: when the last write that touches it was applied, in microseconds. No two
            conversations have the same.
    """

    version: int = 0
    now: int = field(default=0, compare=False)
    key: ConversationKey | None = None
    head: bytes = b""
    fields: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    receipts: Mapping[str, str] = field(default_factory=dict[str, str])
    runs: Mapping[RunId, bytes] = field(default_factory=dict[RunId, bytes])
    message_count: int = 0
    view: View = View(size=0)
    messages: tuple[bytes, ...] | None = None
    queue: tuple[QueueEntry, ...] = ()
    lease: FoundLease | None = None
    due: int | None = field(default=None, compare=False)
    created: int = field(default=0, compare=False)
    updated: int = field(default=0, compare=False)


@value
class LogPage:
    """Entries of a log, in order; `more`: there may be others behind them now."""

    run_id: RunId
    entries: tuple[LogEntry, ...]
    more: bool = field(default=False, compare=False)


class Place(NamedTuple):
    """The position of a conversation in an index.

    `time` is in microseconds. `tag`, 32 hex digits, orders those with the same time. In the index
    `stored` both are the store's own.
    """

    time: int
    tag: str


@value
class Query:
    """Conversations of an owner, or of all owners.

    Attributes:
        owner: ignored by the index `stored`.
        index: `owing`: those that owe something, by when they began to, oldest first. `all`: all,
            by when they were touched last, newest first. `stored`: all of the store, of all owners,
            in an order that means nothing. Of these, one that is there from the first page to the
            last is listed at least once, and may be listed twice.
        after: those behind this place; None: from the first one.
        limit: of conversations.
        fields: as in `Wanted`.
    """

    owner: OwnerId
    index: Literal["owing", "all", "stored"]
    after: Place | None = None
    limit: int = 64
    fields: tuple[str, ...] = ()


@value
class Listed:
    """A conversation in an index; `found` is None if it cannot be read."""

    key: ConversationKey
    place: Place
    found: Found | None


@value
class QueryPage:
    """Conversations of an index, in its order.

    Attributes:
        listed: there may be fewer than the limit, also none, and more behind them all the same.
        next: the place after which to go on; None: there are no more.
        unnamed: tags of damaged conversations among them whose keys cannot be read.
    """

    listed: tuple[Listed, ...] = ()
    next: Place | None = None
    unnamed: tuple[ConversationTag, ...] = ()


class Amounts(NamedTuple):
    """Amounts spent, in whole numbers, whose sum depends on no order: 0 to 2**53 - 1 each."""

    tokens: int
    milliseconds: int
    billionths: int


@value
class SpentUnder:
    """Amounts that a run has spent under one lease; they replace what was counted for it before.

    Attributes:
        day: the day on which the difference counts.
        lease: names run and lease.
        seq: an older or equal report changes nothing.
    """

    owner: OwnerId
    day: str
    lease: str
    amounts: Amounts
    seq: int


class Watch(Protocol):
    """Notifications about one conversation."""

    async def wait(self, seconds: float = 2.0, /) -> None:
        """Return when a log may have grown, and after so many seconds in case a hint was lost."""
        ...


class Store(Protocol):
    """A store of conversations. Every write may be sent twice (P15).

    Used as an async context manager, which connects and closes. What has expired is as if it were
    not there: a conversation after the time that `StoreOptions.ttl` gives it, or the time of a run
    while it has a lease or a queue; a log likewise.

    Raises (every method):
        StoreUnavailable: the store did not answer in time.
        StoreFull: the store has no room left; nothing was written.
        StoreError: the store failed otherwise, or the conversation is damaged.
    """

    async def __aenter__(self) -> "Store": ...

    async def __aexit__(self, *exc: object) -> None: ...

    @property
    def location(self) -> str:
        """A URL without its password, for people."""
        ...

    @property
    def sees_followers(self) -> bool:
        """True if `append` can tell `Appended.followed`, for an entry that is new to the store."""
        ...

    async def check(self, /, *, briefly: bool = False) -> Sequence[str]:
        """Check that the store can be used; return warnings about settings that weaken a promise.

        `briefly`: check that it takes writes now, and no more; the wait is bounded.

        Raises:
            ConfigurationError: its settings would lose data silently.
        """
        ...

    async def read(self, key: ConversationKey | ConversationTag, wanted: Wanted, /) -> Found:
        """Read a conversation, by its key or by its tag."""
        ...

    async def apply(self, write: Write, /) -> Applied | None:
        """Apply a write atomically; None if its guard does not hold, and nothing was written."""
        ...

    async def append(
        self, appends: Sequence[Append], /, *, lease: int
    ) -> Sequence[Appended | StoreError]:
        """Write to the logs of many runs in one round trip; their leases last `lease` milliseconds.

        One answer each. Sending the same again changes nothing. One that fails alone (its
        conversation is damaged, its part of a cluster is down) has its error as its answer. A log
        whose records are more than `StoreOptions.log_bytes` loses its oldest entries, never the
        newest. What remains does not begin with the first entry of an epoch: its events are
        numbered from 1, which would hide the gap.
        """
        ...

    async def log(
        self, key: ConversationKey, run_id: RunId | None, /, *, after: Position, limit: int
    ) -> LogPage | None:
        """Return at most `limit` entries of a run's log whose position is after `after`.

        There are fewer if they are large, but one if there is one. None if there is no such log.

        Without `run_id`: of the log, of all of the conversation, that has the first entry after the
        position; None if there is no such entry.
        """
        ...

    async def page(
        self, key: ConversationKey, spans: Sequence[Span], /, *, limit: int
    ) -> Sequence[bytes]:
        """Return at most `limit` messages of the spans, in order.

        There are fewer if they are large, but one if there is one.
        """
        ...

    def watch(self, key: ConversationKey, /) -> AbstractAsyncContextManager[Watch]:
        """Watch for writes to a conversation, and its deletion; these are hints."""
        ...

    async def due(self, limit: int, /, *, milliseconds: int) -> Sequence[ConversationKey]:
        """Take conversations that are due for recovery.

        The lease of one is over; or it has none, and `Write.due` says so. Each is returned to one
        caller in so many milliseconds, unless a write changes when it is due. It is a hint.
        """
        ...

    async def query(self, query: Query, /) -> QueryPage: ...

    async def spend(self, spent: SpentUnder, /) -> Amounts:
        """Count what was spent; return the total of its owner for that day.

        A total is kept for two days. One that has reached 2**53 - 1 stays there.
        """
        ...

    async def delete(self, key: ConversationKey, /) -> bool:
        """Delete a conversation with its logs. False if there is none."""
        ...
