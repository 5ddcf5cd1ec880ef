"""Promises of every store: leases, commits and deletions."""

from collections.abc import Callable
from itertools import pairwise

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
    new_nonce,
    new_run,
    texts,
    turn,
    user,
    waiting,
)
from tests.support.transcript_rules import said_in

from passback.core.changes import Change, Commit, LoadedConversation, LogWrite, Status
from passback.core.errors import LeaseLost, UnknownRun
from passback.core.events import (
    HandedBack,
    Logged,
    Position,
    RunFinished,
    RunStarted,
    ToolCallEnded,
)
from passback.core.messages import (
    CallId,
    RunId,
    RunRef,
    ToolSpec,
)
from passback.core.posts import Receipt
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- leases
async def test_a_run_that_goes_on_shuts_out_others(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, user("hello"))
    status = await store.status(key)

    second = await store.begin(change(key, status.version), new_run(), (FINISHED,), lease=LONG)
    parked = await store.park(change(key, status.version, user("in between")))

    assert second is None
    assert not parked
    assert status == Status(
        status.version,
        held.run.run_id,
        running=True,
        message_count=1,
        attempt=1,
        logged=Position(held.epoch, 1),
        committed=Position(held.epoch, 1),
    )
    assert await store.status(key) == status


async def test_each_renewal_moves_the_end_of_the_lease(store: Ledger) -> None:
    held = await begin_run(store, new_key(), lease=LONG)
    ends = [(await store.status(held.run.key)).lease_expires]
    # each for longer than the one before: two within a millisecond would look like one
    await store.append([texts(held, 2, "a")], lease=LONG + 100)
    ends.append((await store.status(held.run.key)).lease_expires)
    await store.renew([held], lease=LONG + 200)
    ends.append((await store.status(held.run.key)).lease_expires)
    await store.commit(turn(held, 0, 3, say="a"), lease=LONG + 300)
    ends.append((await store.status(held.run.key)).lease_expires)
    assert [after > before for before, after in pairwise(ends)] == [True] * 3

    await store.keep_followed(held.run, seconds=1)
    await store.enqueue(waiting(held.run.key))
    assert (await store.status(held.run.key)).lease_expires == ends[-1]


async def test_a_begin_sent_twice_gives_the_same_lease_and_one_log(store: Ledger) -> None:
    key, run_id = new_key(), new_run()
    opening = change(key, 0, user("hello"))

    first = await store.begin(opening, run_id, (RunStarted(run_id),), lease=LONG)
    again = await store.begin(opening, run_id, (RunStarted(run_id),), lease=LONG)

    assert first is not None
    assert again == first
    assert (await store.load(key)).messages == (user("hello"),)
    assert await store.read_log(first.run) == [Logged(Position(first.epoch, 1), RunStarted(run_id))]


async def test_a_begin_that_arrives_again_late_forgets_no_commit(store: Ledger) -> None:
    key, run_id = new_key(), new_run()
    begun = change(key, 0, user("hello")), run_id, (RunStarted(run_id),)
    held = await store.begin(*begun, lease=LONG)
    assert held is not None
    await store.commit(turn(held, 0, 2, say="well"), lease=LONG)

    assert await store.begin(*begun, lease=LONG) == held
    await store.commit(turn(held, 1, 3, say="then"), lease=LONG)
    await store.release(held)

    assert said_in((await store.load(key)).messages) == ["hello", "well", "then"]


async def test_fences_and_epochs_of_a_conversation_do_not_repeat(store: Ledger) -> None:
    key = new_key()
    first = await begin_run(store, key)
    await store.commit(ending(first, 0, 2), lease=LONG)
    second = await begin_run(store, key)

    assert second.epoch > first.epoch
    assert second.fence != first.fence


