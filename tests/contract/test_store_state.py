"""Promises of every store: state changes only with the transcript, read from its boundary."""

from dataclasses import replace

import pytest
from tests.support.store_values import (
    FINISHED,
    LONG,
    LOST,
    answer,
    asking,
    assert_shut_out,
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
    user,
)

from passback.core.changes import Change, Commit, LogWrite, Page
from passback.core.errors import LeaseLost
from passback.core.events import Rewound
from passback.core.messages import CallId, ConversationKey, Message, PlanEntry, RunId, Usage
from passback.core.permissions import LastingPermission
from passback.core.state import EarlierShared, Refusal, State
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

PLAN = (PlanEntry("look", "high", "completed"), PlanEntry("leap"))
STATE = State(
    PLAN,
    Usage(1, 2, 3, 4),
    0.125,
    1.5,
    2,
    data={"a": [1]},
    output_schema={"type": "object"},
    lasting=(LastingPermission("rm", "1", approved=False, reason="No."),),
    refusals=(Refusal(CallId("c"), "rm", "No."),),
    shared={"color": "red", "list": [1, {"deep": None}]},
    earlier_shared=EarlierShared(RunId("r"), {"color": "blue"}),
)
MESSAGES: tuple[Message, ...] = (user("a"), user("b"), user("c"), user("d"))


async def state(store: Ledger, key: ConversationKey) -> State:
    """Return the state, which both reads must show."""
    found = (await store.status(key)).state
    assert (await store.load(key)).status.state == found
    return found


async def parked(store: Ledger, how: Change) -> None:
    """Park with a change as it is, but for its version."""
    version = (await store.status(how.key)).version
    assert await store.park(replace(how, nonce=new_nonce(), expected=version))


# ---------------------------------------------------------------- written and kept
async def test_a_conversation_has_an_empty_state_until_one_is_written(store: Ledger) -> None:
    key = new_key()
    assert await state(store, key) == State()
    held = await begin_run(store, key, user("a"))
    await store.commit(ending(held, 0, 2, say="said"), lease=LONG)
    assert await state(store, key) == State()


async def test_each_change_may_write_the_state_and_keeps_it_without_one(store: Ledger) -> None:
    key = new_key()
    states = [replace(STATE, seconds=float(number)) for number in range(6)]
    await parked(store, replace(change(key, 0, *MESSAGES), state=states[0]))
    assert await state(store, key) == states[0]
    await parked(store, change(key))
    assert await state(store, key) == states[0]

    run_id, version = new_run(), (await store.status(key)).version
    how = replace(change(key, version), state=states[1])
    held = await store.begin(how, run_id, opening(run_id), lease=LONG)
    assert held is not None
    assert await state(store, key) == states[1]
    await store.commit(replace(turn(held, 0, 2, say="e"), state=states[2]), lease=LONG)
    assert await state(store, key) == states[2]
    await store.commit(turn(held, 1, 2, say="f"), lease=0)
    assert await state(store, key) == states[2]

    status = await store.status(key)
    how, gone = replace(change(key, status.version), state=states[3]), (Rewound(status.committed),)
    held = await store.take_over(how, run_id, gone, lease=0)
    assert held is not None
    assert await state(store, key) == states[3]
    held = await take_over_run(store, key, lease=0)
    assert await state(store, key) == states[3]
    how = replace(change(key, (await store.status(key)).version), state=states[4])
    assert await store.fail_lost(how, run_id, (LOST,))
    assert await state(store, key) == states[4]

    held = await begin_run(store, key, lease=0)
    await fail_lost_run(store, key)
    held = await begin_run(store, key)
    assert await state(store, key) == states[4]
    await store.commit(replace(ending(held, 0, 2), state=states[5]), lease=LONG)
    assert await state(store, key) == states[5]


async def test_a_state_may_become_empty_again_and_goes_with_its_conversation(store: Ledger) -> None:
    key = new_key()
    await parked(store, replace(change(key, 0, *MESSAGES), state=STATE))
    await parked(store, replace(change(key), state=State()))
    assert await state(store, key) == State()

    await parked(store, replace(change(key), state=STATE))
    assert await store.delete(key)
    assert await state(store, key) == State()
    await parked(store, change(key, 0, user("anew")))
    assert await state(store, key) == State()


async def test_a_large_plan_is_kept(store: Ledger) -> None:
    key, large = new_key(), State(tuple(PlanEntry(f"entry {n}" * 20) for n in range(1000)))
    await parked(store, replace(change(key, 0, user("a")), state=large))
    assert await state(store, key) == large


