"""Indexes of an owner: what owes, oldest first, and all conversations, newest first."""

from dataclasses import replace
from typing import Literal

import pytest
from tests.contract.door.writes import (
    a_write,
    all_pages,
    applied,
    first_write,
    keys_in,
    leased,
    made,
    new_key,
    new_owner,
    new_run,
    tag_of,
    whole,
)

from passback.core.conversation.store import (
    Guard,
    Place,
    Query,
    QueryPage,
    QueueEntry,
    Span,
    Store,
    View,
    Wanted,
)
from passback.core.messages import ConversationId, ConversationKey, OwnerId

pytestmark = pytest.mark.anyio

Index = Literal["owing", "all"]
INDEXES: list[Index] = ["owing", "all"]


async def set_owes(store: Store, key: ConversationKey, owes: bool | None) -> None:
    await applied(store, replace(a_write(key), owes=owes))


async def touch(store: Store, key: ConversationKey) -> None:
    await applied(store, replace(a_write(key), touches=True))


async def owing(store: Store, owner: OwnerId) -> list[ConversationKey]:
    return await keys_in(store, Query(owner, "owing"))


async def listed(store: Store, owner: OwnerId) -> list[ConversationKey]:
    return await keys_in(store, Query(owner, "all"))


async def several(store: Store, owner: OwnerId, count: int) -> list[ConversationKey]:
    """Make conversations that all owe something."""
    keys = [await made(store, owner=owner) for _ in range(count)]
    for key in keys:
        await set_owes(store, key, True)
    return keys


# ---------------------------------------------------------------- what owes
async def test_what_owes_is_listed_by_when_it_began_oldest_first(door: Store, peer: Store) -> None:
    owner = new_owner()
    one, two, three, _ = [await made(door, owner=owner) for _ in range(4)]
    assert await owing(door, owner) == []
    for key in (two, three, one):
        await set_owes(door, key, True)
    assert await owing(peer, owner) == [two, three, one]


async def test_what_owes_no_more_leaves_and_what_owes_again_is_the_last(door: Store) -> None:
    owner = new_owner()
    one, two, three = await several(door, owner, 3)
    await set_owes(door, one, False)
    assert await owing(door, owner) == [two, three]
    await set_owes(door, one, True)
    assert await owing(door, owner) == [two, three, one]
    for key in (two, three, one, one):
        await set_owes(door, key, False)
    assert await owing(door, owner) == []


async def test_a_write_that_says_nothing_keeps_it(door: Store) -> None:
    owner = new_owner()
    one, two = await several(door, owner, 2)
    await set_owes(door, one, None)
    await touch(door, one)
    await leased(door, one, new_run())
    assert await owing(door, owner) == [one, two]
    await set_owes(door, one, False)
    await set_owes(door, one, None)
    assert await owing(door, owner) == [two]


@pytest.mark.exact_indexes
async def test_what_owes_already_keeps_its_place(door: Store) -> None:
    """It is by when it began to owe something."""
    owner = new_owner()
    one, two = await several(door, owner, 2)
    [before] = await all_pages(door, Query(owner, "owing"))
    await set_owes(door, one, True)
    [after] = await all_pages(door, Query(owner, "owing"))
    assert [each.key for each in after.listed] == [one, two]
    assert [each.place for each in after.listed] == [each.place for each in before.listed]


async def test_a_first_write_may_owe(door: Store) -> None:
    owner = new_owner()
    owes, owes_not = first_write(new_key(owner)), first_write(new_key(owner))
    await applied(door, replace(owes, owes=True))
    await applied(door, replace(owes_not, owes=False))
    assert await owing(door, owner) == [owes.key]


# ---------------------------------------------------------------- all
async def test_all_are_listed_by_when_they_were_touched_newest_first(
    door: Store, peer: Store
) -> None:
    owner = new_owner()
    one, two, three = [await made(door, owner=owner) for _ in range(3)]
    assert await listed(door, owner) == [three, two, one]
    await touch(peer, one)
    assert await listed(door, owner) == [one, three, two]
    await touch(door, three)
    await touch(peer, two)
    await touch(door, two)
    assert await listed(peer, owner) == [two, three, one]


async def test_a_write_that_does_not_touch_keeps_the_order(door: Store) -> None:
    owner = new_owner()
    one, two = [await made(door, owner=owner) for _ in range(2)]
    await applied(door, replace(a_write(one), messages=(b"one",), owes=True))
    await leased(door, one, new_run())
    assert await listed(door, owner) == [two, one]


@pytest.mark.exact_indexes
async def test_a_write_that_is_refused_changes_no_index(door: Store) -> None:
    owner = new_owner()
    one, two = await several(door, owner, 2)
    refused = a_write(one, Guard(version=9))
    assert await door.apply(replace(refused, touches=True, owes=False)) is None
    assert await owing(door, owner) == [one, two]
    assert await listed(door, owner) == [two, one]
    absent = replace(a_write(new_key(owner)), owes=True, touches=True)
    assert await door.apply(absent) is None
    assert await owing(door, owner) == [one, two]
    assert await listed(door, owner) == [two, one]


