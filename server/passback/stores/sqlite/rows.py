"""What the SQLite store's jobs share: finding a conversation, writing its row, and clearing away what has expired."""

import sqlite3
import time
from typing import TypeAlias

from passback.core.values import value
from passback.stores.layout import PackedState, first_version
from passback.stores.options import Keep, StoreOptions

SWEEP_LIMIT = 20  # expired conversations and logs that one new run clears away

Value: TypeAlias = int | str | bytes | None


@value
class Retention:
    """How long things are kept, and how large the records of one log may become."""

    idle: Keep
    running: Keep
    log_bytes: int

    @classmethod
    def of(cls, options: StoreOptions, /) -> "Retention":
        return cls(Keep.idle(options), Keep.running(options), options.log_bytes)

    @property
    def waiting(self) -> Keep:
        """A post that waits expires no sooner than the run that it waits for."""
        return self.running


def now() -> int:
    """Milliseconds of the machine's clock, which all processes that share the file go by."""
    return time.time_ns() // 1_000_000


def microseconds() -> int:
    """Of the same clock."""
    return time.time_ns() // 1000


def until(milliseconds: int | None, /) -> int | None:
    return None if milliseconds is None else now() + milliseconds


def find(db: sqlite3.Connection, tag: str, /) -> sqlite3.Row | None:
    """The row of a conversation that exists and has not expired."""
    row: sqlite3.Row | None = db.execute(
        "SELECT * FROM conversations WHERE tag = ? AND (keep_until IS NULL OR keep_until > ?)",
        (tag, now()),
    ).fetchone()
    return row


def ping(db: sqlite3.Connection, /) -> None:
    """Write a page that is as it was: the answer is that it can be written, which a full disk refuses.

    The version is written as it is found: a newer server may have changed the schema meanwhile.
    """
    [version] = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA user_version = {int(version)}")


def update(db: sqlite3.Connection, conversation: int, /, **columns: Value) -> None:
    """Write columns of a conversation's row."""
    names = ", ".join(f"{name} = :{name}" for name in columns)
    statement = f"UPDATE conversations SET {names} WHERE id = :id"  # noqa: S608  # names from our code
    db.execute(statement, {**columns, "id": conversation})


def create(db: sqlite3.Connection, tag: str, nonce: str, /) -> sqlite3.Row:
    """The row of an empty conversation, which its first change has yet to give its first version."""
    expired = db.execute("SELECT id FROM conversations WHERE tag = ?", (tag,)).fetchone()
    if expired:
        remove(db, expired["id"])
    made = db.execute(
        "INSERT INTO conversations (tag, version, history_bytes) VALUES (?, ?, 0)",
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
    """Write messages behind the first `count`; gives how many there are then."""
    db.executemany(
        "INSERT INTO messages VALUES (?, ?, ?)",
        ((conversation, count + i, record) for i, record in enumerate(records)),
    )
    return count + len(records)


def history_bytes(
    db: sqlite3.Connection, row: sqlite3.Row, records: tuple[bytes, ...], /, *, anew: bool
) -> int:
    """Bytes of the messages from the boundary on, once `records` are written.

    `anew`: more has changed than what follows, so that all have to be counted.
    """
    known: int | None = row["history_bytes"]
    return stored_bytes(db, row["id"]) if anew or known is None else known + sum(map(len, records))


def stored_bytes(db: sqlite3.Connection, conversation: int, /) -> int:
    """Count the messages from the boundary on."""
    found = db.execute(
        "SELECT SUM(LENGTH(record)) FROM messages WHERE conversation = :id"
        " AND position >= (SELECT boundary FROM extras WHERE conversation = :id)",
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
    """None keeps what is there. True: the boundary is another one than before."""
    if state is None:
        return False
    kept = db.execute(
        "UPDATE extras SET state = ? WHERE conversation = ? AND boundary = ?",
        (state.record, conversation, state.boundary),
    )
    if kept.rowcount:
        return False
    db.execute(
        "UPDATE extras SET state = ?, boundary = ? WHERE conversation = ?",
        (state.record, state.boundary, conversation),
    )
    return True


# ---------------------------------------------------------------- going away
def delete(db: sqlite3.Connection, tag: str, /) -> bool:
    row = find(db, tag)
    if row is None:
        return False
    remove(db, row["id"])
    return True


def remove(db: sqlite3.Connection, conversation: int, /) -> None:
    for table in ("extras", "messages", "receipts", "queue", "logs", "entries"):
        db.execute(f"DELETE FROM {table} WHERE conversation = ?", (conversation,))  # noqa: S608  # names above
    db.execute("DELETE FROM conversations WHERE id = ?", (conversation,))


def sweep(db: sqlite3.Connection, /) -> None:
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
