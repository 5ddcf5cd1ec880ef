"""Promises of every store: logs are read from any position, and each event once."""

import pytest
from tests.support.store_values import (
    FINISHED,
    LONG,
    LOST,
    begin_run,
    ending,
    fail_lost_run,
    new_key,
    texts,
)

from passback.core.errors import UnknownRun
from passback.core.events import (
    START,
    Logged,
    Position,
    RunStarted,
)
from passback.core.messages import (
    RunId,
    RunRef,
)
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio


async def test_a_log_is_read_from_any_position(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.append([texts(held, 2, "a", "b", "c")], lease=LONG)
    await store.append([texts(held, 5, "d")], lease=LONG)
    await store.commit(ending(held, 0, 6), lease=LONG)
    whole = await store.read_log(held.run)

    assert [str(logged.position) for logged in whole] == [f"1-{seq}" for seq in range(1, 7)]
    for place in range(len(whole)):
        assert await store.read_log(held.run, after=whole[place].position) == whole[place + 1 :]
    assert await store.read_log(held.run, after=START) == whole
    assert await store.read_log(held.run, after=Position(held.epoch, 99)) == []
    assert await store.read_log(held.run, after=Position(held.epoch + 5, 1)) == []


async def test_a_position_of_an_older_epoch_is_followed_by_the_newer(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, lease=0)
    await store.append([texts(held, 2, "a", "b")], lease=0)
    await fail_lost_run(store, key)

    rest = await store.read_log(held.run, after=Position(held.epoch, 2))
    beyond = await store.read_log(held.run, after=Position(held.epoch, 99))

    end = Logged(Position(held.epoch + 1, 1), LOST)
    assert rest == [end]
    assert beyond == [end]


async def test_a_limited_read_brings_whole_entries_until_the_limit_is_reached(
    store: Ledger,
) -> None:
    held = await begin_run(store, new_key())
    for first in range(2, 62, 3):
        await store.append([texts(held, first, "a", "b", "c")], lease=LONG)

    position, read = START, list[int]()
    while batch := await store.read_log(held.run, after=position, limit=4):
        assert len(batch) >= min(4, 61 - len(read))
        read += [logged.position.seq for logged in batch]
        position = batch[-1].position

    assert read == list(range(1, 62))


async def test_a_write_sent_twice_is_logged_once(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    write = texts(held, 2, "a", "b")

    assert await store.append([write], lease=LONG) == ["held"]
    assert await store.append([write], lease=LONG) == ["held"]
    assert await store.append([write, write], lease=LONG) == ["held", "held"]

    assert [logged.position.seq for logged in await store.read_log(held.run)] == [1, 2, 3]


async def test_the_log_of_an_unknown_run_is_an_error_and_an_earlier_run_keeps_its_own(
    store: Ledger,
) -> None:
    key = new_key()
    first = await begin_run(store, key)
    await store.commit(ending(first, 0, 2), lease=LONG)
    second = await begin_run(store, key)

    with pytest.raises(UnknownRun):
        await store.read_log(RunRef(key, RunId("another")))
    with pytest.raises(UnknownRun):
        await store.read_log(RunRef(new_key(), first.run.run_id))
    assert [logged.event for logged in await store.read_log(first.run)] == [
        RunStarted(first.run.run_id),
        FINISHED,
    ]
    assert [logged.event for logged in await store.read_log(second.run)] == [
        RunStarted(second.run.run_id)
    ]
