"""Promises of every store: one caller takes over or closes a run whose lease is over."""

from dataclasses import replace

import anyio
import pytest
from tests.support.store_values import (
    CANCELLED,
    FINISHED,
    LONG,
    LOST,
    assert_shut_out,
    begin_run,
    change,
    ending,
    new_key,
    opening,
    read_events,
    state,
    take_over_run,
    texts,
    turn,
    user,
)
from tests.support.transcript_rules import said_in

from passback.core.changes import Change, Commit, Lease, OpenTurn, OpenTurns, Status
from passback.core.errors import LeaseLost
from passback.core.events import (
    Logged,
    Position,
    Rewound,
    RunStarted,
    TextDelta,
    ToolCallEnded,
)
from passback.core.messages import CallId, RunId
from passback.engine.ledger import Ledger

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P10")]


def cut_turn(held: Lease, first: int) -> Commit:
    return turn(held, 0, first, TextDelta("kept"), ToolCallEnded(CallId("c")), say="kept")


# ---------------------------------------------------------------- claims
async def test_a_claim_goes_on_from_what_was_committed_and_voids_the_rest(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, user("hello"))
    await store.append([texts(held, 2, "early")], lease=LONG)
    await store.commit(cut_turn(held, 3), lease=LONG)
    await store.append([texts(held, 5, "void")], lease=LONG)
    await store.append([texts(held, 6, "void", "void")], lease=0)
    assert (await store.status(key)).committed == Position(held.epoch, 4)

    lease = await take_over_run(store, key, user("closing"))

    assert lease.run == held.run
    assert lease.epoch > held.epoch
    assert lease.fence != held.fence
    loaded = await store.load(key)
    assert said_in(loaded.messages) == ["hello", "kept", "closing"]
    assert loaded.status == Status(
        loaded.status.version,
        held.run.run_id,
        running=True,
        message_count=3,
        attempt=2,
        logged=Position(lease.epoch, 1),
        committed=Position(lease.epoch, 1),
    )
    assert await store.read_log(held.run) == [
        Logged(Position(held.epoch, 1), RunStarted(held.run.run_id)),
        Logged(Position(held.epoch, 2), TextDelta("early")),
        Logged(Position(held.epoch, 3), TextDelta("kept")),
        Logged(Position(held.epoch, 4), ToolCallEnded(CallId("c"))),
        Logged(Position(lease.epoch, 1), Rewound(Position(held.epoch, 4))),
    ]


