"""Rows of the SQLite file: what is damaged fails alone, what has expired goes, as do no others."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio
import pytest
from tests.contract.door.writes import (
    ALL,
    LONG,
    OVER,
    a_write,
    all_pages,
    append,
    applied,
    entries,
    entry,
    filled,
    first_write,
    leased,
    log_of,
    made,
    new_key,
    new_owner,
    new_run,
    running,
    tag_of,
    whole,
)

from passback.core.conversation.store import (
    WHOLE,
    Append,
    Due,
    LogChange,
    Query,
    QueueEntry,
    Span,
    Store,
    Wanted,
)
from passback.core.errors import StoreError
from passback.core.messages import ConversationKey, RunId
from passback.stores.layout import PAGE_SIZE
from passback.stores.options import StoreOptions
from passback.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

INDEXES: tuple[Literal["all", "owing", "stored"], ...] = ("all", "owing", "stored")
NO_TEXT = "CAST(x'ff' AS TEXT)"  # is not UTF-8
NO_RECORD = "'hunter2'"  # a text, where a record is


def change(path: Path, statement: str, *values: object) -> int:
    """Change the file as another program might; return how many rows have changed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(statement, values).rowcount


def damage(path: Path, key: ConversationKey, column: str, damaged: str) -> None:
    """Write to a column, named with its table, of a conversation."""
    table, name = column.split(".")
    where = {
        "conversations": "tag = ?",
        "leases": "tag = ?",
        "messages": "id >> 24 = (SELECT id FROM conversations WHERE tag = ?)",
    }.get(table, "conversation = (SELECT id FROM conversations WHERE tag = ?)")
    assert change(path, f"UPDATE {table} SET {name} = {damaged} WHERE {where}", tag_of(key))


