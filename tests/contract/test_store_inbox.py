"""Promises of every store: an owner's owed calls, oldest first, in pages that stay in step."""

from dataclasses import replace

import anyio
import pytest
from tests.support.store_values import (
    LONG,
    LOST,
    answer,
    asking,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_nonce,
    user,
)

from passback.core.changes import ClaimRequest, Inbox, InboxPlace, OwingConversation
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ConversationId,
    ConversationKey,
    MessageId,
    OwnerId,
    ToolCall,
)
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

ANN, BOB = OwnerId("ann"), OwnerId("bob \u2028\ud800")
EMPTY = Inbox()


def key_of(name: str, owner: OwnerId = ANN) -> ConversationKey:
    return ConversationKey(owner, ConversationId(name))


async def hands_back(store: Ledger, key: ConversationKey, turn: AssistantMessage) -> None:
    held = await begin_run(store, key, user("go"))
    end = replace(ending(held, 0, 2), append=(turn,), owed=owed_answers([turn]))
    await store.commit(end, lease=LONG)


async def owing(store: Ledger, *names: str) -> None:
    for name in names:
        await hands_back(store, key_of(name), asking(f"{name}-1", f"{name}-2"))


async def listed(store: Ledger, owner: OwnerId = ANN) -> list[str]:
    page = await store.inbox(owner, limit=1000)
    assert page.next is None
    return [each.key.id for each in page.owing]


async def pages(store: Ledger, limit: int) -> list[list[str]]:
    found: list[list[str]] = []
    after: InboxPlace | None = None
    while True:
        page = await store.inbox(ANN, after=after, limit=limit)
        found.append([each.key.id for each in page.owing])
        after = page.next
        if after is None:
            return found


async def test_an_owner_finds_owed_calls_as_they_are_stored(store: Ledger, peer: Ledger) -> None:
    await owing(store, "one", "two")
    key = key_of("two")
    claim = ClaimRequest(
        key, new_nonce(), (await store.status(key)).version, CallId("two-1"), "a tab"
    )
    assert await store.claim_call(claim, seconds=LONG)

    page = await peer.inbox(ANN, limit=10)

    first, second = page.owing
    assert page == Inbox(
        (
            OwingConversation(key_of("one"), first.place, await store.status(key_of("one"))),
            OwingConversation(key, second.place, await store.status(key)),
        )
    )
    assert first.place < second.place
    assert [call.id for call in first.status.owed] == ["one-1", "one-2"]
    assert [each.call_id for each in second.status.claims] == ["two-1"]


@pytest.mark.promise("P13")
async def test_an_owner_finds_no_calls_of_another_owner(store: Ledger) -> None:
    await owing(store, "one", "ann\0two")
    names = ["one", "x" * 10_000, "naïve 会話 \u2028\r\n\ud800"]
    for name in names:
        await hands_back(store, key_of(name, BOB), asking("call"))
    assert await listed(store) == ["one", "ann\0two"]
    assert await listed(store, BOB) == names
    assert await store.inbox(OwnerId("ann\0"), limit=9) == EMPTY


async def test_what_owes_nothing_is_not_there(store: Ledger) -> None:
    held = await begin_run(store, key_of("talks"), user("hi"))
    assert await listed(store) == []
    await store.commit(ending(held, 0, 2), lease=LONG)
    await store.park(change(key_of("parked"), 0, user("hi")))
    assert await listed(store) == []


async def test_what_was_answered_leaves_and_what_is_handed_back_anew_is_the_newest(
    store: Ledger,
) -> None:
    await owing(store, "one", "two")
    key = key_of("one")
    left = asking("one-1", "one-2"), answer("one-1")
    parking = change(key, (await store.status(key)).version, answer("one-1"))
    assert await store.park(replace(parking, owed=owed_answers(left)))
    assert await listed(store) == ["one", "two"]

    held = await begin_run(store, key, answer("one-2"))
    assert await listed(store) == ["two"]
    turn = asking("again")
    end = replace(ending(held, 0, 2), append=(turn,), owed=owed_answers([turn]))
    await store.commit(end, lease=LONG)
    assert await listed(store) == ["two", "one"]


