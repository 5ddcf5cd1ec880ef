"""Promises of every store: what is damaged or large in one conversation spares the others."""

import asyncio
import sqlite3
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
from tests.support.redis_server import RedisServer
from tests.support.store_values import (
    CANCELLED,
    LONG,
    asking,
    begin_run,
    change,
    ending,
    new_key,
    new_nonce,
    texts,
    turn,
    user,
    waiting,
)

from passback.core.changes import Change, Lease, Page
from passback.core.errors import StoreError
from passback.core.messages import ConversationKey, Message, ToolSpec
from passback.core.ports import Store
from passback.core.transcript import owed_answers
from passback.stores.layout import conversation_tag

pytestmark = pytest.mark.anyio

NEWER = b'{"role": "oracle", "hunter2": 1, "plan": 1, "cwd": 1}'
"""Data that no part of a conversation can be read from."""


class Damage(Protocol):
    def state(self, key: ConversationKey) -> None:
        """Make this conversation unusable."""
        ...

    def record(self, lease: Lease, part: str) -> None:
        """Write one part as a newer version might."""
        ...


class RedisDamage:
    def __init__(self, server: RedisServer) -> None:
        self._server = server

    def state(self, key: ConversationKey) -> None:
        self._server.command("DEL", self._name(key, "state"))
        self._server.command("SET", self._name(key, "state"), "foreign")

    def record(self, lease: Lease, part: str) -> None:
        key, newer = lease.run.key, NEWER.decode()
        match part:
            case "messages":
                self._server.command("LSET", self._name(key, part), 0, newer)
            case "log":
                log = self._name(key, f"log:{lease.run.run_id}")
                self._server.command("XADD", log, f"{lease.epoch}-99", "events", newer)
            case "queue":
                waiting: bytes = self._server.command("LINDEX", self._name(key, part), 0)
                known, _, _ = waiting.decode().partition("{")
                self._server.command("LSET", self._name(key, part), 0, known + newer)
            case _:
                self._server.command("HSET", self._name(key, "state"), part, newer)

    def _name(self, key: ConversationKey, part: str) -> str:
        return f"pb:{{{conversation_tag(key)}}}:{part}"


class SqliteDamage:
    def __init__(self, path: Path) -> None:
        self._path = path

    def state(self, key: ConversationKey) -> None:
        self._update("conversations SET nonce = CAST(x'ff' AS TEXT) WHERE id", key)

    def record(self, lease: Lease, part: str) -> None:
        places = {
            "messages": "messages SET record",
            "log": "entries SET record",
            "queue": "queue SET record",
        }
        place = places.get(part, f"extras SET {part}")
        self._update(f"{place} = ? WHERE conversation", lease.run.key, NEWER)

    def _update(self, what: str, key: ConversationKey, *values: bytes) -> None:
        row = "(SELECT id FROM conversations WHERE tag = ?)"
        with sqlite3.connect(self._path) as db:
            changed = db.execute(f"UPDATE {what} = {row}", (*values, conversation_tag(key)))
        db.close()
        assert changed.rowcount >= 1


