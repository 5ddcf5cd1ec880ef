"""The tables of the SQLite file, and how those of an older passback become them."""

from collections.abc import Mapping

SCHEMA_VERSION = 8

# The row of a conversation is written with every batch of events, so what may be large is kept apart from it.
SCHEMA = """
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    tag TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    nonce TEXT NOT NULL DEFAULT '',         -- of the last change
    messages INTEGER NOT NULL DEFAULT 0,
    run_id TEXT,
    running INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,       -- of the lease
    fence TEXT NOT NULL DEFAULT '',
    expires INTEGER NOT NULL DEFAULT 0,     -- end of the lease, milliseconds
    step INTEGER NOT NULL DEFAULT -1,       -- last commit of this lease
    ended TEXT NOT NULL DEFAULT '',         -- fence and step of the commit that ended the last run
    seq INTEGER NOT NULL DEFAULT 0,         -- last event logged under this lease
    cancelled INTEGER NOT NULL DEFAULT 0,
    keep_until INTEGER,
    epochs INTEGER NOT NULL DEFAULT 0,      -- the newest epoch of all, also of runs that wait
    released INTEGER NOT NULL DEFAULT 0,    -- the lease's owner gave it back
    attempt INTEGER NOT NULL DEFAULT 0,
    committed_epoch INTEGER NOT NULL DEFAULT 0,
    committed_seq INTEGER NOT NULL DEFAULT 0,
    mark INTEGER NOT NULL DEFAULT 0,
    cut INTEGER NOT NULL DEFAULT 0,
    tethered INTEGER NOT NULL DEFAULT 0,
    attended INTEGER NOT NULL DEFAULT 0,    -- until when, milliseconds
    log_bytes INTEGER NOT NULL DEFAULT 0,   -- records of the run's log
    look_at INTEGER,                        -- when to look whether somebody works on it
    answer_by INTEGER,                      -- until when the client has to answer what it owes
    history_bytes INTEGER                   -- of the messages from the boundary on, NULL before they are counted
);
CREATE INDEX conversations_by_age ON conversations (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX conversations_by_look ON conversations (look_at) WHERE look_at IS NOT NULL;
CREATE TABLE extras (
    conversation INTEGER PRIMARY KEY,
    owed BLOB NOT NULL,
    tools BLOB,
    key BLOB,                               -- owner and id, once a run has begun
    claims TEXT,                            -- which clients are at work on what is owed
    owner BLOB,                             -- whose it is, once it has owed something
    owed_since INTEGER,                     -- when that was handed back, microseconds
    state BLOB,                             -- what is known beside the messages
    boundary INTEGER NOT NULL DEFAULT 0,    -- the position of the first message that is still read
    open_turns BLOB                         -- at the last commit
);
CREATE INDEX extras_by_owed ON extras (owner, owed_since) WHERE owed_since IS NOT NULL;
CREATE TABLE messages (
    conversation INTEGER NOT NULL,
    position INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (conversation, position)
);
CREATE TABLE receipts (
    conversation INTEGER NOT NULL,
    name TEXT NOT NULL,
    receipt TEXT NOT NULL,
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
CREATE TABLE queue (
    conversation INTEGER NOT NULL,
    place INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (conversation, place)
);
CREATE TABLE logs (
    conversation INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    keep_until INTEGER NOT NULL,
    dequeued INTEGER NOT NULL DEFAULT 0,    -- the run left the queue without its turn
    PRIMARY KEY (conversation, run_id)
) WITHOUT ROWID;
CREATE INDEX logs_by_age ON logs (keep_until);
CREATE TABLE entries (
    conversation INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    last INTEGER NOT NULL,          -- number of the entry's last event
    size INTEGER NOT NULL,
    record BLOB NOT NULL,           -- of `size` events
    PRIMARY KEY (conversation, run_id, epoch, last)
);
CREATE TABLE spent (
    tag TEXT NOT NULL,              -- whose it is
    part TEXT NOT NULL,             -- a day, or the lease of a run
    tokens INTEGER NOT NULL,
    milliseconds INTEGER NOT NULL,
    billionths INTEGER NOT NULL,    -- of the currency
    keep_until INTEGER NOT NULL,
    seq INTEGER NOT NULL DEFAULT 0, -- of a lease: what was said last
    PRIMARY KEY (tag, part)
);
CREATE INDEX spent_by_age ON spent (keep_until);
"""

