"""Writes of the SQLite store, each a function of a connection inside a transaction.

It checks first and writes last.
"""

import sqlite3
from typing import NamedTuple

from passback.core.conversation.store import (
    REMEMBERED_WRITES,
    Amounts,
    Append,
    Appended,
    Applied,
    LogEntry,
    SpentUnder,
    TakeLease,
    Write,
)
from passback.core.messages import ConversationKey
from passback.stores.layout import SPENT_MOST, SPENT_TTL, owner_tag
from passback.stores.sqlite.logs import Log, open_log, remove_log, void_after, write_entry
from passback.stores.sqlite.tables import (
    FIELD,
    RECEIPT,
    RUN,
    Retention,
    Row,
    Value,
    add_messages,
    find_row,
    insert_row,
    is_there,
    keep_conversation,
    message_ids,
    now_ms,
    now_us,
    pack_spans,
    pack_text,
    remove_rows,
    try_read_key,
    unpack_spans,
    update_row,
)

_SWEEP_LIMIT = 8  # expired conversations, and logs, that are deleted at a time


# ---------------------------------------------------------------- apply
def apply_write(
    db: sqlite3.Connection, tag: str, write: Write, retention: Retention, /
) -> Applied | None:
    time = now_us()
    now = time // 1000
    row = find_row(db, tag)
    if not is_there(row.keep_until, now):
        remove_rows(db, row.id)
        row = Row()
    if write.id in row.writes.split("\n"):
        return Applied(row.version, now, row.queued > 0)
    if not _guard_holds(write, row, now):
        return None
    version = row.version + 1 if row.id else write.first_version
    queued = row.queued - _leave_queue(db, row, write) + (write.enqueue is not None)
    taken, held = isinstance(write.lease, TakeLease), row.fence is not None
    leased = taken or (held and write.lease != "end")
    columns = _change_columns(db, row, write, time)
    columns |= {
        "version": version,
        "queued": queued,
        "due_at": _due_at(row, write, now, queued),
        "keep_until": keep_conversation(
            now, retention.running if leased or queued else retention.idle
        ),
    }
    if row.id:
        update_row(db, row, columns)
    else:
        owner, name = pack_text(write.key.owner), pack_text(write.key.id)
        made: dict[str, Value] = {
            "tag": tag,
            "owner": owner,
            "name": name,
            "head": b"",
            "created": time,
        }
        row = row._replace(id=insert_row(db, made | columns), tag=tag)
    _write_records(db, row, write)
    _write_lease(db, row, write, _write_log(db, row, write, now, retention), now)
    return Applied(version, now, queued > 0)


def _guard_holds(write: Write, row: Row, now: int) -> bool:
    guard = write.guard
    if guard.version != row.version and (guard.version is not None or not row.id):
        return False
    if guard.message_count not in {None, row.message_count}:
        return False
    if guard.lease_over and (row.fence is None or (row.fence and row.expires > now)):
        return False
    if guard.fence is None:
        return True
    if guard.fence != row.fence or not row.fence:
        return False
    # with a new lease, its entry begins the log of that one
    entry = None if write.log is None or isinstance(write.lease, TakeLease) else write.log.entry
    return _follows(entry, row.seq)


def _follows(entry: LogEntry | None, seq: int) -> bool:
    """Return whether an entry follows on the event of that number, or is there already.

    If not, earlier events were lost, and its writer does not know.
    """
    return entry is None or entry.first == seq + 1 or entry.position.seq <= seq


def _leave_queue(db: sqlite3.Connection, row: Row, write: Write) -> int:
    """Remove an entry from the queue; return how many have left it."""
    if write.dequeue is None or not row.queued:
        return 0
    gone = db.execute(
        "DELETE FROM queue WHERE conversation = ? AND run_id = ?", (row.id, write.dequeue)
    )
    return gone.rowcount


def _due_at(row: Row, write: Write, now: int, queued: int) -> int | None:
    if write.due is None:
        return row.due_at
    times = (write.due.after, write.due.queued if queued else None)
    return min((now + each for each in times if each is not None), default=None)


