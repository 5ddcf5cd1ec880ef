"""Writes of the SQLite store that need no lease.

They change the transcript, and some take a lease or end one; they queue a post, cancel a run, or
claim a call. Each is a function of a connection inside a transaction: it checks first and writes
last. A nonce tells a repeat.
"""

import sqlite3

from passback.core.changes import CallClaim, EnqueueAnswer
from passback.core.events import Position
from passback.core.values import value
from passback.stores.layout import (
    PackedChange,
    PackedClaim,
    PackedEnqueue,
    PackedEntry,
    PackedTitle,
    make_fence,
    unpack_position,
)
from passback.stores.options import KeepTimes
from passback.stores.sqlite.rows import (
    Log,
    Retention,
    Value,
    add_entry,
    add_messages,
    add_queued,
    add_receipts,
    count_history_bytes,
    create_row,
    find_log,
    find_receipt,
    find_row,
    has_queue,
    keep_log,
    measure_log,
    now_ms,
    now_us,
    queued_runs,
    remove_queued,
    set_state,
    sweep_expired,
    time_in,
    trim_log,
    update_row,
    void_after,
)


@value
class RunChange:
    """A run that begins, is taken over, or fails because its worker is lost.

    Args:
        run_id: the run.
        entry: the first entry of the new epoch in its log.
        lease: milliseconds; 0 when the run fails.
    """

    run_id: str
    entry: PackedEntry | None
    lease: int = 0

    @property
    def records(self) -> tuple[bytes, ...]:
        """The records of the entry."""
        return () if self.entry is None else (self.entry.record,)


