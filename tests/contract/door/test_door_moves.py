"""What a move of a store needs: all its conversations, and all that one of them has."""

from dataclasses import replace
from math import inf

import pytest
from tests.contract.door.conftest import Doors
from tests.contract.door.writes import (
    LONG,
    a_write,
    all_pages,
    applied,
    first_write,
    keys_in,
    made,
    new_key,
    new_owner,
    new_run,
    running,
)

from passback.core.conversation.store import (
    Found,
    Place,
    Query,
    QueryPage,
    QueueEntry,
    Store,
    TakeLease,
    Wanted,
)
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.stores.options import StoreOptions

pytestmark = pytest.mark.anyio

WHOLE = Wanted(whole=True)
STORED = Query(OwnerId(""), "stored")


# ---------------------------------------------------------------- all of one conversation
async def test_a_whole_conversation_has_fields_receipts_and_run_records_of_any_name(
    door: Store, peer: Store
) -> None:
    key, one, other = await made(door, b"message"), new_run(), new_run()
    write = replace(
        a_write(key),
        fields={"title": b"1", "of a later passback": bytes(range(256)), "gone": b"2", "f": b""},
        receipts={"key:a": "1", "naïve 会話": "", "r": "nul\0nul"},
        runs={one: b"\0", other: b""},
        enqueue=QueueEntry(one, b"post"),
    )
    await applied(door, write)
    await applied(door, replace(a_write(key), fields={"gone": None}))
    found = await peer.read(key, WHOLE)
    assert found.fields == {"title": b"1", "of a later passback": bytes(range(256)), "f": b""}
    assert found.receipts == write.receipts
    assert found.runs == write.runs
    # the others are as they are without it
    assert (found.messages, found.queue) == (None, (QueueEntry(one),))
    found = await door.read(key, Wanted(("title",), ("no",), queue=True, within=inf, whole=True))
    assert set(found.fields) == {"title", "of a later passback", "f"}
    assert found.receipts == write.receipts
    assert (found.messages, found.queue) == ((b"message",), (QueueEntry(one, b"post"),))


async def test_a_whole_conversation_has_nothing_of_others(door: Store) -> None:
    one, other = await made(door), await made(door)
    for key, name in ((one, "a"), (other, "b")):
        named = {name: name.encode()}
        await applied(door, replace(a_write(key), fields=named, receipts={name: name}))
    found = await door.read(other, WHOLE)
    assert (found.fields, found.receipts, found.runs) == ({"b": b"b"}, {"b": "b"}, {})
    await door.delete(other)
    assert await door.read(other, WHOLE) == Found()
    await applied(door, first_write(other))
    assert (await door.read(other, WHOLE)).fields == {}


# ---------------------------------------------------------------- all conversations
async def test_a_store_without_conversations_lists_none(door: Store) -> None:
    assert await door.query(STORED) == QueryPage()
    await door.delete(await made(door))
    assert await keys_in(door, STORED) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 64])
async def test_all_stored_conversations_of_all_owners_are_listed(
    door: Store, peer: Store, limit: int
) -> None:
    owners = [new_owner(), OwnerId("\ud800"), OwnerId(""), OwnerId("a\0b")]
    keys = {await made(door, owner=owner) for owner in owners for _ in range(3)}
    keys.add((await running(door))[0])
    for name in ("", "naïve 会話", "\ud800", "x" * 5000):
        key = ConversationKey(OwnerId("o"), ConversationId(name))
        await applied(door, replace(first_write(key), owes=True, touches=True))
        keys.add(key)
    pages = await all_pages(peer, replace(STORED, owner=owners[0], limit=limit))
    listed = [each for page in pages for each in page.listed]
    assert {each.key for each in listed} == keys
    for each in listed:
        assert each.found == await door.read(each.key, Wanted())
        assert each.found is not None
        assert each.found.updated > 10**15


async def test_listed_conversations_have_the_wanted_fields(door: Store) -> None:
    key = await made(door)
    await applied(door, replace(a_write(key), fields={"a": b"1", "b": b"2"}))
    [page] = await all_pages(door, replace(STORED, fields=("b", "c")))
    assert page.listed[0].found == await door.read(key, Wanted(("b",)))


async def test_what_stays_is_listed_while_others_come_and_go(door: Store, peer: Store) -> None:
    stay = {await made(door) for _ in range(10)}
    go = [await made(door) for _ in range(10)]
    seen: set[ConversationKey] = set()
    place: Place | None = None
    for _ in range(1000):
        page = await door.query(replace(STORED, after=place, limit=2))
        seen |= {each.key for each in page.listed}
        if (place := page.next) is None:
            break
        if go:
            await peer.delete(go.pop())
            await made(peer)
    assert place is None
    assert seen >= stay


async def test_a_page_goes_on_behind_a_place_that_has_gone(door: Store) -> None:
    keys = {await made(door) for _ in range(60)}  # a scan may give some dozens at once
    page = await door.query(replace(STORED, limit=2))
    first = {each.key for each in page.listed}
    for key in first:
        await door.delete(key)
    assert page.next is not None
    assert set(await keys_in(door, replace(STORED, after=page.next))) >= keys - first


async def test_an_expired_conversation_is_not_listed(doors: Doors) -> None:
    brief = await doors.open(StoreOptions(ttl=0.001))
    await applied(brief, first_write(new_key()))
    kept = new_key()
    lease = TakeLease("one", LONG)  # one that runs is kept
    await applied(brief, replace(first_write(kept), lease=lease))
    while len(found := await keys_in(brief, STORED)) > 1:
        assert len(found) == 2
    assert found == [kept]
