"""Reads of the SQLite store, each a function of a connection inside a transaction."""

import sqlite3
from collections.abc import Collection, Iterator

from passback.core.changes import (
    ConversationPage,
    ConversationPlace,
    Inbox,
    InboxPlace,
    ListedConversation,
    LoadedConversation,
    OwingConversation,
    Page,
    Status,
    load_message,
    load_queued,
    load_tools,
)
from passback.core.errors import StoreError, UnknownRun
from passback.core.events import Cursor, Logged, Position
from passback.core.messages import OwnerId, RunId
from passback.core.posts import ReceiptName
from passback.core.titles import title_filter
from passback.stores.layout import (
    PAGE_SIZE,
    ConversationPageBuilder,
    InboxPageBuilder,
    pack_owner,
    unpack_entries,
    unpack_key,
    unpack_receipt,
    unpack_status,
    unpacking_records,
)
from passback.stores.sqlite.rows import (
    Log,
    find_log,
    find_receipt,
    find_row,
    now_ms,
    queued_runs,
)

SCAN_LIMIT = 1000  # conversations that one page of a list looks at


def read_status(db: sqlite3.Connection, tag: str, /) -> Status:
    row = find_row(db, tag)
    return Status() if row is None else _read_row_status(db, row)


def load_conversation(
    db: sqlite3.Connection, tag: str, names: Collection[ReceiptName], within: int | None, /
) -> LoadedConversation:
    row = find_row(db, tag)
    if row is None:
        return LoadedConversation(Status())
    tools = db.execute("SELECT tools FROM extras WHERE conversation = ?", (row["id"],)).fetchone()
    queue = db.execute(
        "SELECT record FROM queue WHERE conversation = ? ORDER BY place", (row["id"],)
    )
    waiting = [queued["record"] for queued in queue]
    status = _read_row_status(db, row)
    start, count = status.state.history_start, status.message_count
    # each write counts the bytes, so that a history that is too large need not be read
    left_out = within is not None and row["history_bytes"] > within
    records = () if left_out else _read_records(db, row["id"], start, count)
    return LoadedConversation(
        status=status,
        messages=tuple(map(load_message, records)),
        tools=load_tools(tools["tools"]) if tools["tools"] else (),
        receipts={
            name: unpack_receipt(packed)
            for name in names
            if (packed := find_receipt(db, row["id"], name)) is not None
        },
        queue=tuple(map(load_queued, waiting)),
        left_out=left_out,
        queue_bytes=sum(map(len, waiting)),
    )


def read_page(db: sqlite3.Connection, tag: str, start: int, limit: int, /) -> Page:
    row = find_row(db, tag)
    if row is None:
        return Page((), start, 0)
    records: list[bytes] = []
    size = 0
    for record in _read_records(db, row["id"], start, limit):
        size += len(record)
        # an empty page would stop the caller before a message larger than a page
        if records and size > PAGE_SIZE:
            break
        records.append(record)
    return Page(tuple(map(load_message, records)), start, row["message_count"])


def read_log(
    db: sqlite3.Connection, tag: str, run_id: RunId, after: Position, limit: int, /
) -> list[Logged]:
    """Read events of a log. Raises UnknownRun or CursorExpired."""
    row = find_row(db, tag)
    if row is None or find_log(db, Log(row["id"], run_id)) is None:
        raise UnknownRun("there is no such run in this conversation, or its log has expired")
    entries: list[tuple[Position, bytes]] = []
    for entry in db.execute(
        "SELECT epoch, last, size, record FROM entries WHERE conversation = ? AND run_id = ?"
        " AND (epoch, last) > (?, ?) ORDER BY epoch, last",
        (row["id"], run_id, *after),
    ):
        last = Position(entry["epoch"], entry["last"])
        entries.append((last, entry["record"]))
        # of an entry that `after` lies in, only the events behind it count
        skipped = max(0, after.seq - last.seq + entry["size"]) if last.epoch == after.epoch else 0
        limit -= entry["size"] - skipped
        if limit <= 0:
            break
    return unpack_entries(entries, after)