async def test_a_lease_lapses_and_a_write_of_its_owner_renews_it(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, lease=0)
    lapsed = await store.status(key)

    states = await store.renew([held], lease=LONG)

    renewed = await store.status(key)
    assert (lapsed.running, lapsed.lapsed) == (True, True)
    assert states == ["held"]
    assert (renewed.running, renewed.lapsed, renewed.version) == (True, False, lapsed.version)


async def test_a_commit_renews_the_lease_for_the_time_it_names(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key)

    await store.commit(turn(held, 0, 2), lease=0)
    lapsed = await store.status(key)
    await store.commit(turn(held, 1, 2), lease=LONG)

    assert lapsed.lapsed
    assert not (await store.status(key)).lapsed


async def test_an_owner_learns_that_its_run_is_to_be_cancelled(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    assert not (await store.status(held.run.key)).cancelled

    assert await store.cancel(held.run, CANCELLED)
    assert await store.cancel(held.run, CANCELLED)
    assert (await store.status(held.run.key)).cancelled
    assert (await store.load(held.run.key)).status.cancelled

    assert await store.append([texts(held, 2, "a")], lease=LONG) == ["cancelled"]
    assert await store.renew([held], lease=LONG) == ["cancelled"]


async def test_only_a_run_that_goes_on_can_be_cancelled(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key)
    await store.commit(ending(held, 0, 2), lease=LONG)

    assert not await store.cancel(held.run, CANCELLED)
    assert not await store.cancel(RunRef(new_key(), RunId("r")), CANCELLED)

    after = await begin_run(store, key)
    assert not await store.cancel(held.run, CANCELLED)
    assert await store.renew([after], lease=LONG) == ["held"]


async def test_a_cancellation_does_not_outlive_its_run(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key)
    await store.cancel(held.run, CANCELLED)
    await store.commit(ending(held, 0, 2), lease=LONG)
    assert not (await store.status(key)).cancelled

    following = await begin_run(store, key)

    assert not (await store.status(key)).cancelled
    assert await store.renew([following], lease=LONG) == ["held"]


async def test_one_append_answers_for_each_of_its_runs(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    cancelled = await begin_run(store, new_key())
    await store.cancel(cancelled.run, CANCELLED)
    gone = await begin_run(store, new_key())
    await store.delete(gone.run.key)
    writes = [texts(lease, 2, "a", "b") for lease in (gone, held, cancelled)]

    states = await store.append(writes, lease=LONG)

    assert states == ["lost", "held", "cancelled"]
    assert await store.append([], lease=LONG) == []
    assert [logged.position.seq for logged in await store.read_log(held.run)] == [1, 2, 3]


# ---------------------------------------------------------------- commits
async def test_a_commit_brings_messages_events_and_owed_calls_together(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, user("paint it"))
    asked = asking("c1", "c2")
    waiting = owed_answers((user("paint it"), asked))
    reveals = (ToolCallEnded(CallId("c1")), RunFinished(HandedBack(waiting)))

    await store.commit(
        Commit(LogWrite(held, 2, reveals), 0, (asked,), waiting, ends=True), lease=LONG
    )

    loaded = await store.load(key)
    assert loaded.messages == (user("paint it"), asked)
    assert loaded.status == Status(
        loaded.status.version,
        held.run.run_id,
        owed=waiting,
        message_count=2,
        attempt=1,
        logged=Position(held.epoch, 3),
        committed=Position(held.epoch, 3),
    )
    assert await store.read_log(held.run, after=Position(held.epoch, 1)) == [
        Logged(Position(held.epoch, 2), reveals[0]),
        Logged(Position(held.epoch, 3), reveals[1]),
    ]


@pytest.mark.parametrize("make", [turn, ending], ids=["turn", "ending"])
async def test_a_commit_sent_twice_is_applied_once(
    store: Ledger, make: Callable[..., Commit]
) -> None:
    key = new_key()
    held = await begin_run(store, key)
    commit = make(held, 0, 2, say="hello")

    await store.commit(commit, lease=LONG)
    after = await store.load(key), await store.read_log(held.run)
    await store.commit(commit, lease=LONG)

    assert (await store.load(key), await store.read_log(held.run)) == after
    assert len(after[0].messages) == 1


async def test_the_last_commit_may_be_repeated_when_the_next_run_has_begun(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key)
    last = ending(held, 0, 2, say="goodbye")
    await store.commit(last, lease=LONG)
    following = await begin_run(store, key, user("one more thing"))
    before = await store.load(key)

    await store.commit(last, lease=LONG)

    assert await store.load(key) == before
    assert await store.renew([following], lease=LONG) == ["held"]


async def test_an_older_step_that_arrives_late_changes_nothing(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key)
    await store.commit(turn(held, 0, 2, say="one"), lease=LONG)
    await store.commit(turn(held, 1, 2, say="two"), lease=LONG)
    before = await store.load(key)

    await store.commit(turn(held, 0, 2, say="one"), lease=LONG)

    assert await store.load(key) == before


async def test_steps_count_anew_in_each_run(store: Ledger) -> None:
    key = new_key()
    for words in ("ab", "cd"):
        held = await begin_run(store, key)
        await store.commit(turn(held, 0, 2, say=words[0]), lease=LONG)
        await store.commit(ending(held, 1, 2, say=words[1]), lease=LONG)

    assert said_in((await store.load(key)).messages) == [*"abcd"]


async def test_a_released_lease_writes_nothing_more(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key)
    await store.commit(ending(held, 0, 2), lease=LONG)
    before = await store.load(key), await store.read_log(held.run)

    assert await store.append([texts(held, 3, "late")], lease=LONG) == ["lost"]
    assert await store.renew([held], lease=LONG) == ["lost"]
    with pytest.raises(LeaseLost):
        await store.commit(turn(held, 1, 3, say="late"), lease=LONG)

    assert (await store.load(key), await store.read_log(held.run)) == before


# ---------------------------------------------------------------- deletion
async def test_deleting_removes_conversation_and_logs_and_shuts_the_owner_out(
    store: Ledger,
) -> None:
    key = new_key()
    old = await begin_run(store, key, user("hello"))
    await store.commit(ending(old, 0, 2), lease=LONG)
    held = await begin_run(store, key)

    assert await store.delete(key)
    assert not await store.delete(key)

    assert await store.append([texts(held, 2, "late")], lease=LONG) == ["lost"]
    with pytest.raises(LeaseLost):
        await store.commit(ending(held, 0, 2), lease=LONG)
    assert await store.load(key) == LoadedConversation(Status())
    for run in (old.run, held.run):
        with pytest.raises(UnknownRun):
            await store.read_log(run)


async def test_a_conversation_made_anew_has_nothing_of_the_deleted_one(store: Ledger) -> None:
    key = new_key()
    tools = (ToolSpec("paint", "Paints.", {"type": "object"}),)
    await store.park(
        Change(key, new_nonce(), 0, (user("old"),), {"call:c": Receipt("ab" * 32)}, (), tools)
    )
    old = await begin_run(store, key)
    await store.delete(key)

    held = await begin_run(store, key, user("new"))

    loaded = await store.load(key, receipts=["call:c"])
    assert loaded == LoadedConversation(
        Status(
            loaded.status.version,
            held.run.run_id,
            running=True,
            message_count=1,
            attempt=1,
            logged=Position(held.epoch, 1),
            committed=Position(held.epoch, 1),
        ),
        (user("new"),),
    )
    assert await store.renew([old], lease=LONG) == ["lost"]


async def test_a_change_judged_by_a_deleted_conversation_does_not_fit_the_new_one(
    store: Ledger,
) -> None:
    key = new_key()
    await store.park(change(key, 0, user("old")))
    judged = await store.status(key)
    await store.delete(key)
    await store.park(change(key, 0, user("new")))

    assert not await store.park(change(key, judged.version, user("late")))

    assert (await store.load(key)).messages == (user("new"),)
