"""Logs of the SQLite store: entries are added, trimmed at the front, and voided from the end."""

import sqlite3
from typing import NamedTuple

from passback.core.changes import dump_events
from passback.core.conversation.store import LogEntry
from passback.core.events import Position

GAP = dump_events(())  # the record of an entry without events

_OF_LOG = "WHERE conversation = ? AND run_id = ?"


class Log(NamedTuple):
    """The key of a log: a conversation's row id and a run."""

    conversation: int
    run_id: str


def open_log(db: sqlite3.Connection, log: Log, known: int | None, now: int, until: int, /) -> int:
    """Keep a log until then, and make it if it is not there; return the bytes of its records.

    `known`: these bytes, or None.
    """
    make = "INSERT INTO logs VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    if known is None and db.execute(make, (*log, until)).rowcount > 0:
        return 0
    keep = f"UPDATE logs SET keep_until = ? {_OF_LOG} AND keep_until > ?"  # noqa: S608
    if db.execute(keep, (until, *log, now)).rowcount > 0:
        return _measure_log(db, log) if known is None else known
    remove_log(db, log)  # it has expired
    db.execute(make, (*log, until))
    return 0


def remove_log(db: sqlite3.Connection, log: Log, /) -> None:
    db.execute(f"DELETE FROM entries {_OF_LOG}", log)  # noqa: S608
    db.execute(f"DELETE FROM logs {_OF_LOG}", log)  # noqa: S608


def _add_entry(db: sqlite3.Connection, log: Log, entry: LogEntry) -> int:
    """Write an entry unless it is there; return the bytes that were written."""
    added = db.execute(
        "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?, ?)",
        (*log, *entry.position, entry.size, entry.record),
    )
    return len(entry.record) if added.rowcount > 0 else 0


def _measure_log(db: sqlite3.Connection, log: Log) -> int:
    statement = f"SELECT SUM(LENGTH(record)) FROM entries {_OF_LOG}"  # noqa: S608
    return int(db.execute(statement, log).fetchone()[0] or 0)


def void_after(db: sqlite3.Connection, log: Log, after: Position, /) -> int:
    """Delete the entries behind a position, the end of an entry; return the bytes that remain."""
    statement = f"DELETE FROM entries {_OF_LOG} AND (epoch, last) > (?, ?)"  # noqa: S608
    db.execute(statement, (*log, *after))
    # if that entry has been trimmed, one without events shows readers the gap
    if (size := _measure_log(db, log)) == 0:
        size = _add_entry(db, log, LogEntry(after, 0, GAP))
    return size


def write_entry(db: sqlite3.Connection, log: Log, entry: LogEntry, size: int, limit: int, /) -> int:
    """Write an entry behind others of `size` bytes; return the bytes of those that remain.

    The oldest are deleted until `limit` bytes remain. The newest entry stays, however large. The
    first entry that stays does not open a later epoch: an opening has the number 1, so a reader
    would not see that something is missing before it.
    """
    size += _add_entry(db, log, entry)
    if size <= limit:
        return size
    kept, last_removed = size, None
    gone, rest = None, size
    for epoch, last, events, length in db.execute(
        f"SELECT epoch, last, size, LENGTH(record) FROM entries {_OF_LOG}"  # noqa: S608
        " ORDER BY epoch, last",
        log,
    ):
        if gone is not None and last != events:
            kept, last_removed = rest, gone
            if rest <= limit:
                break
        gone, rest = (epoch, last), rest - length
    if last_removed is not None:
        statement = f"DELETE FROM entries {_OF_LOG} AND (epoch, last) <= (?, ?)"  # noqa: S608
        db.execute(statement, (*log, *last_removed))
    return kept