@pytest.mark.parametrize("gone", ["deleted", "completed", "lost"])
async def test_what_is_over_is_not_there(store: Ledger, gone: str) -> None:
    await owing(store, "one")
    if gone == "deleted":
        await store.delete(key_of("one"))
    else:
        answers = answer("one-1"), answer("one-2")
        held = await begin_run(store, key_of("one"), *answers, lease=0 if gone == "lost" else LONG)
        if gone == "lost":
            await fail_lost_run(store, key_of("one"))
            assert (await store.read_log(held.run))[-1].event == LOST
        else:
            await store.commit(ending(held, 0, 2), lease=LONG)
    assert await listed(store) == []
    assert await listed(store) == []


# ---------------------------------------------------------------- pages
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 1000])
async def test_pages_hold_whole_conversations_within_their_limit(store: Ledger, limit: int) -> None:
    """One that owes more than the limit is a page of its own."""
    names = ["a", "b", "c", "d", "e"]
    await owing(store, *names)
    found = await pages(store, limit)
    assert [name for page in found for name in page] == names
    most = max(1, limit // 2)
    assert [len(page) for page in found[:-1]] == [most] * (len(found) - 1)


async def test_large_arguments_make_small_pages(store: Ledger) -> None:
    big = "x" * 3 * 2**20
    for name in ("a", "b", "c"):
        call = ToolCall(CallId(name), "tool", big, client=True)
        await hands_back(store, key_of(name), AssistantMessage(MessageId("m"), "", (call,)))
    assert await pages(store, 1000) == [["a", "b"], ["c"]]


async def test_a_cursor_keeps_its_place_whatever_becomes_of_what_was_before_it(
    store: Ledger,
) -> None:
    await owing(store, "a", "b", "c", "d")
    page = await store.inbox(ANN, limit=4)
    assert [each.key.id for each in page.owing] == ["a", "b"]
    await store.delete(key_of("b"))
    await begin_run(store, key_of("a"), answer("a-1"), answer("a-2"))
    await owing(store, "new")

    rest = await store.inbox(ANN, after=page.next, limit=1000)

    assert [each.key.id for each in rest.owing] == ["c", "d", "new"]


async def test_a_cursor_that_was_never_given_out_is_a_position_too(store: Ledger) -> None:
    await owing(store, "a")
    [one] = (await store.inbox(ANN, limit=9)).owing
    since, tag = one.place
    before, same = InboxPlace(since, "0" * 32), InboxPlace(since, tag)
    for place, found in (
        (InboxPlace(0, ""), [one]),
        (before, [one]),
        (same, []),
        (InboxPlace(10**16 - 1, "f"), []),
    ):
        assert (await store.inbox(ANN, after=place, limit=9)).owing == tuple(found)


async def test_many_who_hand_back_at_once_are_all_there(store: Ledger, peer: Ledger) -> None:
    names = {f"n{number}" for number in range(20)}
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number, name in enumerate(sorted(names)):
                tasks.start_soon(owing, (store, peer)[number % 2], name)
    assert set(await listed(peer)) == names
    assert {name for page in await pages(store, 4) for name in page} == names


@pytest.mark.promise("P15")
async def test_a_hand_back_that_is_sent_again_is_there_once(store: Ledger) -> None:
    held = await begin_run(store, key_of("one"), user("go"))
    turn = asking("a")
    end = replace(ending(held, 0, 2), append=(turn,), owed=owed_answers([turn]))
    await store.commit(end, lease=LONG)
    await store.commit(end, lease=LONG)
    assert await listed(store) == ["one"]
    await begin_run(store, key_of("one"), answer("a"))
    assert await listed(store) == []