def _change_columns(db: sqlite3.Connection, row: Row, write: Write, time: int) -> dict[str, Value]:
    """Return columns of the row once the write is applied."""
    spans = row.spans if write.view is None else pack_spans(write.view.spans)
    columns: dict[str, Value] = {
        "message_count": row.message_count + len(write.messages),
        "spans": spans,
        "size": _view_size(db, row, write, spans),
        "writes": "\n".join([*row.writes.split("\n")[1 - REMEMBERED_WRITES :], write.id]),
    }
    if write.head is not None:
        columns["head"] = write.head
    if write.due is not None or write.lease is not None:
        columns["taken_until"] = 0
    if write.owes is not None:
        columns["owed_since"] = (row.owed_since or time) if write.owes else None
    if write.touches:
        # newer than the others, even if the clock was set back
        newest = "SELECT MAX(updated) FROM conversations WHERE owner = ?"
        [found] = db.execute(newest, (pack_text(write.key.owner),)).fetchone()
        columns["updated"] = max(time, (found or 0) + 1)
    elif not row.id:
        columns["updated"] = time
    return columns


def _view_size(db: sqlite3.Connection, row: Row, write: Write, spans: str | None) -> int:
    if write.view is not None and write.view.size is not None:
        return write.view.size
    if spans is None and write.view is None:
        return row.size + sum(map(len, write.messages))
    size = 0 if write.view is not None else row.size
    for span in unpack_spans(spans):
        if write.view is not None:
            counted = "SELECT SUM(LENGTH(record)) FROM messages WHERE id >= ? AND id < ?"
            size += db.execute(counted, message_ids(row.id, span)).fetchone()[0] or 0
        start = max(0, span.start - row.message_count)
        end = None if span.end is None else max(0, span.end - row.message_count)
        size += sum(map(len, write.messages[start:end]))
    return size


def _write_records(db: sqlite3.Connection, row: Row, write: Write) -> None:
    parts: list[tuple[int, str, str | bytes]] = []
    for name, record in write.fields.items():
        if record is None:
            db.execute(
                "DELETE FROM parts WHERE conversation = ? AND name = ?", (row.id, FIELD + name)
            )
        else:
            parts.append((row.id, FIELD + name, record))
    parts += [(row.id, RECEIPT + name, receipt) for name, receipt in write.receipts.items()]
    parts += [(row.id, RUN + run_id, record) for run_id, record in write.runs.items()]
    if parts:
        db.executemany("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", parts)
    if write.messages:
        add_messages(db, row.id, row.message_count, write.messages)
    if (queued := write.enqueue) is not None:
        db.execute(
            "INSERT INTO queue SELECT ?, COALESCE(MAX(place), 0) + 1, ?, ? FROM queue"
            " WHERE conversation = ?",
            (row.id, queued.run_id, queued.record, row.id),
        )


# ---------------------------------------------------------------- leases and their logs
class _LeasedLog(NamedTuple):
    """Columns of a lease: its log, where that ends, its bytes, and until when it is kept."""

    run_id: str
    seq: int
    log_bytes: int
    keep_until: int


def _write_log(
    db: sqlite3.Connection, row: Row, write: Write, now: int, retention: Retention
) -> _LeasedLog:
    """Change a log; return the log of the lease once the write is applied."""
    is_taken = isinstance(write.lease, TakeLease)
    leased = _LeasedLog(row.run_id, row.seq, row.log_bytes, row.log_until)
    if is_taken:
        leased = _LeasedLog("", 0, 0, now + retention.running.log)
    if (change := write.log) is None:
        return leased
    log, entry, is_own = Log(row.id, change.run_id), change.entry, row.run_id == change.run_id
    until = now + (retention.idle if change.ends else retention.running).log
    size = open_log(
        db, log, row.log_bytes if row.fence is not None and is_own else None, now, until
    )
    if change.void_after is not None:
        size = void_after(db, log, change.void_after)
    is_holders, seq = write.guard.fence is not None and not is_taken, leased.seq
    if entry is not None and not (is_holders and entry.position.seq <= seq):
        size = write_entry(db, log, entry, size, retention.log_bytes)
        seq = entry.position.seq
    if is_holders or is_taken:
        return _LeasedLog(change.run_id, seq, size, until)
    # another's entry: the lease's holder goes on from its own last event
    return leased._replace(log_bytes=size) if is_own else leased


