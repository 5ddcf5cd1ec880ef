"""The parts of a conversation: each is read as it was written, and kept by writes of others."""

from dataclasses import replace
from math import inf

import pytest
from tests.contract.door.writes import (
    ALL,
    LONG,
    OWNER,
    a_write,
    applied,
    first_write,
    leased,
    made,
    new_key,
    new_run,
    running,
    tag_of,
    whole,
)

from passback.core.conversation.store import (
    WHOLE,
    Found,
    Guard,
    QueueEntry,
    Span,
    Store,
    View,
    Wanted,
    Write,
)
from passback.core.ids import ConversationTag
from passback.core.messages import ConversationId, ConversationKey, OwnerId

pytestmark = pytest.mark.anyio

BYTES = bytes(range(256))
TEXTS = ["", "plain", "a:b/../c", "naïve 会話 🗨 \u2028\r\n", "nul\0nul", "{}|", "x" * 10_000]


async def write_parts(store: Store, write: Write) -> Found:
    """Apply a write and read all that the tests here look at."""
    await applied(store, write)
    return await whole(store, write.key)


# ---------------------------------------------------------------- nothing, and the head
async def test_a_conversation_that_is_not_there_has_version_0_and_nothing_else(
    door: Store,
) -> None:
    wanted = Wanted(("title",), ("key:a",), (new_run(),), queue=True)
    found = await door.read(new_key(), wanted)
    assert found == Found()
    assert found.now > 10**12
    assert (found.created, found.updated, found.due) == (0, 0, None)
    assert (await door.read(new_key(), Wanted(within=0))).messages == ()


async def test_an_empty_first_write_makes_an_empty_conversation(door: Store) -> None:
    found = await door.read(await made(door), Wanted(("title",), ("key:a",), (new_run(),), True, 0))
    assert found == Found(version=1, messages=())


async def test_a_head_is_kept_until_another_one_replaces_it(door: Store) -> None:
    key = await made(door)
    first = await write_parts(door, replace(a_write(key), head=BYTES))
    kept = await write_parts(door, a_write(key))
    empty = await write_parts(door, replace(a_write(key), head=b""))
    assert [each.head for each in (first, kept, empty)] == [BYTES, BYTES, b""]


async def test_a_write_that_is_applied_is_read_by_all(door: Store, peer: Store) -> None:
    key = await made(door, b"one")
    for number in range(20):
        await applied(door, replace(a_write(key), head=b"%d" % number))
        assert (await whole(peer, key)).head == b"%d" % number


# ---------------------------------------------------------------- fields, receipts, runs
async def test_fields_are_set_kept_and_removed_each_alone(door: Store) -> None:
    key, wanted = await made(door), Wanted(("a", "b", "c"))
    await applied(door, replace(a_write(key), fields={"a": b"1", "b": BYTES, "c": b""}))
    assert (await door.read(key, wanted)).fields == {"a": b"1", "b": BYTES, "c": b""}
    await applied(door, replace(a_write(key), fields={"a": None, "c": b"2", "never": None}))
    assert (await door.read(key, wanted)).fields == {"b": BYTES, "c": b"2"}
    await applied(door, a_write(key))
    assert (await door.read(key, Wanted(("c", "a", "never")))).fields == {"c": b"2"}
    assert (await door.read(key, Wanted())).fields == {}


async def test_a_first_write_sets_fields_and_may_remove_what_is_not_there(door: Store) -> None:
    key = new_key()
    await applied(door, replace(first_write(key), fields={"a": b"1", "b": None}))
    assert (await door.read(key, Wanted(("a", "b")))).fields == {"a": b"1"}


async def test_receipts_replace_those_of_the_same_names_and_keep_the_others(door: Store) -> None:
    key, wanted = await made(door), Wanted(receipts=("key:a", "key:b", "key:c"))
    await applied(door, replace(a_write(key), receipts={"key:a": "1", "key:b": ""}))
    await applied(door, replace(a_write(key), receipts={"key:a": "naïve 会話", "key:c": "3"}))
    found = await door.read(key, wanted)
    assert found.receipts == {"key:a": "naïve 会話", "key:b": "", "key:c": "3"}
    assert (await door.read(key, Wanted(receipts=("key:b",)))).receipts == {"key:b": ""}
    assert (await door.read(key, Wanted())).receipts == {}


async def test_run_records_are_set_by_run(door: Store) -> None:
    key, one, other = await made(door), new_run(), new_run()
    await applied(door, replace(a_write(key), runs={one: BYTES, other: b"other"}))
    await applied(door, replace(a_write(key), runs={one: b"again"}))
    found = await door.read(key, Wanted(runs=(one, other, new_run())))
    assert found.runs == {one: b"again", other: b"other"}
    assert (await door.read(key, Wanted())).runs == {}