@pytest.fixture
def damage(store_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Damage:
    match store_kind:
        case "sqlite":
            return SqliteDamage(tmp_path / "conversations.db")
        case "redis":
            return RedisDamage(request.getfixturevalue("shared_redis"))
        case _:
            return RedisDamage(request.getfixturevalue("shared_cluster"))


# ---------------------------------------------------------------- one damaged conversation
async def test_a_damaged_conversation_fails_alone_in_an_append_and_a_renewal(
    store: Store, damage: Damage
) -> None:
    leases = [await begin_run(store, new_key(), user("hello")) for _ in range(3)]
    first, damaged, last = leases
    damage.state(damaged.run.key)

    appended = await store.append([texts(held, 2, "a") for held in leases], lease=0)
    lapsed = (await store.status(first.run.key)).lapsed
    renewed = await store.renew(leases, lease=LONG)

    assert lapsed
    for answers in (appended, renewed):
        assert type(answers[1]) is StoreError
        assert [answers[0], answers[2]] == ["held", "held"]
    for held in (first, last):
        assert not (await store.status(held.run.key)).lapsed
        assert [logged.position.seq for logged in await store.read_log(held.run)] == [1, 2]


async def test_a_damaged_conversation_fails_alone_beside_other_callers(
    store: Store, damage: Damage
) -> None:
    damaged, healthy = [await begin_run(store, new_key(), user("hello")) for _ in range(2)]
    before = await store.load(healthy.run.key)
    damage.state(damaged.run.key)

    answers = await together(
        lambda: store.load(damaged.run.key),
        lambda: store.load(healthy.run.key),
        lambda: store.status(damaged.run.key),
        lambda: store.load(healthy.run.key),
    )
    written = await together(
        lambda: store.renew([damaged], lease=LONG),
        lambda: store.commit(ending(damaged, 0, 2), lease=LONG),
        lambda: store.commit(turn(healthy, 0, 2, say="one"), lease=LONG),
        lambda: store.cancel(damaged.run, CANCELLED),
        lambda: store.commit(ending(healthy, 1, 2, say="two"), lease=LONG),
    )

    assert [type(answers[0]), type(answers[2])] == [StoreError, StoreError]
    assert [answers[1], answers[3]] == [before, before]
    assert [type(written[1]), type(written[3])] == [StoreError, StoreError]
    assert [written[2], written[4]] == [False, False]
    assert (await store.status(healthy.run.key)).message_count == 3


@pytest.mark.parametrize("part", ["state", "owed", "title", "settings"])
@pytest.mark.parametrize("search", ["", "t"])
async def test_a_damaged_conversation_does_not_hold_up_lists(
    store: Store, damage: Damage, part: str, search: str
) -> None:
    call, leases = asking("a"), list[Lease]()
    for _ in range(3):
        held = await begin_run(store, new_key(), user("hello"))
        end = replace(ending(held, 0, 2), append=(call,), owed=owed_answers([call]))
        await store.commit(end, lease=LONG)
        await store.rename(held.run.key, "title")
        leases.append(held)
    first, damaged, last = leases
    if part == "state":
        damage.state(damaged.run.key)
    else:
        damage.record(damaged, part)

    owner = first.run.key.owner
    listed = (await store.conversations(owner, limit=9, search=search)).conversations
    owing = (await store.inbox(owner, limit=9)).owing

    readable = {first.run.key, last.run.key}
    found = {each.key for each in listed}
    assert found == readable if part != "title" else readable <= found
    assert readable <= {each.key for each in owing}


# ---------------------------------------------------------------- one unreadable record
Read = Callable[[Store, Lease], Awaitable[object]]
READS: dict[str, Read] = {
    "owed": lambda store, held: store.status(held.run.key),
    "state": lambda store, held: store.status(held.run.key),
    "settings": lambda store, held: store.status(held.run.key),
    "tools": lambda store, held: store.load(held.run.key),
    "messages": lambda store, held: store.load(held.run.key),
    "queue": lambda store, held: store.load(held.run.key),
    "page": lambda store, held: store.page(held.run.key, start=0, limit=1),
    "log": lambda store, held: store.read_log(held.run),
}


@pytest.mark.parametrize("part", READS)
async def test_an_unreadable_record_is_an_error_of_its_own_reader_that_quotes_nothing(
    store: Store, damage: Damage, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    damaged, healthy = [await with_all_parts(store) for _ in range(2)]
    before = await READS[part](store, healthy)
    damage.record(damaged, "messages" if part == "page" else part)

    answers = await together(
        *[
            lambda held=held: READS[part](store, held)
            for held in (healthy, damaged, healthy, damaged, healthy)
        ],
        lambda: store.commit(ending(healthy, 0, 2), lease=LONG),
    )

    for answer in (answers[1], answers[3]):
        assert type(answer) is StoreError
        assert "cannot be read" in answer.message
        assert "hunter2" not in "".join(traceback.format_exception(answer))
    assert answers[5] is True
    # a reader may come before the commit or behind it
    assert answers[0] in (before, await READS[part](store, healthy))
    assert caplog.messages == ["a record in the store cannot be read: ValidationError"] * 2
    assert "hunter2" not in caplog.text


async def test_an_unreadable_message_does_not_stop_its_own_run(
    store: Store, damage: Damage
) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    damage.record(held, "messages")

    assert await store.append([texts(held, 2, "a")], lease=LONG) == ["held"]
    await store.commit(ending(held, 0, 3, say="goodbye"), lease=LONG)

    assert not (await store.status(held.run.key)).running
    assert (await store.page(held.run.key, start=1, limit=9)).total == 2


async def with_all_parts(store: Store) -> Lease:
    key = new_key()
    tools = (ToolSpec("paint", "Paints.", {"type": "object"}),)
    await store.park(Change(key, new_nonce(), 0, (user("hello"),), tools=tools))
    held = await begin_run(store, key)
    assert await store.enqueue(waiting(key)) == "queued"
    return held


async def together(*calls: Callable[[], Awaitable[object]]) -> list[object]:
    """Return what callers get who ask at the same time; errors count as answers."""

    async def answer(call: Callable[[], Awaitable[object]]) -> object:
        try:
            return await call()
        except StoreError as error:
            return error

    async with asyncio.timeout(10):
        return await asyncio.gather(*map(answer, calls))


# ---------------------------------------------------------------- large pages
MIB = 2**20


async def test_a_page_ends_at_eight_mebibytes_but_has_one_message(store: Store) -> None:
    key = new_key()
    messages = [user("x" * (size * MIB)) for size in (1, 1, 1, 2)] + [user("a"), user("b")]
    # a message's record repeats its text in its id, so that these have 2, 2, 2 and 4 MiB
    huge: list[Message] = [*messages, user("x" * (5 * MIB)), user("c")]
    await store.park(change(key, 0, *huge))

    pages = [await store.page(key, start=start, limit=9) for start in (0, 3, 6, 7)]

    assert pages == [
        Page(tuple(huge[0:3]), 0, 8),
        Page(tuple(huge[3:6]), 3, 8),
        Page(tuple(huge[6:7]), 6, 8),
        Page(tuple(huge[7:8]), 7, 8),
    ]


@pytest.mark.parametrize(("start", "limit"), [(0, 100), (3, 10), (3, 20), (3, 21), (30, 5)])
async def test_a_page_of_many_small_messages_is_whole(store: Store, start: int, limit: int) -> None:
    key = new_key()
    messages = tuple(user(str(number)) for number in range(33))
    await store.park(change(key, 0, *messages))

    page = await store.page(key, start=start, limit=limit)

    assert page == Page(messages[start : start + limit], start, 33)
