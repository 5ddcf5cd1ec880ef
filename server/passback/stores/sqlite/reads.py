"""Reads of the SQLite store, each a function of a connection inside a transaction."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from passback.core.conversation.store import (
    Found,
    FoundLease,
    Listed,
    LogEntry,
    LogPage,
    Place,
    Query,
    QueryPage,
    QueueEntry,
    Span,
    View,
    Wanted,
)
from passback.core.errors import StoreError
from passback.core.events import Position
from passback.core.ids import ConversationTag
from passback.core.messages import RunId
from passback.stores.layout import MISSING, PAGE_SIZE, unpacking_records
from passback.stores.sqlite.tables import (
    COLUMNS,
    FIELD,
    JOINED,
    RECEIPT,
    RUN,
    Row,
    as_blob,
    is_there,
    message_ids,
    now_ms,
    pack_text,
    read_key,
    try_read_key,
    unpack_spans,
)

_READ = f"SELECT {COLUMNS}, owner, name, head FROM {JOINED} WHERE c.tag = ?"  # noqa: S608
# of the conversation with a tag, if it has not expired
_LOGS = (
    "conversations c JOIN logs l ON l.conversation = c.id AND l.keep_until > :now"
    " WHERE tag = :tag AND (c.keep_until IS NULL OR c.keep_until > :now)"
)
_ENTRIES = "FROM entries WHERE conversation = ? AND run_id = ? AND (epoch, last) > (?, ?)"


def read_conversation(
    db: sqlite3.Connection, tag: str, wanted: Wanted, /, *, with_key: bool = False
) -> Found:
    now = now_ms()
    *columns, owner, name, head = db.execute(_READ, (tag,)).fetchone() or (*Row(), b"", b"", b"")
    row = Row._make(columns)
    if not row.id or not is_there(row.keep_until, now):
        return Found(now=now, messages=None if wanted.within is None else ())
    lease = None
    if row.fence is not None:
        lease = FoundLease(row.fence, row.expires, row.seq, row.signal)
    parts = _read_whole(db, row.id) if wanted.whole else _read_parts(db, row.id, wanted)
    fields, receipts, runs = _names_of(parts, wanted)
    view = View(unpack_spans(row.spans), row.size)
    is_wanted = wanted.within is not None and row.size <= wanted.within
    return Found(
        version=row.version,
        now=now,
        key=read_key(owner, name) if with_key else None,
        head=as_blob(head),
        fields={n: as_blob(parts[FIELD + n]) for n in fields if FIELD + n in parts},
        receipts={n: _text(parts[RECEIPT + n]) for n in receipts if RECEIPT + n in parts},
        runs={RunId(n): as_blob(parts[RUN + n]) for n in runs if RUN + n in parts},
        message_count=row.message_count,
        view=view,
        messages=tuple(_read_messages(db, row.id, row.message_count, view.spans))
        if is_wanted
        else None,
        queue=_read_queue(db, row.id, wanted) if row.queued else (),
        lease=lease,
        due=row.due_at,
        created=row.created,
        updated=row.updated,
    )


def _read_parts(db: sqlite3.Connection, conversation: int, wanted: Wanted) -> dict[str, Any]:
    names = [FIELD + name for name in wanted.fields]
    names += [RECEIPT + name for name in wanted.receipts]
    names += [RUN + run_id for run_id in wanted.runs]
    if not names:
        return {}
    marks = ", ".join("?" * len(names))
    statement = f"SELECT name, record FROM parts WHERE conversation = ? AND name IN ({marks})"  # noqa: S608
    return dict(db.execute(statement, (conversation, *names)))


def _read_whole(db: sqlite3.Connection, conversation: int) -> dict[str, Any]:
    statement = "SELECT name, record FROM parts WHERE conversation = ?"
    return dict(db.execute(statement, (conversation,)))


def _names_of(parts: Mapping[str, Any], wanted: Wanted) -> Sequence[Iterable[str]]:
    """Return the names of the fields, receipts and run records to return."""
    if not wanted.whole:
        return wanted.fields, wanted.receipts, wanted.runs
    return [[name[1:] for name in parts if name[0] == kind] for kind in (FIELD, RECEIPT, RUN)]


def _read_messages(
    db: sqlite3.Connection, conversation: int, count: int, spans: Iterable[Span], limit: int = -1
) -> Iterator[bytes]:
    """Read messages from the file, one after the other; with a limit, so many of each span.

    `count`: of all messages of the conversation. Raises StoreError where one of them is missing.
    """
    for span in spans:
        numbers = range(count)[span.start : span.end]
        expected, end = message_ids(conversation, Span(numbers.start, numbers.stop))
        if limit >= 0:
            end = min(end, expected + limit)
        for row_id, record in db.execute(
            "SELECT id, record FROM messages WHERE id >= ? AND id < ? ORDER BY id", (expected, end)
        ):
            if row_id != expected:
                break
            yield as_blob(record)
            expected += 1
        if expected < end:
            raise StoreError(MISSING)


def _read_queue(
    db: sqlite3.Connection, conversation: int, wanted: Wanted
) -> tuple[QueueEntry, ...]:
    record = "record" if wanted.queue else "x''"
    statement = f"SELECT run_id, {record} FROM queue WHERE conversation = ? ORDER BY place"  # noqa: S608
    return tuple(
        QueueEntry(RunId(run_id), as_blob(record))
        for run_id, record in db.execute(statement, (conversation,))
    )


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(type(found))
    return found


# ---------------------------------------------------------------- pages
def read_page(
    db: sqlite3.Connection, tag: str, spans: Sequence[Span], limit: int, /
) -> list[bytes]:
    statement = "SELECT id, message_count, keep_until FROM conversations WHERE tag = ?"
    found = db.execute(statement, (tag,)).fetchone()
    if found is None or not is_there(found[2], now_ms()):
        return []
    records: list[bytes] = []
    size = 0
    for record in _read_messages(db, found[0], found[1], spans, limit):
        size += len(record)
        # an empty page would stop the caller before a message larger than a page
        if len(records) == limit or (records and size > PAGE_SIZE):
            break
        records.append(record)
    return records


def read_log(
    db: sqlite3.Connection, tag: str, run_id: RunId | None, after: Position, limit: int, /
) -> LogPage | None:
    """Read a log; without `run_id`, the one that has the first entry after the position."""
    named = "" if run_id is None else " AND run_id = :run"
    logs = db.execute(
        f"SELECT conversation, run_id FROM {_LOGS}{named}",  # noqa: S608
        {"tag": tag, "now": now_ms(), "run": run_id},
    ).fetchall()
    if run_id is None:
        logs = _first_log(db, logs, after)
    if not logs:
        return None
    [log] = logs
    entries: list[LogEntry] = []
    size, more = 0, False
    for epoch, last, events, record in db.execute(
        f"SELECT epoch, last, size, record {_ENTRIES} ORDER BY epoch, last LIMIT ?",
        (*log, *after, limit),
    ):
        size += len(record)
        if entries and size > PAGE_SIZE:
            more = True
            break
        entries.append(LogEntry(Position(epoch, last), events, as_blob(record)))
    return LogPage(RunId(log[1]), tuple(entries), more or len(entries) == limit)


def _first_log(
    db: sqlite3.Connection, logs: Iterable[tuple[int, str]], after: Position
) -> list[tuple[int, str]]:
    first: list[tuple[tuple[int, int], tuple[int, str]]] = []
    for log in logs:
        statement = f"SELECT epoch, last {_ENTRIES} ORDER BY epoch, last LIMIT 1"
        if (entry := db.execute(statement, (*log, *after)).fetchone()) is not None:
            first.append((entry, log))
    return [min(first)[1]] if first else []


# ---------------------------------------------------------------- lists
_LISTS = {
    "owing": (
        "SELECT tag, owner, name, owed_since, keep_until FROM conversations WHERE owner = :owner"
        " AND owed_since >= :time AND (owed_since > :time OR tag > :tag)"
        " ORDER BY owed_since, tag LIMIT :limit"
    ),
    "all": (
        "SELECT tag, owner, name, updated, keep_until FROM conversations WHERE owner = :owner"
        " AND updated <= :time AND (updated < :time OR tag < :tag)"
        " ORDER BY updated DESC, tag DESC LIMIT :limit"
    ),
    "stored": (
        "SELECT tag, owner, name, 0, keep_until FROM conversations WHERE tag > :tag"
        " ORDER BY tag LIMIT :limit"
    ),
}
_BEGINNING = {"owing": Place(0, ""), "all": Place(2**63 - 1, ""), "stored": Place(0, "")}


def query_conversations(db: sqlite3.Connection, query: Query, /) -> QueryPage:
    now = now_ms()
    after = query.after or _BEGINNING[query.index]
    rows = db.execute(
        _LISTS[query.index],
        {
            "owner": pack_text(query.owner),
            "time": after.time,
            "tag": after.tag,
            "limit": query.limit + 1,
        },
    ).fetchall()
    listed: list[Listed] = []
    unnamed: list[ConversationTag] = []
    size, place = 0, None
    for tag, owner, name, time, keep_until in rows[: query.limit]:
        if is_there(keep_until, now):
            if (key := try_read_key(tag, owner, name)) is None:
                unnamed.append(ConversationTag(str(tag)))
                place = Place(time, tag)
                continue
            found = _read_listed(db, tag, Wanted(fields=query.fields))
            size += _size(found)
            if listed and size > PAGE_SIZE:
                return QueryPage(tuple(listed), place, tuple(unnamed))
            place = Place(time, tag)
            listed.append(Listed(key, place, found))
        place = Place(time, tag)
    return QueryPage(tuple(listed), place if len(rows) > query.limit else None, tuple(unnamed))


def _size(found: Found | None) -> int:
    return 0 if found is None else len(found.head) + sum(map(len, found.fields.values()))


def _read_listed(db: sqlite3.Connection, tag: str, wanted: Wanted) -> Found | None:
    """Read a conversation; None for a damaged one, which must not hold up the others."""
    try:
        with unpacking_records():
            return read_conversation(db, tag, wanted)
    except StoreError:
        return None
    except sqlite3.OperationalError as error:
        # Python's own error for a text that is not UTF-8 has no code of SQLite
        if hasattr(error, "sqlite_errorcode"):
            raise
        return None


def data_version(db: sqlite3.Connection, /) -> int:
    """Return a number that changes when another connection has written to the file."""
    return int(db.execute("PRAGMA data_version").fetchone()[0])
