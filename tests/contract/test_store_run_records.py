"""Promises of every store: a run leaves a record that outlives its log."""

from dataclasses import replace

import pytest
from tests.support.store_values import (
    CANCELLED,
    FINISHED,
    LONG,
    LOST,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_key,
    new_run,
    take_over_run,
    turn,
    user,
    waiting,
)

from passback.core.budgets import Spent
from passback.core.changes import RunRecord
from passback.core.errors import UnknownRun
from passback.core.events import RunStarted
from passback.core.messages import JsonObject, RunRef, Usage
from passback.core.state import State
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

BEFORE = State(usage=Usage(5, 5), tokens=10, seconds=1.0, cost=2.0)
AFTER = State(usage=Usage(8, 9), tokens=20, seconds=4.0, cost=2.5)


def untimed(record: RunRecord) -> RunRecord:
    """A record without its times, which have to be in order."""
    assert 0 < record.began <= (record.ended or record.began)
    return replace(record, began=0, ended=record.ended and 1)


async def test_a_run_tells_what_it_continued_stored_and_spent(store: Ledger, peer: Ledger) -> None:
    key = new_key()
    assert await store.park(replace(change(key, 0, user("a"), user("b")), state=BEFORE))
    held = await begin_run(store, key, user("c"))
    assert untimed(await peer.run_record(held.run)) == RunRecord(1, 1)
    await store.commit(turn(held, 0, 2, say="one"), lease=LONG)
    assert untimed(await peer.run_record(held.run)) == RunRecord(1, 2)
    end = replace(
        ending(held, 1, 2, say="two"),
        log=replace(ending(held, 1, 2).log, events=(replace(FINISHED, model="m"),)),
        state=AFTER,
    )
    await store.commit(end, lease=LONG)
    ended = RunRecord(
        1,
        3,
        ended=1,
        outcome=FINISHED.outcome,
        model="m",
        usage=Usage(3, 4),
        spent=Spent(10, 3.0, 0.5),
    )
    assert untimed(await peer.run_record(held.run)) == ended

    later = await begin_run(store, key)
    assert untimed(await peer.run_record(later.run)) == RunRecord(4, 0)
    assert untimed(await peer.run_record(held.run)) == ended


async def test_a_run_keeps_the_note_of_its_protocol_until_it_is_hidden(
    store: Ledger, peer: Ledger
) -> None:
    key, run_id = new_key(), new_run()
    note: JsonObject = {"asked": {"nothing": None, "many": [1, None, "é"]}}
    begun = replace(change(key, 0, user("a")), note=note)
    held = await store.begin(begun, run_id, (RunStarted(run_id),), lease=LONG)
    assert held is not None
    assert (await peer.run_record(held.run)).note == note
    assert not await peer.hide_run(held.run)  # it goes on
    await store.commit(ending(held, 0, 2), lease=LONG)
    before = await peer.run_record(held.run)
    assert (before.note, before.hidden) == (note, False)

    assert [await peer.hide_run(held.run), await store.hide_run(held.run)] == [True, True]
    assert await store.run_record(held.run) == replace(before, note=None, hidden=True)
    assert (await store.load(key)).messages == (user("a"),)
    assert not await store.hide_run(RunRef(key, new_run()))
    assert not await store.hide_run(RunRef(new_key(), run_id))


async def test_a_run_that_was_taken_over_has_one_record(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("a"), lease=0)
    await store.commit(turn(held, 0, 2, say="one"), lease=0)
    lease = await take_over_run(store, held.run.key, user("closed"))
    await store.commit(replace(ending(lease, 0, 2), state=AFTER), lease=LONG)
    record = untimed(await store.run_record(held.run))
    assert (record.follows, record.messages, record.outcome) == (-1, 3, FINISHED.outcome)
    assert record.spent == Spent(20, 4.0, 2.5)


async def test_a_lost_run_has_its_outcome(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("a"), lease=0)
    await fail_lost_run(store, held.run.key, user("closed"))
    record = untimed(await store.run_record(held.run))
    assert record == RunRecord(-1, 2, ended=1, outcome=LOST.outcome)


async def test_a_run_that_never_began_was_cancelled(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("a"))
    entry = waiting(held.run.key)
    await store.enqueue(entry)
    with pytest.raises(UnknownRun):
        await store.run_record(entry.run)
    assert await store.cancel(entry.run, CANCELLED)
    record = await store.run_record(entry.run)
    assert record.ended
    assert replace(record, ended=None) == RunRecord(outcome=CANCELLED.outcome)


async def test_a_run_of_another_conversation_is_unknown(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("a"))
    for run in (RunRef(held.run.key, new_run()), RunRef(new_key(), held.run.run_id)):
        with pytest.raises(UnknownRun):
            await store.run_record(run)