def park_change(db: sqlite3.Connection, change: PackedChange, retention: Retention, /) -> bool:
    row = find_row(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return True
    if not _is_idle_at(row, change.expected):
        return False
    row = row or create_row(db, change)
    _apply_change(
        db, row, change, retention.waiting if has_queue(db, row["id"]) else retention.idle
    )
    _set_updated(db, row)
    return True


def begin_run(
    db: sqlite3.Connection, change: PackedChange, run: RunChange, retention: Retention, /
) -> int | None:
    """Return the epoch of the lease; None when the change does not fit."""
    row = find_row(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return int(row["epoch"])  # a repeat
    if not _is_idle_at(row, change.expected):
        return None
    # another worker may have begun this run, or a client cancelled it
    if change.dequeues is not None and (
        row is None or queued_runs(db, row["id"])[:1] != [change.dequeues]
    ):
        return None
    row = row or create_row(db, change)
    if change.dequeues is not None:
        remove_queued(db, row["id"], change.dequeues)
    _apply_change(db, row, change, retention.running)
    _set_updated(db, row)
    epoch, columns = _open_epoch(db, row, change.nonce, run, retention)
    update_row(
        db,
        row["id"],
        **columns,
        run_id=run.run_id,
        running=1,
        attempt=1,
        cancelled=0,
        run_start=change.run_start,
        stopped_early=0,
        cancel_on_disconnect=change.cancel_on_disconnect,
        followed_until=0,
        answer_by=None,
    )
    keep_log(db, Log(row["id"], run.run_id), retention.running.log)
    # a new run is the occasion to delete what has expired: no task does it
    sweep_expired(db)
    return epoch


def take_over(
    db: sqlite3.Connection, change: PackedChange, run: RunChange, retention: Retention, /
) -> int | None:
    """Return the epoch of the lease; None when the change does not fit."""
    row = find_row(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return int(row["epoch"])
    if row is None or not _is_lapsed_at(row, change.expected, run.run_id):
        return None
    _void_uncommitted(db, row)
    _apply_change(db, row, change, retention.running)
    epoch, columns = _open_epoch(db, row, change.nonce, run, retention)
    update_row(db, row["id"], **columns, attempt=row["attempt"] + 1)
    keep_log(db, Log(row["id"], run.run_id), retention.running.log)
    return epoch


def fail_lost(
    db: sqlite3.Connection, change: PackedChange, run: RunChange, retention: Retention, /
) -> bool:
    row = find_row(db, change.tag)
    if row and row["nonce"] == change.nonce:
        return True
    if row is None or not _is_lapsed_at(row, change.expected, run.run_id):
        return False
    waits = has_queue(db, row["id"])
    _void_uncommitted(db, row)
    _apply_change(db, row, change, retention.waiting if waits else retention.idle)
    _, columns = _open_epoch(db, row, change.nonce, run, retention)
    update_row(db, row["id"], **columns | {"running": 0, "due_at": now_ms() if waits else None})
    keep_log(db, Log(row["id"], run.run_id), retention.idle.log)
    return True


def _is_idle_at(row: sqlite3.Row | None, version: int) -> bool:
    # a conversation that does not exist has version 0
    if row is None:
        return version == 0
    return bool(row["version"] == version and not row["running"])


def _is_lapsed_at(row: sqlite3.Row, version: int, run_id: str) -> bool:
    goes_on = row["running"] and row["run_id"] == run_id
    return bool(row["version"] == version and goes_on and row["lease_expires"] <= now_ms())


def _apply_change(
    db: sqlite3.Connection, row: sqlite3.Row, change: PackedChange, keep: KeepTimes
) -> None:
    """Write what all changes have in common."""
    count = row["message_count"]
    if change.keep_messages is not None and change.keep_messages < count:
        count = change.keep_messages
        db.execute(
            "DELETE FROM messages WHERE conversation = ? AND position >= ?", (row["id"], count)
        )
    add_receipts(db, row["id"], change.receipts)
    named = change.named and change.title != ""
    # `history_start` is set back where it lies behind the kept messages: it would hide new ones
    db.execute(
        "UPDATE extras SET owed = ?, tools = COALESCE(?, tools),"
        " settings = COALESCE(?, settings),"
        " named = CASE WHEN title = '' THEN ? ELSE named END,"
        " title = CASE WHEN title = '' THEN ? ELSE title END,"
        " owed_since = CASE WHEN ? THEN owed_since END, open_turns = NULL,"
        " history_start = CASE WHEN history_start > ? THEN 0 ELSE history_start END"
        " WHERE conversation = ?",
        (
            *(change.owed, change.tools, change.settings, named, change.title),
            *(change.owes, count, row["id"]),
        ),
    )
    moved = set_state(db, row["id"], change.state)
    end = add_messages(db, row["id"], count, change.messages)
    anew = moved or count < row["message_count"]
    update_row(
        db,
        row["id"],
        version=row["version"] + 1,
        nonce=change.nonce,
        message_count=end,
        history_bytes=count_history_bytes(db, row, change.messages, anew=anew),
        keep_until=time_in(keep.conversation),
    )


def _set_updated(db: sqlite3.Connection, row: sqlite3.Row) -> None:
    """Record that a client has changed the conversation just now."""
    db.execute("UPDATE extras SET updated = ? WHERE conversation = ?", (now_us(), row["id"]))


def rename_conversation(db: sqlite3.Connection, tag: str, title: str, /) -> bool:
    row = find_row(db, tag)
    if row is None:
        return False
    db.execute("UPDATE extras SET title = ?, named = 1 WHERE conversation = ?", (title, row["id"]))
    return True


def configure_conversation(db: sqlite3.Connection, tag: str, settings: bytes, /) -> bool:
    row = find_row(db, tag)
    if row is None:
        return False
    db.execute("UPDATE extras SET settings = ? WHERE conversation = ?", (settings, row["id"]))
    return True


def write_title(db: sqlite3.Connection, written: PackedTitle, /) -> bool:
    """Record a model call for a title, and the title unless a client gave one."""
    row = find_row(db, written.tag)
    if row is None:
        return False
    extras = db.execute("SELECT created FROM extras WHERE conversation = ?", (row["id"],))
    if extras.fetchone()["created"] // 1000 != written.created:
        return False
    # the first call counts
    db.execute(
        "UPDATE extras SET title_call = :call,"
        " title = CASE WHEN named OR :title = '' THEN title ELSE :title END"
        " WHERE conversation = :id AND title_call IS NULL",
        {"call": written.call, "title": written.title, "id": row["id"]},
    )
    return True


def _void_uncommitted(db: sqlite3.Connection, row: sqlite3.Row) -> None:
    """Remove from a run's log the entries that its last owner had not committed."""
    void_after(db, Log(row["id"], row["run_id"]), unpack_position(row["committed"]))


def _open_epoch(
    db: sqlite3.Connection, row: sqlite3.Row, nonce: str, run: RunChange, retention: Retention
) -> tuple[int, dict[str, Value]]:
    """Log the first entry of a new epoch; return the epoch and its columns.

    Its fence shuts out the worker that held the lease.
    """
    log = Log(row["id"], run.run_id)
    epoch = int(row["newest_epoch"]) + 1
    logged = measure_log(db, log) + add_entry(db, log, epoch, run.entry)
    last = run.entry.last if run.entry else 0
    lease_expires = now_ms() + run.lease
    return epoch, {
        "epoch": epoch,
        "newest_epoch": epoch,
        "fence": make_fence(epoch, nonce),
        "lease_expires": lease_expires,
        "released": 0,
        "due_at": lease_expires,
        "step": -1,
        "seq": last,
        "committed": str(Position(epoch, last)),
        "log_bytes": trim_log(db, log, logged, retention.max_log_bytes),
    }


# ---------------------------------------------------------------- queues and cancelling
def enqueue_post(
    db: sqlite3.Connection, entry: PackedEnqueue, retention: Retention, /
) -> EnqueueAnswer:
    row = find_row(db, entry.tag)
    if row is None:
        return "changed"
    conversation = row["id"]
    runs = queued_runs(db, conversation)
    log = Log(conversation, entry.run_id)
    # a repeat: its run waits, or has begun or ended since
    if entry.run_id in runs or find_log(db, log):
        return "queued"
    # with nothing to wait for, the post can begin its run at once
    if not (runs or row["running"]):
        return "changed"
    for name, _ in entry.receipts:  # another post may have taken one of them
        if find_receipt(db, conversation, name) is not None:
            return "changed"
    if len(runs) >= entry.limit:
        return "full"
    add_queued(db, conversation, entry.run_id, entry.record)
    add_receipts(db, conversation, entry.receipts)
    _set_updated(db, row)
    _log_outside_lease(db, row, log, entry.entry)
    keep_log(db, log, retention.waiting.log)
    update_row(
        db,
        conversation,
        cancelled=1 if entry.stops and row["running"] else row["cancelled"],
        keep_until=time_in(retention.waiting.conversation),
    )
    return "queued"


def cancel_run(
    db: sqlite3.Connection,
    tag: str,
    run_id: str,
    finished: PackedEntry | None,
    retention: Retention,
    /,
) -> bool:
    row = find_row(db, tag)
    if row is None:
        return False
    if row["running"] and row["run_id"] == run_id:
        update_row(db, row["id"], cancelled=1)
        return True
    log = Log(row["id"], run_id)
    if not remove_queued(db, row["id"], run_id):
        # a repeat: only this function marks logs as dequeued
        known = find_log(db, log)
        return known is not None and bool(known["dequeued"])
    _log_outside_lease(db, row, log, finished)
    keep_log(db, log, retention.idle.log, dequeued=True)
    if not (row["running"] or has_queue(db, row["id"])):
        update_row(db, row["id"], keep_until=time_in(retention.idle.conversation))
    return True


def _log_outside_lease(
    db: sqlite3.Connection, row: sqlite3.Row, log: Log, entry: PackedEntry | None
) -> None:
    """Write to the log of a run that does not run, under a new epoch.

    The lease of the run that goes on stays as it is.
    """
    epoch = row["newest_epoch"] + 1
    add_entry(db, log, epoch, entry)
    update_row(db, row["id"], newest_epoch=epoch)


# ---------------------------------------------------------------- clients' claims of owed calls
def claim_call(db: sqlite3.Connection, request: PackedClaim, /) -> CallClaim | None:
    """Write a claim, whose nonce identifies a repeat, or release it with 0 milliseconds."""
    row = find_row(db, request.tag)
    if row is None:
        return None
    time = now_ms()
    found = db.execute("SELECT claims FROM extras WHERE conversation = ?", (row["id"],))
    words = (found.fetchone()["claims"] or "").split()
    known = zip(words[::3], words[1::3], map(int, words[2::3]), strict=True)
    claims = {call: (claimant, until) for call, claimant, until in known if until > time}
    claimant, until = claims.get(request.call, (request.claimant, time))
    if row["nonce"] == request.nonce:
        return CallClaim(True, until, until - time)
    if row["version"] != request.expected or row["running"]:
        return None
    if claimant != request.claimant:
        return CallClaim(False, until, until - time)
    until = time + request.milliseconds
    claims.pop(request.call, None)
    if until > time:
        claims[request.call] = request.claimant, until
    update_row(db, row["id"], version=row["version"] + 1, nonce=request.nonce)
    packed = " ".join(f"{call} {claimant} {end}" for call, (claimant, end) in claims.items())
    db.execute("UPDATE extras SET claims = ? WHERE conversation = ?", (packed, row["id"]))
    return CallClaim(True, until, until - time)
