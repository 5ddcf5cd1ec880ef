"""Values of the door, as the scripts take and return them."""

import hashlib
import math
from collections.abc import Sequence
from typing import TypeAlias

from passback.core.conversation.store import (
    WHOLE,
    Applied,
    Found,
    FoundLease,
    Guard,
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
from passback.core.errors import StoreError
from passback.core.events import Position
from passback.core.ids import conversation_tag
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId
from passback.stores.layout import unpacking_records
from passback.stores.redis.scripts import LAYOUT, READ_FIELDS, WRITE_ID_SIZE
from passback.stores.redis.servers import Argument, Reply

DAMAGED = "the conversation's keys in Redis are damaged"
_MOST_BYTES = 2**53  # more than there can be; Lua counts in doubles


# ---------------------------------------------------------------- names
def index_member(key: ConversationKey, /) -> bytes:
    """Return the member of a conversation in an index of its owner."""
    return f"{conversation_tag(key)}{key.id}".encode("utf-8", "surrogatepass")


def due_member(key: ConversationKey, /) -> bytes:
    """Return the member of a conversation in the index of those that are due.

    Each owner and id give another one, whatever characters they have.
    """
    return f"{len(key.owner)}:{key.owner}{key.id}".encode("utf-8", "surrogatepass")


def parse_due_member(member: bytes, /) -> ConversationKey:
    """Return the key of a member. Raises ValueError if it is none."""
    length, _, names = member.decode("utf-8", "surrogatepass").partition(":")
    size = int(length)
    return ConversationKey(OwnerId(names[:size]), ConversationId(names[size:]))


# ---------------------------------------------------------------- writes
def pack_write(write: Write, channel: str, /) -> tuple[Argument, ...]:
    """Return the arguments of `lua/apply.lua`."""
    named: list[Argument] = ["id", _hash_id(write.id), "channel", channel]
    named += _pack_guard(write.guard)
    if write.lease is not None or write.signal is not None:
        named += _pack_lease(write)
    if write.log is not None:
        named += _pack_log(write.log)
    if write.enqueue is not None:
        named += ("enqueue", write.enqueue.run_id)
    if write.dequeue is not None:
        named += ("dequeue", write.dequeue)
    named += _pack_times(write)
    if write.messages:
        named += ("bytes", sum(map(len, write.messages)))
    if write.view is not None and write.view.size is None:
        named += ("count_view", pack_spans(write.view.spans))
    removed, fields = _pack_fields(write)
    first_message = 4 + len(named)
    first_removed = first_message + len(write.messages)
    first_field = first_removed + len(removed)
    return (first_message, first_removed, first_field, *named, *write.messages, *removed, *fields)


def _hash_id(write_id: str) -> bytes:
    # of one size, so that a script finds it among those before it
    return hashlib.blake2b(write_id.encode(), digest_size=WRITE_ID_SIZE).digest()


def _pack_guard(guard: Guard) -> list[Argument]:
    named: list[Argument] = []
    if guard.version is not None:
        named += ("version", guard.version)
    if guard.fence is not None:
        named += ("fence", guard.fence)
    if guard.lease_over:
        named += ("lease_over", 1)
    if guard.message_count is not None:
        named += ("count", guard.message_count)
    return named


def _pack_lease(write: Write) -> list[Argument]:
    named: list[Argument] = []
    signal = write.signal
    match write.lease:
        case TakeLease(fence, milliseconds, first_signal):
            named += ("lease", "take", "new_fence", fence, "milliseconds", milliseconds)
            signal = first_signal if signal is None else signal
        case RenewLease(milliseconds):
            named += ("lease", "renew", "milliseconds", milliseconds)
        case None:
            pass
        case change:
            named += ("lease", change)
    if signal is not None:
        named += ("signal", signal)
    return named


def _pack_log(change: LogChange) -> list[Argument]:
    named: list[Argument] = ["run", change.run_id]
    entry, void_after = change.entry, change.void_after
    if void_after is not None:
        named += ("void_after", str(void_after))
    if change.ends:
        named += ("ends", 1)
    if entry is not None:
        named += ("last", entry.position.seq, "size", entry.size, "entry", str(entry.position))
        if void_after is None or entry.position > void_after:
            named += ("record", entry.record)
    return named


def _pack_times(write: Write) -> list[Argument]:
    named: list[Argument] = []
    if changes_due(write):
        named += ("key", due_member(write.key))
    if write.due is not None:
        named += ("due", "-" if write.due.after is None else write.due.after)
        if write.due.queued is not None:
            named += ("due_queued", write.due.queued)
    touches = is_touched(write)
    if touches or write.owes is not None:
        named += ("member", index_member(write.key))
    if touches:
        named += ("touches", 1)
    if write.owes is not None:
        named += ("owes", int(write.owes))
    if write.guard.version == 0:
        named += ("first_version", write.first_version)
    return named


def changes_due(write: Write, /) -> bool:
    """Return whether a write may change when its conversation is due."""
    return write.due is not None or write.lease is not None


def is_touched(write: Write, /) -> bool:
    """Return whether a conversation is its owner's newest one after a write."""
    return write.touches or write.guard.version == 0


def _pack_fields(write: Write) -> tuple[list[str], list[Argument]]:
    """Return the names of fields that a write removes, and those that it sets."""
    fields = _pack_head(write)
    if write.enqueue is not None:
        fields += (f"queue:{write.enqueue.run_id}", write.enqueue.record)
    for name, text in write.receipts.items():
        fields += (f"receipt:{name}", text)
    for run_id, run in write.runs.items():
        fields += (f"run:{run_id}", run)
    removed = [] if write.dequeue is None else [f"queue:{write.dequeue}"]
    for name, record in write.fields.items():
        if record is None:
            removed.append(f"field:{name}")
        else:
            fields += (f"field:{name}", record)
    return removed, fields


def _pack_head(write: Write) -> list[Argument]:
    fields: list[Argument] = []
    if write.guard.version == 0:
        fields += ("layout", LAYOUT, "key", due_member(write.key), "view", pack_spans(WHOLE))
    if write.head is not None:
        fields += ("head", write.head)
    if write.view is not None:
        fields += ("view", pack_spans(write.view.spans))
        if write.view.size is not None:
            fields += ("view_bytes", write.view.size)
    return fields


def pack_spans(spans: Sequence[Span], /) -> str:
    """Write spans as `0-5,7-`; the end of an open one is empty."""
    return ",".join(f"{each.start}-{'' if each.end is None else each.end}" for each in spans)


def unpack_spans(packed: str, /) -> tuple[Span, ...]:
    parts = (span.split("-") for span in packed.split(",") if span)
    return tuple(Span(int(start), int(end) if end else None) for start, end in parts)


def parse_applied(reply: Reply, /) -> Applied | None:
    return None if reply is None else Applied(int(reply[0]), reply[1], bool(reply[2]))


# ---------------------------------------------------------------- reads
def pack_wanted(wanted: Wanted, /) -> tuple[Argument, ...]:
    """Return the arguments of `lua/read.lua`."""
    within = "" if wanted.within is None else math.floor(min(wanted.within, _MOST_BYTES))
    return (
        within,
        int(wanted.queue),
        int(wanted.whole),
        *(f"field:{name}" for name in wanted.fields),
        *(f"receipt:{name}" for name in wanted.receipts),
        *(f"run:{run_id}" for run_id in wanted.runs),
    )


def parse_found(reply: Reply, wanted: Wanted, /, *, with_key: bool = False) -> Found:
    """Return what `lua/read.lua` has read.

    Raises:
        StoreError: the conversation is damaged.
    """
    now, *parts = reply
    if not parts:
        return Found(now=now, messages=None if wanted.within is None else ())
    with unpacking_records():
        found, messages, records, state = parts
        known: dict[str, bytes] = dict(zip(READ_FIELDS, found, strict=False))
        view = View(unpack_spans(known["view"].decode()), int(known["view_bytes"]))
        message_count = int(known["count"])
        if messages is not None and len(messages) != _count(view.spans, message_count):
            raise StoreError(DAMAGED)
        names = iter(found[len(READ_FIELDS) :])
        fields = dict(zip(wanted.fields, names, strict=False))
        receipts = dict(zip(wanted.receipts, names, strict=False))
        runs = dict(zip(wanted.runs, names, strict=True))
        if wanted.whole:
            fields, receipts, runs = _parse_state(state)
        return Found(
            version=int(known["version"]),
            now=now,
            key=parse_due_member(known["key"]) if with_key else None,
            head=known["head"] or b"",
            fields={name: record for name, record in fields.items() if record is not None},
            receipts={name: text.decode() for name, text in receipts.items() if text is not None},
            runs={run_id: record for run_id, record in runs.items() if record is not None},
            message_count=message_count,
            view=view,
            messages=None if messages is None else tuple(messages),
            queue=_parse_queue(known["queue"], records),
            lease=_parse_lease(known),
            due=int(known["due"]) if known["due"] else None,
            created=int(known["created"]),
            updated=int(known["updated"]),
        )


_Named: TypeAlias = dict[str, bytes | None]


def _parse_state(state: Sequence[bytes]) -> tuple[_Named, _Named, dict[RunId, bytes | None]]:
    """Return the fields, receipts and run records among all fields of a state."""
    kinds: dict[str, _Named] = {"field": {}, "receipt": {}, "run": {}}
    for name, record in zip(state[::2], state[1::2], strict=True):
        kind, colon, rest = name.decode("utf-8", "surrogatepass").partition(":")
        if colon and kind in kinds:
            kinds[kind][rest] = record
    runs = {RunId(name): record for name, record in kinds["run"].items()}
    return kinds["field"], kinds["receipt"], runs


def owes_since(reply: Reply, /) -> int | None:
    """Return since when a conversation owes something, in microseconds, as `lua/read.lua` says."""
    since = reply[1][READ_FIELDS.index("owes")] if len(reply) > 1 else b""
    return int(since) if since else None


def _count(spans: Sequence[Span], message_count: int) -> int:
    return sum(len(range(message_count)[each.start : each.end]) for each in spans)


def _parse_queue(packed: bytes, records: Sequence[bytes | None]) -> tuple[QueueEntry, ...]:
    runs = [RunId(run) for run in packed.decode().split()]
    if not records:
        return tuple(map(QueueEntry, runs))
    known = [record for record in records if record is not None]
    if len(known) != len(runs):
        raise StoreError(DAMAGED)
    return tuple(map(QueueEntry, runs, known))


def _parse_lease(known: dict[str, bytes]) -> FoundLease | None:
    if not known["expires"]:
        return None
    return FoundLease(
        known["fence"].decode(),
        int(known["expires"]),
        int(known["seq"]),
        (known["signal"] or b"").decode(),
    )


def parse_entries(entries: Reply, /) -> tuple[LogEntry, ...]:
    with unpacking_records():
        return tuple(
            LogEntry(unpack_position(place.decode()), int(size), record)
            for place, (size, record) in entries
        )


def unpack_position(packed: str, /) -> Position:
    """Return the position that `str` has written."""
    epoch, _, seq = packed.partition("-")
    return Position(int(epoch), int(seq))
