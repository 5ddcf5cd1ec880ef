"""The changes of a transcript in the SQLite store: without a run, or together with the lease that they take or end.

Each is a function of a connection inside a transaction: it checks first and writes last. A change is known by its nonce.
"""

import sqlite3

from passback.core.values import value
from passback.stores.layout import PackedChange, PackedEntry, fence
from passback.stores.options import Keep
from passback.stores.sqlite import logs, queue
from passback.stores.sqlite.logs import Log
from passback.stores.sqlite.rows import (
    Retention,
    Value,
    add_messages,
    add_receipts,
    create,
    find,
    history_bytes,
    now,
    set_state,
    sweep,
    until,
    update,
)


@value
class Taking:
    """A run that begins, is taken over or is closed.

    Args:
        key: whose conversation it is, as `layout.pack_key` writes it.
        run_id: the run.
        entry: what its log says of it.
        lease: milliseconds; nothing to whom closes a run.
    """

    key: bytes
    run_id: str
    entry: PackedEntry | None
    lease: int = 0

    @property
    def records(self) -> tuple[bytes, ...]:
        """The records of the entry."""
        return () if self.entry is None else (self.entry.record,)


def park(db: sqlite3.Connection, change: PackedChange, limits: Retention, /) -> bool:
    row = find(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return True
    if not _idle_at(row, change.expected):
        return False
    row = row or create(db, change.tag, change.nonce)
    _apply(db, row, change, limits.waiting if queue.waits(db, row["id"]) else limits.idle)
    return True


def begin(
    db: sqlite3.Connection, change: PackedChange, taking: Taking, limits: Retention, /
) -> int | None:
    """The epoch of the lease."""
    row = find(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return int(row["epoch"])
    if not _idle_at(row, change.expected):
        return None
    if change.dequeues is not None and (
        row is None or queue.first(db, row["id"]) != change.dequeues
    ):
        return None
    row = row or create(db, change.tag, change.nonce)
    if change.dequeues is not None:
        queue.leave(db, row["id"], change.dequeues)
    _apply(db, row, change, limits.running, taking.key)
    epoch, columns = _open(db, row, change.nonce, taking, limits)
    update(
        db,
        row["id"],
        **columns,
        run_id=taking.run_id,
        running=1,
        attempt=1,
        cancelled=0,
        mark=change.mark,
        cut=0,
        cancel_on_disconnect=change.cancel_on_disconnect,
        followed_until=0,
        answer_by=None,
    )
    logs.keep(db, Log(row["id"], taking.run_id), limits.running.log)
    sweep(db)
    return epoch


def take_over(
    db: sqlite3.Connection, change: PackedChange, taking: Taking, limits: Retention, /
) -> int | None:
    """The epoch of the lease."""
    row = find(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return int(row["epoch"])
    if row is None or not _lapsed_at(row, change.expected, taking.run_id):
        return None
    _void(db, row)
    _apply(db, row, change, limits.running, taking.key)
    epoch, columns = _open(db, row, change.nonce, taking, limits)
    update(db, row["id"], **columns, attempt=row["attempt"] + 1)
    logs.keep(db, Log(row["id"], taking.run_id), limits.running.log)
    return epoch


def fail_lost(
    db: sqlite3.Connection, change: PackedChange, taking: Taking, limits: Retention, /
) -> bool:
    row = find(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return True
    if row is None or not _lapsed_at(row, change.expected, taking.run_id):
        return False
    waits = queue.waits(db, row["id"])
    _void(db, row)
    _apply(db, row, change, limits.waiting if waits else limits.idle, taking.key)
    _, columns = _open(db, row, change.nonce, taking, limits)
    update(db, row["id"], **columns | {"running": 0, "look_at": now() if waits else None})
    logs.keep(db, Log(row["id"], taking.run_id), limits.idle.log)
    return True


def _idle_at(row: sqlite3.Row | None, version: int) -> bool:
    if row is None:
        return version == 0
    return bool(row["version"] == version and not row["running"])


def _lapsed_at(row: sqlite3.Row, version: int, run_id: str) -> bool:
    goes_on = row["running"] and row["run_id"] == run_id
    return bool(row["version"] == version and goes_on and row["expires"] <= now())


def _apply(
    db: sqlite3.Connection,
    row: sqlite3.Row,
    change: PackedChange,
    keep: Keep,
    key: bytes | None = None,
) -> None:
    """Write what all changes have in common."""
    count = row["messages"]
    if change.keep is not None and change.keep < count:
        count = change.keep
        db.execute(
            "DELETE FROM messages WHERE conversation = ? AND position >= ?", (row["id"], count)
        )
    add_receipts(db, row["id"], change.receipts)
    db.execute(
        "UPDATE extras SET owed = ?, tools = COALESCE(?, tools), key = COALESCE(?, key),"
        " owed_since = CASE WHEN ? THEN owed_since END, open_turns = NULL,"
        " boundary = CASE WHEN boundary > ? THEN 0 ELSE boundary END WHERE conversation = ?",
        (change.owed, change.tools, key, change.owes, count, row["id"]),
    )
    moved = set_state(db, row["id"], change.state)
    end = add_messages(db, row["id"], count, change.messages)
    anew = moved or count < row["messages"]
    update(
        db,
        row["id"],
        version=row["version"] + 1,
        nonce=change.nonce,
        messages=end,
        history_bytes=history_bytes(db, row, change.messages, anew=anew),
        keep_until=until(keep.conversation),
    )


def _void(db: sqlite3.Connection, row: sqlite3.Row) -> None:
    """Remove from a run's log what its last owner had not committed."""
    logs.void(db, Log(row["id"], row["run_id"]), (row["committed_epoch"], row["committed_seq"]))


def _open(
    db: sqlite3.Connection, row: sqlite3.Row, nonce: str, taking: Taking, limits: Retention
) -> tuple[int, dict[str, Value]]:
    """Log the first entry of a new epoch. Gives it, and its columns: whoever held the lease is shut out."""
    log = Log(row["id"], taking.run_id)
    epoch = int(row["epochs"]) + 1
    logged = logs.size(db, log) + logs.add(db, log, epoch, taking.entry)
    last = taking.entry.last if taking.entry else 0
    expires = now() + taking.lease
    return epoch, {
        "epoch": epoch,
        "epochs": epoch,
        "fence": fence(epoch, nonce),
        "expires": expires,
        "released": 0,
        "look_at": expires,
        "step": -1,
        "seq": last,
        "committed_epoch": epoch,
        "committed_seq": last,
        "log_bytes": logs.trim(db, log, logged, limits.log_bytes),
    }
