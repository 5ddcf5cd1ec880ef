"""Rows of the SQLite store: finding, writing and deleting those of a conversation.

Entries of a log are appended, trimmed at the front, and removed from the end by a take-over.
"""

import sqlite3
import time
from typing import NamedTuple, TypeAlias

from passback.core.changes import dump_events
from passback.core.events import Position
from passback.core.values import value
from passback.stores.layout import PackedChange, PackedEntry, PackedState, first_version
from passback.stores.options import KeepTimes, StoreOptions

SWEEP_LIMIT = 20  # expired conversations, and logs, that one new run deletes

_OF_QUEUE = "FROM queue WHERE conversation = ?"
_OF_LOG = "WHERE conversation = ? AND run_id = ?"

Value: TypeAlias = int | str | bytes | None


@value
class Retention:
    """Times to live, and how large the records of one log may become, in bytes."""

    idle: KeepTimes
    running: KeepTimes
    max_log_bytes: int

    @classmethod
    def from_options(cls, options: StoreOptions, /) -> "Retention":
        return cls(KeepTimes.when_idle(options), KeepTimes.when_running(options), options.log_bytes)

    @property
    def waiting(self) -> KeepTimes:
        """The times while posts wait: they expire no sooner than the run that they wait for."""
        return self.running


def now_ms() -> int:
    """Return the milliseconds of the machine's clock, which all processes on the file share."""
    return time.time_ns() // 1_000_000


def now_us() -> int:
    """Return the microseconds of the same clock."""
    return time.time_ns() // 1000


def time_in(milliseconds: int | None, /) -> int | None:
    return None if milliseconds is None else now_ms() + milliseconds


def find_row(db: sqlite3.Connection, tag: str, /) -> sqlite3.Row | None:
    """Return the row of a conversation that exists and has not expired."""
    row: sqlite3.Row | None = db.execute(
        "SELECT * FROM conversations WHERE tag = ? AND (keep_until IS NULL OR keep_until > ?)",
        (tag, now_ms()),
    ).fetchone()
    return row


def test_write(db: sqlite3.Connection, /) -> None:
    """Write a page as it is, to see whether writes are taken: a full disk refuses this."""
    # not SCHEMA_VERSION: a newer server may have changed the schema meanwhile
    [version] = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA user_version = {int(version)}")


def update_row(db: sqlite3.Connection, conversation: int, /, **columns: Value) -> None:
    """Write columns of a conversation's row."""
    names = ", ".join(f"{name} = :{name}" for name in columns)
    # the names are from our code
    statement = f"UPDATE conversations SET {names} WHERE id = :id"  # noqa: S608
    db.execute(statement, {**columns, "id": conversation})


def create_row(db: sqlite3.Connection, change: PackedChange, /) -> sqlite3.Row:
    """Create an empty conversation and return its row; its first change adds 1 to its version."""
    expired = db.execute("SELECT id FROM conversations WHERE tag = ?", (change.tag,)).fetchone()
    if expired:
        remove_rows(db, expired["id"])
    made = db.execute(
        "INSERT INTO conversations (tag, version) VALUES (?, ?)",
        (change.tag, first_version(change.nonce) - 1),
    )
    db.execute(
        "INSERT INTO extras (conversation, owed, key, owner, created, updated)"
        " VALUES (?, x'', ?, ?, ?, ?)",
        (made.lastrowid, change.key, change.owner, now_us(), now_us()),
    )
    row: sqlite3.Row = db.execute(
        "SELECT * FROM conversations WHERE id = ?", (made.lastrowid,)
    ).fetchone()
    return row


def add_messages(
    db: sqlite3.Connection, conversation: int, count: int, records: tuple[bytes, ...], /
) -> int:
    """Write messages behind the first `count`; return the new count."""
    db.executemany(
        "INSERT INTO messages VALUES (?, ?, ?)",
        ((conversation, count + i, record) for i, record in enumerate(records)),
    )
    return count + len(records)


