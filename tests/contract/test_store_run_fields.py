"""Promises of every store: marks of a run beside its lease, and taking its messages back."""

from dataclasses import replace

import anyio
import pytest
from tests.support.store_values import (
    LONG,
    asking,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_key,
    new_nonce,
    new_run,
    opening,
    take_over_run,
    turn,
    unversioned,
    user,
    waiting,
)

from passback.core.changes import Change, Commit, Lease, LogWrite, Page, Status
from passback.core.conversation.tree import NO_MESSAGE
from passback.core.events import Cancelled as CancelledOutcome
from passback.core.events import Position, RunFinished, TextDelta
from passback.core.messages import ConversationKey, Message, RunId, RunRef
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio


async def begins(store: Ledger, change: Change) -> Lease:
    """Begin with a change as it is, but for its version."""
    version = (await store.status(change.key)).version
    run_id = new_run()
    held = await store.begin(replace(change, expected=version), run_id, opening(run_id), lease=LONG)
    assert held is not None
    return held


async def committed(store: Ledger, key: ConversationKey) -> Position:
    return (await store.status(key)).committed


# ---------------------------------------------------------------- committed positions
async def test_what_is_committed_follows_begins_and_commits_and_no_append(store: Ledger) -> None:
    key = new_key()
    assert await committed(store, key) == Position(0, 0)
    run_id = new_run()
    events = (*opening(run_id), TextDelta("a"))
    held = await store.begin(change(key), run_id, events, lease=LONG)
    assert held is not None
    places = [await committed(store, key)]
    await store.append([LogWrite(held, 3, (TextDelta("b"), TextDelta("c")))], lease=LONG)
    places.append(await committed(store, key))
    await store.commit(turn(held, 0, 5, TextDelta("d")), lease=LONG)
    places.append(await committed(store, key))
    await store.commit(ending(held, 1, 6), lease=LONG)
    places.append(await committed(store, key))

    assert places == [Position(held.epoch, number) for number in (2, 2, 5, 6)]


# ---------------------------------------------------------------- mark and tethered
async def test_a_run_keeps_its_start_and_its_on_disconnect_to_its_end(store: Ledger) -> None:
    key = new_key()
    await store.park(replace(change(key, 0, user("a")), run_start=7, cancel_on_disconnect=True))
    status = await store.status(key)
    assert (status.run_start, status.cancel_on_disconnect) == (0, False)

    held = await begins(
        store, Change(key, new_nonce(), 0, (user("b"),), run_start=1, cancel_on_disconnect=True)
    )

    async def marks() -> tuple[int, bool]:
        status = await store.status(key)
        return status.run_start, status.cancel_on_disconnect

    assert await marks() == (1, True)
    await store.commit(turn(held, 0, 2, say="said"), lease=0)
    lease = await take_over_run(store, key)
    assert await marks() == (1, True)
    await store.commit(ending(lease, 0, 2), lease=LONG)
    assert await marks() == (1, True)

    await begin_run(store, key)
    assert await marks() == (0, False)


# ---------------------------------------------------------------- cut
@pytest.mark.parametrize("cut", [True, False])
async def test_a_run_that_was_cut_is_known_until_the_next_begins(store: Ledger, cut: bool) -> None:
    key = new_key()
    held = await begin_run(store, key)
    finished = (RunFinished(CancelledOutcome()),)
    await store.commit(
        Commit(LogWrite(held, 2, finished), 0, ends=True, stopped_early=cut), lease=LONG
    )
    assert (await store.status(key)).stopped_early is cut

    await store.park(change(key, (await store.status(key)).version, user("a")))
    assert (await store.status(key)).stopped_early is cut
    await begin_run(store, key)
    assert (await store.status(key)).stopped_early is False


# ---------------------------------------------------------------- messages that are taken back
MESSAGES: tuple[Message, ...] = (user("a"), user("b"), asking("c"), user("d"))


@pytest.mark.parametrize("keep", [0, 1, 2, 4])
async def test_a_begin_may_take_back_the_last_messages(store: Ledger, keep: int) -> None:
    key = new_key()
    await store.park(change(key, 0, *MESSAGES))
    rest = (*MESSAGES[:keep], user("e"), user("f"))

    await begins(
        store, Change(key, new_nonce(), 0, rest[-2:], owed=owed_answers(rest), leaf=keep - 1)
    )

    loaded = await store.load(key)
    assert loaded.messages == rest
    assert loaded.status.message_count == len(rest)
    assert await store.page(key, start=1, limit=9) == Page(rest[1:], 1, len(rest))


async def test_messages_may_be_taken_back_without_others_in_their_place(store: Ledger) -> None:
    key = new_key()
    await store.park(change(key, 0, *MESSAGES))

    await begins(store, Change(key, new_nonce(), 0, leaf=NO_MESSAGE))

    assert (await store.load(key)).messages == ()
    assert (await store.status(key)).running
    assert await store.page(key, start=0, limit=9) == Page((), 0, 0)