def _write_lease(
    db: sqlite3.Connection, row: Row, write: Write, leased: _LeasedLog, now: int
) -> None:
    change, signal = write.lease, row.signal if write.signal is None else write.signal
    if isinstance(change, TakeLease):
        signal = change.signal if write.signal is None else write.signal
        db.execute(
            "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (row.tag, row.id, change.fence, now + change.milliseconds, *leased, signal),
        )
    elif row.fence is None:
        return
    elif change == "end":
        db.execute("DELETE FROM leases WHERE tag = ?", (row.tag,))
    else:
        fence, expires = row.fence, row.expires
        if change == "release":
            fence, expires = "", now
        elif change is not None and fence:
            expires = now + change.milliseconds
        # the last columns of a row
        if (columns := (fence, expires, *leased, signal)) != row[-len(columns) :]:
            db.execute(
                "UPDATE leases SET fence = ?, expires = ?, run_id = ?, seq = ?, log_bytes = ?,"
                " keep_until = ?, signal = ?,"
                " taken_until = CASE WHEN ? THEN 0 ELSE taken_until END WHERE tag = ?",
                (*columns, change is not None, row.tag),
            )


def append_entry(
    db: sqlite3.Connection, /, tag: str, append: Append, lease: int, retention: Retention
) -> Appended:
    """Write an entry, if there is one, and renew the lease for `lease` milliseconds."""
    now = now_ms()
    row = db.execute(
        "SELECT conversation, fence, signal, run_id, seq, log_bytes, keep_until FROM leases"
        " WHERE tag = ?",
        (tag,),
    ).fetchone()
    if row is None or not row[1] or row[1] != append.fence or not _follows(append.entry, row[4]):
        return Appended(False)
    conversation, _, signal, run_id, seq, log_bytes, keep_until = row
    entry, log = append.entry, Log(conversation, append.run_id)
    # rarely, so that most batches touch one row beside the entry
    is_short = keep_until - now < retention.running.log // 2
    if entry is not None and (is_short or run_id != append.run_id):
        if not _keep_longer(db, conversation, now, retention):
            return Appended(False)
        run_id, keep_until = append.run_id, now + retention.running.log
        log_bytes = open_log(db, log, None, now, keep_until)
    if entry is not None and entry.position.seq > seq:
        seq = entry.position.seq
        log_bytes = write_entry(db, log, entry, log_bytes, retention.log_bytes)
    db.execute(
        "UPDATE leases SET expires = ?, run_id = ?, seq = ?, log_bytes = ?, keep_until = ?,"
        " taken_until = 0 WHERE tag = ?",
        (now + lease, run_id, seq, log_bytes, keep_until, tag),
    )
    return Appended(True, False, signal)


def _keep_longer(db: sqlite3.Connection, conversation: int, now: int, retention: Retention) -> bool:
    """Keep a conversation for the time of a run; False if it has expired."""
    until = keep_conversation(now, retention.running)
    kept = db.execute(
        "UPDATE conversations SET keep_until = ?"
        " WHERE id = ? AND (keep_until IS NULL OR keep_until > ?)",
        (until, conversation, now),
    )
    return kept.rowcount > 0


