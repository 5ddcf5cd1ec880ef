"""Promises of every store: receipts come with the write that settles them; the latest stays."""

from collections.abc import Awaitable, Callable

import pytest
from tests.support.store_values import (
    LONG,
    LOST,
    begin_run,
    ending,
    new_key,
    new_nonce,
    new_run,
    opening,
    user,
    waiting,
)

from passback.core.changes import Change, Lease
from passback.core.events import Rewound
from passback.core.messages import RunId
from passback.core.posts import Receipt, Receipts
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

FIRST = Receipt("ab" * 32)
THEN = Receipt("ab" * 32, RunId("run|with|bars"))
ODD_NAMES = ["call:a b", "message:\u2028", "key:", "call:|", "message:*", "call:" + "x" * 10_000]


async def recorded(store: Ledger, held: Lease, names: Receipts) -> Receipts:
    return (await store.load(held.run.key, receipts=names)).receipts


async def test_a_later_receipt_replaces_an_earlier_one_and_only_the_asked_are_read(
    store: Ledger,
) -> None:
    key = new_key()
    await store.park(Change(key, new_nonce(), 0, receipts={"call:a": FIRST, "call:b": FIRST}))
    version = (await store.status(key)).version

    await store.park(Change(key, new_nonce(), version, receipts={"call:a": THEN}))

    loaded = await store.load(key, receipts=["call:a", "call:x", "message:a"])
    assert loaded.receipts == {"call:a": THEN}
    assert (await store.load(key)).receipts == {}


async def test_any_name_has_a_receipt_of_its_own(store: Ledger) -> None:
    key = new_key()
    receipts = {name: Receipt(f"{n:064x}", RunId(name)) for n, name in enumerate(ODD_NAMES)}

    await store.park(Change(key, new_nonce(), 0, receipts=receipts))

    assert (await store.load(key, receipts=ODD_NAMES)).receipts == receipts


# ---------------------------------------------------------------- writes with receipts
Write = Callable[[Ledger, Lease, Receipts], Awaitable[bool]]


async def change_of(store: Ledger, held: Lease, receipts: Receipts, *, early: bool) -> Change:
    version = (await store.status(held.run.key)).version
    return Change(held.run.key, new_nonce(), version - early, receipts=receipts)


async def park(store: Ledger, held: Lease, receipts: Receipts, early: bool = False) -> bool:
    await store.commit(ending(held, 0, 2), lease=LONG)
    return await store.park(await change_of(store, held, receipts, early=early))


async def begin(store: Ledger, held: Lease, receipts: Receipts, early: bool = False) -> bool:
    await store.commit(ending(held, 0, 2), lease=LONG)
    change, run_id = await change_of(store, held, receipts, early=early), new_run()
    return await store.begin(change, run_id, opening(run_id), lease=LONG) is not None


async def take_over(store: Ledger, held: Lease, receipts: Receipts, early: bool = False) -> bool:
    await store.release(held)
    change = await change_of(store, held, receipts, early=early)
    events = (Rewound((await store.status(held.run.key)).committed),)
    return await store.take_over(change, held.run.run_id, events, lease=LONG) is not None


async def fail_lost(store: Ledger, held: Lease, receipts: Receipts, early: bool = False) -> bool:
    await store.release(held)
    change = await change_of(store, held, receipts, early=early)
    return await store.fail_lost(change, held.run.run_id, (LOST,))


async def enqueue(store: Ledger, held: Lease, receipts: Receipts, early: bool = False) -> bool:
    limit = 0 if early else 1
    entry = waiting(held.run.key, receipts=receipts, limit=limit)
    return await store.enqueue(entry) == "queued"


WRITES = [park, begin, take_over, fail_lost, enqueue]


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_brings_its_receipts(store: Ledger, write: Write) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    receipts = {"call:a": THEN, "message:m": THEN, "key:k": FIRST}

    assert await write(store, held, receipts)

    assert await recorded(store, held, receipts) == receipts


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_that_is_refused_brings_no_receipt(
    store: Ledger, write: Callable[[Ledger, Lease, Receipts, bool], Awaitable[bool]]
) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    receipts = {"call:a": THEN, "message:m": THEN, "key:k": FIRST}

    assert not await write(store, held, receipts, True)

    assert await recorded(store, held, receipts) == {}


@pytest.mark.promise("P8")
async def test_receipts_stay_through_runs_and_go_with_their_conversation(store: Ledger) -> None:
    key = new_key()
    await store.park(Change(key, new_nonce(), 0, receipts={"key:k": THEN}))
    held = await begin_run(store, key)
    await store.commit(ending(held, 0, 2), lease=LONG)
    assert (await store.load(key, receipts=["key:k"])).receipts == {"key:k": THEN}

    await store.delete(key)
    await begin_run(store, key)

    assert (await store.load(key, receipts=["key:k"])).receipts == {}
