"""Logs of runs in the SQLite store.

Entries are appended, trimmed at the front, and removed from the end by a take-over.
"""

import sqlite3
from typing import NamedTuple

from passback.core.changes import dump_events
from passback.stores.layout import PackedEntry
from passback.stores.sqlite.rows import now_ms

_OF_LOG = "WHERE conversation = ? AND run_id = ?"


class Log(NamedTuple):
    """The key of a log: a conversation's row id and a run."""

    conversation: int
    run_id: str


def log_exists(db: sqlite3.Connection, log: Log, /) -> bool:
    return find_log(db, log) is not None


def find_log(db: sqlite3.Connection, log: Log, /) -> sqlite3.Row | None:
    """Return the row of a log that has not expired."""
    row: sqlite3.Row | None = db.execute(
        f"SELECT * FROM logs {_OF_LOG} AND keep_until > ?",  # noqa: S608
        (*log, now_ms()),
    ).fetchone()
    return row


def keep_log(
    db: sqlite3.Connection, log: Log, milliseconds: int, /, *, dequeued: bool = False
) -> None:
    """Keep a log for some time; `dequeued`: its run was cancelled while it waited."""
    db.execute(
        "INSERT OR REPLACE INTO logs (conversation, run_id, keep_until, dequeued)"
        " VALUES (?, ?, ?, ?)",
        (*log, now_ms() + milliseconds, dequeued),
    )


def add_entry(db: sqlite3.Connection, log: Log, epoch: int, entry: PackedEntry | None, /) -> int:
    """Write an entry, if there is one; return the bytes of its record."""
    if entry is None:
        return 0
    db.execute(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)",
        (*log, epoch, entry.last, entry.size, entry.record),
    )
    return len(entry.record)


def measure_log(db: sqlite3.Connection, log: Log, /) -> int:
    """Return the bytes of all its records."""
    statement = f"SELECT COALESCE(SUM(length(record)), 0) FROM entries {_OF_LOG}"  # noqa: S608
    return int(db.execute(statement, log).fetchone()[0])


def void_after(db: sqlite3.Connection, log: Log, after: tuple[int, int], /) -> None:
    """Delete the entries behind a position, which is the end of an entry."""
    statement = f"DELETE FROM entries {_OF_LOG} AND (epoch, last) > (?, ?)"  # noqa: S608
    db.execute(statement, (*log, *after))
    if not db.execute(f"SELECT 1 FROM entries {_OF_LOG} LIMIT 1", log).fetchone():  # noqa: S608
        # that entry has been trimmed: an entry of no events takes its place, whose number shows
        # readers the gap
        epoch, last = after
        add_entry(db, log, epoch, PackedEntry(last, 0, dump_events(())))


def trim_log(db: sqlite3.Connection, log: Log, size: int, limit: int, /) -> int:
    """Delete the oldest entries until `limit` bytes remain of `size`; return how many remain.

    The newest entry stays, however large. The first entry that stays does not open a later epoch:
    an opening has the number 1, so a reader would not see that something is missing before it.
    """
    if size <= limit:
        return size
    kept, last_removed = size, None
    gone, rest = None, size
    for entry in db.execute(
        f"SELECT epoch, last, size, length(record) AS bytes"  # noqa: S608
        f" FROM entries {_OF_LOG} ORDER BY epoch, last",
        log,
    ):
        is_opening = entry["last"] == entry["size"]
        if gone is not None and not is_opening:
            kept, last_removed = rest, gone
            if rest <= limit:
                break
        gone, rest = (entry["epoch"], entry["last"]), rest - entry["bytes"]
    if last_removed is not None:
        statement = f"DELETE FROM entries {_OF_LOG} AND (epoch, last) <= (?, ?)"  # noqa: S608
        db.execute(statement, (*log, *last_removed))
    return kept