def take_due(db: sqlite3.Connection, limit: int, milliseconds: int, /) -> list[ConversationKey]:
    now = now_ms()
    found = db.execute(
        "SELECT c.id, c.tag, owner, name, l.tag, expires AS due FROM leases l"
        " JOIN conversations c ON c.id = conversation WHERE expires <= :now"
        " AND l.taken_until <= :now AND (c.keep_until IS NULL OR c.keep_until > :now)"
        " UNION ALL SELECT c.id, c.tag, owner, name, NULL, due_at FROM conversations c"
        " WHERE due_at <= :now AND taken_until <= :now"
        " AND (keep_until IS NULL OR keep_until > :now)"
        " AND NOT EXISTS (SELECT 1 FROM leases WHERE tag = c.tag)"
        " ORDER BY due LIMIT :limit",
        {"now": now, "limit": limit},
    ).fetchall()
    until = now + milliseconds
    for row_id, _, _, _, tag, _ in found:
        if tag is None:
            db.execute("UPDATE conversations SET taken_until = ? WHERE id = ?", (until, row_id))
        else:
            db.execute("UPDATE leases SET taken_until = ? WHERE tag = ?", (until, tag))
    keys = (try_read_key(tag, owner, name) for _, tag, owner, name, _, _ in found)
    return [key for key in keys if key is not None]


# ---------------------------------------------------------------- deletion, and room for writes
def test_write(db: sqlite3.Connection, /) -> None:
    """Write a page as it is, to see whether writes are taken: a full disk refuses this."""
    # not SCHEMA_VERSION: a newer server may have changed the schema meanwhile
    [version] = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA user_version = {int(version)}")


def delete_conversation(db: sqlite3.Connection, /, tag: str) -> bool:
    row = find_row(db, tag)
    if row.id:
        remove_rows(db, row.id)
    return row.id > 0 and is_there(row.keep_until, now_ms())


class Sweeper:
    """Deletes what has expired, a few at a time, in one process."""

    def __init__(self) -> None:
        self._after = Log(0, "")

    def sweep(self, db: sqlite3.Connection, /) -> None:
        now = now_ms()
        gone = db.execute(
            "SELECT id FROM conversations WHERE keep_until <= ? LIMIT ?", (now, _SWEEP_LIMIT)
        ).fetchall()
        for [conversation] in gone:
            remove_rows(db, conversation)
        # in turn, as an index of their times would cost each run two pages more
        logs = db.execute(
            "SELECT conversation, run_id, keep_until FROM logs"
            " WHERE (conversation, run_id) > (?, ?) ORDER BY conversation, run_id LIMIT ?",
            (*self._after, _SWEEP_LIMIT),
        ).fetchall()
        for conversation, run_id, keep_until in logs:
            if keep_until <= now:
                remove_log(db, Log(conversation, run_id))
        self._after = Log(*logs[-1][:2]) if len(logs) == _SWEEP_LIMIT else Log(0, "")


# ---------------------------------------------------------------- what was spent
def add_spent(db: sqlite3.Connection, spent: SpentUnder, /) -> Amounts:
    """Replace the amounts of a lease by newer ones; return the amounts of the day."""
    now, tag = now_ms(), owner_tag(spent.owner)
    day, lease = f"day:{spent.day}", f"run:{spent.lease}"
    rows = db.execute(
        "SELECT part, tokens, milliseconds, billionths, seq FROM spent"
        " WHERE tag = ? AND part IN (?, ?) AND keep_until > ?",
        (tag, day, lease, now),
    )
    found = {part: (Amounts(*amounts), seq) for part, *amounts, seq in rows}
    total, _ = found.get(day, (Amounts(0, 0, 0), 0))
    before, seq = found.get(lease, (Amounts(0, 0, 0), 0))
    if spent.seq <= seq:
        return total
    changed = (given - known for given, known in zip(spent.amounts, before, strict=True))
    # a sum that is too large to be exact does not fall
    total = Amounts(
        *(
            known if known == SPENT_MOST else min(SPENT_MOST, max(0, known + by))
            for known, by in zip(total, changed, strict=True)
        )
    )
    keep_until = now + SPENT_TTL
    db.executemany(
        "INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (tag, day, *total, 0, keep_until),
            (tag, lease, *spent.amounts, spent.seq, keep_until),
        ),
    )
    db.execute(
        "DELETE FROM spent WHERE (tag, part) IN"
        " (SELECT tag, part FROM spent WHERE keep_until <= ? LIMIT ?)",
        (now, _SWEEP_LIMIT),
    )
    return total
