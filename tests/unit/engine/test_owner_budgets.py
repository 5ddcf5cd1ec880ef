"""Limits of owners: what all their runs spend together is counted in the store, and only where it is limited."""

import anyio
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.runs import (
    KEY,
    OTHER,
    at_once,
    events,
    outcome,
    post,
    reply,
    until,
    worker,
)
from tests.support.runs import says as user
from tests.unit.engine.budget_agents import (
    BUDGET,
    look,
    looks,
    of_owner,
    reports,
    uses,
)

from passback.context.compaction import Compaction
from passback.core.budgets import Budget, BudgetLimits, Left
from passback.core.errors import ModelUnavailable, StoreUnavailable
from passback.core.events import (
    Completed,
    Failed,
    Outcome,
    RunFinished,
    RunQueued,
    TextDelta,
)
from passback.core.messages import (
    ConversationId,
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
    """So is the call in which it died, with what it may have used: 500 tokens."""
    budget = of_owner(tokens=1_200)
    dying_model = ScriptedModel([looks(600), uses(9, ["void", anyio.Event()])])
    model = ScriptedModel([looks(150)])
    async with (
        worker(store, model, look, budget=budget) as other,
        killable_worker(store, dying_model, look, budget=budget) as dying,
    ):
        run = await post(dying.runs, user())
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        assert await outcome(other, run) == BUDGET
        assert await outcome(other, await post(other, user(), key=OTHER)) == BUDGET
    assert len(model.requests) == 1


async def test_calls_that_go_on_at_the_same_time_count_with_what_they_may_use(store: Store) -> None:
    """Eight at once, of which the owner's budget has room for two; what they did not use is given back."""
    gate = anyio.Event()
    model = ScriptedModel([uses(90, ["wait", gate, *says("ok")])] * 8 + [uses(90)] * 8)
    keys = [ConversationKey(KEY.owner, ConversationId(f"c{number}")) for number in range(8)]
    async with worker(store, model, budget=of_owner(tokens=1_000)) as runs:
        started = [await post(runs, user(), key=key) for key in keys]
        ended: list[Outcome] = []

        async def end(run: RunRef) -> None:
            ended.append(await outcome(runs, run))
            if len(ended) == 6:
                gate.set()

        async with at_once() as tasks:
            for run in started:
                tasks.start_soon(end, run)
        assert ended == [BUDGET] * 6 + [Completed()] * 2
        assert len(model.requests) == 2
        late = await events(runs, await post(runs, user("more", "u2")))
        assert (late[-1], reports(late)) == (RunFinished(Completed()), [Left(3, 730)])


async def test_a_call_is_estimated_by_what_the_model_is_shown(memory: Store) -> None:
    gate = anyio.Event()
    model = ScriptedModel([uses(90, ["wait", gate, *says("ok")])])
    budget, context = of_owner(tokens=2_000), Compaction(100_000)
    async with worker(memory, model, budget=budget, context=context) as runs:
        first = await post(runs, user("x" * 8_000))
        await until(runs, first, TextDelta)
        assert await outcome(runs, await post(runs, user(), key=OTHER)) == BUDGET
        gate.set()
        assert await outcome(runs, first) == Completed()


async def test_a_call_that_fails_gives_back_what_it_did_not_use(memory: Store) -> None:
    model = ScriptedModel([[ModelUnavailable("away")], uses(90)])
    async with worker(memory, model, budget=of_owner(tokens=100)) as runs:
        assert isinstance(await outcome(runs, await post(runs, user())), Failed)
        said = await events(runs, await post(runs, user("more", "u2")))
    assert reports(said) == [Left(3, 10)]


async def test_nobody_is_counted_without_a_limit_of_owners(memory: Store) -> None:
    faults = Faults(memory)
    budget = Budget(BudgetLimits(tokens=10), BudgetLimits(tokens=10))
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
    # read for the post, reserved for the call, told with the turn, reserved for the next one
    faults.plan["spend"] = ["none", "none", "none", "refuse"]
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
        faults.plan["spend"] = ["none", "none", "refuse"]
    else:

        async def the_third_stalls() -> None:
            faults.first["spend"] = (
                anyio.sleep_forever if faults.calls["spend"] else the_third_stalls
            )

        faults.first["spend"] = the_third_stalls
    model = ScriptedModel([looks(5), uses(5)])
    async with worker(faults.store, model, look, budget=of_owner(tokens=10)) as runs:
        assert await reply(runs, user()) == "ok"
        # what was not counted with the first turn was with the next
        assert await outcome(runs, await post(runs, user(), key=OTHER)) == BUDGET


# ---------------------------------------------------------------- what is left
async def test_what_is_left_beyond_the_run_is_known_while_it_goes_on(memory: Store) -> None:
    gate = anyio.Event()
    model = ScriptedModel([uses(60), ["wait", gate, *says("ok")]])
    budget = Budget(BudgetLimits(tokens=10_000), BudgetLimits(tokens=500), BudgetLimits(tokens=80))
    async with worker(memory, model, budget=budget) as runs:
        await reply(runs, user())
        run = await post(runs, user("more", "u2"))
        assert runs.left(run) == Left(tokens=20)
        assert runs.left(RunRef(OTHER, run.run_id)) is None
        gate.set()
        await events(runs, run)
        assert runs.left(run) is None
