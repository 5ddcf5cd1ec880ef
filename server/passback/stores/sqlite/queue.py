"""Queues of posts in the SQLite store, and the cancelling of runs."""

import sqlite3

from passback.core.changes import EnqueueAnswer
from passback.stores.layout import PackedEnqueue, PackedEntry
from passback.stores.sqlite import logs
from passback.stores.sqlite.logs import Log
from passback.stores.sqlite.rows import Retention, add_receipts, find_row, time_in, update_row

_OF_QUEUE = "FROM queue WHERE conversation = ?"


def has_queue(db: sqlite3.Connection, conversation: int, /) -> bool:
    """Return whether posts wait."""
    return first_queued(db, conversation) is not None


def first_queued(db: sqlite3.Connection, conversation: int, /) -> str | None:
    """Return the first run of the queue."""
    found = db.execute(
        f"SELECT run_id {_OF_QUEUE} ORDER BY place LIMIT 1",
        (conversation,),
    ).fetchone()
    return None if found is None else str(found["run_id"])


def remove_queued(db: sqlite3.Connection, conversation: int, run_id: str, /) -> bool:
    """Remove a run from the queue; return False if it is not there."""
    gone = db.execute(f"DELETE {_OF_QUEUE} AND run_id = ?", (conversation, run_id))
    return gone.rowcount > 0


def enqueue_post(
    db: sqlite3.Connection, entry: PackedEnqueue, key: bytes, limits: Retention, /
) -> EnqueueAnswer:
    row = find_row(db, entry.tag)
    if row is None:
        return "changed"
    conversation = row["id"]
    runs = [each["run_id"] for each in db.execute(f"SELECT run_id {_OF_QUEUE}", (conversation,))]
    log = Log(conversation, entry.run_id)
    # a repeat: its run waits, or has begun or ended since
    if entry.run_id in runs or logs.log_exists(db, log):
        return "queued"
    # with nothing to wait for, the post can begin its run at once
    if not (runs or row["running"]) or _has_receipt(db, conversation, entry):
        return "changed"
    if len(runs) >= entry.limit:
        return "full"
    db.execute(
        f"INSERT INTO queue SELECT ?, COALESCE(MAX(place), 0) + 1, ?, ? {_OF_QUEUE}",
        (conversation, entry.run_id, entry.record, conversation),
    )
    add_receipts(db, conversation, entry.receipts)
    db.execute("UPDATE extras SET key = ? WHERE conversation = ?", (key, conversation))
    _log_outside_lease(db, row, log, entry.entry)
    logs.keep_log(db, log, limits.waiting.log)
    update_row(
        db,
        conversation,
        cancelled=1 if entry.stops and row["running"] else row["cancelled"],
        keep_until=time_in(limits.waiting.conversation),
    )
    return "queued"


def cancel_run(
    db: sqlite3.Connection,
    tag: str,
    run_id: str,
    finished: PackedEntry | None,
    limits: Retention,
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
        known = logs.find_log(db, log)
        return known is not None and bool(known["dequeued"])
    _log_outside_lease(db, row, log, finished)
    logs.keep_log(db, log, limits.idle.log, dequeued=True)
    if not (row["running"] or has_queue(db, row["id"])):
        update_row(db, row["id"], keep_until=time_in(limits.idle.conversation))
    return True


def _has_receipt(db: sqlite3.Connection, conversation: int, entry: PackedEnqueue) -> bool:
    """Return whether another post has taken one of the receipts."""
    return any(
        db.execute(
            "SELECT 1 FROM receipts WHERE conversation = ? AND name = ?", (conversation, name)
        ).fetchone()
        for name, _ in entry.receipts
    )


def _log_outside_lease(
    db: sqlite3.Connection, row: sqlite3.Row, log: Log, entry: PackedEntry | None
) -> None:
    """Write to the log of a run that does not run, under a new epoch.

    The lease of the run that goes on stays as it is.
    """
    epoch = row["newest_epoch"] + 1
    logs.add_entry(db, log, epoch, entry)
    update_row(db, row["id"], newest_epoch=epoch)
