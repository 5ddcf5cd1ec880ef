"""Promises of every store: one write moves to another branch, and all branches are read."""

from dataclasses import replace

import pytest
from tests.support.store_values import (
    FINISHED,
    LONG,
    answer,
    asking,
    begin_run,
    change,
    new_key,
    new_nonce,
    new_run,
    opening,
    turn,
    user,
)

from passback.core.changes import Change
from passback.core.conversation.tree import NO_MESSAGE, Branching, Fork, Tree
from passback.core.messages import ConversationKey, Message, MessageId, UserMessage
from passback.core.state import State
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger
from passback.engine.records import SEARCHED_AT_ONCE

pytestmark = pytest.mark.anyio

MESSAGES: tuple[Message, ...] = (user("a"), asking("c"))
CLOSED = answer("c", "closed")


async def owing(store: Ledger, key: ConversationKey, *, within: float) -> None:
    """A conversation that owes the result of one call, for so many seconds."""
    held = await begin_run(store, key, user("a"))
    end = replace(turn(held, 0, 2, FINISHED), append=MESSAGES[1:], owed=owed_answers(MESSAGES))
    await store.commit(replace(end, ends=True, answer_within=within), lease=LONG)
    assert (await store.status(key)).owed


async def test_one_write_closes_a_branch_and_begins_another_one(store: Ledger) -> None:
    key = new_key()
    await owing(store, key, within=LONG)
    run_id, status = new_run(), await store.status(key)
    edit = Change(key, new_nonce(), status.version, (user("b"),), leaf=0, left=(CLOSED,))

    held = await store.begin(edit, run_id, opening(run_id), lease=LONG)

    assert held is not None
    loaded = await store.load(key)
    assert loaded.messages == (MESSAGES[0], user("b"))
    assert (loaded.status.tree, loaded.status.stored) == (Tree(3, (Fork(3, 0),)), 4)
    assert (loaded.status.owed, loaded.status.unchanged) == ((), None)
    await store.commit(turn(held, 0, 2, say="said"), lease=LONG)
    assert (await store.status(key)).tree == Tree(4, (Fork(3, 0),))
    every = await store.read_branch(key, Tree(4), start=0, limit=9)
    assert every[:4] == (*MESSAGES, CLOSED, user("b"))
    left = replace(loaded.status.tree, leaf=2)
    assert await store.read_branch(key, left, start=1, limit=1) == MESSAGES[1:]
    assert await store.read_branch(key, left, start=1, limit=9) == (*MESSAGES[1:], CLOSED)
    assert await store.read_branch(key, left, start=3, limit=9) == ()
    assert await store.read_branch(key, left, start=0, limit=0) == ()


async def test_a_branch_may_be_read_without_a_run(store: Ledger) -> None:
    key = new_key()
    await owing(store, key, within=0)
    assert key in await store.take_due(1000, lease=0)
    version = (await store.status(key)).version
    state = State(history_start=0)
    assert await store.park(
        Change(key, new_nonce(), version, leaf=NO_MESSAGE, left=(CLOSED,), state=state)
    )
    status = await store.status(key)
    assert (status.message_count, status.stored, status.unchanged) == (0, 3, 0)
    assert (status.owed, status.answer_by, status.overdue) == ((), None, False)
    assert status.tree.branchings(3) == [Branching(NO_MESSAGE, (0,), None)]
    # there is no deadline any more, and nothing is owed
    assert key not in await store.take_due(1000, lease=0)
    assert key not in [each.key for each in (await store.inbox(key.owner, limit=1000)).owing]
    version = status.version
    assert await store.park(Change(key, new_nonce(), version, leaf=2))
    assert (await store.load(key)).messages == (*MESSAGES, CLOSED)
    # the first change said from where on readers know other messages
    assert (await store.status(key)).unchanged == 0
    await store.park(Change(key, new_nonce(), version + 1, (user("b"),)))
    assert (await store.load(key)).messages == (*MESSAGES, CLOSED, user("b"))
    assert not (await store.status(key)).tree.forks


async def test_what_readers_know_only_gets_less_until_a_run_begins(store: Ledger) -> None:
    key, state = new_key(), State()
    await store.park(change(key, 0, *MESSAGES))
    other = (user("b"), user("c"))
    for leaf, append, known in ((NO_MESSAGE, other, 0), (2, (), 0), (3, (), 0)):
        version = (await store.status(key)).version
        await store.park(Change(key, new_nonce(), version, append, leaf=leaf, state=state))
        assert (await store.status(key)).unchanged == known
    assert (await store.load(key)).messages == other
    await begin_run(store, key, user("d"))
    assert (await store.status(key)).unchanged is None


@pytest.mark.promise("P15")
async def test_a_change_of_the_branch_sent_twice_is_made_once(store: Ledger) -> None:
    key = new_key()
    await store.park(change(key, 0, *MESSAGES))
    version = (await store.status(key)).version
    edit = Change(key, new_nonce(), version, (user("b"),), leaf=0, left=(CLOSED,))
    await store.park(edit)
    before = await store.load(key)
    await store.park(edit)
    assert await store.load(key) == before
    assert before.status.stored == 4


async def test_a_message_is_found_on_any_branch(store: Ledger) -> None:
    key, count = new_key(), SEARCHED_AT_ONCE + 20
    named = [UserMessage(MessageId(f"m{number}"), "x" * 50) for number in range(count)]
    quotes = (
        UserMessage(MessageId("q"), 'the text "m1" is no id'),
        UserMessage(MessageId("é"), ""),
    )
    again = UserMessage(MessageId("m3"), "the same id again")
    await store.park(Change(key, new_nonce(), 0, (*named, *quotes)))
    version = (await store.status(key)).version
    await store.park(Change(key, new_nonce(), version, (again,), leaf=0))
    stored = (await store.status(key)).stored
    assert stored == count + 3
    for name, number in (
        ("m0", 0),
        ("m1", 1),
        ("m19", 19),
        ("m20", 20),
        ("m275", 275),
        ("q", count),
    ):
        assert await store.find_message(key, MessageId(name), stored) == number
    assert await store.find_message(key, MessageId("é"), stored) == count + 1
    assert await store.find_message(key, MessageId("m3"), stored) == count + 2  # the newest
    for name in ("m", "x", "m276", ""):
        assert await store.find_message(key, MessageId(name), stored) is None
    numbers = [0, 2, 3, count - 1, count + 2]
    found = await store.message_ids(key, numbers)
    assert found == dict(zip(numbers, ["m0", "m2", "m3", f"m{count - 1}", "m3"], strict=True))
    assert await store.message_ids(key, []) == {}
    assert await store.find_message(new_key(), MessageId("m0"), stored) is None
    assert await store.message_ids(new_key(), [0]) == {}
