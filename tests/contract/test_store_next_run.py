"""The runs of a conversation follow each other by the positions of their events."""

from dataclasses import replace

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.support.ledgers import open_ledger
from tests.support.store_values import (
    CANCELLED,
    LONG,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_key,
    opening,
    take_over_run,
    texts,
    waiting,
)

from passback.core.events import START, Cursor, Position
from passback.core.messages import ConversationKey, RunId
from passback.engine.ledger import Ledger
from passback.stores.options import StoreOptions

pytestmark = pytest.mark.anyio


async def run_after(store: Ledger, key: ConversationKey, after: Position) -> RunId | None:
    found = await store.next_run(key, after=after)
    return None if found is None else found.run_id


async def test_each_run_is_found_behind_the_one_before(store: Ledger, peer: Ledger) -> None:
    key = new_key()
    assert await store.next_run(key, after=START) is None
    runs = list[str]()
    ends = [START]
    for _ in range(12):  # two digits sort differently as text
        held = await begin_run(store, key)
        await store.append([texts(held, 2, "a", "b")], lease=LONG)
        await store.commit(ending(held, 0, 4), lease=LONG)
        runs.append(held.run.run_id)
        ends.append(Position(held.epoch, 4))
    for reader in (store, peer):
        assert [await run_after(reader, key, end) for end in ends] == [*runs, None]
    for end, run_id in zip(ends[1:], runs, strict=True):
        found = await store.next_run(key, after=end._replace(seq=1))
        assert found == Cursor(RunId(run_id), end._replace(seq=3))


async def test_a_run_that_was_taken_over_goes_on_before_the_next_one(store: Ledger) -> None:
    key = new_key()
    first = await begin_run(store, key)
    await store.renew([first], lease=0)
    second = await take_over_run(store, key)
    assert second.run == first.run
    assert await run_after(store, key, Position(first.epoch, 1)) == first.run.run_id
    await store.renew([second], lease=0)
    await fail_lost_run(store, key)
    end = (await store.status(key)).logged
    assert await store.next_run(key, after=end) is None
    third = await begin_run(store, key)
    assert await run_after(store, key, end) == third.run.run_id


async def test_queued_runs_come_in_the_order_in_which_they_begin(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key)
    queued = [waiting(key, text) for text in ("one", "two", "three")]
    for entry in queued:
        assert await store.enqueue(entry) == "queued"
    assert await store.cancel(queued[1].run, CANCELLED)
    await store.commit(ending(held, 0, 2), lease=LONG)
    place = Position(held.epoch, 2)
    # the first of the queue is known by the event that says so, the others when they begin
    assert await run_after(store, key, place) == queued[0].run.run_id
    for run in (queued[0].run, queued[2].run):
        version = (await store.status(key)).version
        beginning = replace(change(key, version), dequeues=run.run_id)
        taken = await store.begin(beginning, run.run_id, opening(run.run_id), lease=LONG)
        assert taken is not None
        assert await run_after(store, key, place) == run.run_id
        await store.commit(ending(taken, 0, 2), lease=LONG)
        place = (await store.status(key)).logged
    # what was cancelled before it began lies behind
    assert await store.next_run(key, after=place) is None


async def test_a_deleted_conversation_has_no_runs_and_a_new_one_counts_anew(store: Ledger) -> None:
    key = new_key()
    for _ in range(3):
        held = await begin_run(store, key)
        await store.commit(ending(held, 0, 2), lease=LONG)
    end = (await store.status(key)).logged
    assert await store.delete(key)
    assert await store.next_run(key, after=START) is None
    held = await begin_run(store, key)
    assert (await store.status(key)).logged.epoch < end.epoch
    assert await run_after(store, key, START) == held.run.run_id


async def test_conversations_do_not_see_each_others_runs(store: Ledger) -> None:
    one, other = new_key(), new_key()
    await begin_run(store, one)
    assert await store.next_run(other, after=START) is None


async def test_a_run_whose_log_has_expired_is_passed_over(store_url: str) -> None:
    options = StoreOptions(log_ttl=0.001)
    async with open_ledger(store_url, options=options) as store:
        key = new_key()
        held = await begin_run(store, key)
        await store.commit(ending(held, 0, 2), lease=LONG)
        with anyio.fail_after(10):
            while await store.next_run(key, after=START) is not None:
                await checkpoint()
