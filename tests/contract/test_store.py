"""Promises of every store: changes of the transcript, and reading it."""

import pytest
from tests.support.store_values import (
    FINISHED,
    LONG,
    answer,
    asking,
    begin_run,
    change,
    ending,
    new_key,
    new_nonce,
    new_run,
    turn,
    user,
)

from passback.core.changes import Change, Commit, LoadedConversation, LogWrite, Page, Status
from passback.core.errors import UnknownRun
from passback.core.messages import (
    ConversationId,
    ConversationKey,
    OwnerId,
    RunId,
    RunRef,
    ToolSpec,
)
from passback.core.posts import Receipt
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- changes
async def test_a_missing_conversation_has_version_0_and_nothing_in_it(store: Ledger) -> None:
    key = new_key()

    assert await store.status(key) == Status()
    assert await store.load(key, receipts=["call:c"]) == LoadedConversation(Status())
    assert await store.page(key, start=0, limit=10) == Page((), 0, 0)


async def test_a_change_is_read_back_whole(store: Ledger) -> None:
    key = new_key()
    tools = (ToolSpec("paint", "Paints.", {"type": "object", "properties": {}}),)
    receipts = {"call:c1": Receipt("ab" * 32), "key:k": Receipt("cd" * 32, RunId("r"))}
    written = (user("hello"), asking("c3"))

    parked = await store.park(
        Change(key, new_nonce(), 0, written, receipts, owed_answers(written), tools)
    )

    assert parked
    loaded = await store.load(key, receipts=["call:c1", "key:k", "call:c3"])
    assert loaded == LoadedConversation(
        Status(loaded.status.version, owed=owed_answers(written), message_count=2),
        written,
        tools,
        receipts,
    )
    assert loaded.status.version > 0


async def test_a_change_of_another_version_changes_nothing(store: Ledger) -> None:
    key = new_key()
    await store.park(change(key, 0, user("first")))
    before = await store.load(key)

    assert not await store.park(change(key, 0, user("late")))
    assert not await store.park(change(key, before.status.version + 1, user("early")))
    assert await store.begin(change(key, 0), new_run(), (FINISHED,), lease=LONG) is None

    assert await store.load(key) == before


async def test_each_change_makes_another_version(store: Ledger) -> None:
    key = new_key()
    versions = [(await store.status(key)).version]
    await store.park(change(key, 0, user("a")))
    versions.append((await store.status(key)).version)
    held = await begin_run(store, key)
    versions.append((await store.status(key)).version)
    await store.commit(turn(held, 0, 2), lease=LONG)
    versions.append((await store.status(key)).version)
    await store.commit(ending(held, 1, 2), lease=LONG)
    versions.append((await store.status(key)).version)

    assert len(set(versions)) == 5


async def test_a_change_without_tools_keeps_them_and_an_empty_one_clears_them(
    store: Ledger,
) -> None:
    key = new_key()
    tools = (ToolSpec("paint", "Paints.", {"type": "object"}),)
    await store.park(Change(key, new_nonce(), 0, tools=tools))
    version = (await store.status(key)).version
    await store.park(Change(key, new_nonce(), version))
    assert (await store.load(key)).tools == tools

    await store.park(Change(key, new_nonce(), version + 1, tools=()))

    assert (await store.load(key)).tools == ()


async def test_a_park_sent_twice_is_applied_once(store: Ledger) -> None:
    key = new_key()
    parked = change(key, 0, user("once"))

    assert await store.park(parked)
    after = await store.load(key)
    assert await store.park(parked)

    assert await store.load(key) == after
    assert after.messages == (user("once"),)


@pytest.mark.parametrize(
    "name",
    [
        "{braces}{and more",
        "}{",
        "x" * 100_000,
        "naïve 会話 🗨 \u2028\r\n\t%00",
        "*?[a-z]",
        "a:b/../c",
        " ",
    ],
    ids=["braces", "crossed", "long", "unicode", "globs", "paths", "blank"],
)
async def test_any_id_names_a_conversation_of_its_own(store: Ledger, name: str) -> None:
    mine = ConversationKey(OwnerId("owner"), ConversationId(name))
    theirs = ConversationKey(OwnerId(f"owner{name[:1]}"), ConversationId(name[1:]))
    held = await begin_run(store, mine, user("mine"))

    assert (await store.load(mine)).messages == (user("mine"),)
    assert await store.status(theirs) == Status()
    with pytest.raises(UnknownRun):
        await store.read_log(RunRef(theirs, held.run.run_id))


# ---------------------------------------------------------------- reading the record
@pytest.mark.parametrize(
    ("start", "limit", "expected"),
    [(0, 2, "ab"), (2, 2, "cd"), (4, 2, "e"), (5, 2, ""), (9, 2, ""), (0, 99, "abcde"), (1, 0, "")],
)
async def test_messages_are_read_by_pages(
    store: Ledger, start: int, limit: int, expected: str
) -> None:
    key = new_key()
    await store.park(change(key, 0, *map(user, "abcde")))

    page = await store.page(key, start=start, limit=limit)

    assert page == Page(tuple(map(user, expected)), start, 5)


async def test_answers_and_owed_calls_follow_the_transcript(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, user("go"))
    asked = asking("c1", "c2")
    both = owed_answers((asked,))
    await store.commit(
        Commit(LogWrite(held, 2, (FINISHED,)), 0, (asked,), both, ends=True), lease=LONG
    )
    version = (await store.status(key)).version

    await store.park(Change(key, new_nonce(), version, (answer("c1"),), {}, both[1:]))

    loaded = await store.load(key)
    assert loaded.status.owed == owed_answers(loaded.messages) == both[1:]


async def test_a_store_can_be_asked_whether_it_is_there(store: Ledger) -> None:
    await store.ping()
    assert all(isinstance(warning, str) for warning in await store.check())