@pytest.mark.promise("P2")
async def test_what_is_owed_follows_when_messages_are_taken_back(store: Ledger) -> None:
    key = new_key()
    asked = (user("a"), asking("c"))
    held = await begin_run(store, key, user("a"))
    end = turn(held, 0, 2, RunFinished(CancelledOutcome()))
    await store.commit(
        replace(end, append=asked[1:], owed=owed_answers(asked), ends=True), lease=LONG
    )
    assert (await store.status(key)).owed == owed_answers(asked)

    await begins(store, Change(key, new_nonce(), 0, (user("b"),), owed=(), leaf=0))

    loaded = await store.load(key)
    assert loaded.status.owed == owed_answers(loaded.messages) == ()
    assert loaded.messages == (user("a"), user("b"))


@pytest.mark.promise("P15")
async def test_a_begin_that_takes_back_sent_twice_takes_back_once(store: Ledger) -> None:
    key = new_key()
    await store.park(change(key, 0, *MESSAGES))
    run_id, version = new_run(), (await store.status(key)).version
    back = Change(key, new_nonce(), version, (user("e"),), leaf=1)
    held = await store.begin(back, run_id, opening(run_id), lease=LONG)
    assert held is not None
    await store.commit(turn(held, 0, 2, say="said"), lease=LONG)
    before = await store.load(key)

    await store.begin(back, run_id, opening(run_id), lease=LONG)

    assert await store.load(key) == before
    assert before.status.message_count == 4


async def test_a_rollback_begins_a_queued_run_with_what_was_before_the_cut_one(
    store: Ledger,
) -> None:
    key = new_key()
    await store.park(change(key, 0, user("a")))
    held = await begins(store, Change(key, new_nonce(), 0, (user("b"),), run_start=1))
    entry = waiting(key, "c", stops=True)
    await store.enqueue(entry)
    end = turn(held, 0, 2, RunFinished(CancelledOutcome()), say="partial")
    assert await store.commit(replace(end, ends=True, stopped_early=True), lease=LONG) is True
    status = await store.status(key)
    assert (status.stopped_early, status.run_start, status.message_count) == (True, 1, 3)

    back = Change(
        key,
        new_nonce(),
        status.version,
        (user("c"),),
        leaf=0,
        run_start=1,
        dequeues=entry.run.run_id,
    )
    assert await store.begin(back, entry.run.run_id, opening(entry.run.run_id), lease=LONG)

    assert (await store.load(key)).messages == (user("a"), user("c"))


# ---------------------------------------------------------------- followers
async def followed(store: Ledger, key: ConversationKey) -> bool:
    return (await store.status(key)).followed


async def test_a_run_that_is_followed_is_known_in_other_processes(
    store: Ledger, peer: Ledger
) -> None:
    held = await begin_run(store, new_key())
    assert not await followed(peer, held.run.key)

    await store.keep_followed(held.run, seconds=LONG)

    assert await followed(peer, held.run.key)
    before = await unversioned(store, held.run.key)
    await peer.keep_followed(held.run, seconds=LONG)
    assert await unversioned(store, held.run.key) == before
    assert await store.renew([held], lease=LONG) == ["held"]


async def test_who_follows_is_forgotten_after_a_time(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.keep_followed(held.run, seconds=0.05)
    with anyio.fail_after(5):
        while await followed(store, held.run.key):
            pass


async def test_a_run_is_followed_through_a_take_over_and_not_beyond_its_end(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, lease=0)
    await store.keep_followed(held.run, seconds=LONG)
    lease = await take_over_run(store, key)
    assert await followed(store, key)

    await store.commit(ending(lease, 0, 2), lease=LONG)
    await begin_run(store, key)

    assert not await followed(store, key)


async def test_a_run_that_has_ended_is_not_followed(store: Ledger) -> None:
    key = new_key()
    nobody = RunRef(key, RunId("r"))
    await store.keep_followed(nobody, seconds=LONG)
    assert await store.status(key) == Status()

    ended = await begin_run(store, key, lease=0)
    await fail_lost_run(store, key)
    entry_of_none = RunRef(key, RunId("another"))
    before = await store.status(key)
    await store.keep_followed(ended.run, seconds=LONG)
    assert not await followed(store, key)
    assert await store.status(key) == before

    await begin_run(store, key)
    for run in (ended.run, entry_of_none):
        await store.keep_followed(run, seconds=LONG)
    assert not await followed(store, key)


async def test_a_run_that_waits_is_not_followed_as_the_one_that_goes_on(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    entry = waiting(held.run.key)
    await store.enqueue(entry)
    await store.keep_followed(entry.run, seconds=LONG)
    assert not await followed(store, held.run.key)
