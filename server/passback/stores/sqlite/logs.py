"""The logs of runs in the SQLite store: entries are added behind, removed in front, and made void by a take-over."""

import sqlite3
from typing import NamedTuple

from passback.core.changes import dump_events
from passback.stores.layout import PackedEntry
from passback.stores.sqlite.rows import now

_OF_LOG = "WHERE conversation = ? AND run_id = ?"


class Log(NamedTuple):
    """Which one: a conversation's row id and a run."""

    conversation: int
    run_id: str


def exists(db: sqlite3.Connection, log: Log, /) -> bool:
    return find(db, log) is not None


def find(db: sqlite3.Connection, log: Log, /) -> sqlite3.Row | None:
    """The row of a log that has not expired."""
    row: sqlite3.Row | None = db.execute(
        f"SELECT * FROM logs {_OF_LOG} AND keep_until > ?",  # noqa: S608
        (*log, now()),
    ).fetchone()
    return row


def keep(db: sqlite3.Connection, log: Log, milliseconds: int, /, *, dequeued: bool = False) -> None:
    """`dequeued`: its run left the queue without its turn."""
    db.execute(
        "INSERT OR REPLACE INTO logs (conversation, run_id, keep_until, dequeued)"
        " VALUES (?, ?, ?, ?)",
        (*log, now() + milliseconds, dequeued),
    )


def add(db: sqlite3.Connection, log: Log, epoch: int, entry: PackedEntry | None, /) -> int:
    """Write an entry, if there is one; gives the bytes of its record."""
    if entry is None:
        return 0
    db.execute(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)",
        (*log, epoch, entry.last, entry.size, entry.record),
    )
    return len(entry.record)


def size(db: sqlite3.Connection, log: Log, /) -> int:
    """The bytes of all its records."""
    found = db.execute(f"SELECT COALESCE(SUM(length(record)), 0) FROM entries {_OF_LOG}", log)  # noqa: S608
    return int(found.fetchone()[0])


def void(db: sqlite3.Connection, log: Log, after: tuple[int, int], /) -> None:
    """Delete what follows a position, the end of an entry that was logged."""
    db.execute(f"DELETE FROM entries {_OF_LOG} AND (epoch, last) > (?, ?)", (*log, *after))  # noqa: S608
    if not db.execute(f"SELECT 1 FROM entries {_OF_LOG} LIMIT 1", log).fetchone():  # noqa: S608
        # that entry has been trimmed: one of no events in its place, whose number shows readers the gap
        epoch, last = after
        add(db, log, epoch, PackedEntry(last, 0, dump_events(())))


def trim(db: sqlite3.Connection, log: Log, size: int, limit: int, /) -> int:
    """Delete the oldest entries until `limit` bytes remain of `size`; gives how many remain.

    The newest entry stays, however large. What remains does not begin with the opening of a later epoch: it has the
    number 1, so a reader would not see that something is missing in front of it.
    """
    if size <= limit:
        return size
    kept, cut = size, None
    gone, rest = None, size
    for entry in db.execute(
        f"SELECT epoch, last, size, length(record) AS bytes FROM entries {_OF_LOG} ORDER BY epoch, last",  # noqa: S608
        log,
    ):
        is_opening = entry["last"] == entry["size"]
        if gone is not None and not is_opening:
            kept, cut = rest, gone
            if rest <= limit:
                break
        gone, rest = (entry["epoch"], entry["last"]), rest - entry["bytes"]
    if cut is not None:
        db.execute(f"DELETE FROM entries {_OF_LOG} AND (epoch, last) <= (?, ?)", (*log, *cut))  # noqa: S608
    return kept