async def test_what_was_appended_before_a_commit_is_committed_with_it(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.append([texts(held, 2, "said", "before")], lease=LONG)
    await store.commit(turn(held, 0, 4, say="said before"), lease=0)
    committed = (await store.status(held.run.key)).committed

    lease = await take_over_run(store, held.run.key)

    assert committed == Position(held.epoch, 3)
    assert [place for place, _ in await read_events(store, held.run)] == [
        *(f"{held.epoch}-{number}" for number in (1, 2, 3)),
        f"{lease.epoch}-1",
    ]


@pytest.mark.parametrize("end", ["take over", "fail lost"])
async def test_a_commit_may_leave_open_what_was_written_before_it(store: Ledger, end: str) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    await store.append([texts(held, 2, "kept")], lease=LONG)
    await store.append([texts(held, 3, "open")], lease=LONG)
    open_turns = OpenTurns(
        Position(held.epoch, 4),
        (
            OpenTurn((CallId("a"),), Position(held.epoch, 3)),
            OpenTurn((CallId("b"), CallId("c")), Position(held.epoch, 2)),
        ),
    )
    beside = replace(turn(held, 0, 4, TextDelta("beside"), say="beside"), open_turns=open_turns)
    assert await store.commit(beside, lease=0) is False
    assert await store.commit(beside, lease=0) is False
    status = await store.status(held.run.key)
    assert (status.committed, status.logged) == (Position(held.epoch, 2), Position(held.epoch, 4))
    assert status.open_turns == open_turns

    again = (Rewound(status.committed), TextDelta("beside"), LOST)
    closing = change(held.run.key, status.version)
    if end == "take over":
        assert await store.take_over(closing, held.run.run_id, again, lease=LONG)
    else:
        assert await store.fail_lost(closing, held.run.run_id, again)

    assert await read_events(store, held.run) == [
        (f"{held.epoch}-1", RunStarted(held.run.run_id)),
        (f"{held.epoch}-2", TextDelta("kept")),
        *((f"{held.epoch + 1}-{number}", event) for number, event in enumerate(again, 1)),
    ]
    assert said_in((await store.load(held.run.key)).messages) == ["hello", "beside"]
    status = await store.status(held.run.key)
    assert (status.committed, status.open_turns) == (Position(held.epoch + 1, 3), None)


async def test_turns_are_open_until_a_commit_says_otherwise(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    left = OpenTurn((CallId("a"),), Position(held.epoch, 1))
    open_turns = OpenTurns(Position(held.epoch, 2), (left,))
    beside = replace(turn(held, 0, 2, TextDelta("beside"), say="beside"), open_turns=open_turns)
    await store.commit(beside, lease=LONG)
    await store.commit(turn(held, 1, 3, TextDelta("kept"), say="kept"), lease=LONG)
    status = await store.status(held.run.key)
    assert (status.committed, status.open_turns) == (Position(held.epoch, 3), None)


async def test_the_new_holder_writes_on_under_its_own_epoch(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.commit(cut_turn(held, 2), lease=0)
    lease = await take_over_run(store, held.run.key)

    assert await store.append([texts(lease, 2, "a")], lease=LONG) == ["held"]
    assert await store.commit(ending(lease, 0, 3, say="done"), lease=LONG) is False

    status = await store.status(held.run.key)
    assert (status.running, status.message_count, status.attempt) == (False, 2, 2)
    assert status.committed == Position(lease.epoch, 3)
    assert [place for place, _ in await read_events(store, held.run)] == [
        *(f"{held.epoch}-{number}" for number in (1, 2, 3)),
        *(f"{lease.epoch}-{number}" for number in (1, 2, 3)),
    ]


async def test_a_worker_whose_run_was_taken_over_writes_nothing_more(store: Ledger) -> None:
    lost = await begin_run(store, new_key(), lease=0)
    await store.append([texts(lost, 2, "void")], lease=0)
    await take_over_run(store, lost.run.key)
    await assert_shut_out(store, lost)


async def test_only_a_run_whose_lease_is_over_is_taken_over(store: Ledger) -> None:
    key = new_key()
    assert await store.take_over(change(key), RunId("r"), (FINISHED,), lease=LONG) is None
    held = await begin_run(store, key)

    async def take_over(run_id: RunId, version: int) -> Lease | None:
        return await store.take_over(change(key, version), run_id, (FINISHED,), lease=LONG)

    version = (await store.status(key)).version
    assert await take_over(held.run.run_id, version) is None
    await store.renew([held], lease=0)
    before = await state(store, held.run)
    assert await take_over(held.run.run_id, version - 1) is None
    assert await take_over(RunId("another"), version) is None
    assert await state(store, held.run) == before
    await store.commit(ending(held, 0, 2), lease=0)
    before = await state(store, held.run)
    assert await take_over(held.run.run_id, version + 1) is None
    assert await state(store, held.run) == before


async def test_attempts_are_counted_and_a_new_run_begins_with_one(store: Ledger) -> None:
    key = new_key()
    attempts: list[int] = []
    held = await begin_run(store, key, lease=0)
    for _ in range(3):
        attempts.append((await store.status(key)).attempt)
        held = await take_over_run(store, key, lease=0)
    attempts.append((await store.status(key)).attempt)
    await store.commit(ending(held, 0, 2), lease=LONG)
    await begin_run(store, key)
    attempts.append((await store.status(key)).attempt)

    assert attempts == [1, 2, 3, 4, 1]


async def test_of_many_claims_at_once_one_gets_the_run(store: Ledger, peer: Ledger) -> None:
    held = await begin_run(store, new_key(), lease=0)
    version = (await store.status(held.run.key)).version
    leases: list[Lease | None] = []

    async def take_over(here: Ledger) -> None:
        taking = change(held.run.key, version)
        leases.append(await here.take_over(taking, held.run.run_id, (LOST,), lease=LONG))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(take_over, peer if number % 2 else store)

    (lease,) = [each for each in leases if each is not None]
    assert len(leases) == 10
    assert await peer.renew([lease], lease=LONG) == ["held"]
    assert len(await store.read_log(held.run)) == 2


async def test_who_takes_over_learns_that_the_run_is_to_be_cancelled(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.cancel(held.run, CANCELLED)
    await store.renew([held], lease=0)

    lease = await take_over_run(store, held.run.key)

    assert await store.renew([lease], lease=LONG) == ["cancelled"]


async def test_a_claim_may_take_back_messages_and_replace_tools_and_owed_calls(
    store: Ledger,
) -> None:
    key = new_key()
    held = await begin_run(store, key, user("a"), user("b"), lease=0)
    version = (await store.status(key)).version
    taking = Change(key, "taking", version, (user("c"),), leaf=0, tools=())

    assert await store.take_over(taking, held.run.run_id, (LOST,), lease=LONG)

    loaded = await store.load(key)
    assert loaded.messages == (user("a"), user("c"))
    assert loaded.status.message_count == 2


async def test_a_lease_of_milliseconds_ends_by_itself(store: Ledger) -> None:
    held = await begin_run(store, new_key(), lease=0.05)
    with anyio.fail_after(5):
        while not (await store.status(held.run.key)).lapsed:
            pass
    await take_over_run(store, held.run.key)
    await assert_shut_out(store, held)


# ---------------------------------------------------------------- releases
async def test_a_released_run_is_taken_over_at_once_and_counts_no_attempt(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("hello"))
    await store.commit(cut_turn(held, 2), lease=LONG)

    assert await store.release(held)

    status = await store.status(held.run.key)
    assert (status.running, status.lapsed) == (True, True)
    await take_over_run(store, held.run.key)
    status = await store.status(held.run.key)
    assert (status.running, status.lapsed, status.attempt) == (True, False, 1)


async def test_a_worker_that_released_a_run_writes_nothing_more(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.release(held)
    await assert_shut_out(store, held)
    assert (await store.status(held.run.key)).lapsed


async def test_a_lease_that_was_lost_is_not_released(store: Ledger) -> None:
    taken = await begin_run(store, new_key(), lease=0)
    lease = await take_over_run(store, taken.run.key)
    ended = await begin_run(store, new_key())
    await store.commit(ending(ended, 0, 2), lease=LONG)
    deleted = await begin_run(store, new_key())
    await store.delete(deleted.run.key)

    assert [await store.release(each) for each in (taken, ended, deleted)] == [False] * 3
    assert await store.renew([lease], lease=LONG) == ["held"]


async def test_a_released_run_is_not_over(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    await store.release(held)
    version = (await store.status(held.run.key)).version

    assert await store.begin(change(held.run.key, version), RunId("r"), (LOST,), lease=LONG) is None
    assert await store.cancel(held.run, CANCELLED)
    assert await store.renew([await take_over_run(store, held.run.key)], lease=LONG) == [
        "cancelled"
    ]


async def test_a_run_may_be_handed_over_many_times(store: Ledger) -> None:
    held = await begin_run(store, new_key())
    for number in range(5):
        await store.commit(turn(held, 0, 2, TextDelta(str(number))), lease=LONG)
        assert await store.release(held)
        held = await take_over_run(store, held.run.key)

    assert (await store.status(held.run.key)).attempt == 1
    words = [
        event.text
        for _, event in await read_events(store, held.run)
        if isinstance(event, TextDelta)
    ]
    assert words == ["0", "1", "2", "3", "4"]


async def test_a_claim_and_a_commit_at_once_leave_one_holder(store: Ledger, peer: Ledger) -> None:
    """The worker was only slow: either its end counts, or it is shut out."""
    for _ in range(10):
        held = await begin_run(store, new_key(), lease=0)
        version = (await store.status(held.run.key)).version
        outcomes: list[object] = []

        async def take_over(held: Lease, version: int, outcomes: list[object]) -> None:
            taking = change(held.run.key, version)
            run_id = held.run.run_id
            outcomes.append(await peer.take_over(taking, run_id, opening(run_id), lease=LONG))

        async def end(held: Lease, outcomes: list[object]) -> None:
            try:
                await store.commit(ending(held, 0, 2, say="end"), lease=LONG)
            except LeaseLost:
                outcomes.append("lost")

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take_over, held, version, outcomes)
                tasks.start_soon(end, held, outcomes)

        status = await store.status(held.run.key)
        ended = outcomes == [None]
        assert ended == (not status.running) == (status.message_count == 1)
        assert status == await peer.status(held.run.key)
