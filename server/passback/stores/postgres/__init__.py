"""Conversations in PostgreSQL, 13 or newer, shared by any number of workers.

The tables and the functions that write are in `schema.sql`: each write is one call of a function,
which is one transaction; each read is one of `statements.sql`. The driver is asyncpg: its licence
is Apache-2.0 (psycopg's is LGPL), and on uvloop it takes half of psycopg's time for a call.

Leases go by the server's clock. Hints that a log has grown are notifications, which are sent after
the transaction, many at a time: one that notifies holds up the commits of all others.
"""

import hashlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TypeAlias, TypeVar

import asyncpg

from passback.core.conversation.store import (
    REMEMBERED_WRITES,
    Amounts,
    Append,
    Appended,
    Applied,
    Found,
    FoundLease,
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
from passback.core.errors import StoreError
from passback.core.events import Position
from passback.core.ids import ConversationTag, conversation_tag
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId
from passback.pacing import LargeWrites as LargeWrites
from passback.stores.coordination import is_large as is_large
from passback.stores.layout import (
    MISSING,
    PAGE_SIZE,
    SPENT_MOST,
    SPENT_TTL,
    owner_tag,
    unpacking_records,
)
from passback.stores.options import KeepTimes, StoreOptions
from passback.stores.postgres.link import (
    STATEMENTS,
    Connections,
    Hints,
    check_server,
    store_error,
)

NameT = TypeVar("NameT", bound=str)

CHECK_TIMEOUT = 3.0  # seconds
RUNS_AT_ONCE = 64  # runs whose logs one call writes; more slow down all transactions of the server
WARNINGS = {
    "fsync": (
        "PostgreSQL does not wait for its disk (fsync off): when the machine crashes, the whole "
        "database may be damaged. Set fsync on."
    ),
    "full_page_writes": (
        "PostgreSQL does not protect itself against half written pages (full_page_writes off): "
        "when the machine crashes, the database may be damaged, unless its file system prevents it."
    ),
    "synchronous_commit": (
        "PostgreSQL acknowledges writes before they are on its disk (synchronous_commit off): less "
        "than a second of acknowledged messages may be lost when it crashes. Set "
        "synchronous_commit on."
    ),
}
READ = STATEMENTS["found"] + STATEMENTS["read"]
FIRST_PLACES = {"owing": Place(-1, ""), "all": Place(2**63 - 1, ""), "stored": Place(0, "")}


def open_postgres(rest: str, options: StoreOptions, /) -> "PostgresStore":
    """Return the store of a URL, of which `rest` is what stands behind the scheme.

    Raises:
        ConfigurationError: with what is wrong with the URL, never with a password in it.
    """
    return PostgresStore(f"postgresql:{rest}", options)


# ---------------------------------------------------------------- the store
class PostgresStore:
    """The `Store` in a schema of a database. It can be entered before the server is there."""

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        options = options or StoreOptions()
        idle, busy = KeepTimes.when_idle(options), KeepTimes.when_running(options)
        self._keep = {
            "busy_ttl": busy.conversation,
            "busy_log_ttl": busy.log,
            "room": options.log_bytes,
        }
        self._keep_idle = {"idle_ttl": idle.conversation, "idle_log_ttl": idle.log}
        self._connections = Connections(url, options)
        self._hints = Hints(self._connections, options.prefix)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "PostgresStore":
        tasks = await self._stack.enter_async_context(self._connections.opened())
        tasks.start_soon(self._hints.run)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def location(self) -> str:
        return self._connections.location

    @property
    def sees_followers(self) -> bool:
        """False: PostgreSQL does not say which processes listen."""
        return False

    async def check(self, /, *, briefly: bool = False) -> Sequence[str]:
        if briefly:
            await self._connections.fetch(STATEMENTS["ready"], seconds=CHECK_TIMEOUT)
            return ()
        [settings] = await self._connections.fetch(STATEMENTS["settings"])
        check_server(settings["version"], read_only=settings["read_only"])
        await self._connections.check_sessions()
        return [text for name, text in WARNINGS.items() if settings[name] == "off"]

    async def read(self, key: ConversationKey | ConversationTag, wanted: Wanted, /) -> Found:
        tag = key if isinstance(key, str) else conversation_tag(key)
        [row] = await self._connections.fetch(READ, *_wanted(wanted), tag)
        found = unpack_found(row, wanted)
        return (
            replace(found, key=_unpack_key(row["key"])) if found.version and tag is key else found
        )

    async def apply(self, write: Write, /) -> Applied | None:
        given = pack_write(write) | pack_log(write.log) | pack_lease(write.lease) | self._keep
        try:
            rows = await self._connections.call("write", **given, **self._keep_idle)
        finally:
            self._hints.announce(conversation_tag(write.key))
        return Applied(**rows[0]) if rows else None

    async def append(
        self, appends: Sequence[Append], /, *, lease: int
    ) -> Sequence[Appended | StoreError]:
        answers: list[Appended | StoreError] = []
        for start in range(0, len(appends), RUNS_AT_ONCE):
            answers += await self._append_some(appends[start : start + RUNS_AT_ONCE], lease)
        return answers

    async def _append_some(
        self, appends: Sequence[Append], lease: int
    ) -> list[Appended | StoreError]:
        tags = [conversation_tag(each.key) for each in appends]
        entries = [each.entry for each in appends]
        try:
            rows = await self._connections.call(
                "append",
                tags=tags,
                run_ids=[pack_text(each.run_id) for each in appends],
                fences=[pack_text(each.fence) for each in appends],
                epochs=[entry and entry.position.epoch for entry in entries],
                seqs=[entry and entry.position.seq for entry in entries],
                sizes=[entry and entry.size for entry in entries],
                records=[entry and entry.record for entry in entries],
                lease_time=lease,
                **self._keep,
            )
        finally:
            for tag, entry in zip(tags, entries, strict=True):
                if entry is not None:
                    self._hints.announce(tag)
        return [unpack_appended(row) for row in rows]

    async def log(
        self, key: ConversationKey, run_id: RunId | None, /, *, after: Position, limit: int
    ) -> LogPage | None:
        tag, run = conversation_tag(key), None if run_id is None else pack_text(run_id)
        rows = await self._connections.fetch(STATEMENTS["log"], tag, run, *after, limit, PAGE_SIZE)
        if not rows:
            return None
        entries = tuple(
            LogEntry(Position(row["epoch"], row["seq"]), row["size"], row["record"])
            for row in rows
            if row["epoch"] is not None
        )
        more = len(entries) == limit or (rows[0]["ahead"] or 0) > len(entries)
        return LogPage(RunId(unpack_text(rows[0]["run_id"])), entries, more)

    async def page(
        self, key: ConversationKey, spans: Sequence[Span], /, *, limit: int
    ) -> Sequence[bytes]:
        tag, (starts, ends) = conversation_tag(key), pack_spans(spans)
        rows = await self._connections.fetch(
            STATEMENTS["page"], tag, starts, ends, limit, PAGE_SIZE
        )
        _refuse_gaps(rows, starts)
        return [row["record"] for row in rows]

    @asynccontextmanager
    async def watch(self, key: ConversationKey, /) -> AsyncGenerator[Watch]:
        async with self._hints.watching(conversation_tag(key)) as waiter:
            yield waiter

    async def due(self, limit: int, /, *, milliseconds: int) -> Sequence[ConversationKey]:
        rows = await self._connections.call("take_due", most=limit, pause=milliseconds)
        keys = (_try_unpack_key(row["answer"]) for row in rows)
        return [key for key in keys if key is not None]

    async def query(self, query: Query, /) -> QueryPage:
        wanted = Wanted(query.fields)
        after = query.after or FIRST_PLACES[query.index]
        statement = STATEMENTS["found"] + STATEMENTS[query.index]
        of_owner = owner_tag(query.owner), *after
        place = (after.tag,) if query.index == "stored" else of_owner
        # one more tells whether it is the last page
        rows = await self._connections.fetch(statement, *_wanted(wanted), *place, query.limit + 1)
        listed: list[Listed] = []
        unnamed: list[ConversationTag] = []
        last = None
        for row in rows[: query.limit]:
            last = Place(row["time"], row["tag"])
            if (key := _try_unpack_key(row["key"], row["tag"])) is None:
                unnamed.append(ConversationTag(row["tag"]))
            else:
                listed.append(Listed(key, last, try_unpack(row, wanted)))
        following = last if len(rows) > query.limit else None
        return QueryPage(tuple(listed), following, tuple(unnamed))

    async def spend(self, spent: SpentUnder, /) -> Amounts:
        [row] = await self._connections.call(
            "spend",
            owner=owner_tag(spent.owner),
            day=pack_text(f"day:{spent.day}"),
            lease=pack_text(f"lease:{spent.lease}"),
            amounts=list(spent.amounts),
            seq=spent.seq,
            top=SPENT_MOST,
            ttl=SPENT_TTL,
        )
        return Amounts(*row["answer"])

    async def delete(self, key: ConversationKey, /) -> bool:
        tag = conversation_tag(key)
        try:
            [row] = await self._connections.call("delete", gone=tag)
        finally:
            self._hints.announce(tag)
        return bool(row["answer"])


# ---------------------------------------------------------------- what the functions take
def pack_text(text: str, /) -> bytes:
    """Pack a text: PostgreSQL's own have no NUL and no lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def unpack_text(packed: bytes, /) -> str:
    return packed.decode("utf-8", "surrogatepass")


def _unpack_key(packed: Sequence[bytes]) -> ConversationKey:
    owner, conversation = map(unpack_text, packed)
    return ConversationKey(OwnerId(owner), ConversationId(conversation))


def _try_unpack_key(packed: Sequence[bytes], tag: str | None = None) -> ConversationKey | None:
    """Return None for a damaged one, or that of another tag."""
    try:
        key = _unpack_key(packed)
    except (TypeError, AttributeError, ValueError):
        return None
    return key if tag in {None, conversation_tag(key)} else None


def _refuse_gaps(rows: Sequence[asyncpg.Record], starts: Sequence[int]) -> None:
    """Raise StoreError for a page of messages where one is missing between others."""
    span = expected = 0
    for row in rows:
        if row["i"] != span:
            span = int(row["i"])
            expected = starts[span - 1]
        if row["number"] != expected:
            raise StoreError(MISSING)
        expected += 1


def pack_spans(spans: Sequence[Span], /) -> tuple[list[int], list[int | None]]:
    return [span.start for span in spans], [span.end for span in spans]


def _field(name: str) -> bytes:
    return b"f:" + pack_text(name)


def _receipt(name: str) -> bytes:
    # a hash: clients choose these names, and an index takes none that is long
    return b"r:" + hashlib.sha256(pack_text(name)).digest()[:16]


def _pack_receipt(name: str, text: str) -> bytes:
    """Pack a receipt with its name, which the hash does not tell."""
    packed = pack_text(name)
    return b"%d:%s%s" % (len(packed), packed, pack_text(text))


def _unpack_receipt(record: bytes) -> tuple[str, str]:
    size, _, rest = record.partition(b":")
    return unpack_text(rest[: int(size)]), unpack_text(rest[int(size) :])


def _queued(run_id: RunId) -> bytes:
    return b"q:" + pack_text(run_id)


def _run(run_id: RunId) -> bytes:
    return b"u:" + pack_text(run_id)


def pack_records(write: Write, /) -> dict[bytes, bytes | None]:
    """Return the records with names that a write sets, or removes where they are None."""
    records: dict[bytes, bytes | None] = {_field(n): r for n, r in write.fields.items()}
    records |= {_receipt(name): _pack_receipt(name, t) for name, t in write.receipts.items()}
    records |= {_run(run_id): record for run_id, record in write.runs.items()}
    if write.enqueue is not None:
        records[_queued(write.enqueue.run_id)] = write.enqueue.record
    if write.dequeue is not None:
        records[_queued(write.dequeue)] = None
    return records


def pack_write(write: Write, /) -> dict[str, object]:
    """Return arguments of `pb.write`: all but those of the log, the lease and the time to keep."""
    guard, view, records = write.guard, write.view, pack_records(write)
    starts, ends = (None, None) if view is None else pack_spans(view.spans)
    given: dict[str, object] = {
        "tag": conversation_tag(write.key),
        "owner": owner_tag(write.key.owner),
        "key": [pack_text(write.key.owner), pack_text(write.key.id)],
        "id": write.id,
        "remembered": REMEMBERED_WRITES,
        "guard_version": guard.version,
        "guard_fence": None if guard.fence is None else pack_text(guard.fence),
        "guard_lease_over": guard.lease_over,
        "guard_count": guard.message_count,
        "first_version": write.first_version,
        "head": write.head,
        "names": list(records),
        "records": list(records.values()),
        "messages": write.messages,
        "starts": starts,
        "ends": ends,
        "size": None if view is None else view.size,
        "signal": None if write.signal is None else pack_text(write.signal),
        "owes": write.owes,
        "touches": write.touches,
    }
    if write.due is not None:
        given |= {"sets_due": True, "due": write.due.after, "due_queued": write.due.queued}
    return given


def pack_log(log: LogChange | None, /) -> dict[str, object]:
    if log is None:
        return {}
    given: dict[str, object] = {"log_run": pack_text(log.run_id), "log_ends": log.ends}
    if log.void_after is not None:
        given |= {"void_epoch": log.void_after.epoch, "void_seq": log.void_after.seq}
    if log.entry is not None:
        given |= {
            "entry_epoch": log.entry.position.epoch,
            "entry_seq": log.entry.position.seq,
            "entry_size": log.entry.size,
            "entry_record": log.entry.record,
        }
    return given


def pack_lease(lease: LeaseChange | None, /) -> dict[str, object]:
    match lease:
        case TakeLease(fence, milliseconds, signal):
            given = {"fence": pack_text(fence), "lease_signal": pack_text(signal)}
            return {"lease": "take", "lease_time": milliseconds, **given}
        case RenewLease(milliseconds):
            return {"lease": "renew", "lease_time": milliseconds}
        case _:
            return {"lease": lease}


# ---------------------------------------------------------------- what the reads return
def _wanted(wanted: Wanted) -> tuple[object, ...]:
    names = [
        *map(_field, wanted.fields), *map(_receipt, wanted.receipts), *map(_run, wanted.runs)
    ]  # fmt: skip
    return None if wanted.whole else names, wanted.queue, wanted.within


def unpack_appended(row: asyncpg.Record, /) -> Appended | StoreError:
    if row["error"] is not None:
        return store_error(row["error"])
    try:
        with unpacking_records():
            return Appended(row["held"], signal=unpack_text(row["signal"]))
    except StoreError as error:
        return error


def unpack_found(row: asyncpg.Record, wanted: Wanted, /) -> Found:
    """Return the conversation that the statement `found` has read.

    Raises:
        StoreError: it is damaged.
    """
    if row["tag"] is None:
        return Found(now=row["now"], messages=None if wanted.within is None else ())
    with unpacking_records():
        return _unpack_row(row, wanted)


def _unpack_row(row: asyncpg.Record, wanted: Wanted) -> Found:
    messages, lease = row["messages"], None
    view = View(tuple(map(Span, row["starts"], row["ends"])), row["size"])
    if messages is not None and len(messages) != _count(view, row["message_count"]):
        raise ValueError("messages are missing")
    if row["lease_expires"] is not None:
        fence, signal = unpack_text(row["fence"]), unpack_text(row["signal"])
        lease = FoundLease(fence, row["lease_expires"], row["seq"], signal)
    fields, receipts, runs = (_whole if wanted.whole else _named)(row, wanted)
    return Found(
        version=row["version"],
        now=row["now"],
        head=row["head"],
        fields=fields,
        receipts=dict(map(_unpack_receipt, receipts)),
        runs=runs,
        message_count=row["message_count"],
        view=view,
        messages=None if messages is None else tuple(messages),
        queue=tuple(
            QueueEntry(RunId(unpack_text(name[2:])), record)
            for name, record in zip(row["queued"], row["queue"], strict=True)
        ),
        lease=lease,
        due=row["due"],
        created=row["created"],
        updated=row["updated"],
    )


_Parts: TypeAlias = tuple[dict[str, bytes], Iterable[bytes], dict[RunId, bytes]]
"""Fields, receipts and run records."""


def _named(row: asyncpg.Record, wanted: Wanted) -> _Parts:
    """Return the records whose names were wanted."""
    records = iter(row["records"])
    fields, receipts = _take(wanted.fields, records), _take(wanted.receipts, records)
    return fields, receipts.values(), _take(wanted.runs, records)


def _whole(row: asyncpg.Record, _wanted: Wanted) -> _Parts:
    """Return all records that are not of the queue."""
    fields: dict[str, bytes] = {}
    receipts: list[bytes] = []
    runs: dict[RunId, bytes] = {}
    for name, record in zip(row["names"], row["records"], strict=True):
        match name[:2]:
            case b"f:":
                fields[unpack_text(name[2:])] = record
            case b"r:":
                receipts.append(record)
            case _:
                runs[RunId(unpack_text(name[2:]))] = record
    return fields, receipts, runs


def _take(names: Sequence[NameT], records: Iterator[bytes | None]) -> dict[NameT, bytes]:
    """Take the records of names, those of the others follow."""
    pairs = [(name, next(records)) for name in names]
    return {name: record for name, record in pairs if record is not None}


def _count(view: View, message_count: int) -> int:
    """Return the number of the messages in a view."""
    ends = [message_count if s.end is None else min(s.end, message_count) for s in view.spans]
    return sum(max(0, end - s.start) for s, end in zip(view.spans, ends, strict=True))


def try_unpack(row: asyncpg.Record, wanted: Wanted, /) -> Found | None:
    """Return None for a damaged conversation, which must not hold up the others."""
    try:
        return unpack_found(row, wanted)
    except StoreError:
        return None
