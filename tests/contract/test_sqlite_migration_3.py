"""A file of version 3, which knew neither a state beside the messages nor what owners spend, opens and works."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.test_sqlite_migration import layout
from tests.support.conversations import LONG, answer, asking, begun, turn, user

from passback.core.budgets import Spending, Spent
from passback.core.changes import dump_message
from passback.core.messages import (
    ConversationId,
    ConversationKey,
    OwnerId,
    RunId,
    RunRef,
    Usage,
)
from passback.core.state import State
from passback.core.transcript import owed
from passback.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

OWES = ConversationKey(OwnerId("owner"), ConversationId("owes"))
DONE = ConversationKey(OwnerId("owner"), ConversationId("done"))

# What version 3 writes: `owes` owes the second of two results, `done` owes nothing.
VERSION_3 = """
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    tag TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    nonce TEXT NOT NULL DEFAULT '',
    messages INTEGER NOT NULL DEFAULT 0,
    run_id TEXT,
    running INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    fence TEXT NOT NULL DEFAULT '',
    expires INTEGER NOT NULL DEFAULT 0,
    step INTEGER NOT NULL DEFAULT -1,
    ended TEXT NOT NULL DEFAULT '',
    seq INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    keep_until INTEGER,
    epochs INTEGER NOT NULL DEFAULT 0,
    released INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    committed_epoch INTEGER NOT NULL DEFAULT 0,
    committed_seq INTEGER NOT NULL DEFAULT 0,
    mark INTEGER NOT NULL DEFAULT 0,
    cut INTEGER NOT NULL DEFAULT 0,
    tethered INTEGER NOT NULL DEFAULT 0,
    attended INTEGER NOT NULL DEFAULT 0,
    log_bytes INTEGER NOT NULL DEFAULT 0,
    look_at INTEGER,
    answer_by INTEGER
);
CREATE INDEX conversations_by_age ON conversations (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX conversations_by_look ON conversations (look_at) WHERE look_at IS NOT NULL;
CREATE TABLE extras (
    conversation INTEGER PRIMARY KEY, owed BLOB NOT NULL, tools BLOB, key BLOB, claims TEXT, owner BLOB,
    owed_since INTEGER
);
CREATE INDEX extras_by_owed ON extras (owner, owed_since) WHERE owed_since IS NOT NULL;
CREATE TABLE messages (
    conversation INTEGER NOT NULL, position INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (conversation, position)
);
CREATE TABLE receipts (
    conversation INTEGER NOT NULL, name TEXT NOT NULL, receipt TEXT NOT NULL,
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
CREATE TABLE queue (
    conversation INTEGER NOT NULL, place INTEGER NOT NULL, run_id TEXT NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (conversation, place)
);
CREATE TABLE logs (
    conversation INTEGER NOT NULL, run_id TEXT NOT NULL, keep_until INTEGER NOT NULL,
    dequeued INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (conversation, run_id)
) WITHOUT ROWID;
CREATE INDEX logs_by_age ON logs (keep_until);
CREATE TABLE entries (
    conversation INTEGER NOT NULL, run_id TEXT NOT NULL, epoch INTEGER NOT NULL, last INTEGER NOT NULL,
    size INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (conversation, run_id, epoch, last)
);
INSERT INTO conversations VALUES
    (1, 'c8a4097a8270595eb57e7afee96a8052', 500175071216, 'nonce-3', 3, 'run-1', 0, 1, '1:nonce-2', 1795316215500, 0,
     '1:nonce-2|0', 2, 0, NULL, 1, 0, 1, 1, 2, 0, 0, 0, 0, 234, NULL, NULL),
    (3, 'b447c5e8e74e9c1e4c38adc64d0d648c', 469762401343, 'nonce-7', 2, 'run-6', 0, 1, '1:nonce-7', 1795316215504, 0,
     '1:nonce-7|0', 2, 0, NULL, 1, 0, 1, 1, 2, 0, 0, 0, 0, 117, NULL, NULL);
INSERT INTO extras VALUES
    (1, CAST('[{"id":"b","name":"tool","arguments":"{}","kind":"tool_result"}]' AS BLOB), NULL,
     X'6F776E6572006F776573', NULL, CAST('owner' AS BLOB), 1795316215500000),
    (3, CAST('[]' AS BLOB), NULL, X'6F776E657200646F6E65', NULL, NULL, NULL);
INSERT INTO messages VALUES
    (1, 0, CAST('{"id":"m-hello","content":"hello","role":"user"}' AS BLOB)),
    (1, 1, CAST('{"id":"m-asking","content":"","tool_calls":[
        {"id":"a","name":"tool","arguments":"{}","client":true,"provider_id":null},
        {"id":"b","name":"tool","arguments":"{}","client":true,"provider_id":null}
    ],"reasoning":[],"partial":false,"role":"assistant"}' AS BLOB)),
    (1, 2, CAST('{"id":"m-a","call_id":"a","content":"done","is_error":false,"synthetic":null,"role":"tool"}' AS BLOB)),
    (3, 0, CAST('{"id":"m-hi","content":"hi","role":"user"}' AS BLOB)),
    (3, 1, CAST('{"id":"m-bye","content":"bye","tool_calls":[],"reasoning":[],"partial":false,"role":"assistant"}'
     AS BLOB));
PRAGMA user_version = 3;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of version 3."""
    made = tmp_path / "conversations.db"
    with sqlite3.connect(made) as db:
        db.executescript(VERSION_3)
    db.close()
    return made


async def test_a_file_of_version_3_becomes_what_a_new_file_is(path: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    for each in (path, new):
        async with SqliteStore(each):
            pass

    assert layout(path) == layout(new)


async def test_a_conversation_of_version_3_has_no_state_and_is_read_from_its_beginning(
    path: Path,
) -> None:
    async with SqliteStore(path) as store:
        loaded = await store.load(OWES)
        assert loaded.messages == (user("hello"), asking("a", "b"), answer("a"))
        assert (loaded.status.state, loaded.start) == (State(), 0)
        assert loaded.status.owed == owed(loaded.messages)
        [found] = (await store.inbox(OWES.owner, limit=9)).owing
        assert found.key == OWES


async def test_a_conversation_of_version_3_takes_a_state_and_a_boundary(path: Path) -> None:
    known = State(usage=Usage(1), boundary=2)
    async with SqliteStore(path) as store:
        held = await begun(store, DONE, user("more"))
        await store.commit(replace(turn(held, 0, 2, say="said"), state=known), lease=LONG)
        loaded = await store.load(DONE)
        assert (loaded.status.state, len(loaded.messages)) == (known, 2)
        assert (await store.page(DONE, start=0, limit=9)).total == 4


async def test_a_conversation_of_version_3_is_counted_when_it_is_loaded_and_with_its_next_write(
    path: Path,
) -> None:
    async with SqliteStore(path) as store:
        assert (await store.status(DONE)).history_bytes is None
        loaded = await store.load(DONE, within=0)
        whole = (await store.load(DONE)).messages
        # the oldest records have more fields, or fewer, than those that are written today
        size = loaded.status.history_bytes
        assert loaded.left_out is True
        assert size is not None
        assert size > 100
        held = await begun(store, DONE, user("more"))
        size += len(dump_message(user("more")))
        assert (await store.status(DONE)).history_bytes == size
        await store.commit(replace(turn(held, 0, 2), state=State(boundary=len(whole))), lease=LONG)
        assert (await store.status(DONE)).history_bytes == len(dump_message(user("more")))


async def test_a_file_of_version_3_counts_what_owners_spend(path: Path) -> None:
    run = RunRef(DONE, RunId("run"))
    async with SqliteStore(path) as store:
        assert await store.spend(Spending(run, 1, "2026-01-31", Spent(5), 1)) == Spent(5)


async def test_counts_that_are_old_are_gone_and_cleared_away(path: Path) -> None:
    run = RunRef(DONE, RunId("run"))
    async with SqliteStore(path) as store:
        await store.spend(Spending(run, 1, "2026-01-31", Spent(5), 1))
        await store.spend(Spending(run, 1, "2026-02-01", Spent(6), 2))
        with sqlite3.connect(path) as db:
            db.execute("UPDATE spent SET keep_until = 1")
        db.close()
        assert await store.spend(Spending(run, 2, "2026-02-01", Spent(1), 1)) == Spent(1)
    db = sqlite3.connect(path)
    kept = db.execute("SELECT part FROM spent ORDER BY part").fetchall()
    db.close()
    assert kept == [("day:2026-02-01",), ("run:run:2",)]
