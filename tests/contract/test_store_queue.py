"""Promises of every store: posts wait for their turn, in their order, within a limit."""

from collections import Counter
from dataclasses import replace

import anyio
import pytest
from tests.support.store_values import (
    CANCELLED,
    FINISHED,
    LONG,
    asking,
    begin_run,
    change,
    ending,
    new_key,
    new_run,
    opening,
    read_events,
    texts,
    turn,
    unversioned,
    user,
    waiting,
)

from passback.core.changes import (
    Change,
    Commit,
    Enqueue,
    EnqueueAnswer,
    Lease,
    LoadedConversation,
    LogWrite,
    QueuedPost,
    Status,
)
from passback.core.errors import UnknownRun
from passback.core.events import RunQueued, RunStarted
from passback.core.messages import ConversationKey, MessageId, RunId, RunRef, ToolSpec
from passback.core.posts import Receipt, StartRun
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio


async def queue_of(store: Ledger, held: Lease, count: int = 2) -> list[Enqueue]:
    """Posts that wait behind a run."""
    entries = [waiting(held.run.key, f"next {number}") for number in range(count)]
    assert [await store.enqueue(entry) for entry in entries] == ["queued"] * count
    return entries


async def begin_queued(store: Ledger, entry: Enqueue, *, lease: float = LONG) -> Lease | None:
    """The begin of a queued run."""
    run = entry.run
    version = (await store.status(run.key)).version
    dequeues = replace(change(run.key, version, user("turn")), dequeues=run.run_id)
    return await store.begin(dequeues, run.run_id, opening(run.run_id), lease=lease)


async def everything(
    store: Ledger, key: ConversationKey
) -> tuple[LoadedConversation, list[object]]:
    loaded = await store.load(key)
    runs = [RunRef(key, run_id) for run_id in loaded.status.queued]
    if loaded.status.run_id:
        runs.append(RunRef(key, loaded.status.run_id))
    return loaded, [await read_events(store, run) for run in runs]


# ---------------------------------------------------------------- waiting
async def test_posts_wait_in_their_order_and_are_read_whole(store: Ledger) -> None:
    key = new_key()
    await begin_run(store, key, user("hello"))
    tools = (ToolSpec("paint", "Paints.", {"type": "object"}),)
    named = frozenset([MessageId("m-first|1|")])
    post = StartRun(key, (user("first"),), tools, "key", named, "rollback", "cancel")
    first = QueuedPost(RunId("run|with|bars"), post)
    entries = [Enqueue(first, {}, (RunQueued(first.run_id),), 9), waiting(key), waiting(key)]

    for entry in entries:
        assert await store.enqueue(entry) == "queued"

    loaded = await store.load(key)
    assert loaded.status.queued == tuple(entry.run.run_id for entry in entries)
    assert (await store.status(key)) == loaded.status
    assert loaded.queue == tuple(entry.queued for entry in entries)
    assert loaded.messages == (user("hello"),)


