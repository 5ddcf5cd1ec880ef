"""A conversation as one immutable value, and what the door of a store does to it. Pure.

It says the same as `MemoryStore`, which changes what it has: `test_apply_write.py` compares both.
Nothing expires but leases, no log is trimmed, and the clock stands still until it is set.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from passback.core.changes import dump_events
from passback.core.conversation.store import (
    REMEMBERED_WRITES,
    WHOLE,
    Append,
    Appended,
    Applied,
    Due,
    Found,
    FoundLease,
    Guard,
    LeaseChange,
    LogChange,
    LogEntry,
    QueueEntry,
    RenewLease,
    Span,
    TakeLease,
    View,
    Wanted,
    Write,
)
from passback.core.messages import RunId

Entries = tuple[LogEntry, ...]
NameT = TypeVar("NameT", bound=str)
RecordT = TypeVar("RecordT", str, bytes)

GAP = dump_events(())


class Held(NamedTuple):
    """The lease of a conversation, as `FoundLease`; `expires` counts in comparisons."""

    fence: str
    expires: int
    seq: int = 0
    signal: str = ""


class Conversation(NamedTuple):
    """A conversation in a store; with version 0 there is none.

    Attributes:
        writes: the ids of the last writes.
        owes: it is among the conversations of its owner that owe something.
    """

    version: int = 0
    now: int = 0
    writes: tuple[str, ...] = ()
    head: bytes = b""
    fields: tuple[tuple[str, bytes], ...] = ()
    messages: tuple[bytes, ...] = ()
    spans: tuple[Span, ...] = WHOLE
    receipts: tuple[tuple[str, str], ...] = ()
    queue: tuple[QueueEntry, ...] = ()
    logs: tuple[tuple[RunId, Entries], ...] = ()
    runs: tuple[tuple[RunId, bytes], ...] = ()
    lease: Held | None = None
    due: int | None = None
    owes: bool = False

    @property
    def lease_is_over(self) -> bool:
        """True if there is a lease that another worker may take."""
        lease = self.lease
        return lease is not None and (not lease.fence or lease.expires <= self.now)

    def log(self, run_id: RunId, /) -> Entries:
        return dict(self.logs).get(run_id, ())

    @property
    def branch(self) -> tuple[bytes, ...]:
        """The messages that are read."""
        return tuple(each for span in self.spans for each in self.messages[span.start : span.end])


# ---------------------------------------------------------------- reads
def read(known: Conversation, wanted: Wanted, /) -> Found:
    """Read a conversation, as `Store.read` by its key."""
    if not known.version:
        return Found(now=known.now, messages=None if wanted.within is None else ())
    viewed = known.branch
    size = sum(map(len, viewed))
    lease = known.lease
    return Found(
        version=known.version,
        now=known.now,
        head=known.head,
        fields=_chosen(known.fields, wanted.fields),
        receipts=_chosen(known.receipts, wanted.receipts),
        runs=_chosen(known.runs, wanted.runs),
        message_count=len(known.messages),
        view=View(known.spans, size),
        messages=viewed if wanted.within is not None and size <= wanted.within else None,
        queue=known.queue if wanted.queue else tuple(QueueEntry(q.run_id) for q in known.queue),
        lease=None if lease is None else FoundLease(*lease),
        due=known.due,
    )


# ---------------------------------------------------------------- writes
def apply_write(known: Conversation, write: Write, /) -> tuple[Conversation, Applied | None]:
    """Apply a write if its guard holds, as `Store.apply`; return the conversation after it."""
    if write.id not in known.writes:
        if not holds(known, write):
            return known, None
        known = _applied(known, write)
    return known, Applied(known.version, known.now, bool(known.queue))


def append(known: Conversation, given: Append, lease: int, /) -> tuple[Conversation, Appended]:
    """Write to the log of a run and renew its lease for `lease` ms, as `Store.append`."""
    held, entry = _held(known, given.fence), given.entry
    if held is None or not _is_followed_by(held, entry):
        return known, Appended(held=False)
    logs = known.logs
    if entry is not None and entry.position.seq > held.seq:
        logs = _with_log(logs, given.run_id, _with_entry(known.log(given.run_id), entry))
        held = held._replace(seq=entry.position.seq)
    held = held._replace(expires=known.now + lease)
    return known._replace(logs=logs, lease=held), Appended(held=True, signal=held.signal)


def holds(known: Conversation, write: Write, /) -> bool:
    """Return whether a write that was not applied before may be applied."""
    if not _meets(known, write.guard):
        return False
    lease = _held(known, write.guard.fence)
    if lease is None or write.log is None or isinstance(write.lease, TakeLease):
        return True
    return _is_followed_by(lease, write.log.entry)


def _meets(known: Conversation, guard: Guard) -> bool:
    is_there = known.version > 0 if guard.version is None else known.version == guard.version
    return (
        is_there
        and (guard.fence is None or _held(known, guard.fence) is not None)
        and (not guard.lease_over or known.lease_is_over)
        and guard.message_count in (None, len(known.messages))
    )


def _applied(known: Conversation, write: Write) -> Conversation:
    after = known._replace(
        version=known.version + 1 if known.version else write.first_version,
        writes=(*known.writes, write.id)[-REMEMBERED_WRITES:],
        head=known.head if write.head is None else write.head,
        fields=_with_fields(known.fields, write.fields),
        messages=(*known.messages, *write.messages),
        spans=known.spans if write.view is None else write.view.spans,
        receipts=_updated(known.receipts, write.receipts),
        queue=_with_queue(known.queue, write),
        runs=_updated(known.runs, write.runs),
        owes=known.owes if write.owes is None else write.owes,
    )
    if write.log is not None:
        after = _with_change(after, write, write.log)
    if write.lease is not None:
        entry = None if write.log is None else write.log.entry
        after = after._replace(lease=_changed_lease(after, write.lease, entry))
    if write.signal is not None and after.lease is not None:
        after = after._replace(lease=after.lease._replace(signal=write.signal))
    if write.due is not None:
        after = after._replace(due=_due(after, write.due))
    return after


def _with_queue(queue: tuple[QueueEntry, ...], write: Write) -> tuple[QueueEntry, ...]:
    added = write.enqueue
    if added is not None:
        # a record that is there keeps its place
        known = {each.run_id: each for each in queue} | {added.run_id: added}
        queue = tuple(known.values())
    return tuple(each for each in queue if each.run_id != write.dequeue)


def _with_change(after: Conversation, write: Write, change: LogChange) -> Conversation:
    entries, lease = after.log(change.run_id), after.lease
    held = None if isinstance(write.lease, TakeLease) else _held(after, write.guard.fence)
    if change.void_after is not None:
        entries = tuple(each for each in entries if each.position <= change.void_after)
        # the entry at the position has been trimmed
        entries = entries or (LogEntry(change.void_after, 0, GAP),)
    entry = change.entry
    if entry is not None and held is None:
        entries = _with_entry(entries, entry)
    elif entry is not None and held is not None and entry.position.seq > held.seq:
        entries = _with_entry(entries, entry)
        lease = held._replace(seq=entry.position.seq)
    return after._replace(logs=_with_log(after.logs, change.run_id, entries), lease=lease)


def _changed_lease(known: Conversation, change: LeaseChange, entry: LogEntry | None) -> Held | None:
    now, lease = known.now, known.lease
    if isinstance(change, TakeLease):
        seq = entry.position.seq if entry is not None else 0
        return Held(change.fence, now + change.milliseconds, seq, change.signal)
    if lease is None or change == "end":
        return None
    if isinstance(change, RenewLease):
        return lease._replace(expires=now + change.milliseconds) if lease.fence else lease
    return lease._replace(fence="", expires=now)


def _due(known: Conversation, due: Due) -> int | None:
    times = [due.after, due.queued if known.queue else None]
    return min((known.now + each for each in times if each is not None), default=None)


# ---------------------------------------------------------------- parts
def _held(known: Conversation, fence: str | None) -> Held | None:
    return known.lease if fence and known.lease and known.lease.fence == fence else None


def _is_followed_by(lease: Held, entry: LogEntry | None) -> bool:
    return entry is None or entry.first == lease.seq + 1 or entry.position.seq <= lease.seq


def _with_entry(entries: Entries, entry: LogEntry) -> Entries:
    if entries and entry.position <= entries[-1].position:
        return entries
    return (*entries, entry)


def _with_log(
    logs: tuple[tuple[RunId, Entries], ...], run_id: RunId, entries: Entries
) -> tuple[tuple[RunId, Entries], ...]:
    return tuple({**dict(logs), run_id: entries}.items())


def _with_fields(
    fields: tuple[tuple[str, bytes], ...], changes: Mapping[str, bytes | None]
) -> tuple[tuple[str, bytes], ...]:
    changed = {**dict(fields), **changes}
    return tuple(sorted((name, record) for name, record in changed.items() if record is not None))


def _updated(
    pairs: tuple[tuple[NameT, RecordT], ...], changes: Mapping[NameT, RecordT]
) -> tuple[tuple[NameT, RecordT], ...]:
    return tuple({**dict(pairs), **changes}.items()) if changes else pairs


def _chosen(pairs: Iterable[tuple[NameT, RecordT]], names: Iterable[NameT]) -> dict[NameT, RecordT]:
    known = dict(pairs)
    return {name: known[name] for name in names if name in known}


def at_time(known: Conversation, now: int, /) -> Conversation:
    """Return the conversation with the store's clock at a later time."""
    return known._replace(now=now)
