"""The tables of a SQLite file, and its rows: a conversation's is written with each of its writes.

A post touches few pages of the file, which is most of what it costs. So:

* What each batch of events changes is in `leases`, a small table: a row is there as long as the
  lease. Its times have no index.
* A message's row id is made of the ids of its conversation and its own number.
* Fields, receipts and run records lie side by side in `parts`, under the first letter of their kind
  and their name.
"""

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from passback.core.conversation.store import WHOLE, Span
from passback.core.errors import ConfigurationError, StoreError
from passback.core.ids import conversation_tag
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.values import value
from passback.stores.options import KeepTimes, StoreOptions

SCHEMA_VERSION = 20

SCHEMA = """
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    tag TEXT NOT NULL UNIQUE,
    owner BLOB NOT NULL,
    name BLOB NOT NULL,                     -- its id among its owner's
    version INTEGER NOT NULL,
    message_count INTEGER NOT NULL DEFAULT 0,
    spans TEXT,                             -- of the view, in JSON, or NULL for all messages
    size INTEGER NOT NULL DEFAULT 0,        -- of the view, in bytes
    queued INTEGER NOT NULL DEFAULT 0,      -- entries of the queue
    due_at INTEGER,                         -- when it has no lease, milliseconds
    taken_until INTEGER NOT NULL DEFAULT 0, -- by who asked for what is due, milliseconds
    keep_until INTEGER,                     -- milliseconds
    created INTEGER NOT NULL,               -- microseconds
    updated INTEGER NOT NULL,               -- microseconds
    owed_since INTEGER,                     -- microseconds
    writes TEXT NOT NULL,                   -- ids of the last ones
    head BLOB NOT NULL
);
CREATE INDEX conversations_by_age ON conversations (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX conversations_by_due ON conversations (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX conversations_by_updated ON conversations (owner, updated);
CREATE INDEX conversations_by_owed ON conversations (owner, owed_since)
    WHERE owed_since IS NOT NULL;
CREATE TABLE leases (
    tag TEXT PRIMARY KEY,
    conversation INTEGER NOT NULL,
    fence TEXT NOT NULL,                    -- empty: it was released
    expires INTEGER NOT NULL,               -- milliseconds
    run_id TEXT NOT NULL,                   -- of its log
    seq INTEGER NOT NULL,                   -- of the log's last event
    log_bytes INTEGER NOT NULL,             -- records of the log
    keep_until INTEGER NOT NULL,            -- of conversation and log, or before, milliseconds
    signal TEXT NOT NULL,
    taken_until INTEGER NOT NULL DEFAULT 0  -- as above
) WITHOUT ROWID;
CREATE TABLE parts (
    conversation INTEGER NOT NULL,
    name TEXT NOT NULL,
    record BLOB NOT NULL,                   -- a receipt is a text
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    record BLOB NOT NULL
);
CREATE TABLE queue (
    conversation INTEGER NOT NULL,
    place INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (conversation, place)
) WITHOUT ROWID;
CREATE TABLE logs (
    conversation INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    keep_until INTEGER NOT NULL,            -- milliseconds
    PRIMARY KEY (conversation, run_id)
) WITHOUT ROWID;
CREATE TABLE entries (
    conversation INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    last INTEGER NOT NULL,                  -- number of the entry's last event
    size INTEGER NOT NULL,
    record BLOB NOT NULL,                   -- of `size` events
    PRIMARY KEY (conversation, run_id, epoch, last)
) WITHOUT ROWID;
CREATE TABLE spent (
    tag TEXT NOT NULL,                      -- of the owner
    part TEXT NOT NULL,                     -- a day, or the lease of a run
    tokens INTEGER NOT NULL,
    milliseconds INTEGER NOT NULL,
    billionths INTEGER NOT NULL,            -- of the currency
    seq INTEGER NOT NULL,                   -- of the newest report of a lease
    keep_until INTEGER NOT NULL,            -- milliseconds
    PRIMARY KEY (tag, part)
) WITHOUT ROWID;
CREATE INDEX spent_by_age ON spent (keep_until);
"""

FIELD, RECEIPT, RUN = "f", "r", "u"
"""First letters of the names in `parts`."""

_MOST_MESSAGES = 2**24  # of a conversation

Value: TypeAlias = int | str | bytes | None


def has_no_tables(db: sqlite3.Connection, /) -> bool:
    """Return whether a file is empty, in an open transaction.

    Raises:
        ConfigurationError: it is another program's, or of another schema version.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return False
    tables = db.execute("SELECT name FROM sqlite_master").fetchall()
    if version and (not tables or ("conversations",) in tables):
        raise ConfigurationError(
            f"the store's file has schema version {version}, and this passback has "
            f"{SCHEMA_VERSION}: use the passback that wrote it, or another file"
        )
    if tables:
        raise ConfigurationError("the store's file is a database of another program")
    return True


def make_tables(db: sqlite3.Connection, /) -> None:
    """Make the tables of an empty file, in an open transaction. Raises as `has_no_tables`."""
    if has_no_tables(db):
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


# ---------------------------------------------------------------- times
@value
class Retention:
    """Times to live, and how large the records of one log may become, in bytes."""

    idle: KeepTimes
    running: KeepTimes
    log_bytes: int

    @classmethod
    def from_options(cls, options: StoreOptions, /) -> "Retention":
        return cls(KeepTimes.when_idle(options), KeepTimes.when_running(options), options.log_bytes)


def now_us() -> int:
    """Return the microseconds of the machine's clock, which all processes on the file share."""
    return time.time_ns() // 1000


