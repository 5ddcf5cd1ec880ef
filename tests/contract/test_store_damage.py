"""Promises of every store: what is damaged or large in one conversation spares the others."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.support.store_values import (
    LONG,
    asking,
    begin_run,
    change,
    ending,
    new_key,
    new_nonce,
    new_run,
    texts,
    user,
    waiting,
)

from passback.core.changes import Change, Lease, Page
from passback.core.conversation.head import SETTINGS, STATE, TITLE, TOOLS, dump_head, head_of
from passback.core.conversation.store import (
    Guard,
    LogChange,
    LogEntry,
    QueueEntry,
    Span,
    View,
    Wanted,
    Write,
)
from passback.core.conversation.tree import NO_MESSAGE, Fork, Tree
from passback.core.errors import StoreError
from passback.core.events import Position
from passback.core.messages import Message, ToolSpec
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

NEWER = b'{"role": "oracle", "hunter2": 1, "plan": 1, "cwd": 1, "epoch": "x"}'
"""Data that no part of a conversation can be read from."""


async def damage(ledger: Ledger, lease: Lease, part: str) -> None:
    """Write one part of a conversation as a newer version might."""
    store, key = ledger.store, lease.run.key
    found = await store.read(key, Wanted())
    write = Write(key, new_nonce(), Guard(version=found.version))
    match part:
        case "head":
            write = replace(write, head=NEWER)
        case "messages":
            # on a branch that begins with it
            number = found.message_count
            tree = Tree(number, (Fork(number, NO_MESSAGE),))
            head = dump_head(replace(head_of(found), tree=tree))
            view = View((Span(number),))
            write = replace(write, head=head, messages=(NEWER,), view=view)
        case "log":
            assert found.lease
            entry = LogEntry(Position(lease.epoch, found.lease.seq + 1), 1, NEWER)
            write = replace(write, log=LogChange(lease.run.run_id, entry))
        case "queue":
            write = replace(write, enqueue=QueueEntry(new_run(), NEWER))
        case _:
            write = replace(write, fields={part: NEWER if part != TITLE else b"\xff"})
    assert await store.apply(write)


# ---------------------------------------------------------------- one damaged conversation
@pytest.mark.parametrize("part", ["head", STATE, TITLE, SETTINGS])
@pytest.mark.parametrize("search", ["", "t"])
async def test_a_damaged_conversation_does_not_hold_up_lists(
    store: Ledger, part: str, search: str
) -> None:
    call, leases = asking("a"), list[Lease]()
    for _ in range(3):
        held = await begin_run(store, new_key(), user("hello"))
        end = replace(ending(held, 0, 2), append=(call,), owed=owed_answers([call]))
        await store.commit(end, lease=LONG)
        await store.rename(held.run.key, "title")
        leases.append(held)
    first, damaged, last = leases
    await damage(store, damaged, part)

    owner = first.run.key.owner
    listed = (await store.conversations(owner, limit=9, search=search)).conversations
    owing = (await store.inbox(owner, limit=9)).owing

    readable = {first.run.key, last.run.key}
    assert {each.key for each in listed} == readable
    assert {each.key for each in owing} == readable


# ---------------------------------------------------------------- one unreadable record
Read = Callable[[Ledger, Lease], Awaitable[object]]
READS: dict[str, Read] = {
    "head": lambda store, held: store.status(held.run.key),
    STATE: lambda store, held: store.status(held.run.key),
    SETTINGS: lambda store, held: store.status(held.run.key),
    TOOLS: lambda store, held: store.load(held.run.key),
    "messages": lambda store, held: store.load(held.run.key),
    "queue": lambda store, held: store.load(held.run.key),
    "page": lambda store, held: store.page(held.run.key, start=0, limit=1),
    "log": lambda store, held: store.read_log(held.run),
}


@pytest.mark.parametrize("part", READS)
async def test_an_unreadable_record_is_an_error_of_its_own_reader_that_quotes_nothing(
    store: Ledger, part: str
) -> None:
    damaged, healthy = [await with_all_parts(store) for _ in range(2)]
    before = await READS[part](store, healthy)
    await damage(store, damaged, "messages" if part == "page" else part)

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


async def test_an_unreadable_message_does_not_stop_its_own_run(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    await damage(store, held, "messages")
    owner = Ledger(store.store)  # which has not seen it come

    assert await owner.append([texts(held, 2, "a")], lease=LONG) == ["held"]
    await owner.commit(ending(held, 0, 3, say="goodbye"), lease=LONG)

    assert not (await store.status(held.run.key)).running
    assert (await store.page(held.run.key, start=1, limit=9)).total == 2


async def with_all_parts(store: Ledger) -> Lease:
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


async def test_a_page_ends_at_eight_mebibytes_but_has_one_message(store: Ledger) -> None:
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
async def test_a_page_of_many_small_messages_is_whole(
    store: Ledger, start: int, limit: int
) -> None:
    key = new_key()
    messages = tuple(user(str(number)) for number in range(33))
    await store.park(change(key, 0, *messages))

    page = await store.page(key, start=start, limit=limit)

    assert page == Page(messages[start : start + limit], start, 33)
