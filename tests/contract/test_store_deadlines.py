"""Promises of every store: deadlines of owed calls are kept, found when over, ended by a run."""

from dataclasses import replace

import anyio
import pytest
from tests.support.store_values import (
    LONG,
    answer,
    asking,
    begin_run,
    change,
    ending,
    new_key,
    user,
    waiting,
)

from passback.core.changes import Lease
from passback.core.messages import ConversationKey
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P10")]

ASKED = asking("a", "b")
DAY = 86_400_000  # milliseconds


async def handed_back(
    store: Ledger, key: ConversationKey, within: float | None, *, lease: float = LONG
) -> Lease:
    """A run that ends with calls that the client owes."""
    held = await begin_run(store, key, user("go"), lease=lease)
    end = replace(
        ending(held, 0, 2), append=(ASKED,), owed=owed_answers([ASKED]), answer_within=within
    )
    assert await store.commit(end, lease=lease) is False
    return held


async def found(store: Ledger) -> list[ConversationKey]:
    return list(await store.take_due(100, lease=LONG))


async def test_a_deadline_goes_by_the_stores_clock(store: Ledger) -> None:
    one, other, none = new_key(), new_key(), new_key()
    await handed_back(store, one, 60)
    await handed_back(store, other, 60 + DAY / 1000)
    await handed_back(store, none, None)

    first, second = (await store.status(one)).answer_by, (await store.status(other)).answer_by
    assert first is not None
    assert second is not None
    assert DAY <= second - first < DAY + 60_000
    status = await store.status(none)
    assert (status.answer_by, status.overdue, status.owed) == (None, False, owed_answers([ASKED]))
    assert not (await store.status(one)).overdue
    assert await found(store) == []


async def test_what_is_overdue_is_found_by_one_who_looks(store: Ledger, peer: Ledger) -> None:
    """Its worker may be gone: nobody but the index knows of it."""
    key = new_key()
    await handed_back(store, key, 0)
    assert (await peer.status(key)).overdue
    assert (await peer.load(key)).status.overdue
    assert await found(peer) == [key]
    assert await found(store) == []


async def test_what_becomes_overdue_is_found_then(store: Ledger) -> None:
    """The deadline counts, even if the run's lease would have lasted longer."""
    key = new_key()
    await handed_back(store, key, 0.3)
    with anyio.fail_after(5):
        while (looked := await store.take_due(9, lease=0.05)) == []:
            pass
    assert looked == [key]
    assert (await store.status(key)).overdue


async def test_results_that_are_stored_leave_the_deadline_as_it_is(store: Ledger) -> None:
    key = new_key()
    await handed_back(store, key, 60)
    before = await store.status(key)
    parking = replace(
        change(key, before.version, answer("a")), owed=owed_answers([ASKED, answer("a")])
    )
    assert await store.park(parking)
    after = await store.status(key)
    assert (after.answer_by, len(after.owed)) == (before.answer_by, 1)


async def test_the_next_run_has_no_deadline_until_it_hands_back(store: Ledger) -> None:
    key = new_key()
    await handed_back(store, key, 0)
    held = await begin_run(store, key, answer("a"), answer("b"))
    status = await store.status(key)
    assert (status.answer_by, status.overdue, status.running) == (None, False, True)
    assert await found(store) == []

    await store.commit(ending(held, 0, 2), lease=LONG)
    status = await store.status(key)
    assert (status.answer_by, status.overdue) == (None, False)
    assert await found(store) == []


async def test_a_run_that_was_not_the_last_has_no_say(store: Ledger) -> None:
    key = new_key()
    await handed_back(store, key, 0)
    await begin_run(store, key, answer("a"), answer("b"), lease=0)
    status = await store.status(key)
    assert (status.lapsed, status.overdue) == (True, False)


async def test_posts_that_wait_behind_what_is_owed_do_not_hide_the_deadline(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, user("go"))
    await store.enqueue(waiting(key))
    end = replace(ending(held, 0, 2), append=(ASKED,), owed=owed_answers([ASKED]), answer_within=0)
    assert await store.commit(end, lease=LONG) is True
    assert await found(store) == [key]


@pytest.mark.promise("P15")
async def test_a_hand_back_that_is_sent_again_keeps_the_first_deadline(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, user("go"))
    end = replace(ending(held, 0, 2), append=(ASKED,), owed=owed_answers([ASKED]), answer_within=60)
    await store.commit(end, lease=LONG)
    first = await store.status(key)
    await store.commit(replace(end, answer_within=120), lease=LONG)
    assert (await store.status(key)).answer_by == first.answer_by


async def test_what_is_deleted_is_not_found(store: Ledger) -> None:
    key = new_key()
    await handed_back(store, key, 0)
    await store.delete(key)
    assert await found(store) == []