def now_ms() -> int:
    return now_us() // 1000


def keep_conversation(now: int, times: KeepTimes, /) -> int | None:
    """Return until when a conversation is kept: for its time, and at most a 64th of that longer.

    So most writes do not move it, and leave its index as it is.
    """
    if times.conversation is None:
        return None
    step = max(1, times.conversation // 64)
    return -(-(now + times.conversation) // step) * step


def is_there(keep_until: int | None, now: int, /) -> bool:
    """Return False if it has expired."""
    return keep_until is None or keep_until > now


# ---------------------------------------------------------------- conversations
class Row(NamedTuple):
    """A conversation, and its lease; with `id` 0 there is none, with `fence` None it has none."""

    id: int = 0
    tag: str = ""
    version: int = 0
    message_count: int = 0
    spans: str | None = None
    size: int = 0
    queued: int = 0
    due_at: int | None = None
    taken_until: int = 0
    keep_until: int | None = None
    created: int = 0
    updated: int = 0
    owed_since: int | None = None
    writes: str = ""
    fence: str | None = None
    expires: int = 0
    run_id: str = ""
    seq: int = 0
    log_bytes: int = 0
    log_until: int = 0
    signal: str = ""


COLUMNS = (
    "c.id, c.tag, version, message_count, spans, size, queued, due_at, c.taken_until,"
    " c.keep_until, created, updated, owed_since, writes,"
    " fence, expires, run_id, seq, log_bytes, l.keep_until, signal"
)
JOINED = "conversations c LEFT JOIN leases l ON l.tag = c.tag"


def find_row(db: sqlite3.Connection, tag: str, /) -> Row:
    """Return the row of a conversation, which may have expired."""
    statement = f"SELECT {COLUMNS} FROM {JOINED} WHERE c.tag = ?"  # noqa: S608
    return Row._make(db.execute(statement, (tag,)).fetchone() or Row())


def update_row(db: sqlite3.Connection, row: Row, columns: Mapping[str, Value], /) -> None:
    """Write the columns whose value changes: naming one writes its index, too."""
    changed = {name: each for name, each in columns.items() if getattr(row, name, None) != each}
    names = " = ?, ".join(changed)  # from our code
    statement = f"UPDATE conversations SET {names} = ? WHERE id = ?"  # noqa: S608
    db.execute(statement, (*changed.values(), row.id))


def insert_row(db: sqlite3.Connection, columns: Mapping[str, Value], /) -> int:
    """Make a row; return its id."""
    marks = ", ".join("?" * len(columns))
    statement = f"INSERT INTO conversations ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
    return db.execute(statement, (*columns.values(),)).lastrowid or 0


def remove_rows(db: sqlite3.Connection, row_id: int, /) -> None:
    """Delete a conversation and all that belongs to it."""
    db.execute("DELETE FROM messages WHERE id >= ? AND id < ?", message_ids(row_id, Span(0)))
    for table in ("leases", "parts", "queue", "logs", "entries"):
        db.execute(f"DELETE FROM {table} WHERE conversation = ?", (row_id,))  # noqa: S608
    db.execute("DELETE FROM conversations WHERE id = ?", (row_id,))


def message_ids(conversation: int, span: Span, /) -> tuple[int, int]:
    """Return the row ids of messages: the first one, and the one behind the last."""
    first = conversation * _MOST_MESSAGES
    end = _MOST_MESSAGES if span.end is None else span.end
    return first + min(span.start, _MOST_MESSAGES), first + min(end, _MOST_MESSAGES)


def add_messages(
    db: sqlite3.Connection, conversation: int, count: int, records: Iterable[bytes], /
) -> None:
    """Write messages behind the first `count`."""
    rows = list(enumerate(records, conversation * _MOST_MESSAGES + count))
    if count + len(rows) > _MOST_MESSAGES:  # they would be the next conversation's
        raise StoreError("a conversation has too many messages")
    db.executemany("INSERT INTO messages VALUES (?, ?)", rows)


def pack_spans(spans: tuple[Span, ...], /) -> str | None:
    if spans == WHOLE:
        return None
    return json.dumps([(each.start, each.end) for each in spans])


def unpack_spans(packed: str | None, /) -> tuple[Span, ...]:
    return WHOLE if packed is None else tuple(Span(*each) for each in json.loads(packed))


def pack_text(text: str, /) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def read_key(owner: bytes, name: bytes, /) -> ConversationKey:
    texts = [each.decode("utf-8", "surrogatepass") for each in (owner, name)]
    return ConversationKey(OwnerId(texts[0]), ConversationId(texts[1]))


def try_read_key(tag: str, owner: object, name: object, /) -> ConversationKey | None:
    """Return the key of a conversation; None where a damaged file has another than its tag's."""
    try:
        key = read_key(as_blob(owner), as_blob(name))
    except (TypeError, UnicodeDecodeError):
        return None
    return key if conversation_tag(key) == tag else None


def as_blob(found: object, /) -> bytes:
    """Return a record. Raises TypeError where a damaged file has something else."""
    if not isinstance(found, bytes):
        raise TypeError(type(found))
    return found
