"""Promises of every store: anybody may close a run whose lease is over, once."""

import pytest
from tests.support.store_values import (
    FINISHED,
    LONG,
    LOST,
    assert_shut_out,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_key,
    read_events,
    texts,
    user,
)

from passback.core.changes import Status
from passback.core.events import Logged, Position, RunStarted
from passback.core.messages import RunId
from passback.engine.ledger import Ledger

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P6", "P10")]


async def test_a_lapsed_run_is_closed_under_a_new_epoch(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, user("hello"), lease=0)
    await store.append([texts(held, 2, "half")], lease=0)

    await fail_lost_run(store, key, user("closing"))

    status = await store.status(key)
    assert status == Status(
        status.version,
        held.run.run_id,
        message_count=2,
        attempt=1,
        logged=Position(held.epoch + 1, 1),
        committed=Position(held.epoch + 1, 1),
    )
    assert await store.read_log(held.run) == [
        Logged(Position(held.epoch, 1), RunStarted(held.run.run_id)),
        Logged(Position(held.epoch + 1, 1), LOST),
    ]


async def test_only_a_run_whose_lease_is_over_is_failed_as_lost(store: Ledger) -> None:
    key = new_key()
    assert not await store.fail_lost(change(key), RunId("r"), (LOST,))
    held = await begin_run(store, key)
    version = (await store.status(key)).version
    run_id = held.run.run_id

    assert not await store.fail_lost(change(key, version), run_id, (LOST,))
    await store.renew([held], lease=0)
    assert not await store.fail_lost(change(key, version - 1), run_id, (LOST,))
    assert not await store.fail_lost(change(key, version), RunId("another"), (LOST,))
    await store.commit(ending(held, 0, 2), lease=0)
    assert not await store.fail_lost(change(key, version + 1), run_id, (LOST,))

    assert [event for _, event in await read_events(store, held.run)] == [
        RunStarted(run_id),
        FINISHED,
    ]


async def test_a_worker_whose_run_was_failed_as_lost_writes_nothing_more(store: Ledger) -> None:
    lost = await begin_run(store, new_key(), lease=0)
    await fail_lost_run(store, lost.run.key)
    await assert_shut_out(store, lost)
    assert await store.release(lost) is False


async def test_a_released_run_may_be_closed_too_and_the_next_begins(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.release(held)
    await fail_lost_run(store, held.run.key)

    following = await begin_run(store, held.run.key, user("again"))

    status = await store.status(held.run.key)
    assert (status.run_id, status.attempt) == (following.run.run_id, 1)
    assert await store.renew([following], lease=LONG) == ["held"]