async def test_a_post_that_waits_disturbs_no_lease(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    before = await unversioned(store, held.run.key)

    (entry,) = await queue_of(store, held, 1)

    after = await unversioned(store, held.run.key)
    assert after == replace(before, queued=(entry.run.run_id,))
    assert await store.append([texts(held, 2, "a")], lease=LONG) == ["held"]
    await store.commit(turn(held, 0, 3, FINISHED, say="said"), lease=LONG)
    assert [place for place, _ in await read_events(store, held.run)] == ["1-1", "1-2", "1-3"]


@pytest.mark.parametrize("limit", [0, 1, 3])
@pytest.mark.promise("P11")
async def test_a_queue_takes_no_more_than_its_limit(store: Ledger, limit: int) -> None:
    key = new_key()
    await begin_run(store, key)
    for number in range(limit):
        assert await store.enqueue(waiting(key, str(number), limit=limit)) == "queued"
    before = await everything(store, key)
    receipts = {"key:late": Receipt("ab" * 32, RunId("r"))}
    late = waiting(key, "late", receipts=receipts, limit=limit, stops=True)

    assert await store.enqueue(late) == "full"

    assert await everything(store, key) == before
    assert (await store.load(key, receipts=receipts)).receipts == {}
    with pytest.raises(UnknownRun):
        await store.read_log(late.run)


async def test_a_queue_that_is_full_still_knows_its_posts_again(store: Ledger) -> None:
    key = new_key()
    await begin_run(store, key)
    entry = waiting(key, receipts={"key:k": Receipt("ab" * 32, RunId("r"))}, limit=1)
    assert await store.enqueue(entry) == "queued"
    assert await store.enqueue(entry) == "queued"
    assert (await store.status(key)).queued == (entry.run.run_id,)


@pytest.mark.promise("P11")
async def test_many_workers_at_once_do_not_pass_the_limit(store: Ledger, peer: Ledger) -> None:
    key = new_key()
    await begin_run(store, key)
    entries = [waiting(key, str(number), limit=5) for number in range(20)]
    answers: dict[RunId, EnqueueAnswer] = {}

    async def enqueue(here: Ledger, entry: Enqueue) -> None:
        answers[entry.run.run_id] = await here.enqueue(entry)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number, entry in enumerate(entries):
                tasks.start_soon(enqueue, peer if number % 2 else store, entry)

    assert Counter(answers.values()) == {"queued": 5, "full": 15}
    queued = (await store.status(key)).queued
    assert {run_id for run_id, given in answers.items() if given == "queued"} == set(queued)
    assert await peer.status(key) == await store.status(key)


# ---------------------------------------------------------------- nothing to wait for
@pytest.mark.parametrize("exists", [False, True])
async def test_a_post_is_not_queued_where_nothing_is_before_it(store: Ledger, exists: bool) -> None:
    key = new_key()
    if exists:
        await store.commit(ending(await begin_run(store, key), 0, 2), lease=LONG)
    before = await store.load(key)
    entry = waiting(key, receipts={"key:k": Receipt("ab" * 32, RunId("r"))}, stops=True)

    assert await store.enqueue(entry) == "changed"

    assert await store.load(key, receipts=["key:k"]) == before
    with pytest.raises(UnknownRun):
        await store.read_log(entry.run)


async def test_a_post_waits_behind_others_when_nothing_runs(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    (first,) = await queue_of(store, held, 1)
    await store.commit(ending(held, 0, 2), lease=LONG)
    second = waiting(held.run.key)

    assert await store.enqueue(second) == "queued"

    assert (await store.status(held.run.key)).queued == (first.run.run_id, second.run.run_id)


@pytest.mark.parametrize("name", ["key:k", "message:m", "call:c"])
@pytest.mark.promise("P8")
async def test_of_two_posts_with_one_receipt_only_the_first_waits(store: Ledger, name: str) -> None:
    """Both were judged before either was stored."""
    key = new_key()
    await begin_run(store, key)
    taken = {name: Receipt("ab" * 32, RunId("r1"))}
    first = waiting(key, receipts={**taken, "message:other": Receipt("ef" * 32, RunId("r1"))})
    second = waiting(key, receipts={name: Receipt("ab" * 32, RunId("r2"))}, stops=True)
    assert await store.enqueue(first) == "queued"
    before = await everything(store, key)

    assert await store.enqueue(second) == "changed"

    assert await everything(store, key) == before
    assert (await store.load(key, receipts=[name])).receipts == taken
    with pytest.raises(UnknownRun):
        await store.read_log(second.run)


# ---------------------------------------------------------------- stopping what runs
@pytest.mark.parametrize("stops", [True, False])
async def test_a_post_that_stops_what_runs_asks_for_it_in_the_same_write(
    store: Ledger, stops: bool
) -> None:
    held = await begin_run(store, new_key())
    await store.enqueue(waiting(held.run.key, stops=stops))
    expected = "cancelled" if stops else "held"
    assert await store.append([texts(held, 2, "a")], lease=LONG) == [expected]
    assert await store.renew([held], lease=LONG) == [expected]


async def test_a_post_that_stops_what_runs_does_not_stop_what_runs_later(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    (first,) = await queue_of(store, held, 1)
    await store.commit(ending(held, 0, 2), lease=LONG)
    assert await store.enqueue(waiting(held.run.key, stops=True)) == "queued"

    following = await begin_queued(store, first)

    assert following is not None
    assert await store.renew([following], lease=LONG) == ["held"]


# ---------------------------------------------------------------- a turn comes
async def test_the_end_of_a_run_tells_whether_posts_wait(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key)
    (entry,) = await queue_of(store, held, 1)
    assert await store.commit(turn(held, 0, 2), lease=LONG) is False
    assert await store.commit(ending(held, 1, 2), lease=LONG) is True
    assert await store.commit(ending(held, 1, 2), lease=LONG) is True

    following = await begin_queued(store, entry)

    assert following is not None
    assert await store.commit(ending(following, 0, 2), lease=LONG) is False


async def test_the_first_of_the_queue_begins_and_the_log_goes_on(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, user("hello"))
    first, second = await queue_of(store, held)
    assert [event for _, event in await read_events(store, first.run)] == [
        RunQueued(first.run.run_id)
    ]
    await store.commit(ending(held, 0, 2), lease=LONG)

    following = await begin_queued(store, first)

    assert following is not None
    assert following.run == first.run
    loaded = await store.load(key)
    assert loaded.queue == (second.queued,)
    assert loaded.status.queued == (second.run.run_id,)
    assert (loaded.status.run_id, loaded.status.running) == (first.run.run_id, True)
    assert loaded.messages == (user("hello"), user("turn"))
    await store.append([texts(following, 2, "a")], lease=LONG)
    log = await store.read_log(first.run)
    assert [each.event for each in log[:2]] == [*first.events, RunStarted(first.run.run_id)]
    assert [each.position for each in log] == sorted({each.position for each in log})
    for place, each in enumerate(log):
        assert await store.read_log(first.run, after=each.position) == log[place + 1 :]
    assert [str(each.position) for each in log[1:]] == [
        f"{following.epoch}-1",
        f"{following.epoch}-2",
    ]


async def test_only_the_first_of_the_queue_may_begin(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key)
    first, second = await queue_of(store, held)
    assert await begin_queued(store, first) is None
    await store.commit(ending(held, 0, 2), lease=LONG)
    before = await everything(store, key)

    assert await begin_queued(store, second) is None
    assert await begin_queued(store, waiting(key)) is None

    assert await everything(store, key) == before
    assert await begin_queued(store, first) is not None


async def test_nothing_can_be_dequeued_from_an_empty_queue(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.commit(ending(held, 0, 2), lease=LONG)
    before = await store.load(held.run.key)

    assert await begin_queued(store, waiting(held.run.key)) is None
    assert await begin_queued(store, waiting(new_key())) is None

    assert await store.load(held.run.key) == before


async def test_a_run_may_begin_before_those_that_wait(store: Ledger) -> None:
    """The owed results of a client do not wait behind posts."""
    key = new_key()
    held = await begin_run(store, key)
    entries = await queue_of(store, held)
    asked = (asking("c"),)
    end = Commit(LogWrite(held, 2, (FINISHED,)), 0, asked, owed_answers(asked), ends=True)
    assert await store.commit(end, lease=LONG)

    await begin_run(store, key)

    assert (await store.status(key)).queued == tuple(entry.run.run_id for entry in entries)


# ---------------------------------------------------------------- leaving the queue
async def test_a_run_that_waits_leaves_the_queue_when_it_is_cancelled(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    first, second = await queue_of(store, held)
    before = await store.status(held.run.key)

    assert await store.cancel(first.run, CANCELLED)

    after = await store.status(held.run.key)
    assert after == replace(before, version=after.version, queued=(second.run.run_id,))
    assert (await store.load(held.run.key)).queue == (second.queued,)
    assert [event for _, event in await read_events(store, first.run)] == [*first.events, CANCELLED]
    assert await store.renew([held], lease=LONG) == ["held"]
    await store.cancel(first.run, CANCELLED)
    assert [event for _, event in await read_events(store, first.run)] == [*first.events, CANCELLED]


async def test_a_run_in_the_middle_of_the_queue_can_leave(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    first, second, third = await queue_of(store, held, 3)

    assert await store.cancel(second.run, CANCELLED)

    assert (await store.status(held.run.key)).queued == (first.run.run_id, third.run.run_id)


async def test_a_deleted_conversation_has_no_queue(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    (entry,) = await queue_of(store, held, 1)

    assert await store.delete(held.run.key)

    with pytest.raises(UnknownRun):
        await store.read_log(entry.run)
    assert not await store.cancel(entry.run, CANCELLED)
    assert await store.load(held.run.key) == LoadedConversation(Status())
    anew = await begin_run(store, held.run.key)
    assert (await store.load(held.run.key)).queue == ()
    assert await store.commit(ending(anew, 0, 2), lease=LONG) is False


async def test_a_queue_is_of_its_own_conversation(store: Ledger) -> None:
    held, other = await begin_run(store, new_key()), await begin_run(store, new_key())
    await queue_of(store, held)

    assert (await store.status(other.run.key)).queued == ()
    moved = Change(
        other.run.key, "n", (await store.status(other.run.key)).version, dequeues=new_run()
    )
    assert await store.begin(moved, new_run(), (FINISHED,), lease=LONG) is None
