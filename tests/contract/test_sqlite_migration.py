"""A file that an older passback has written opens, keeps its conversations, and works."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.conversations import (
    LONG,
    LOST,
    answer,
    asking,
    begun,
    change,
    claimed,
    ending,
    reaped,
    said,
    user,
)

from passback.core.changes import Loaded, Status
from passback.core.errors import ConfigurationError
from passback.core.events import HandedBack, Position, RunFinished, RunStarted, TextDelta
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId, RunRef, ToolSpec
from passback.core.posts import Receipt
from passback.core.transcript import owed
from passback.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

IDLE = ConversationKey(OwnerId("owner"), ConversationId("idle"))
CUT = ConversationKey(OwnerId("owner"), ConversationId("cut"))

# What version 1 writes: `idle` owes the second of two results, `cut` has a run whose worker is gone.
VERSION_1 = """
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
    keep_until INTEGER
);
CREATE INDEX conversations_by_age ON conversations (keep_until) WHERE keep_until IS NOT NULL;
CREATE TABLE extras (conversation INTEGER PRIMARY KEY, owed BLOB NOT NULL, tools BLOB);
CREATE TABLE messages (
    conversation INTEGER NOT NULL, position INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (conversation, position)
);
CREATE TABLE answers (
    conversation INTEGER NOT NULL, call_id TEXT NOT NULL, answer TEXT NOT NULL,
    PRIMARY KEY (conversation, call_id)
) WITHOUT ROWID;
CREATE TABLE logs (
    conversation INTEGER NOT NULL, run_id TEXT NOT NULL, keep_until INTEGER NOT NULL,
    PRIMARY KEY (conversation, run_id)
) WITHOUT ROWID;
CREATE INDEX logs_by_age ON logs (keep_until);
CREATE TABLE entries (
    conversation INTEGER NOT NULL, run_id TEXT NOT NULL, epoch INTEGER NOT NULL, last INTEGER NOT NULL,
    size INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (conversation, run_id, epoch, last)
);
INSERT INTO conversations VALUES
    (1, '1f47a3c139423c3306ca7dd2268eca2f', 444185950287, 'n2', 3, 'r1', 0, 3, '3:n1', 1795291750415, 0, '3:n1|0', 2, 0,
     NULL),
    (2, 'c943e118d9c6bfe351113d0d23671d3d', 580388283632, 'n3', 1, 'r2', 1, 1, '1:n3', 1795291749417, -1, '', 2, 0, NULL);
INSERT INTO extras VALUES
    (1, CAST('[{"id":"b","name":"tool","arguments":"{}","kind":"tool_result"}]' AS BLOB),
     CAST('[{"name":"paint","description":"Paints.","parameters":{"type":"object"}}]' AS BLOB)),
    (2, CAST('[]' AS BLOB), NULL);
INSERT INTO messages VALUES
    (1, 0, CAST('{"id":"m-hello","content":"hello","role":"user"}' AS BLOB)),
    (1, 1, CAST('{"id":"m-asking","content":"","tool_calls":[
        {"id":"a","name":"tool","arguments":"{}","client":true,"provider_id":null},
        {"id":"b","name":"tool","arguments":"{}","client":true,"provider_id":null}
    ],"reasoning":[],"partial":false,"role":"assistant"}' AS BLOB)),
    (1, 2, CAST('{"id":"m-a","call_id":"a","content":"done","is_error":false,"synthetic":null,"role":"tool"}' AS BLOB)),
    (2, 0, CAST('{"id":"m-go","content":"go","role":"user"}' AS BLOB));