@pytest.mark.exact_indexes
async def test_places_are_those_of_the_conversations(door: Store) -> None:
    owner = new_owner()
    keys = await several(door, owner, 3)
    [page] = await all_pages(door, Query(owner, "all"))
    for each in page.listed:
        found = await whole(door, each.key)
        assert each.place == Place(found.updated, tag_of(each.key))
        assert each.found is not None
        assert (each.found.updated, each.found.created) == (found.updated, found.created)
    [page] = await all_pages(door, Query(owner, "owing"))
    times = [each.place.time for each in page.listed]
    assert times == sorted(times)
    for key, each in zip(keys, page.listed, strict=True):
        found = await whole(door, key)
        assert each.place.tag == tag_of(key)
        assert found.created <= each.place.time <= found.now * 1000 + 1000


# ---------------------------------------------------------------- what a list says of each
@pytest.mark.parametrize("index", INDEXES)
async def test_a_list_has_the_wanted_fields_and_no_messages(door: Store, index: Index) -> None:
    owner, run_id = new_owner(), new_run()
    key = new_key(owner)
    await applied(
        door,
        replace(
            first_write(key),
            head=b"head",
            fields={"title": b"t", "other": b"o"},
            messages=(b"a", b"bb"),
            view=View((Span(1),)),
            receipts={"key:a": "a"},
            runs={run_id: b"run"},
            enqueue=QueueEntry(run_id, b"queued"),
            owes=True,
        ),
    )
    await leased(door, key, run_id)
    await made(door, owner=owner)
    page = await door.query(Query(owner, index, fields=("title", "none")))
    [each] = [each for each in page.listed if each.key == key]
    expected = await door.read(key, Wanted(("title",)))
    assert each.found == expected
    assert expected.fields == {"title": b"t"}
    assert expected.messages is None
    assert expected.view == View((Span(1),), 2)


@pytest.mark.parametrize("index", INDEXES)
async def test_owners_do_not_see_each_others(door: Store, index: Index) -> None:
    owners = [new_owner(), new_owner(), OwnerId("\ud800"), OwnerId(""), OwnerId("a\0b")]
    keys = {owner: await several(door, owner, 2) for owner in owners}
    for owner in owners:
        assert set(await keys_in(door, Query(owner, index))) == set(keys[owner])
    assert await door.query(Query(new_owner(), index)) == QueryPage()


@pytest.mark.parametrize("name", ["", "a\0b", "naïve 会話 🗨 \u2028\r\n", "x" * 10_000, "\ud800"])
async def test_a_listed_conversation_has_its_own_name(door: Store, name: str) -> None:
    key = ConversationKey(new_owner(), ConversationId(name))
    await applied(door, replace(first_write(key), owes=True))
    assert await owing(door, key.owner) == await listed(door, key.owner) == [key]


# ---------------------------------------------------------------- pages
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
async def test_pages_have_each_conversation_once(door: Store, index: Index, limit: int) -> None:
    owner = new_owner()
    keys = await several(door, owner, 7)
    pages = await all_pages(door, Query(owner, index, limit=limit))
    assert all(len(page.listed) <= limit for page in pages)
    read = [each.key for page in pages for each in page.listed]
    assert read == (keys if index == "owing" else keys[::-1])
    places = [each.place for page in pages for each in page.listed]
    assert places == sorted(places, reverse=index == "all")


@pytest.mark.parametrize("index", INDEXES)
async def test_a_page_begins_behind_any_place(door: Store, index: Index) -> None:
    owner = new_owner()
    await several(door, owner, 5)
    [page] = await all_pages(door, Query(owner, index))
    keys = [each.key for each in page.listed]
    for number, each in enumerate(page.listed):
        before, behind = (keys[:number], keys[number + 1 :])
        assert await keys_in(door, Query(owner, index, after=each.place)) == behind
        # the tag orders conversations with the same time
        first, last = Place(each.place.time, ""), Place(each.place.time, "~")
        earlier, later = (first, last) if index == "owing" else (last, first)
        assert await keys_in(door, Query(owner, index, after=earlier)) == [each.key, *behind]
        assert await keys_in(door, Query(owner, index, after=later)) == behind
        assert keys == [*before, each.key, *behind]


async def test_a_page_goes_on_where_conversations_have_come_and_gone(door: Store) -> None:
    owner = new_owner()
    keys = await several(door, owner, 6)
    first = await door.query(Query(owner, "owing", limit=2))
    assert [each.key for each in first.listed] == keys[:2]
    await door.delete(keys[1])
    await set_owes(door, keys[2], False)
    [new] = await several(door, owner, 1)
    assert await keys_in(door, Query(owner, "owing", after=first.next)) == [*keys[3:], new]

    newest = await door.query(Query(owner, "all", limit=2))
    await touch(door, keys[0])
    await made(door, owner=owner)
    behind = [key for key in keys[::-1] if key not in (keys[1], keys[0])]
    assert [each.key for each in newest.listed] == [new, behind[0]]
    assert await keys_in(door, Query(owner, "all", after=newest.next)) == behind[1:]


# ---------------------------------------------------------------- what has gone
@pytest.mark.parametrize("index", INDEXES)
async def test_what_was_deleted_is_not_listed(door: Store, peer: Store, index: Index) -> None:
    owner = new_owner()
    keys = await several(door, owner, 3)
    await peer.delete(keys[1])
    assert set(await keys_in(door, Query(owner, index))) == {keys[0], keys[2]}
    await applied(door, first_write(keys[1]))
    assert (keys[1] in await keys_in(door, Query(owner, index))) == (index == "all")