@pytest.mark.parametrize("name", TEXTS)
async def test_a_receipt_has_any_name(door: Store, name: str) -> None:
    key = await made(door)
    await applied(door, replace(a_write(key), receipts={name: "one", f"{name}.": "other"}))
    assert (await door.read(key, Wanted(receipts=(name,)))).receipts == {name: "one"}
    await applied(door, replace(a_write(key), receipts={name: "again"}))
    found = await door.read(key, Wanted(receipts=(name, f"{name}.")))
    assert found.receipts == {name: "again", f"{name}.": "other"}


# ---------------------------------------------------------------- messages and the view
async def test_messages_are_numbered_in_the_order_of_their_writes(door: Store) -> None:
    key = await made(door, b"0", b"1")
    await applied(door, a_write(key))
    found = await write_parts(door, replace(a_write(key), messages=(b"", BYTES, b"0")))
    assert found.messages == (b"0", b"1", b"", BYTES, b"0")
    assert (found.message_count, found.view) == (5, View(WHOLE, 3 + 256))


VIEWS = [
    ((), ""),
    ((Span(0),), "abcde"),
    ((Span(2),), "cde"),
    ((Span(5),), ""),
    ((Span(0, 2),), "ab"),
    ((Span(1, 1), Span(4)), "e"),
    ((Span(0, 1), Span(2, 3), Span(4, 5)), "ace"),
    ((Span(0, 1), Span(3)), "ade"),
    ((Span(0, 5),), "abcde"),
]


@pytest.mark.parametrize(("spans", "expected"), VIEWS)
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_view_selects_messages_and_grows_if_its_last_span_is_open(
    door: Store, spans: tuple[Span, ...], expected: str, is_known: bool
) -> None:
    letters = [b"a", b"b", b"c", b"d", b"e"]
    key = await made(door, *letters[:3])
    write = replace(a_write(key), messages=tuple(letters[3:]))
    view = View(spans, len(expected) if is_known else None)
    found = await write_parts(door, replace(write, view=view))
    assert b"".join(found.messages or ()) == expected.encode()
    assert found.view == View(spans, len(expected))

    found = await write_parts(door, replace(a_write(key), messages=(b"fg", b"h")))
    more = b"fgh" if spans and spans[-1].end is None else b""
    assert b"".join(found.messages or ()) == expected.encode() + more
    assert found.view == View(spans, len(expected) + len(more))
    assert found.message_count == 7


async def test_a_view_may_show_more_again(door: Store) -> None:
    key = await made(door, b"a", b"bb", b"ccc")
    hidden = await write_parts(door, replace(a_write(key), view=View((Span(3),))))
    shown = await write_parts(door, replace(a_write(key), view=View((Span(1),), 5)))
    again = await write_parts(door, replace(a_write(key), view=View()))
    assert [each.messages for each in (hidden, shown, again)] == [
        (),
        (b"bb", b"ccc"),
        (b"a", b"bb", b"ccc"),
    ]
    assert [each.view.size for each in (hidden, shown, again)] == [0, 5, 6]


async def test_a_first_write_has_a_view_of_its_messages(door: Store) -> None:
    key = new_key()
    write = replace(first_write(key), messages=(b"a", b"bb", b"ccc"), view=View((Span(1),)))
    found = await write_parts(door, write)
    assert (found.messages, found.view) == ((b"bb", b"ccc"), View((Span(1),), 5))


@pytest.mark.parametrize(
    ("within", "fits"), [(None, False), (0, False), (5, False), (6, True), (6.5, True), (inf, True)]
)
async def test_messages_are_read_if_they_fit(door: Store, within: float | None, fits: bool) -> None:
    key = await made(door, b"hidden", b"abc", b"def")
    await applied(door, replace(a_write(key), view=View((Span(1),))))
    found = await door.read(key, Wanted(within=within))
    assert found.messages == ((b"abc", b"def") if fits else None)
    assert found.view == View((Span(1),), 6)


async def test_a_message_is_never_changed(door: Store) -> None:
    """Whatever the view says, each stays under its number."""
    key = await made(door, b"a", b"b")
    for view in (View(()), View((Span(0, 1),)), View((Span(2),)), View()):
        await applied(door, replace(a_write(key), messages=(b"more",), view=view))
    assert await door.page(key, WHOLE, limit=9) == [b"a", b"b", *[b"more"] * 4]


