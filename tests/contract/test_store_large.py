"""A large write does not stand before everybody's small one: large ones go one at a time."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint
from redis.asyncio import Redis
from tests.support.ledgers import open_ledger
from tests.support.store_values import LONG, begin_run, change, ending, new_key, texts

from passback.core.changes import Lease
from passback.core.errors import StoreUnavailable
from passback.core.events import TextDelta
from passback.core.messages import AssistantMessage
from passback.engine.ledger import Ledger
from passback.pacing import LargeWrites

pytestmark = pytest.mark.anyio

MUCH = "\u00e9" * 2**18
LARGE_ONES = 8
SECONDS = 20


async def commit(store: Ledger, held: Lease, text: str) -> None:
    await store.commit(ending(held, 1, 2, text), lease=LONG)


async def append(store: Ledger, held: Lease, text: str) -> None:
    assert await store.append([texts(held, 2, text)], lease=LONG) == ["held"]


@pytest.mark.parametrize("write", [commit, append])
async def test_a_small_write_does_not_wait_for_the_large_ones_before_it(
    store: Ledger, write: Callable[[Ledger, Lease, str], Awaitable[None]]
) -> None:
    done: list[str] = []

    async def work(held: Lease, text: str) -> None:
        await write(store, held, text)
        done.append(text[:5])

    leases = [await begin_run(store, new_key()) for _ in range(LARGE_ONES + 1)]
    with anyio.fail_after(SECONDS):
        async with asyncio.TaskGroup() as tasks:
            for held in leases[:-1]:
                tasks.create_task(work(held, MUCH))
            tasks.create_task(work(leases[-1], "small"))
    # where there is a connection to be opened first, it waits for that
    assert done.index("small") < LARGE_ONES
    assert len(done) == LARGE_ONES + 1


@pytest.mark.parametrize("end", ["take over", "fail lost"])
async def test_a_small_write_does_not_wait_for_the_large_take_overs_before_it(
    store: Ledger, end: str
) -> None:
    done: list[str] = []

    async def close(held: Lease, version: int) -> None:
        closing, again = change(held.run.key, version), (TextDelta(MUCH),)
        if end == "take over":
            assert await store.take_over(closing, held.run.run_id, again, lease=LONG)
        else:
            assert await store.fail_lost(closing, held.run.run_id, again)
        done.append("large")

    async def append_small(held: Lease) -> None:
        await append(store, held, "small")
        done.append("small")

    lapsed = [await begin_run(store, new_key(), lease=0) for _ in range(LARGE_ONES)]
    versions = [(await store.status(held.run.key)).version for held in lapsed]
    small = await begin_run(store, new_key())
    with anyio.fail_after(SECONDS):
        async with asyncio.TaskGroup() as tasks:
            for held, version in zip(lapsed, versions, strict=True):
                tasks.create_task(close(held, version))
            tasks.create_task(append_small(small))
    # where there is a connection to be opened first, it waits for that
    assert done.index("small") < LARGE_ONES
    assert len(done) == LARGE_ONES + 1


@pytest.mark.redis
async def test_large_commits_have_no_more_connections_than_one_of_them_needs(
    redis_url: str,
) -> None:
    async with open_ledger(redis_url) as store, Redis.from_url(redis_url) as observer:
        leases = [await begin_run(store, new_key()) for _ in range(LARGE_ONES)]
        before = (await observer.info("stats"))["total_connections_received"]
        commits = [store.commit(ending(held, 1, 2, MUCH), lease=LONG) for held in leases]
        with anyio.fail_after(SECONDS):
            await asyncio.gather(*commits)
        after = (await observer.info("stats"))["total_connections_received"]
    assert after - before < LARGE_ONES // 2


async def test_what_is_large_is_stored_as_it_was_said_and_known_again(store: Ledger) -> None:
    held = await begin_run(store, key := new_key())
    assert await store.append([texts(held, 2, MUCH)], lease=LONG) == ["held"]
    commit = ending(held, 1, 3, MUCH)
    first, again = await asyncio.gather(
        store.commit(commit, lease=LONG), store.commit(commit, lease=LONG)
    )
    assert (first, again) == (False, False)
    [answer] = (await store.load(key)).messages
    assert isinstance(answer, AssistantMessage)
    assert answer.content == MUCH
    logged = await store.read_log(held.run)
    assert [each.position.seq for each in logged] == [1, 2, 3]


async def test_waiting_for_the_large_writes_before_has_an_end() -> None:
    writes = LargeWrites(timeout=0.01)
    large = True
    async with writes.hold_lock(large):
        with anyio.fail_after(SECONDS), pytest.raises(StoreUnavailable, match="large writes"):
            async with writes.hold_lock(large):
                pytest.fail("it had its turn beside another one")
        async with writes.hold_lock(not large):  # a small write waits for none
            pass
    async with writes.hold_lock(large):
        pass


async def test_a_cancelled_large_write_does_not_block_the_next(store: Ledger) -> None:
    leases = [await begin_run(store, new_key()) for _ in range(3)]
    first, leaves, last = (
        asyncio.create_task(store.commit(ending(held, 1, 2, MUCH), lease=LONG)) for held in leases
    )
    await checkpoint()
    leaves.cancel()
    with anyio.fail_after(SECONDS):
        assert (await first, await last) == (False, False)
        await asyncio.wait([leaves])
    assert leaves.cancelled()
    assert (await store.status(leases[1].run.key)).running
