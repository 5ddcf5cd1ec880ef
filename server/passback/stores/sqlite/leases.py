"""What the owner of a lease writes in the SQLite store, and who finds the leases that nobody renews.

A commit is known by fence and step, an entry of a log by the number of its last event.
"""

import sqlite3

from passback.core.changes import LeaseState
from passback.core.errors import LeaseLost
from passback.stores.layout import PackedCommit, PackedWrite
from passback.stores.sqlite import logs, queue
from passback.stores.sqlite.logs import Log
from passback.stores.sqlite.rows import (
    Retention,
    Value,
    add_messages,
    find,
    history_bytes,
    microseconds,
    now,
    set_state,
    until,
    update,
)

OTHERS = "another worker owns this run now"


def append(
    db: sqlite3.Connection, /, write: PackedWrite, lease: int, limits: Retention
) -> LeaseState:
    """Write an entry, if there is one, and renew the lease for so many milliseconds."""
    row = find(db, write.tag)
    if row is None or not _held(row, write) or not _follows(row, write):
        return "lost"
    expires = now() + lease
    seq, log_bytes = _log(db, row, write, limits)
    db.execute(
        "UPDATE conversations SET expires = ?, seq = ?, log_bytes = ? WHERE id = ?",
        (expires, seq, log_bytes, row["id"]),
    )
    if expires < row["look_at"]:  # rarely: its index is not touched for each batch of events
        update(db, row["id"], look_at=expires)
    return "cancelled" if row["cancelled"] else "held"


def commit(
    db: sqlite3.Connection, commit: PackedCommit, owner: bytes, lease: int, limits: Retention, /
) -> bool:
    """Whether the run has ended and posts wait.

    Raises:
        LeaseLost: nothing was written.
    """
    write, open_turns = commit.write, commit.open_turns
    row = find(db, write.tag)
    this = f"{write.fence}|{commit.step}"
    if row and row["ended"] == this:
        return queue.waits(db, row["id"])
    if row is None or not _held(row, write):
        raise LeaseLost(OTHERS)
    if commit.step <= row["step"]:
        return False
    if not _follows(row, write):
        raise LeaseLost(OTHERS)
    waits = commit.ends and queue.waits(db, row["id"])
    expires = now() + lease
    seq, log_bytes = _log(db, row, write, limits)
    end = add_messages(db, row["id"], row["messages"], commit.messages)
    moved = set_state(db, row["id"], commit.state)
    columns: dict[str, Value] = {
        "version": row["version"] + 1,
        "messages": end,
        "step": commit.step,
        "expires": expires,
        "look_at": min(expires, row["look_at"]),
        "seq": seq,
        "committed_epoch": write.epoch,
        "committed_seq": seq if open_turns is None else open_turns.committed,
        "log_bytes": log_bytes,
        "history_bytes": history_bytes(db, row, commit.messages, anew=moved),
    }
    if commit.ends:
        columns |= {"running": 0, "ended": this, "cut": commit.cut}
        # the worker that ends a run goes on with those who wait, others look when that takes too long
        looks = [expires] if waits else []
        if commit.answer_within is not None:
            looks.append(now() + commit.answer_within)
            columns |= {"answer_by": looks[-1]}
        columns |= {"look_at": min(looks, default=None)}
    keep = limits.idle if commit.ends else limits.running
    expiry = until((limits.waiting if waits else keep).conversation)
    update(db, row["id"], **columns, keep_until=expiry)
    db.execute(
        "UPDATE extras SET owed = ?, open_turns = ? WHERE conversation = ?",
        (commit.owed, open_turns and open_turns.record, row["id"]),
    )
    if commit.hands_back:
        db.execute(
            "UPDATE extras SET owner = ?, owed_since = ? WHERE conversation = ?",
            (owner, microseconds(), row["id"]),
        )
    logs.keep(db, Log(row["id"], write.run_id), keep.log)
    return waits


def release(db: sqlite3.Connection, write: PackedWrite, /) -> bool:
    """End a lease at once; the attempt does not count."""
    row = find(db, write.tag)
    if row is None or not _owned(row, write):
        return False
    if not row["released"]:
        attempt = row["attempt"] - 1
        update(db, row["id"], released=1, expires=now(), attempt=attempt, look_at=now())
    return True


def keep_followed(db: sqlite3.Connection, tag: str, run_id: str, milliseconds: int, /) -> None:
    row = find(db, tag)
    if row and row["running"] and row["run_id"] == run_id:
        update(db, row["id"], followed_until=now() + milliseconds)


def abandoned(db: sqlite3.Connection, limit: int, lease: int, /) -> list[bytes]:
    """The keys of conversations that nobody may be working on; these are given again after `lease` milliseconds.

    `look_at` may be earlier than the end of a lease that was renewed: it is set right here, for all that are due.
    """
    time = now()
    db.execute(
        "UPDATE conversations SET look_at = CASE WHEN running THEN expires ELSE answer_by END"
        " WHERE look_at <= :now AND CASE WHEN running THEN expires > :now"
        " ELSE (answer_by IS NULL OR answer_by > :now)"
        " AND NOT EXISTS (SELECT 1 FROM queue WHERE conversation = conversations.id) END",
        {"now": time},
    )
    found = db.execute(
        "SELECT id, key FROM conversations JOIN extras ON conversation = id"
        " WHERE look_at <= :now AND (keep_until IS NULL OR keep_until > :now) AND key IS NOT NULL"
        " ORDER BY look_at, id LIMIT :limit",
        {"now": time, "limit": limit},
    ).fetchall()
    for each in found:
        update(db, each["id"], look_at=time + lease)
    return [each["key"] for each in found]


def _owned(row: sqlite3.Row, write: PackedWrite) -> bool:
    """Whether nobody has taken the run over, or closed it, since this lease began."""
    return bool(row["running"] and row["fence"] == write.fence)


def _held(row: sqlite3.Row, write: PackedWrite) -> bool:
    return _owned(row, write) and not row["released"]


def _follows(row: sqlite3.Row, write: PackedWrite) -> bool:
    """Whether its events follow on the last one that is here, or are here. If not, its writer rests on what was lost."""
    entry, seq = write.entry, int(row["seq"])
    return entry is None or entry.first == seq + 1 or entry.last <= seq


def _log(
    db: sqlite3.Connection, row: sqlite3.Row, write: PackedWrite, limits: Retention
) -> tuple[int, int]:
    """Write an entry, unless this lease has logged its last event before; gives the columns seq and log_bytes."""
    entry = write.entry
    if entry is None or entry.last <= row["seq"]:
        return row["seq"], row["log_bytes"]
    log = Log(row["id"], write.run_id)
    logged = row["log_bytes"] + logs.add(db, log, write.epoch, entry)
    return entry.last, logs.trim(db, log, logged, limits.log_bytes)