# ---------------------------------------------------------------- pages
PAGES = [
    (WHOLE, 9, "abcde"),
    (WHOLE, 2, "ab"),
    ((Span(3),), 9, "de"),
    ((Span(3, 4),), 9, "d"),
    ((Span(0, 2), Span(3)), 4, "abde"),
    ((Span(0, 1), Span(2, 3), Span(4)), 9, "ace"),
    ((Span(0, 1), Span(2, 3), Span(4)), 1, "a"),
    ((Span(4), Span(0, 2)), 9, "eab"),
    ((Span(1, 4), Span(1, 4)), 5, "bcdbc"),
    ((Span(2, 2), Span(1, 2)), 9, "b"),
    ((Span(4, 99),), 9, "e"),
    ((Span(5),), 9, ""),
    ((Span(99),), 9, ""),
    ((), 9, ""),
]


@pytest.mark.parametrize(("spans", "limit", "expected"), PAGES)
async def test_a_page_has_the_messages_of_its_spans_in_order(
    door: Store, spans: tuple[Span, ...], limit: int, expected: str
) -> None:
    key = await made(door, b"a", b"b", b"c", b"d", b"e")
    await applied(door, replace(a_write(key), view=View((Span(5),))))
    assert b"".join(await door.page(key, spans, limit=limit)) == expected.encode()


async def test_a_page_of_what_is_not_there_is_empty(door: Store) -> None:
    assert list(await door.page(new_key(), WHOLE, limit=9)) == []


async def test_a_large_page_ends_early_and_has_one_message_at_least(door: Store) -> None:
    sizes = [1, 5 * 2**20, 2 * 2**20, 2 * 2**20, 20 * 2**20, 1]
    key = await made(door, *(b"%d" % number * size for number, size in enumerate(sizes)))
    place, pages = 0, list[int]()
    while place < len(sizes):
        page = await door.page(key, (Span(place),), limit=9)
        assert [len(each) for each in page] == sizes[place : place + len(page)]
        place += len(page)
        pages.append(len(page))
    assert len(pages) > 2


async def test_a_page_of_many_small_messages_is_whole(door: Store) -> None:
    messages = [b"%d" % number for number in range(1000)]
    key = await made(door, *messages)
    assert list(await door.page(key, WHOLE, limit=1000)) == messages
    assert list(await door.page(key, (Span(10), Span(0, 10)), limit=995)) == [
        *messages[10:],
        *messages[:5],
    ]


# ---------------------------------------------------------------- the queue
async def test_a_queue_keeps_its_order(door: Store) -> None:
    key, (one, two, three) = await made(door), (new_run(), new_run(), new_run())
    for run_id in (three, one, two):
        answer = await applied(
            door, replace(a_write(key), enqueue=QueueEntry(run_id, run_id.encode()))
        )
        assert answer.queued
    entries = [QueueEntry(run_id, run_id.encode()) for run_id in (three, one, two)]
    assert list((await whole(door, key)).queue) == entries

    assert (await applied(door, replace(a_write(key), dequeue=one))).queued
    assert (await whole(door, key)).queue == (entries[0], entries[2])
    last = replace(a_write(key), dequeue=three, enqueue=QueueEntry(one, BYTES))
    assert (await applied(door, last)).queued
    assert (await whole(door, key)).queue == (entries[2], QueueEntry(one, BYTES))


async def test_an_empty_queue_is_told(door: Store) -> None:
    key, run_id = new_key(), new_run()
    first = replace(first_write(key), enqueue=QueueEntry(run_id))
    assert (await applied(door, first)).queued
    assert (await applied(door, replace(a_write(key), dequeue=new_run()))).queued
    assert not (await applied(door, replace(a_write(key), dequeue=run_id))).queued
    assert not (await applied(door, a_write(key))).queued


async def test_records_of_the_queue_are_read_if_they_are_wanted(door: Store) -> None:
    key, run_id = await made(door), new_run()
    await applied(door, replace(a_write(key), enqueue=QueueEntry(run_id, BYTES)))
    assert (await door.read(key, Wanted())).queue == (QueueEntry(run_id),)
    assert (await door.read(key, Wanted(queue=True))).queue == (QueueEntry(run_id, BYTES),)


# ---------------------------------------------------------------- times
async def test_the_first_write_makes_and_touches_a_conversation(door: Store) -> None:
    first = await whole(door, await made(door))
    assert first.created == first.updated > 10**15
    assert abs(first.created - first.now * 1000) < 60_000_000