# ---------------------------------------------------------------- refused, or sent again
async def test_a_state_is_refused_with_its_change(store: Ledger) -> None:
    key, late = new_key(), State(history_start=1)
    await parked(store, replace(change(key, 0, *MESSAGES), state=STATE))
    version = (await store.status(key)).version
    run_id = new_run()

    refused = replace(change(key, version + 1), state=late)
    assert await store.park(refused) is False
    assert await store.begin(refused, run_id, opening(run_id), lease=LONG) is None
    assert await store.fail_lost(refused, run_id, (LOST,)) is False
    held = await begin_run(store, key)
    assert await store.park(replace(change(key, version + 1), state=late)) is False

    assert await state(store, key) == STATE
    await store.commit(ending(held, 0, 2), lease=LONG)


async def test_a_worker_that_lost_its_lease_writes_no_state(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("a"), lease=0)
    other = await take_over_run(store, held.run.key)
    await store.commit(replace(turn(other, 0, 2, say="b"), state=STATE), lease=LONG)

    with pytest.raises(LeaseLost):
        await store.commit(replace(turn(held, 5, 2, say="late"), state=State()), lease=LONG)

    await assert_shut_out(store, held)
    assert await state(store, held.run.key) == STATE


# ---------------------------------------------------------------- the boundary
@pytest.mark.parametrize("boundary", [0, 1, 3, 4])
async def test_messages_are_loaded_from_the_boundary_on_and_all_are_kept(
    store: Ledger, boundary: int
) -> None:
    key = new_key()
    await parked(store, replace(change(key, 0, *MESSAGES), state=State(history_start=boundary)))

    loaded = await store.load(key)
    assert (loaded.start, loaded.messages) == (boundary, MESSAGES[boundary:])
    assert loaded.status.message_count == 4
    assert await store.page(key, start=0, limit=9) == Page(MESSAGES, 0, 4)
    assert await store.page(key, start=1, limit=2) == Page(MESSAGES[1:3], 1, 4)


async def test_what_follows_is_at_its_place_behind_the_boundary(store: Ledger) -> None:
    key = new_key()
    await parked(store, replace(change(key, 0, *MESSAGES), state=State(history_start=3)))
    asked = (asking("x"),)
    held = await begin_run(store, key, user("e"))
    end = Commit(LogWrite(held, 2, (FINISHED,)), 0, asked, owed_answers(asked), ends=True)
    await store.commit(end, lease=LONG)
    whole = (*MESSAGES, user("e"), *asked)

    loaded = await store.load(key)
    assert (loaded.messages, loaded.status.owed) == (whole[3:], owed_answers(asked))
    await parked(store, change(key, 0, answer("x")))
    assert (await store.load(key)).messages == (*whole[3:], answer("x"))
    assert await store.page(key, start=0, limit=9) == Page((*whole, answer("x")), 0, 7)


async def test_a_commit_moves_the_boundary_onto_a_message_of_its_own(store: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, *MESSAGES)
    await store.commit(replace(turn(held, 0, 2, say="e"), state=State(history_start=4)), lease=0)
    lease = await take_over_run(store, key)

    loaded = await store.load(key)
    assert (loaded.start, len(loaded.messages), loaded.status.message_count) == (4, 1, 5)
    await store.commit(turn(lease, 0, 2, say="f"), lease=LONG)
    assert len((await store.load(key)).messages) == 2


@pytest.mark.parametrize(("keep", "boundary"), [(0, 0), (1, 0), (2, 2), (3, 2), (4, 2), (None, 2)])
async def test_a_boundary_behind_what_is_kept_is_set_back(
    store: Ledger, keep: int | None, boundary: int
) -> None:
    """The added messages may reach the old boundary again."""
    key = new_key()
    await parked(store, replace(change(key, 0, *MESSAGES), state=STATE))
    added = (user("e"), user("f"), user("g"))

    leaf = None if keep is None else keep - 1
    await parked(store, replace(change(key, 0, *added), leaf=leaf))

    loaded = await store.load(key)
    whole = (*MESSAGES[:keep], *added)
    assert loaded.status.state == replace(STATE, history_start=boundary)
    assert (loaded.start, loaded.messages) == (boundary, whole[boundary:])


async def test_a_state_that_comes_with_a_rollback_counts(store: Ledger) -> None:
    key = new_key()
    await parked(store, replace(change(key, 0, *MESSAGES), state=STATE))
    run_id, version = new_run(), (await store.status(key)).version
    how = Change(key, new_nonce(), version, (user("e"),), leaf=0, state=State(history_start=1))

    assert await store.begin(how, run_id, opening(run_id), lease=LONG)

    loaded = await store.load(key)
    assert (loaded.status.state, loaded.messages) == (State(history_start=1), (user("e"),))
