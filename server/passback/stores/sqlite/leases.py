"""Writes of a lease's owner in the SQLite store, and the search for leases that expired.

Fence and step tell a repeated commit, the number of its last event a repeated entry of a log.
"""

import sqlite3
from collections.abc import Sequence

from passback.core.changes import LeaseState
from passback.core.errors import LeaseLost
from passback.core.events import Position
from passback.stores.layout import SPENT_MOST, SPENT_TTL, PackedCommit, PackedSpending, PackedWrite
from passback.stores.sqlite.rows import (
    SWEEP_LIMIT,
    Log,
    Retention,
    Value,
    add_entry,
    add_messages,
    count_history_bytes,
    find_row,
    has_queue,
    keep_log,
    now_ms,
    now_us,
    set_state,
    time_in,
    trim_log,
    update_row,
)

OTHERS = "another worker owns this run now"


def append_events(
    db: sqlite3.Connection, /, write: PackedWrite, lease: int, retention: Retention
) -> LeaseState:
    """Write an entry, if there is one, and renew the lease for `lease` milliseconds."""
    row = find_row(db, write.tag)
    if row is None or not _holds_lease(row, write) or not _follows_log(row, write):
        return "lost"
    lease_expires = now_ms() + lease
    seq, log_bytes = _log_entry(db, row, write, retention)
    db.execute(
        "UPDATE conversations SET lease_expires = ?, seq = ?, log_bytes = ? WHERE id = ?",
        (lease_expires, seq, log_bytes, row["id"]),
    )
    if lease_expires < row["due_at"]:  # rarely, so that most batches do not touch its index
        update_row(db, row["id"], due_at=lease_expires)
    return "cancelled" if row["cancelled"] else "held"


def commit_turn(
    db: sqlite3.Connection, commit: PackedCommit, lease: int, retention: Retention, /
) -> bool:
    """Write a turn; return whether the run has ended and posts wait.

    Raises:
        LeaseLost: nothing was written.
    """
    write, open_turns = commit.write, commit.open_turns
    row = find_row(db, write.tag)
    this = f"{write.fence}|{commit.step}"
    if row and row["ended"] == this:
        return has_queue(db, row["id"])
    if row is None or not _holds_lease(row, write):
        raise LeaseLost(OTHERS)
    # a repeat of a commit that did not end the run
    if commit.step <= row["step"]:
        return False
    if not _follows_log(row, write):
        raise LeaseLost(OTHERS)
    waits = commit.ends and has_queue(db, row["id"])
    lease_expires = now_ms() + lease
    seq, log_bytes = _log_entry(db, row, write, retention)
    end = add_messages(db, row["id"], row["message_count"], commit.messages)
    moved = set_state(db, row["id"], commit.state)
    columns: dict[str, Value] = {
        "version": row["version"] + 1,
        "message_count": end,
        "step": commit.step,
        "lease_expires": lease_expires,
        "due_at": min(lease_expires, row["due_at"]),
        "seq": seq,
        "committed": str(
            Position(write.epoch, seq if open_turns is None else open_turns.committed)
        ),
        "log_bytes": log_bytes,
        "history_bytes": count_history_bytes(db, row, commit.messages, anew=moved),
    }
    if commit.ends:
        columns |= {"running": 0, "ended": this, "stopped_early": commit.stopped_early}
        # the worker that ends a run goes on with the queue; others do when its lease is over
        due_at = [lease_expires] if waits else []
        if commit.answer_within is not None:
            due_at.append(now_ms() + commit.answer_within)
            columns |= {"answer_by": due_at[-1]}
        columns |= {"due_at": min(due_at, default=None)}
    keep = retention.idle if commit.ends else retention.running
    expiry = time_in((retention.waiting if waits else keep).conversation)
    update_row(db, row["id"], **columns, keep_until=expiry)
    since = now_us() if commit.hands_back else None
    turns = open_turns and open_turns.record
    db.execute(
        "UPDATE extras SET owed = ?, open_turns = ?, owed_since = ? WHERE conversation = ?",
        (commit.owed, turns, since, row["id"]),
    )
    keep_log(db, Log(row["id"], write.run_id), keep.log)
    return waits


def release_lease(db: sqlite3.Connection, write: PackedWrite, /) -> bool:
    """End a lease at once; the attempt does not count."""
    row = find_row(db, write.tag)
    if row is None or not _owns_run(row, write):
        return False
    if not row["released"]:
        attempt = row["attempt"] - 1
        update_row(
            db, row["id"], released=1, lease_expires=now_ms(), attempt=attempt, due_at=now_ms()
        )
    return True