async def test_a_write_that_touches_is_newer_than_any_before(door: Store, peer: Store) -> None:
    keys = [await made(door) for _ in range(3)]
    created = [(await whole(door, key)).created for key in keys]
    assert created == sorted(set(created))
    newest = created[-1]
    for number in range(30):
        store, key = (door, peer)[number % 2], keys[number % 3]
        await applied(store, replace(a_write(key), touches=True))
        updated = (await whole(door, key)).updated
        assert updated > newest
        newest = updated
    assert [(await whole(door, key)).created for key in keys] == created


async def test_a_write_that_does_not_touch_keeps_the_time(door: Store) -> None:
    key = await made(door)
    before = (await whole(door, key)).updated
    await applied(door, replace(a_write(key), messages=(b"more",), head=b"head", owes=True))
    await leased(door, key, new_run())
    assert (await whole(door, key)).updated == before


async def test_the_clock_is_that_of_the_store(door: Store) -> None:
    key = await made(door)
    first = (await whole(door, key)).now
    second = (await applied(door, a_write(key))).now
    assert first <= second <= (await whole(door, key)).now < first + 60_000


# ---------------------------------------------------------------- keys and tags
async def test_a_conversation_is_read_by_its_tag(door: Store, peer: Store) -> None:
    key, run_id = await running(door)
    await applied(door, replace(a_write(key), messages=(b"one",), enqueue=QueueEntry(run_id, b"q")))
    tag = ConversationTag(tag_of(key))
    by_tag, by_key = await peer.read(tag, ALL), await peer.read(key, ALL)
    assert by_tag == replace(by_key, key=key)
    assert by_key.key is None
    assert len(tag) == 32


async def test_a_tag_of_nothing_finds_nothing(door: Store) -> None:
    assert await door.read(ConversationTag("0" * 32), Wanted()) == Found()


@pytest.mark.parametrize("name", [*TEXTS, "lone \ud800 surrogate"])
async def test_a_conversation_has_any_name(door: Store, name: str) -> None:
    keys = [
        ConversationKey(OwnerId(name), ConversationId("c")),
        ConversationKey(OWNER, ConversationId(name)),
        ConversationKey(OwnerId("c"), ConversationId(name)),
    ]
    for number, key in enumerate(keys):
        await applied(door, replace(first_write(key), head=b"%d" % number))
    for number, key in enumerate(keys):
        assert (await whole(door, key)).head == b"%d" % number
        assert (await door.read(ConversationTag(tag_of(key)), Wanted())).key == key


async def test_conversations_do_not_see_each_other(door: Store) -> None:
    one, other = await made(door, b"one"), await made(door, b"other")
    before = await whole(door, other)
    await applied(door, replace(a_write(one), messages=(b"more",), head=b"head"))
    await leased(door, one, new_run())
    assert await door.delete(one)
    assert await whole(door, other) == before


# ---------------------------------------------------------------- much of it
async def test_a_huge_write_is_read_whole(door: Store) -> None:
    key, run_id = new_key(), new_run()
    huge, many = BYTES * 2**15, 2000
    write = replace(
        first_write(key),
        head=huge,
        fields={"field": huge},
        messages=(huge, *(b"%d" % number for number in range(many))),
        receipts={f"key:{number}": str(number) for number in range(many)},
        runs={run_id: huge},
        enqueue=QueueEntry(run_id, huge),
    )
    await applied(door, write)
    names = ("key:0", f"key:{many - 1}")
    found = await door.read(key, Wanted(("field",), names, (run_id,), queue=True, within=inf))
    assert found.head == found.fields["field"] == found.runs[run_id] == huge
    assert found.messages == write.messages
    assert found.view.size == sum(map(len, write.messages))
    assert found.receipts == {"key:0": "0", f"key:{many - 1}": str(many - 1)}
    assert found.queue == (QueueEntry(run_id, huge),)


async def test_a_write_has_all_of_it_or_nothing(door: Store) -> None:
    """The guard of a long write is looked at before any of it."""
    key = await made(door, b"one")
    before = await whole(door, key)
    many = tuple(b"%d" % number for number in range(2000))
    assert await door.apply(replace(a_write(key, Guard(version=9)), messages=many)) is None
    assert await whole(door, key) == before
    assert (await applied(door, replace(a_write(key), messages=many))).version == 2


async def test_a_lease_time_may_be_long(door: Store) -> None:
    key, _ = await running(door, milliseconds=LONG)
    found = await whole(door, key)
    assert found.lease is not None
    assert 0 <= found.lease.expires - (found.now + LONG) + 60_000 <= 60_000
