"""The writes of the SQLite store, each a function of a connection inside a transaction: checks first, writes last.

Every write may be sent twice: a change is known by its nonce, a commit by fence and step, an entry by its number.
"""

import sqlite3
import time

from passback.core.changes import LeaseState
from passback.core.errors import LeaseLost
from passback.stores.layout import (
    PackedChange,
    PackedCommit,
    PackedEntry,
    PackedWrite,
    fence,
    first_version,
)
from passback.stores.options import Keep

SWEEP_LIMIT = 20  # expired conversations and logs that one new run clears away


def now() -> int:
    """Milliseconds of the machine's clock, which all processes that share the file go by."""
    return time.time_ns() // 1_000_000


def find(db: sqlite3.Connection, tag: str, /) -> sqlite3.Row | None:
    """The row of a conversation that exists and has not expired."""
    row: sqlite3.Row | None = db.execute(
        "SELECT * FROM conversations WHERE tag = ? AND (keep_until IS NULL OR keep_until > ?)",
        (tag, now()),
    ).fetchone()
    return row


def ping(db: sqlite3.Connection, /) -> None:
    """That a transaction could begin is the answer."""
    db.execute("SELECT 1 FROM conversations LIMIT 1").fetchone()


# ---------------------------------------------------------------- changes
def park(db: sqlite3.Connection, change: PackedChange, keep: Keep, /) -> bool:
    row = find(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return True
    if not _idle_at(row, change.expected):
        return False
    _apply(db, row, change, keep)
    return True


def begin(
    db: sqlite3.Connection,
    change: PackedChange,
    run_id: str,
    opening: PackedEntry | None,
    timing: tuple[int, Keep],
    /,
) -> int | None:
    """The epoch of the new lease. `timing`: milliseconds of the lease, and how long to keep things."""
    row = find(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return int(row["epoch"])
    if not _idle_at(row, change.expected):
        return None
    lease, keep = timing
    conversation = _apply(db, row, change, keep)
    db.execute(
        "UPDATE conversations SET run_id = ?, running = 1, expires = ?, cancelled = 0 WHERE id = ?",
        (run_id, now() + lease, conversation),
    )
    epoch = _next_epoch(db, conversation, change.nonce)
    _log(db, conversation, PackedWrite(change.tag, run_id, epoch, "", opening))
    _keep_log(db, conversation, run_id, keep)
    _sweep(db)
    return epoch


def reap(
    db: sqlite3.Connection,
    change: PackedChange,
    run_id: str,
    ending: PackedEntry | None,
    keep: Keep,
    /,
) -> bool:
    row = find(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return True
    if row is None or row["version"] != change.expected:
        return False
    if not row["running"] or row["run_id"] != run_id or row["expires"] > now():
        return False
    conversation = _apply(db, row, change, keep)
    db.execute("UPDATE conversations SET running = 0 WHERE id = ?", (conversation,))
    epoch = _next_epoch(db, conversation, change.nonce)
    _log(db, conversation, PackedWrite(change.tag, run_id, epoch, "", ending))
    _keep_log(db, conversation, run_id, keep)
    return True


def _idle_at(row: sqlite3.Row | None, version: int) -> bool:
    if row is None:
        return version == 0
    return bool(row["version"] == version and not row["running"])


def _apply(
    db: sqlite3.Connection, row: sqlite3.Row | None, change: PackedChange, keep: Keep
) -> int:
    """Write what all changes have in common; gives the conversation's row id."""
    conversation, count = (row["id"], row["messages"]) if row else (_create(db, change), 0)
    _add_messages(db, conversation, count, change.messages)
    db.executemany(
        "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)",
        ((conversation, *answer) for answer in change.answers),
    )
    db.execute("UPDATE extras SET owed = ? WHERE conversation = ?", (change.owed, conversation))
    if change.tools is not None:
        db.execute(
            "UPDATE extras SET tools = ? WHERE conversation = ?", (change.tools, conversation)
        )
    db.execute(
        "UPDATE conversations SET version = version + 1, nonce = ?, keep_until = ? WHERE id = ?",
        (change.nonce, _until(keep.conversation), conversation),
    )
    return conversation


def _create(db: sqlite3.Connection, change: PackedChange) -> int:
    expired = db.execute("SELECT id FROM conversations WHERE tag = ?", (change.tag,)).fetchone()
    if expired:
        remove(db, expired["id"])
    made = db.execute(
        "INSERT INTO conversations (tag, version) VALUES (?, ?)",
        (change.tag, first_version(change.nonce) - 1),
    )
    assert made.lastrowid is not None
    db.execute("INSERT INTO extras VALUES (?, ?, NULL)", (made.lastrowid, change.owed))
    return made.lastrowid


def _next_epoch(db: sqlite3.Connection, conversation: int, nonce: str) -> int:
    """A new epoch and its fence: whoever held an older one is shut out."""
    row = db.execute("SELECT epoch FROM conversations WHERE id = ?", (conversation,)).fetchone()
    epoch = int(row["epoch"]) + 1
    db.execute(
        "UPDATE conversations SET epoch = ?, fence = ?, step = -1, seq = 0 WHERE id = ?",
        (epoch, fence(epoch, nonce), conversation),
    )
    return epoch


# ---------------------------------------------------------------- what the owner of a lease writes
def append(db: sqlite3.Connection, /, write: PackedWrite, lease: int) -> LeaseState:
    """Write an entry, if there is one, and renew the lease."""
    row = find(db, write.tag)
    if row is None or not _held(row, write):
        return "lost"
    _log(db, row["id"], write)
    db.execute("UPDATE conversations SET expires = ? WHERE id = ?", (now() + lease, row["id"]))
    return "cancelled" if row["cancelled"] else "held"


def commit(db: sqlite3.Connection, commit: PackedCommit, lease: int, keep: Keep, /) -> None:
    write = commit.write
    row = find(db, write.tag)
    mark = f"{write.fence}|{commit.step}"
    if row and row["ended"] == mark:
        return
    if row is None or not _held(row, write):
        raise LeaseLost("another worker owns this run now")
    if commit.step <= row["step"]:
        return
    conversation = row["id"]
    _add_messages(db, conversation, row["messages"], commit.messages)
    db.execute("UPDATE extras SET owed = ? WHERE conversation = ?", (commit.owed, conversation))
    db.execute(
        "UPDATE conversations SET version = version + 1, step = ?, expires = ?, running = ?, ended = ?,"
        " keep_until = ? WHERE id = ?",
        (
            commit.step,
            now() + lease,
            not commit.ends,
            mark if commit.ends else row["ended"],
            _until(keep.conversation),
            conversation,
        ),
    )
    _log(db, conversation, write)
    _keep_log(db, conversation, write.run_id, keep)


def cancel(db: sqlite3.Connection, tag: str, run_id: str, /) -> bool:
    row = find(db, tag)
    if row is None or not row["running"] or row["run_id"] != run_id:
        return False
    db.execute("UPDATE conversations SET cancelled = 1 WHERE id = ?", (row["id"],))
    return True


def _held(row: sqlite3.Row, write: PackedWrite) -> bool:
    return bool(row["running"] and row["fence"] == write.fence)


# ---------------------------------------------------------------- rows
def _add_messages(
    db: sqlite3.Connection, conversation: int, count: int, records: tuple[bytes, ...]
) -> None:
    db.executemany(
        "INSERT INTO messages VALUES (?, ?, ?)",
        ((conversation, count + i, record) for i, record in enumerate(records)),
    )
    db.execute(
        "UPDATE conversations SET messages = messages + ? WHERE id = ?",
        (len(records), conversation),
    )


def _log(db: sqlite3.Connection, conversation: int, write: PackedWrite) -> None:
    """Write an entry, unless this lease has logged its last event before."""
    entry = write.entry
    if entry is None:
        return
    fresh = db.execute(
        "UPDATE conversations SET seq = ? WHERE id = ? AND seq < ?",
        (entry.last, conversation, entry.last),
    )
    if fresh.rowcount:
        db.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)",
            (conversation, write.run_id, write.epoch, entry.last, entry.size, entry.record),
        )


def _keep_log(db: sqlite3.Connection, conversation: int, run_id: str, keep: Keep) -> None:
    db.execute(
        "INSERT OR REPLACE INTO logs VALUES (?, ?, ?)", (conversation, run_id, now() + keep.log)
    )


def _until(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else now() + milliseconds


# ---------------------------------------------------------------- going away
def delete(db: sqlite3.Connection, tag: str, /) -> bool:
    row = find(db, tag)
    if row is None:
        return False
    remove(db, row["id"])
    return True


def remove(db: sqlite3.Connection, conversation: int, /) -> None:
    for table in ("extras", "messages", "answers", "logs", "entries"):
        db.execute(f"DELETE FROM {table} WHERE conversation = ?", (conversation,))  # noqa: S608  # names above
    db.execute("DELETE FROM conversations WHERE id = ?", (conversation,))


def _sweep(db: sqlite3.Connection) -> None:
    """Clear away some of what has expired."""
    gone = db.execute(
        "SELECT id FROM conversations WHERE keep_until <= ? LIMIT ?", (now(), SWEEP_LIMIT)
    ).fetchall()
    for row in gone:
        remove(db, row["id"])
    logs = db.execute(
        "SELECT conversation, run_id FROM logs WHERE keep_until <= ? LIMIT ?", (now(), SWEEP_LIMIT)
    ).fetchall()
    for log in logs:
        db.execute("DELETE FROM entries WHERE conversation = ? AND run_id = ?", tuple(log))
        db.execute("DELETE FROM logs WHERE conversation = ? AND run_id = ?", tuple(log))
