"""The reads of the SQLite store, each a function of a connection inside a transaction: one moment's view."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from passback.core.changes import (
    Inbox,
    Loaded,
    Owing,
    Page,
    Place,
    Status,
    load_message,
    load_owed,
    load_queued,
    load_tools,
)
from passback.core.errors import UnknownRun
from passback.core.events import Logged, Position
from passback.core.messages import OwnerId, RunId
from passback.core.posts import Receipt, ReceiptName
from passback.stores.layout import (
    PAGE_SIZE,
    InboxPageBuilder,
    pack_owner,
    unpack_claims,
    unpack_entries,
    unpack_key,
    unpack_open_turns,
    unpack_receipt,
    unpack_state,
)
from passback.stores.sqlite import logs
from passback.stores.sqlite.logs import Log
from passback.stores.sqlite.rows import find, now, stored_bytes


def status(db: sqlite3.Connection, tag: str, /) -> Status:
    row = find(db, tag)
    return Status() if row is None else _status(db, row)


def load(
    db: sqlite3.Connection, tag: str, names: Collection[ReceiptName], within: int | None, /
) -> Loaded:
    row = find(db, tag)
    if row is None:
        return Loaded(Status())
    tools = db.execute("SELECT tools FROM extras WHERE conversation = ?", (row["id"],)).fetchone()
    queue = db.execute(
        "SELECT record FROM queue WHERE conversation = ? ORDER BY place", (row["id"],)
    )
    waiting = [queued["record"] for queued in queue]
    status = _status(db, row)
    start, count, size = status.state.history_start, status.message_count, status.history_bytes
    if size is None:
        size = stored_bytes(db, row["id"])
        status = replace(status, history_bytes=size)
    left_out = within is not None and size > within
    records = () if left_out else _records(db, row["id"], start, count)
    return Loaded(
        status,
        tuple(map(load_message, records)),
        load_tools(tools["tools"]) if tools["tools"] else (),
        dict(_receipts(db, row["id"], names)),
        tuple(map(load_queued, waiting)),
        left_out,
        sum(map(len, waiting)),
    )


def page(db: sqlite3.Connection, tag: str, start: int, limit: int, /) -> Page:
    row = find(db, tag)
    if row is None:
        return Page((), start, 0)
    records = _fitting(_records(db, row["id"], start, limit), PAGE_SIZE)
    return Page(tuple(map(load_message, records)), start, row["messages"])


def log(
    db: sqlite3.Connection, tag: str, run_id: RunId, after: Position, limit: int, /
) -> list[Logged]:
    """Raises UnknownRun or CursorExpired."""
    row = find(db, tag)
    if row is None or not logs.exists(db, Log(row["id"], run_id)):
        raise UnknownRun("there is no such run in this conversation, or its log has expired")
    entries: list[tuple[Position, bytes]] = []
    for entry in db.execute(
        "SELECT epoch, last, size, record FROM entries WHERE conversation = ? AND run_id = ?"
        " AND (epoch, last) > (?, ?) ORDER BY epoch, last",
        (row["id"], run_id, *after),
    ):
        last = Position(entry["epoch"], entry["last"])
        entries.append((last, entry["record"]))
        skipped = max(0, after.seq - last.seq + entry["size"]) if last.epoch == after.epoch else 0
        limit -= entry["size"] - skipped
        if limit <= 0:
            break
    return unpack_entries(entries, after)


def inbox(db: sqlite3.Connection, owner: OwnerId, after: Place | None, limit: int, /) -> Inbox:
    since, tag = after or Place(0, "")
    rows = db.execute(
        "SELECT conversations.*, key, owed_since FROM extras JOIN conversations ON id = conversation"
        " WHERE owner = :owner AND owed_since >= :since AND (owed_since > :since OR tag > :tag)"
        " AND NOT running AND (keep_until IS NULL OR keep_until > :now)"
        " ORDER BY owed_since, tag",
        {"owner": pack_owner(owner), "since": since, "tag": tag, "now": now()},
    )
    filling = InboxPageBuilder(limit)
    for row in rows:
        place = Place(row["owed_since"], row["tag"])
        if not filling.take(Owing(unpack_key(row["key"]), place, _status(db, row))):
            return filling.full()
    return filling.ended()


def data_version(db: sqlite3.Connection, /) -> int:
    """A number that changes when any other connection has written to the file."""
    return int(db.execute("PRAGMA data_version").fetchone()[0])


def _status(db: sqlite3.Connection, row: sqlite3.Row) -> Status:
    extras = db.execute(
        "SELECT owed, claims, state, boundary, open_turns FROM extras WHERE conversation = ?",
        (row["id"],),
    ).fetchone()
    queued = db.execute(
        "SELECT run_id FROM queue WHERE conversation = ? ORDER BY place", (row["id"],)
    )
    time, running, owed = now(), bool(row["running"]), load_owed(extras["owed"])
    return Status(
        version=row["version"],
        run_id=row["run_id"],
        running=running,
        lapsed=running and row["expires"] <= time,
        expires=row["expires"],
        owed=owed,
        message_count=row["messages"],
        attempt=row["attempt"],
        logged=Position(row["committed_epoch"], row["seq"]),
        committed=Position(row["committed_epoch"], row["committed_seq"]),
        open_turns=unpack_open_turns(extras["open_turns"]),
        run_start=row["mark"],
        cancelled=running and bool(row["cancelled"]),
        stopped_early=bool(row["cut"]),
        cancel_on_disconnect=bool(row["cancel_on_disconnect"]),
        followed=row["followed_until"] > time,
        queued=tuple(each["run_id"] for each in queued),
        answer_by=row["answer_by"],
        overdue=not running and row["answer_by"] is not None and row["answer_by"] <= time,
        claims=unpack_claims(extras["claims"], owed, time) if extras["claims"] else (),
        state=unpack_state(extras["state"], extras["boundary"]),
        history_bytes=row["history_bytes"],
    )


def _records(db: sqlite3.Connection, conversation: int, start: int, limit: int) -> Iterator[bytes]:
    """Messages as they are read from the file, one after the other."""
    rows = db.execute(
        "SELECT record FROM messages WHERE conversation = ? AND position >= ? ORDER BY position LIMIT ?",
        (conversation, start, limit),
    )
    return (row["record"] for row in rows)


def _fitting(records: Iterable[bytes], size: int) -> Iterator[bytes]:
    """As many as fit in so many bytes, but the first in any case."""
    total = 0
    for record in records:
        if total and total + len(record) > size:
            return
        total += len(record)
        yield record


def _receipts(
    db: sqlite3.Connection, conversation: int, names: Collection[ReceiptName]
) -> list[tuple[ReceiptName, Receipt]]:
    found = (
        (
            name,
            db.execute(
                "SELECT receipt FROM receipts WHERE conversation = ? AND name = ?",
                (conversation, name),
            ).fetchone(),
        )
        for name in names
    )
    return [(name, unpack_receipt(row["receipt"])) for name, row in found if row]
