"""The reads of the SQLite store, each a function of a connection inside a transaction: one moment's view."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator

from passback.core.changes import Loaded, Page, Status
from passback.core.errors import UnknownRun
from passback.core.events import Logged, Position
from passback.core.messages import CallId, RunId
from passback.core.records import load_message, load_owed, load_tools
from passback.core.transcript import Answer
from passback.stores.layout import PAGE_SIZE, unpack_answer, unpack_entries
from passback.stores.sqlite.rules import find, now


def status(db: sqlite3.Connection, tag: str, /) -> Status:
    row = find(db, tag)
    return Status() if row is None else _status(db, row)


def load(db: sqlite3.Connection, tag: str, calls: Collection[CallId], /) -> Loaded:
    row = find(db, tag)
    if row is None:
        return Loaded(Status())
    tools = db.execute("SELECT tools FROM extras WHERE conversation = ?", (row["id"],)).fetchone()
    return Loaded(
        _status(db, row),
        tuple(map(load_message, _records(db, row["id"], 0, row["messages"]))),
        load_tools(tools["tools"]) if tools["tools"] else (),
        dict(_answers(db, row["id"], calls)),
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
    """Raises UnknownRun."""
    row = find(db, tag)
    known = (
        row
        and db.execute(
            "SELECT 1 FROM logs WHERE conversation = ? AND run_id = ? AND keep_until > ?",
            (row["id"], run_id, now()),
        ).fetchone()
    )
    if not row or not known:
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


def data_version(db: sqlite3.Connection, /) -> int:
    """A number that changes when any other connection has written to the file."""
    return int(db.execute("PRAGMA data_version").fetchone()[0])


def _status(db: sqlite3.Connection, row: sqlite3.Row) -> Status:
    extras = db.execute("SELECT owed FROM extras WHERE conversation = ?", (row["id"],)).fetchone()
    running = bool(row["running"])
    return Status(
        row["version"],
        row["run_id"],
        running,
        running and row["expires"] <= now(),
        load_owed(extras["owed"]),
        row["messages"],
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


def _answers(
    db: sqlite3.Connection, conversation: int, calls: Collection[CallId]
) -> list[tuple[CallId, Answer]]:
    found = (
        (
            call_id,
            db.execute(
                "SELECT answer FROM answers WHERE conversation = ? AND call_id = ?",
                (conversation, call_id),
            ).fetchone(),
        )
        for call_id in calls
    )
    return [(call_id, unpack_answer(row["answer"])) for call_id, row in found if row]
