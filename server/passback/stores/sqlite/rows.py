"""Rows of the SQLite store: finding, writing and deleting those of a conversation."""

import sqlite3
import time
from typing import TypeAlias

from passback.core.values import value
from passback.stores.layout import PackedState, first_version
from passback.stores.options import KeepTimes, StoreOptions

SWEEP_LIMIT = 20  # expired conversations, and logs, that one new run deletes

Value: TypeAlias = int | str | bytes | None


@value
class Retention:
    """Times to live, and how large the records of one log may become, in bytes."""

    idle: KeepTimes
    running: KeepTimes
    log_bytes: int

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


def create_row(db: sqlite3.Connection, tag: str, nonce: str, /) -> sqlite3.Row:
    """Create an empty conversation and return its row; its first change adds 1 to its version."""
    expired = db.execute("SELECT id FROM conversations WHERE tag = ?", (tag,)).fetchone()
    if expired:
        remove_rows(db, expired["id"])
    made = db.execute(
        "INSERT INTO conversations (tag, version) VALUES (?, ?)",
        (tag, first_version(nonce) - 1),
    )
    db.execute("INSERT INTO extras (conversation, owed) VALUES (?, x'')", (made.lastrowid,))
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
    if anew:
        return sum_history_bytes(db, row["id"])
    return int(row["history_bytes"]) + sum(map(len, records))


def sum_history_bytes(db: sqlite3.Connection, conversation: int, /) -> int:
    """Sum the bytes of the messages from `history_start` on."""
    found = db.execute(
        "SELECT SUM(LENGTH(record)) FROM messages WHERE conversation = :id"
        " AND position >= (SELECT history_start FROM extras WHERE conversation = :id)",
        {"id": conversation},
    ).fetchone()
    return found[0] or 0


def add_receipts(
    db: sqlite3.Connection, conversation: int, receipts: tuple[tuple[str, str], ...], /
) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO receipts VALUES (?, ?, ?)",
        ((conversation, *receipt) for receipt in receipts),
    )


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