def find_next_run(db: sqlite3.Connection, tag: str, after: Position, /) -> Cursor | None:
    logs = db.execute(
        "SELECT conversation, logs.run_id FROM logs JOIN conversations ON id = conversation"
        " WHERE tag = ? AND logs.keep_until > ?",
        (tag, now_ms()),
    )
    found: list[Cursor] = []
    for log in logs:
        entry = db.execute(
            "SELECT epoch, last FROM entries WHERE conversation = ? AND run_id = ?"
            " AND (epoch, last) > (?, ?) ORDER BY epoch, last LIMIT 1",
            (log["conversation"], log["run_id"], *after),
        ).fetchone()
        if entry is not None:
            found.append(Cursor(RunId(log["run_id"]), Position(*entry)))
    return min(found, key=lambda each: each.position, default=None)


def read_inbox(
    db: sqlite3.Connection, owner: OwnerId, after: InboxPlace | None, limit: int, /
) -> Inbox:
    since, tag = after or InboxPlace(0, "")
    rows = db.execute(
        "SELECT id, tag, key, owed_since"
        " FROM extras JOIN conversations ON id = conversation"
        " WHERE owner = :owner AND owed_since >= :since AND (owed_since > :since OR tag > :tag)"
        " AND NOT running AND (keep_until IS NULL OR keep_until > :now)"
        " ORDER BY owed_since, tag",
        {"owner": pack_owner(owner), "since": since, "tag": tag, "now": now_ms()},
    )
    # the rows are read lazily: the page may end long before them
    builder = InboxPageBuilder(limit)
    for row in rows:
        place = InboxPlace(row["owed_since"], row["tag"])
        status = _read_whole_status(db, row["id"])
        if status is None:
            continue
        if not builder.try_add(OwingConversation(unpack_key(row["key"]), place, status)):
            return builder.full_page()
    return builder.last_page()


def read_conversations(
    db: sqlite3.Connection,
    owner: OwnerId,
    after: ConversationPlace | None,
    limit: int,
    search: str,
    /,
) -> ConversationPage:
    updated, tag = after or ConversationPlace(2**63 - 1, "")
    rows = db.execute(
        "SELECT id, tag, key, CAST(title AS BLOB) AS title, updated"
        " FROM extras JOIN conversations ON id = conversation"
        " WHERE owner = :owner AND updated <= :updated AND (updated < :updated OR tag < :tag)"
        " AND (keep_until IS NULL OR keep_until > :now)"
        " ORDER BY updated DESC, tag DESC LIMIT :limit",
        {
            "owner": pack_owner(owner),
            "updated": updated,
            "tag": tag,
            "now": now_ms(),
            "limit": SCAN_LIMIT,
        },
    )
    # the rows are read lazily: the page may end long before them
    builder, matches = ConversationPageBuilder(limit), title_filter(search)
    for count, row in enumerate(rows, 1):
        place = ConversationPlace(row["updated"], row["tag"])
        status = None
        if matches(row["title"].decode(errors="replace")):
            status = _read_whole_status(db, row["id"])
        if status is not None:
            listed = ListedConversation(unpack_key(row["key"]), place, status)
            if not builder.try_add(listed):
                return builder.full_page()
        if count == SCAN_LIMIT:
            return builder.last_page(place)
    return builder.last_page()


def data_version(db: sqlite3.Connection, /) -> int:
    """Return a number that changes when another connection has written to the file."""
    return int(db.execute("PRAGMA data_version").fetchone()[0])


def _read_whole_status(db: sqlite3.Connection, conversation: int) -> Status | None:
    """Return a status; None for a damaged conversation, which must not hold up the others."""
    try:
        with unpacking_records():
            found = db.execute("SELECT * FROM conversations WHERE id = ?", (conversation,))
            return _read_row_status(db, found.fetchone())
    except StoreError:
        return None
    except sqlite3.OperationalError as error:
        # Python's own error for a text that is not UTF-8 has no code of SQLite
        if hasattr(error, "sqlite_errorcode"):
            raise
        return None


def _read_row_status(db: sqlite3.Connection, row: sqlite3.Row) -> Status:
    extras = db.execute("SELECT * FROM extras WHERE conversation = ?", (row["id"],)).fetchone()
    return unpack_status({**row, **extras}, queued_runs(db, row["id"]), now_ms())


def _read_records(
    db: sqlite3.Connection, conversation: int, start: int, limit: int
) -> Iterator[bytes]:
    """Read messages from the file, one after the other."""
    rows = db.execute(
        "SELECT record FROM messages WHERE conversation = ? AND position >= ?"
        " ORDER BY position LIMIT ?",
        (conversation, start, limit),
    )
    return (row["record"] for row in rows)
