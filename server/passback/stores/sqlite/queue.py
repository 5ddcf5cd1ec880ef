"""The posts that wait for their turn in the SQLite store, and the asking for a run to be cancelled."""

import sqlite3

from passback.core.changes import EnqueueAnswer
from passback.stores.layout import PackedEnqueue, PackedEntry
from passback.stores.sqlite import logs
from passback.stores.sqlite.logs import Log
from passback.stores.sqlite.rows import Retention, add_receipts, find, until, update

_OF_QUEUE = "FROM queue WHERE conversation = ?"


def waits(db: sqlite3.Connection, conversation: int, /) -> bool:
    """Whether posts wait."""
    return first(db, conversation) is not None


def first(db: sqlite3.Connection, conversation: int, /) -> str | None:
    """The run whose turn is next."""
    found = db.execute(
        f"SELECT run_id {_OF_QUEUE} ORDER BY place LIMIT 1",
        (conversation,),
    ).fetchone()
    return None if found is None else str(found["run_id"])


def leave(db: sqlite3.Connection, conversation: int, run_id: str, /) -> bool:
    """False: this run does not wait."""
    gone = db.execute(f"DELETE {_OF_QUEUE} AND run_id = ?", (conversation, run_id))
    return gone.rowcount > 0


def enqueue(
    db: sqlite3.Connection, entry: PackedEnqueue, key: bytes, limits: Retention, /
) -> EnqueueAnswer:
    row = find(db, entry.tag)
    if row is None:
        return "changed"
    conversation = row["id"]
    runs = [each["run_id"] for each in db.execute(f"SELECT run_id {_OF_QUEUE}", (conversation,))]
    log = Log(conversation, entry.run_id)
    if entry.run_id in runs or logs.exists(db, log):
        return "queued"
    if not (runs or row["running"]) or _is_taken(db, conversation, entry):
        return "changed"
    if len(runs) >= entry.limit:
        return "full"
    db.execute(
        f"INSERT INTO queue SELECT ?, COALESCE(MAX(place), 0) + 1, ?, ? {_OF_QUEUE}",
        (conversation, entry.run_id, entry.record, conversation),
    )
    add_receipts(db, conversation, entry.receipts)
    db.execute("UPDATE extras SET key = ? WHERE conversation = ?", (key, conversation))
    _log_apart(db, row, log, entry.entry)
    logs.keep(db, log, limits.waiting.log)
    update(
        db,
        conversation,
        cancelled=1 if entry.stops and row["running"] else row["cancelled"],
        keep_until=until(limits.waiting.conversation),
    )
    return "queued"


def cancel(
    db: sqlite3.Connection,
    tag: str,
    run_id: str,
    finished: PackedEntry | None,
    limits: Retention,
    /,
) -> bool:
    row = find(db, tag)
    if row is None:
        return False
    if row["running"] and row["run_id"] == run_id:
        update(db, row["id"], cancelled=1)
        return True
    log = Log(row["id"], run_id)
    if not leave(db, row["id"], run_id):
        known = logs.find(db, log)
        return known is not None and bool(known["dequeued"])
    _log_apart(db, row, log, finished)
    logs.keep(db, log, limits.idle.log, dequeued=True)
    if not (row["running"] or waits(db, row["id"])):
        update(db, row["id"], keep_until=until(limits.idle.conversation))
    return True


def _is_taken(db: sqlite3.Connection, conversation: int, entry: PackedEnqueue) -> bool:
    """Whether another post has taken one of the receipts."""
    return any(
        db.execute(
            "SELECT 1 FROM receipts WHERE conversation = ? AND name = ?", (conversation, name)
        ).fetchone()
        for name, _ in entry.receipts
    )


def _log_apart(
    db: sqlite3.Connection, row: sqlite3.Row, log: Log, entry: PackedEntry | None
) -> None:
    """Write to the log of a run that does not go on, under an epoch of its own: the running lease stays as it is."""
    epoch = row["epochs"] + 1
    logs.add(db, log, epoch, entry)
    update(db, row["id"], epochs=epoch)