INSERT INTO answers VALUES (1, 'a', '|abababababababababababababababababababababababababababababababab');
INSERT INTO logs VALUES (1, 'r1', 9999999999999), (2, 'r2', 9999999999999);
INSERT INTO entries VALUES
    (1, 'r1', 3, 1, 1, CAST('[{"run_id":"r1","type":"run-started"}]' AS BLOB)),
    (1, 'r1', 3, 2, 1, CAST('[{"outcome":{"owed":[
        {"id":"a","name":"tool","arguments":"{}","kind":"tool_result"},
        {"id":"b","name":"tool","arguments":"{}","kind":"tool_result"}
    ],"type":"handed-back"},"type":"run-finished"}]' AS BLOB)),
    (2, 'r2', 1, 1, 1, CAST('[{"run_id":"r2","type":"run-started"}]' AS BLOB)),
    (2, 'r2', 1, 2, 1, CAST('[{"text":"half","type":"text-delta"}]' AS BLOB));
PRAGMA user_version = 1;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of version 1."""
    made = tmp_path / "conversations.db"
    with sqlite3.connect(made) as db:
        db.executescript(VERSION_1)
    db.close()
    return made


def layout(path: Path) -> tuple[object, ...]:
    """What tables, columns and indexes a file has."""
    db = sqlite3.connect(path)
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = {
        (table, *column[1:])
        for table in tables
        for column in db.execute(f"PRAGMA table_info({table})")
    }
    indexes = {*db.execute("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index'")}
    version = db.execute("PRAGMA user_version").fetchone()
    db.close()
    return columns, indexes, version


async def test_a_file_of_version_1_becomes_what_a_new_file_is(path: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    for each in (path, new):
        async with SqliteStore(each):
            pass

    assert layout(path) == layout(new)


async def test_conversations_of_version_1_are_kept_and_go_on(path: Path) -> None:
    asked = asking("a", "b")
    async with SqliteStore(path) as store:
        loaded = await store.load(IDLE, receipts=["call:a", "call:b"])

        assert loaded == Loaded(
            Status(
                444185950287,
                RunId("r1"),
                owed=owed([asked, answer("a")]),
                message_count=3,
                logged=Position(3, 2),
                committed=Position(3, 2),
                mark=3,
            ),
            (user("hello"), asked, answer("a")),
            (ToolSpec("paint", "Paints.", {"type": "object"}),),
            {"call:a": Receipt("ab" * 32)},
        )
        assert await said(store, RunRef(IDLE, RunId("r1"))) == [
            ("3-1", RunStarted(RunId("r1"))),
            ("3-2", RunFinished(HandedBack(owed([asked])))),
        ]
        held = await begun(store, IDLE, answer("b"))
        assert held.epoch == 4
        await store.commit(ending(held, 0, 2, say="thanks"), lease=LONG)
        assert (await store.status(IDLE)).message_count == 5


async def test_a_run_of_version_1_ends_as_lost_with_all_that_it_said(path: Path) -> None:
    """Nobody wrote down which of its events were committed: it has been tried too often to be tried again."""
    run = RunRef(CUT, RunId("r2"))
    async with SqliteStore(path) as store:
        status = await store.status(CUT)
        assert (status.running, status.lapsed, status.mark) == (True, True, 1)
        assert status.attempt > 1000
        assert await store.abandoned(9, lease=LONG) == []

        await reaped(store, CUT)

        assert await said(store, run) == [
            ("1-1", RunStarted(RunId("r2"))),
            ("1-2", TextDelta("half")),
            ("2-1", LOST),
        ]


async def test_a_run_of_version_1_that_is_taken_over_is_looked_after(path: Path) -> None:
    async with SqliteStore(path) as store:
        await claimed(store, CUT, lease=0)
        assert await store.abandoned(9, lease=LONG) == [CUT]


async def test_a_file_that_is_only_called_version_1_is_refused_and_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE entries")
    db.close()
    before = layout(path)

    with pytest.raises(ConfigurationError, match="cannot be used"):
        await SqliteStore(path).__aenter__()

    assert layout(path) == before


@pytest.mark.promise("P15")
async def test_a_change_that_was_sent_before_is_known_again(path: Path) -> None:
    async with SqliteStore(path) as store:
        version = (await store.status(IDLE)).version
        assert await store.park(replace(change(IDLE, version - 1, answer("a")), nonce="n2"))
        assert (await store.status(IDLE)).version == version
        assert await store.park(change(IDLE, version, user("more")))