def keep_followed(db: sqlite3.Connection, tag: str, run_id: str, milliseconds: int, /) -> None:
    row = find_row(db, tag)
    if row and row["running"] and row["run_id"] == run_id:
        update_row(db, row["id"], followed_until=now_ms() + milliseconds)


def take_due(db: sqlite3.Connection, limit: int, lease: int, /) -> list[bytes]:
    """Take at most `limit` conversations that may need recovery; return their packed keys.

    They are due again after `lease` milliseconds.
    """
    time = now_ms()
    # a renewal does not move `due_at`: correct it here, for all that seem due
    db.execute(
        "UPDATE conversations SET due_at = CASE WHEN running THEN lease_expires ELSE answer_by END"
        " WHERE due_at <= :now AND CASE WHEN running THEN lease_expires > :now"
        " ELSE (answer_by IS NULL OR answer_by > :now)"
        " AND NOT EXISTS (SELECT 1 FROM queue WHERE conversation = conversations.id) END",
        {"now": time},
    )
    found = db.execute(
        "SELECT id, key FROM conversations JOIN extras ON conversation = id"
        " WHERE due_at <= :now AND (keep_until IS NULL OR keep_until > :now)"
        " ORDER BY due_at, id LIMIT :limit",
        {"now": time, "limit": limit},
    ).fetchall()
    for each in found:
        update_row(db, each["id"], due_at=time + lease)
    return [each["key"] for each in found]


def _owns_run(row: sqlite3.Row, write: PackedWrite) -> bool:
    """Return whether no other worker has taken over or ended the run since this lease began."""
    return bool(row["running"] and row["fence"] == write.fence)


def _holds_lease(row: sqlite3.Row, write: PackedWrite) -> bool:
    return _owns_run(row, write) and not row["released"]


def _follows_log(row: sqlite3.Row, write: PackedWrite) -> bool:
    """Return whether its events follow on the last stored one, or are stored already.

    If not, earlier events were lost, and its writer does not know.
    """
    entry, seq = write.entry, int(row["seq"])
    return entry is None or entry.first == seq + 1 or entry.last <= seq


def _log_entry(
    db: sqlite3.Connection, row: sqlite3.Row, write: PackedWrite, retention: Retention
) -> tuple[int, int]:
    """Write an entry, unless it is a repeat; return the columns `seq` and `log_bytes`."""
    entry = write.entry
    if entry is None or entry.last <= row["seq"]:
        return row["seq"], row["log_bytes"]
    log = Log(row["id"], write.run_id)
    logged = row["log_bytes"] + add_entry(db, log, write.epoch, entry)
    return entry.last, trim_log(db, log, logged, retention.max_log_bytes)


# ---------------------------------------------------------------- spending, by day and by lease
def add_spending(db: sqlite3.Connection, spending: PackedSpending, /) -> Sequence[int]:
    """Replace the amounts of a lease by newer ones; return the amounts of the day."""
    *known, seq = _read_amounts(db, spending.tag, spending.lease)
    *sums, _ = _read_amounts(db, spending.tag, spending.day)
    if spending.seq <= seq:
        return sums
    changed = (given - before for given, before in zip(spending.amounts, known, strict=True))
    # a sum that is too large to be exact does not fall
    sums = [
        total if total == SPENT_MOST else min(SPENT_MOST, max(0, total + by))
        for total, by in zip(sums, changed, strict=True)
    ]
    keep_until = now_ms() + SPENT_TTL
    db.executemany(
        "INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (spending.tag, spending.day, *sums, keep_until, 0),
            (spending.tag, spending.lease, *spending.amounts, keep_until, spending.seq),
        ),
    )
    db.execute(
        "DELETE FROM spent WHERE rowid IN (SELECT rowid FROM spent WHERE keep_until <= ? LIMIT ?)",
        (now_ms(), SWEEP_LIMIT),
    )
    return sums


def _read_amounts(db: sqlite3.Connection, tag: str, part: str) -> Sequence[int]:
    """Read the amounts of a day or a lease, and the number of the newest ones."""
    row: sqlite3.Row | None = db.execute(
        "SELECT tokens, milliseconds, billionths, seq FROM spent"
        " WHERE tag = ? AND part = ? AND keep_until > ?",
        (tag, part, now_ms()),
    ).fetchone()
    return tuple(row) if row else (0, 0, 0, 0)