# A run of version 1 cannot be taken over, as nobody wrote down which of its events are committed. So many attempts end it
# as lost, with all its events, which is what version 1 would have done. `mark` says that nothing can be taken back.
_FROM_1 = """
ALTER TABLE conversations ADD COLUMN epochs INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN released INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN committed_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN committed_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN mark INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN tethered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN attended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN log_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN look_at INTEGER;
ALTER TABLE extras ADD COLUMN key BLOB;
ALTER TABLE logs ADD COLUMN dequeued INTEGER NOT NULL DEFAULT 0;
UPDATE conversations SET epochs = epoch, committed_epoch = epoch, committed_seq = seq, mark = messages;
UPDATE conversations SET attempt = 1000000, look_at = expires, log_bytes = (
    SELECT COALESCE(SUM(length(record)), 0) FROM entries
    WHERE conversation = conversations.id AND run_id = conversations.run_id
) WHERE running;
CREATE INDEX conversations_by_look ON conversations (look_at) WHERE look_at IS NOT NULL;
CREATE TABLE receipts (
    conversation INTEGER NOT NULL,
    name TEXT NOT NULL,
    receipt TEXT NOT NULL,
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
INSERT INTO receipts SELECT conversation, 'call:' || call_id, answer FROM answers;
DROP TABLE answers;
CREATE TABLE queue (
    conversation INTEGER NOT NULL,
    place INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (conversation, place)
);
"""

# When something was handed back, version 2 did not write down: the lease ended at that moment, or some seconds later.
_FROM_2 = """
ALTER TABLE conversations ADD COLUMN answer_by INTEGER;
ALTER TABLE extras ADD COLUMN claims TEXT;
ALTER TABLE extras ADD COLUMN owner BLOB;
ALTER TABLE extras ADD COLUMN owed_since INTEGER;
UPDATE extras SET owner = substr(key, 1, instr(key, x'00') - 1), owed_since = (
    SELECT expires * 1000 FROM conversations WHERE id = conversation AND NOT running
) WHERE key IS NOT NULL AND owed NOT IN (x'', x'5B5D');
CREATE INDEX extras_by_owed ON extras (owner, owed_since) WHERE owed_since IS NOT NULL;
"""

_FROM_3 = """
ALTER TABLE extras ADD COLUMN state BLOB;
ALTER TABLE extras ADD COLUMN boundary INTEGER NOT NULL DEFAULT 0;
"""

_FROM_4 = """
CREATE TABLE spent (
    tag TEXT NOT NULL,              -- whose it is
    part TEXT NOT NULL,             -- a day, or the lease of a run
    tokens INTEGER NOT NULL,
    milliseconds INTEGER NOT NULL,
    billionths INTEGER NOT NULL,    -- of the currency
    keep_until INTEGER NOT NULL,
    PRIMARY KEY (tag, part)
);
CREATE INDEX spent_by_age ON spent (keep_until);
"""

_FROM_5 = """
ALTER TABLE conversations ADD COLUMN history_bytes INTEGER;
"""

_FROM_6 = """
ALTER TABLE spent ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
"""

_FROM_7 = """
ALTER TABLE extras ADD COLUMN open_turns BLOB;
"""

MIGRATIONS: Mapping[int, str] = {
    1: _FROM_1,
    2: _FROM_2,
    3: _FROM_3,
    4: _FROM_4,
    5: _FROM_5,
    6: _FROM_6,
    7: _FROM_7,
}
"""By the version that they lead away from, to the next."""
