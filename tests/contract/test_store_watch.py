"""Hints that a log has grown: none is lost around a wait, and another worker's writes wake too."""

from collections.abc import Callable, Coroutine
from dataclasses import replace

import anyio
import pytest
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

from passback.core.changes import Lease
from passback.core.conversation.store import Watch
from passback.core.events import Position
from passback.core.messages import RunRef
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

WAKE_SECONDS = 1.5  # less than the 2 seconds after which a wait ends without a hint
Write = Callable[[Ledger, Lease], Coroutine[object, object, None]]


async def append(store: Ledger, held: Lease) -> None:
    await store.append([texts(held, 2, "a")], lease=LONG)


async def commit(store: Ledger, held: Lease) -> None:
    await store.commit(ending(held, 0, 2), lease=LONG)


async def fail_lost(store: Ledger, held: Lease) -> None:
    await store.renew([held], lease=0)
    await fail_lost_run(store, held.run.key)


async def take_over(store: Ledger, held: Lease) -> None:
    assert await store.release(held)
    await take_over_run(store, held.run.key)


async def quiet(watch: Watch) -> None:
    """Let pass what a store says when a watch begins."""
    with anyio.move_on_after(0.3):
        await watch.wait()


async def until_grown(store: Ledger, watch: Watch, held: Lease) -> None:
    """Follow as a reader does: read, and wait for a hint when there is nothing new."""
    while not await store.read_log(held.run, after=Position(held.epoch, 1)):
        await watch.wait()


@pytest.mark.parametrize("write", [append, commit, fail_lost, take_over])
async def test_a_write_of_this_process_wakes_its_readers(store: Ledger, write: Write) -> None:
    held = await begin_run(store, new_key())
    async with store.watch(held.run.key) as watch, anyio.create_task_group() as tasks:
        await quiet(watch)
        with anyio.fail_after(WAKE_SECONDS):
            tasks.start_soon(write, store, held)
            await until_grown(store, watch, held)


@pytest.mark.parametrize("write", [append, commit, fail_lost, take_over])
async def test_a_write_of_another_worker_wakes_the_readers_here(
    store: Ledger, peer: Ledger, write: Write
) -> None:
    held = await begin_run(store, new_key())
    async with peer.watch(held.run.key) as watch, anyio.create_task_group() as tasks:
        await quiet(watch)
        with anyio.fail_after(WAKE_SECONDS):
            tasks.start_soon(write, store, held)
            await until_grown(peer, watch, held)


# ---------------------------------------------------------------- the log of a run that waits
async def turn_comes(store: Ledger, run: RunRef) -> None:
    version = (await store.status(run.key)).version
    beginning = replace(change(run.key, version), dequeues=run.run_id)
    assert await store.begin(beginning, run.run_id, opening(run.run_id), lease=LONG)


async def leaves(store: Ledger, run: RunRef) -> None:
    assert await store.cancel(run, CANCELLED)


@pytest.mark.parametrize("write", [turn_comes, leaves])
async def test_readers_of_a_run_that_waits_wake_when_its_turn_comes_or_it_leaves(
    store: Ledger, peer: Ledger, write: Callable[[Ledger, RunRef], Coroutine[object, object, None]]
) -> None:
    held = await begin_run(store, new_key())
    entry = waiting(held.run.key)
    assert await store.enqueue(entry) == "queued"
    await store.commit(ending(held, 0, 2), lease=LONG)
    async with peer.watch(entry.run.key) as watch, anyio.create_task_group() as tasks:
        await quiet(watch)
        with anyio.fail_after(WAKE_SECONDS):
            tasks.start_soon(write, store, entry.run)
            while len(await peer.read_log(entry.run)) < 2:
                await watch.wait()


async def test_a_write_between_a_read_and_the_wait_is_not_missed(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    async with store.watch(held.run.key) as watch:
        await store.read_log(held.run)
        await append(store, held)
        with anyio.fail_after(WAKE_SECONDS):
            await watch.wait()


async def test_all_readers_of_a_run_wake(store: Ledger, peer: Ledger) -> None:
    held = await begin_run(store, new_key())

    async def follow(here: Ledger) -> None:
        async with here.watch(held.run.key) as watch:
            await until_grown(here, watch, held)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(follow, store)
                tasks.start_soon(follow, peer)
            await append(store, held)


async def test_readers_of_a_deleted_run_wake(store: Ledger, peer: Ledger) -> None:
    held = await begin_run(store, new_key())
    async with peer.watch(held.run.key) as watch, anyio.create_task_group() as tasks:
        await quiet(watch)
        with anyio.fail_after(WAKE_SECONDS):
            tasks.start_soon(store.delete, held.run.key)
            while (await peer.status(held.run.key)).running:
                await watch.wait()


async def test_without_news_a_wait_lasts(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    async with store.watch(held.run.key) as watch:
        waits = 0
        with anyio.fail_after(10):
            # what came before the watch may be told late
            while waits < 3:
                with anyio.move_on_after(0.3) as timeout:
                    await watch.wait()
                waits = waits + 1 if timeout.cancelled_caught else 0


async def test_a_wait_without_news_ends_all_the_same(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    async with store.watch(held.run.key) as watch:
        await quiet(watch)
        with anyio.fail_after(10):
            await watch.wait()
