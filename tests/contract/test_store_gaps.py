"""A store that lost the end of a log, as Redis may in a failover, refuses what rests on it."""

import pytest
from tests.support.store_values import (
    LONG,
    begin_run,
    ending,
    new_key,
    read_events,
    state,
    take_over_run,
    texts,
    turn,
    user,
)
from tests.support.transcript_rules import said_in

from passback.core.errors import LeaseLost
from passback.core.events import TextDelta
from passback.engine.ledger import Ledger

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P5", "P10")]


async def test_events_that_do_not_follow_on_what_is_stored_are_not_written(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    whole = await begin_run(store, new_key(), user("hello"))
    before = await state(store, held.run)

    answers = await store.append([texts(held, 3, "b"), texts(whole, 2, "a")], lease=0)

    assert answers == ["lost", "held"]
    assert await state(store, held.run) == before
    assert [place for place, _ in await read_events(store, whole.run)] == ["1-1", "1-2"]


async def test_events_of_which_only_some_are_stored_are_not_written(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    assert await store.append([texts(held, 2, "a", "b")], lease=LONG) == ["held"]
    before = await state(store, held.run)

    assert await store.append([texts(held, 3, "b", "c")], lease=LONG) == ["lost"]
    assert await store.append([texts(held, 2, "a", "b")], lease=LONG) == ["held"]
    assert await state(store, held.run) == before


async def test_a_turn_that_does_not_follow_on_what_is_stored_is_not_committed(
    store: Ledger,
) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    before = await state(store, held.run)

    with pytest.raises(LeaseLost):
        await store.commit(turn(held, 2, 3, TextDelta("b"), say="second"), lease=LONG)
    with pytest.raises(LeaseLost):
        await store.commit(ending(held, 2, 3, say="second"), lease=LONG)

    assert await state(store, held.run) == before


async def test_after_a_gap_the_run_is_taken_over_from_its_last_commit(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, user("hello"), lease=0)
    await store.commit(turn(held, 1, 2, TextDelta("a"), say="first"), lease=0)
    assert await store.append([texts(held, 4, "c")], lease=LONG) == ["lost"]

    status = await store.status(key)
    assert (status.running, status.lapsed) == (True, True)
    taken = await take_over_run(store, key)
    await store.commit(ending(taken, 1, 2, say="second"), lease=LONG)

    record = said_in((await store.load(key)).messages)
    assert record == ["hello", "first", "second"]
    assert [place for place, _ in await read_events(store, held.run)] == [
        "1-1",
        "1-2",
        "2-1",
        "2-2",
    ]
