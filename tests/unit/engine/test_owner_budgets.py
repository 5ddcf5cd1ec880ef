"""Limits of owners: what all their runs spend together is counted in the store, and only where it is limited."""

import anyio
import pytest
from tests.support.budgets import (
    BUDGET,
    look,
    looks,
    of_owner,
    reports,
    uses,
)
from tests.support.faults import Faults, mortal
from tests.support.runs import (
    KEY,
    OTHER,
    events,
    outcome,
    post,
    reply,
    until,
    worker,
)
from tests.support.runs import says as user

from passback.core.errors import StoreUnavailable
from passback.core.events import (
    Completed,
    Failed,
    RunFinished,
    RunQueued,
    TextDelta,
)
from passback.core.limits import Budget, Left, Limits
from passback.core.messages import (
    ConversationKey,
    OwnerId,
    RunRef,
)
from passback.core.ports import Store
from passback.models.scripted import ScriptedModel, says

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- owners
async def test_the_runs_of_an_owner_spend_together_on_whatever_conversation(store: Store) -> None:
    stranger = ConversationKey(OwnerId("stranger"), KEY.id)
    model = ScriptedModel([uses(60), uses(60), uses(60)])
    async with worker(store, model, budget=of_owner(tokens=100)) as runs:
        first = await events(runs, await post(runs, user()))
        assert reports(first) == [Left(3, 40)]
        second = await events(runs, await post(runs, user(), key=OTHER))
        assert (second[-1], reports(second)) == (RunFinished(Completed()), [Left(3, 0)])
        assert await outcome(runs, await post(runs, user("more", "u2"))) == BUDGET
        assert await outcome(runs, await post(runs, user(), key=stranger)) == Completed()


async def test_an_owners_run_that_waited_its_turn_is_counted_too(memory: Store) -> None:
    gate = anyio.Event()
    model = ScriptedModel([uses(60, ["wait", gate, *says("ok")]), uses(60)])
    async with worker(memory, model, budget=of_owner(tokens=50)) as runs:
        first = await post(runs, user())
        await until(runs, first, TextDelta)
        waiting = await post(runs, user("more", "u2"), on_busy="enqueue")
        await until(runs, waiting, RunQueued)
        gate.set()
        assert await outcome(runs, waiting) == BUDGET
    assert len(model.requests) == 1


async def test_what_a_lost_worker_had_spent_was_counted_for_the_owner_before_it_was_committed(
    store: Store,
) -> None:
    budget = of_owner(tokens=100)
    dying_model = ScriptedModel([looks(60), uses(9, ["void", anyio.Event()])])
    model = ScriptedModel([looks(50)])
    async with (
        worker(store, model, look, budget=budget) as other,
        mortal(store, dying_model, look, budget=budget) as dying,
    ):
        run = await post(dying.runs, user())
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        assert await outcome(other, run) == BUDGET
        assert await outcome(other, await post(other, user(), key=OTHER)) == BUDGET
    assert len(model.requests) == 1


async def test_nobody_is_counted_without_a_limit_of_owners(memory: Store) -> None:
    faults = Faults(memory)
    budget = Budget(Limits(tokens=10), Limits(tokens=10))
    async with worker(faults.store, ScriptedModel([uses(5)]), budget=budget) as runs:
        assert await reply(runs, user()) == "ok"
    assert faults.calls["spend"] == 0


async def test_a_post_is_refused_while_its_owners_count_cannot_be_read(memory: Store) -> None:
    faults = Faults(memory)
    faults.plan["spend"] = ["refuse"]
    model = ScriptedModel([uses(5)])
    async with worker(faults.store, model, budget=of_owner(tokens=10)) as runs:
        with pytest.raises(StoreUnavailable):
            await post(runs, user())
        assert await reply(runs, user()) == "ok"


async def test_no_model_is_called_while_the_owners_count_cannot_be_read(memory: Store) -> None:
    faults = Faults(memory)
    # read for the post, told with the turn, asked before the next one
    faults.plan["spend"] = ["none", "none", "refuse"]
    model = ScriptedModel([looks(5), uses(5)])
    async with worker(faults.store, model, look, budget=of_owner(tokens=10)) as runs:
        failed = await outcome(runs, await post(runs, user()))
    assert isinstance(failed, Failed)
    assert (failed.code, failed.retryable) == ("store_unavailable", True)
    assert len(model.requests) == 1


@pytest.mark.parametrize("trouble", ["error", "silence"])
async def test_a_turn_is_not_lost_because_the_owners_count_cannot_be_written(
    memory: Store, trouble: str
) -> None:
    faults = Faults(memory)
    if trouble == "error":
        faults.plan["spend"] = ["none", "refuse"]
    else:

        async def next_one_stalls() -> None:
            faults.first["spend"] = anyio.sleep_forever

        faults.first["spend"] = next_one_stalls
    model = ScriptedModel([looks(5), uses(5)])
    async with worker(faults.store, model, look, budget=of_owner(tokens=10)) as runs:
        assert await reply(runs, user()) == "ok"
        # what was not counted with the first turn was with the next
        assert await outcome(runs, await post(runs, user(), key=OTHER)) == BUDGET


# ---------------------------------------------------------------- what is left
async def test_what_is_left_beyond_the_run_is_known_while_it_goes_on(memory: Store) -> None:
    gate = anyio.Event()
    model = ScriptedModel([uses(60), ["wait", gate, *says("ok")]])
    budget = Budget(Limits(tokens=10_000), Limits(tokens=500), Limits(tokens=80))
    async with worker(memory, model, budget=budget) as runs:
        await reply(runs, user())
        run = await post(runs, user("more", "u2"))
        assert runs.left(run) == Left(tokens=20)
        assert runs.left(RunRef(OTHER, run.run_id)) is None
        gate.set()
        await events(runs, run)
        assert runs.left(run) is None