def count_history_bytes(
    db: sqlite3.Connection, row: sqlite3.Row, records: tuple[bytes, ...], /, *, anew: bool
) -> int:
    """Return the bytes of the messages from `history_start` on, once `records` are written.

    `anew`: count all of them, because more has changed than that `records` were added.
    """
    if not anew:
        return int(row["history_bytes"]) + sum(map(len, records))
    found = db.execute(
        "SELECT SUM(LENGTH(record)) FROM messages WHERE conversation = :id"
        " AND position >= (SELECT history_start FROM extras WHERE conversation = :id)",
        {"id": row["id"]},
    ).fetchone()
    return found[0] or 0


def add_receipts(
    db: sqlite3.Connection, conversation: int, receipts: tuple[tuple[str, str], ...], /
) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO receipts VALUES (?, ?, ?)",
        ((conversation, *receipt) for receipt in receipts),
    )


def find_receipt(db: sqlite3.Connection, conversation: int, name: str, /) -> str | None:
    row: sqlite3.Row | None = db.execute(
        "SELECT receipt FROM receipts WHERE conversation = ? AND name = ?", (conversation, name)
    ).fetchone()
    return None if row is None else str(row["receipt"])


def set_state(db: sqlite3.Connection, conversation: int, state: PackedState | None, /) -> bool:
    """Write the state, None keeps it; return whether `history_start` has changed."""
    if state is None:
        return False
    kept = db.execute(
        "UPDATE extras SET state = ? WHERE conversation = ? AND history_start = ?",
        (state.record, conversation, state.history_start),
    )
    if kept.rowcount:
        return False
    db.execute(
        "UPDATE extras SET state = ?, history_start = ? WHERE conversation = ?",
        (state.record, state.history_start, conversation),
    )
    return True


def delete_conversation(db: sqlite3.Connection, tag: str, /) -> bool:
    row = find_row(db, tag)
    if row is None:
        return False
    remove_rows(db, row["id"])
    return True


def remove_rows(db: sqlite3.Connection, conversation: int, /) -> None:
    for table in ("extras", "messages", "receipts", "queue", "logs", "entries"):
        db.execute(f"DELETE FROM {table} WHERE conversation = ?", (conversation,))  # noqa: S608
    db.execute("DELETE FROM conversations WHERE id = ?", (conversation,))


def sweep_expired(db: sqlite3.Connection, /) -> None:
    """Delete some conversations and logs that have expired."""
    gone = db.execute(
        "SELECT id FROM conversations WHERE keep_until <= ? LIMIT ?", (now_ms(), SWEEP_LIMIT)
    ).fetchall()
    for row in gone:
        remove_rows(db, row["id"])
    logs = db.execute(
        "SELECT conversation, run_id FROM logs WHERE keep_until <= ? LIMIT ?",
        (now_ms(), SWEEP_LIMIT),
    ).fetchall()
    for log in logs:
        db.execute("DELETE FROM entries WHERE conversation = ? AND run_id = ?", tuple(log))
        db.execute("DELETE FROM logs WHERE conversation = ? AND run_id = ?", tuple(log))


# ---------------------------------------------------------------- queues
def has_queue(db: sqlite3.Connection, conversation: int, /) -> bool:
    """Return whether posts wait."""
    return bool(db.execute(f"SELECT 1 {_OF_QUEUE} LIMIT 1", (conversation,)).fetchone())


def queued_runs(db: sqlite3.Connection, conversation: int, /) -> list[str]:
    found = db.execute(f"SELECT run_id {_OF_QUEUE} ORDER BY place", (conversation,))
    return [each["run_id"] for each in found]


def add_queued(db: sqlite3.Connection, conversation: int, run_id: str, record: bytes, /) -> None:
    """Write a post behind the others."""
    db.execute(
        f"INSERT INTO queue SELECT ?, COALESCE(MAX(place), 0) + 1, ?, ? {_OF_QUEUE}",
        (conversation, run_id, record, conversation),
    )


def remove_queued(db: sqlite3.Connection, conversation: int, run_id: str, /) -> bool:
    """Remove a run from the queue; return False if it is not there."""
    gone = db.execute(f"DELETE {_OF_QUEUE} AND run_id = ?", (conversation, run_id))
    return gone.rowcount > 0


# ---------------------------------------------------------------- logs
class Log(NamedTuple):
    """The key of a log: a conversation's row id and a run."""

    conversation: int
    run_id: str


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


def void_after(db: sqlite3.Connection, log: Log, after: Position, /) -> None:
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