def count(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        found: int = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found


# ---------------------------------------------------------------- damage
RUN = RunId("run")
Use = Callable[[Store, ConversationKey], Awaitable[object]]


async def read_all(store: Store, key: ConversationKey) -> object:
    return await store.read(key, replace(ALL, fields=("title",), receipts=("key",), runs=(RUN,)))


async def append_one(store: Store, key: ConversationKey) -> object:
    [answer] = await store.append([Append(key, RUN, "one", entry(1, 2))], lease=LONG)
    if isinstance(answer, StoreError):
        raise answer
    return answer


USES: dict[str, Use] = {
    "read": read_all,
    "apply": lambda store, key: store.apply(a_write(key)),
    "append": append_one,
    "log": lambda store, key: log_of(store, key, RUN),
    "page": lambda store, key: store.page(key, WHOLE, limit=9),
}


async def with_all_parts(store: Store) -> ConversationKey:
    key = new_key()
    write = replace(
        first_write(key),
        head=b"head",
        fields={"title": b"title"},
        receipts={"key": "receipt"},
        runs={RUN: b"run"},
        messages=(b"message",),
        enqueue=QueueEntry(new_run(), b"queued"),
    )
    await applied(store, write)
    await leased(store, key, RUN)
    return key


@pytest.mark.parametrize(
    ("column", "damaged", "use"),
    [
        ("conversations.head", NO_RECORD, "read"),
        ("conversations.writes", NO_TEXT, "read"),
        ("conversations.writes", NO_TEXT, "apply"),
        ("conversations.version", "'one'", "apply"),
        ("conversations.spans", "'[[0, 1'", "read"),
        ("conversations.spans", "'[[0, 1'", "apply"),
        ("leases.fence", NO_TEXT, "read"),
        ("leases.fence", NO_TEXT, "append"),
        ("leases.seq", "'one'", "append"),
        ("parts.record", "17", "read"),
        ("messages.record", NO_RECORD, "read"),
        ("messages.record", NO_RECORD, "page"),
        ("queue.record", NO_RECORD, "read"),
        ("entries.record", NO_RECORD, "log"),
    ],
)
async def test_a_damaged_conversation_fails_alone(
    store: SqliteStore, path: Path, column: str, damaged: str, use: str
) -> None:
    keys = [await with_all_parts(store) for _ in range(3)]
    damage(path, keys[1], column, damaged)
    answers: list[object] = []

    async def ask(key: ConversationKey) -> None:
        try:
            answers.append(await USES[use](store, key))
        except StoreError as error:
            answers.append(error)

    async with anyio.create_task_group() as tasks:
        for key in keys:
            tasks.start_soon(ask, key)
    [error] = [each for each in answers if isinstance(each, StoreError)]
    assert type(error) is StoreError
    assert "hunter2" not in error.message
    for key in (keys[0], keys[2]):
        assert await USES[use](store, key)


@pytest.mark.parametrize(
    ("column", "damaged"), [("conversations.head", NO_RECORD), ("conversations.writes", NO_TEXT)]
)
async def test_a_damaged_conversation_does_not_hold_up_lists(
    store: SqliteStore, path: Path, column: str, damaged: str
) -> None:
    owner = new_owner()
    keys = [await made(store, owner=owner) for _ in range(3)]
    damage(path, keys[1], column, damaged)
    page = await store.query(Query(owner, "all"))
    assert [(each.key, each.found is None) for each in page.listed] == [
        (keys[2], False),
        (keys[1], True),
        (keys[0], False),
    ]


@pytest.mark.parametrize("name", ["x'ff'", "x'6666'", "'hunter2'"])
async def test_a_damaged_name_does_not_hold_up_lists(
    store: SqliteStore, path: Path, name: str
) -> None:
    owner = new_owner()
    keys = [await made(store, owner=owner) for _ in range(3)]
    for key in keys:
        await applied(store, replace(a_write(key), due=Due(after=0), owes=True))
    damage(path, keys[1], "conversations.name", name)
    for index in INDEXES:
        pages = await all_pages(store, Query(owner, index, limit=1))
        assert {each.key for page in pages for each in page.listed} == {keys[0], keys[2]}
        assert [tag for page in pages for tag in page.unnamed] == [tag_of(keys[1])]
    assert set(await store.due(9, milliseconds=LONG)) == {keys[0], keys[2]}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("limit", [2, 9])
async def test_a_missing_message_is_damage_of_its_conversation(
    store: SqliteStore, path: Path, number: int, limit: int
) -> None:
    messages = (b"zero", b"one", b"two", b"three")
    keys = [await made(store, *messages) for _ in range(3)]
    of_it = "id & 0xffffff = ? AND id >> 24 = (SELECT id FROM conversations WHERE tag = ?)"
    assert change(path, f"DELETE FROM messages WHERE {of_it}", number, tag_of(keys[1])) == 1

    async def read_pages(key: ConversationKey) -> list[bytes]:
        found: list[bytes] = []
        for _ in messages:
            found += await store.page(key, (Span(len(found), 9),), limit=limit)
        return found

    with pytest.raises(StoreError, match="messages of the conversation are missing"):
        await read_pages(keys[1])
    with pytest.raises(StoreError, match="messages of the conversation are missing"):
        await whole(store, keys[1])
    for key in (keys[0], keys[2]):
        assert await read_pages(key) == [*messages]
        assert (await whole(store, key)).messages == messages


async def test_no_large_message_stands_in_for_a_missing_one(store: SqliteStore, path: Path) -> None:
    key = await made(store, *(b"%d" % number * (PAGE_SIZE // 2 + 1) for number in range(4)))
    assert change(path, "DELETE FROM messages WHERE id & 0xffffff = 1") == 1
    for start in range(2):  # a page ends in front of the second large one, not at the span's end
        with pytest.raises(StoreError, match="messages of the conversation are missing"):
            await store.page(key, (Span(start),), limit=9)
    assert len(await store.page(key, (Span(2),), limit=9)) == 1


async def test_a_deletion_leaves_nothing(store: SqliteStore, path: Path) -> None:
    key = await with_all_parts(store)
    assert await store.delete(key)
    for table in ("conversations", "leases", "parts", "messages", "queue", "logs", "entries"):
        assert count(path, table) == 0
    await applied(store, first_write(key))
    assert (await whole(store, key)).messages == ()


# ---------------------------------------------------------------- what has expired
async def until_gone(store: Store, key: ConversationKey) -> None:
    with anyio.fail_after(5):
        while (await store.read(key, Wanted())).version:
            await anyio.lowlevel.checkpoint()


async def test_a_lease_that_is_taken_deletes_what_has_expired(path: Path) -> None:
    async with SqliteStore(path, StoreOptions(log_ttl=0.001)) as store:
        key, run_id = await running(store)
        await applied(store, replace(a_write(key), log=LogChange(run_id, ends=True), lease="end"))
    async with SqliteStore(path, StoreOptions(ttl=0.001)) as store:
        gone = await made(store, b"message")
        await until_gone(store, gone)
    async with SqliteStore(path) as store:
        with anyio.fail_after(5):
            while await log_of(store, key, run_id) is not None:
                await anyio.lowlevel.checkpoint()
        assert [count(path, each) for each in ("conversations", "logs", "entries")] == [2, 1, 1]
        await running(store)
        assert [count(path, each) for each in ("conversations", "logs", "entries")] == [2, 1, 1]
        assert count(path, "messages") == 0
        assert (await whole(store, key)).version


async def test_all_logs_that_have_expired_are_deleted_in_turn(path: Path) -> None:
    kept, gone = [[new_run() for _ in range(30)] for _ in "ab"]
    async with SqliteStore(path, StoreOptions(log_ttl=0.001)) as store:
        first, key = await made(store), await made(store)
        for each in kept:
            await applied(store, replace(a_write(first), log=LogChange(each)))
        for each in gone:
            await applied(store, replace(a_write(key), log=LogChange(each, ends=True)))
        with anyio.fail_after(5):
            while await log_of(store, key, gone[-1]) is not None:
                await anyio.lowlevel.checkpoint()
        for _ in range(10):  # so many runs look at all of them
            await leased(store, first, kept[0])
        for each in kept:
            assert await log_of(store, first, each) is not None
    assert count(path, "logs") == len(kept)


async def test_a_run_that_appends_after_half_a_day_is_kept_on(path: Path) -> None:
    async with SqliteStore(path, StoreOptions(ttl=3600)) as store:
        key, run_id = await running(store)
        for table in ("conversations", "leases", "logs"):
            assert change(path, f"UPDATE {table} SET keep_until = keep_until - 46800000") == 1
        [before] = await columns(path, "SELECT keep_until FROM conversations")
        assert (await append(store, Append(key, run_id, "one")))[0].held
        assert await columns(path, "SELECT keep_until FROM conversations") == [before]
        await filled(store, key, run_id, entries(1, 2, 3))
        kept = await columns(
            path,
            "SELECT keep_until FROM conversations UNION ALL SELECT keep_until FROM leases"
            " UNION ALL SELECT keep_until FROM logs",
        )
        assert min(kept) > before + 40_000_000
        assert await log_of(store, key, run_id) == entries(1, 1, 3)


async def test_a_conversation_that_has_expired_takes_no_append(path: Path) -> None:
    async with SqliteStore(path, StoreOptions(ttl=3600)) as store:
        key, run_id = await running(store)
        for table in ("conversations", "leases", "logs"):
            change(path, f"UPDATE {table} SET keep_until = 1")
        assert not (await append(store, Append(key, run_id, "one", entry(1, 2))))[0].held
        await applied(store, first_write(key))
        assert (await whole(store, key)).lease is None
        assert await log_of(store, key, run_id) is None


async def columns(path: Path, statement: str) -> list[int]:
    with closing(sqlite3.connect(path)) as db:
        return [found for [found] in db.execute(statement)]


# ---------------------------------------------------------------- what a write leaves alone
async def test_an_append_writes_two_pages(path: Path, store: SqliteStore) -> None:
    key, run_id = await running(store)
    wal = path.with_name("conversations.db-wal")
    before = wal.stat().st_size
    await filled(store, key, run_id, [entry(1, 2)])
    assert wal.stat().st_size - before == 2 * (4096 + 24)


async def test_writes_of_a_conversation_that_is_kept_long_leave_its_index_alone(path: Path) -> None:
    async with SqliteStore(path, StoreOptions(ttl=30 * 24 * 3600)) as store:
        key = await made(store)
        [before] = await columns(path, "SELECT keep_until FROM conversations")
        for _ in range(9):
            await applied(store, a_write(key))
        assert await columns(path, "SELECT keep_until FROM conversations") == [before]
        now = (await whole(store, key)).now
        assert 0 <= before - now - 30 * 24 * 3_600_000 <= 30 * 24 * 3_600_000 / 64


async def test_only_a_write_to_the_lease_makes_it_due_for_others(store: SqliteStore) -> None:
    key, run_id = await running(store, milliseconds=OVER)
    assert await store.due(9, milliseconds=LONG) == [key]
    await applied(store, replace(a_write(key), signal="stop"))
    assert await store.due(9, milliseconds=LONG) == []
    await append(store, Append(key, run_id, "one"), lease=OVER)
    assert await store.due(9, milliseconds=LONG) == [key]
