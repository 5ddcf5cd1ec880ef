"""Limits of an owner: budgets over all conversations, and runs at a time."""

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest
from tests.support.killable_worker import Faults, killable_worker
from tests.support.runs import (
    KEY,
    OTHER,
    QUICK,
    RECOVERING,
    at_once,
    events,
    followed,
    outcome,
    post,
    reply,
    says,
    until,
    worker,
)
from tests.unit.engine.budget_agents import BUDGET, look, looks, of_owner, reports, uses

from passback.context.compaction import Compaction
from passback.core.budgets import Budget, BudgetLimits, Left
from passback.core.changes import Status
from passback.core.errors import ModelUnavailable, StoreFull, StoreUnavailable, TooManyRuns
from passback.core.events import Completed, Failed, Outcome, RunFinished, RunQueued, TextDelta
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunRef
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- owners
async def test_the_runs_of_an_owner_spend_together_on_whatever_conversation(store: Ledger) -> None:
    stranger = ConversationKey(OwnerId("stranger"), KEY.id)
    model = ScriptedModel([uses(60), uses(60), uses(60)])
    async with worker(store, model, budget=of_owner(tokens=100)) as runs:
        first = await events(runs, await post(runs, says()))
        assert reports(first) == [Left(3, 40)]
        second = await events(runs, await post(runs, says(), key=OTHER))
        assert (second[-1], reports(second)) == (RunFinished(Completed()), [Left(3, 0)])
        assert await outcome(runs, await post(runs, says("more", "u2"))) == BUDGET
        assert await outcome(runs, await post(runs, says(), key=stranger)) == Completed()


async def test_an_owners_run_that_waited_its_turn_is_counted_too(memory: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([uses(60, ["wait", gate, *words("ok")]), uses(60)])
    async with worker(memory, model, budget=of_owner(tokens=50)) as runs:
        first = await post(runs, says())
        await until(runs, first, TextDelta)
        waiting = await post(runs, says("more", "u2"), on_busy="enqueue")
        await until(runs, waiting, RunQueued)
        gate.set()
        assert await outcome(runs, waiting) == BUDGET
    assert len(model.requests) == 1


async def test_what_a_lost_worker_had_spent_was_counted_for_the_owner_before_it_was_committed(
    store: Ledger,
) -> None:
    """The call in which it died counts with what it may have used: 500 tokens."""
    budget = of_owner(tokens=1_200)
    dying_model = ScriptedModel([looks(600), uses(9, ["void", anyio.Event()])])
    model = ScriptedModel([looks(150)])
    async with (
        worker(store, model, look, budget=budget) as other,
        killable_worker(store, dying_model, look, budget=budget) as dying,
    ):
        run = await post(dying.runs, says())
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        assert await outcome(other, run) == BUDGET
        assert await outcome(other, await post(other, says(), key=OTHER)) == BUDGET
    assert len(model.requests) == 1


async def test_calls_that_go_on_at_the_same_time_count_with_what_they_may_use(
    store: Ledger,
) -> None:
    """Eight at once, with budget for two; what they did not use is given back."""
    gate = anyio.Event()
    model = ScriptedModel([uses(90, ["wait", gate, *words("ok")])] * 8 + [uses(90)] * 8)
    keys = [ConversationKey(KEY.owner, ConversationId(f"c{number}")) for number in range(8)]
    async with worker(store, model, budget=of_owner(tokens=1_000)) as runs:
        started = [await post(runs, says(), key=key) for key in keys]
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
        late = await events(runs, await post(runs, says("more", "u2")))
        assert (late[-1], reports(late)) == (RunFinished(Completed()), [Left(3, 730)])


async def test_a_call_is_estimated_by_what_the_model_is_shown(memory: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([uses(90, ["wait", gate, *words("ok")])])
    budget, context = of_owner(tokens=2_000), Compaction(100_000)
    async with worker(memory, model, budget=budget, context=context) as runs:
        first = await post(runs, says("x" * 8_000))
        await until(runs, first, TextDelta)
        assert await outcome(runs, await post(runs, says(), key=OTHER)) == BUDGET
        gate.set()
        assert await outcome(runs, first) == Completed()


async def test_a_call_that_fails_gives_back_what_it_did_not_use(memory: Ledger) -> None:
    model = ScriptedModel([[ModelUnavailable("away")], uses(90)])
    async with worker(memory, model, budget=of_owner(tokens=100)) as runs:
        assert isinstance(await outcome(runs, await post(runs, says())), Failed)
        seen = await events(runs, await post(runs, says("more", "u2")))
    assert reports(seen) == [Left(3, 10)]


async def test_nobody_is_counted_without_a_limit_of_owners(memory: Ledger) -> None:
    faults = Faults(memory)
    budget = Budget(BudgetLimits(tokens=10), BudgetLimits(tokens=10))
    async with worker(faults.store, ScriptedModel([uses(5)]), budget=budget) as runs:
        assert await reply(runs, says()) == "ok"
    assert faults.calls["spend"] == 0


async def test_a_post_is_refused_while_its_owners_count_cannot_be_read(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["spend"] = ["refuse"]
    model = ScriptedModel([uses(5)])
    async with worker(faults.store, model, budget=of_owner(tokens=10)) as runs:
        with pytest.raises(StoreUnavailable):
            await post(runs, says())
        assert await reply(runs, says()) == "ok"


async def test_no_model_is_called_while_the_owners_count_cannot_be_read(memory: Ledger) -> None:
    faults = Faults(memory)
    # read for the post, reserved for the call, reported with the turn, reserved for the next one
    faults.plan["spend"] = ["none", "none", "none", "refuse"]
    model = ScriptedModel([looks(5), uses(5)])
    async with worker(faults.store, model, look, budget=of_owner(tokens=10)) as runs:
        failed = await outcome(runs, await post(runs, says()))
    assert isinstance(failed, Failed)
    assert (failed.code, failed.retryable) == ("store_unavailable", True)
    assert len(model.requests) == 1


@pytest.mark.parametrize("trouble", ["error", "silence"])
async def test_a_turn_is_not_lost_because_the_owners_count_cannot_be_written(
    memory: Ledger, trouble: str
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
        assert await reply(runs, says()) == "ok"
        # what was not counted with the first turn was with the next
        assert await outcome(runs, await post(runs, says(), key=OTHER)) == BUDGET


# ---------------------------------------------------------------- the rest of a budget
async def test_what_is_left_beyond_the_run_is_known_while_it_goes_on(memory: Ledger) -> None:
    gate = anyio.Event()
    model = ScriptedModel([uses(60), ["wait", gate, *words("ok")]])
    budget = Budget(BudgetLimits(tokens=10_000), BudgetLimits(tokens=500), BudgetLimits(tokens=80))
    async with worker(memory, model, budget=budget) as runs:
        await reply(runs, says())
        run = await post(runs, says("more", "u2"))
        assert runs.left(run) == Left(tokens=20)
        assert runs.left(RunRef(OTHER, run.run_id)) is None
        gate.set()
        await events(runs, run)
        assert runs.left(run) is None


# ---------------------------------------------------------------- runs at a time
ELSEWHERE = ConversationKey(OwnerId("another"), ConversationId("conversation"))


def conversations(count: int) -> list[ConversationKey]:
    return [ConversationKey(KEY.owner, ConversationId(f"c{n}")) for n in range(count)]


async def test_posts_beyond_an_owners_runs_are_refused_and_nothing_is_stored(store: Ledger) -> None:
    """Three at once where two have room, and another owner's fourth; scaled down from 500."""
    gate = anyio.Event()
    model = ScriptedModel([[gate, *words("one")]] * 4)
    begun: list[RunRef] = []
    refused: list[ConversationKey] = []

    async def try_to_post(runs: RunService, key: ConversationKey) -> None:
        try:
            begun.append(await post(runs, says(), key=key))
        except TooManyRuns:
            refused.append(key)

    async with worker(store, model, timing=replace(QUICK, owner_runs=2)) as runs:
        async with at_once() as tasks:
            for key in conversations(3):
                tasks.start_soon(try_to_post, runs, key)
        assert (len(begun), len(refused)) == (2, 1)
        assert await store.status(refused[0]) == Status()
        await post(runs, says(), key=ELSEWHERE)
        gate.set()
        for run in begun:
            await followed(runs, run)
        await post_until_it_begins(runs, refused[0])


async def post_until_it_begins(runs: RunService, key: ConversationKey) -> RunRef:
    while True:
        try:
            return await post(runs, says(), key=key)
        except TooManyRuns:
            await anyio.lowlevel.checkpoint()


async def test_a_run_that_could_not_begin_takes_no_room(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["begin"] = ["full"]
    async with worker(
        faults.store, ScriptedModel([words("hi")]), timing=replace(QUICK, owner_runs=1)
    ) as runs:
        with pytest.raises(StoreFull):
            await post(runs, says())
        assert await reply(runs, says()) == "hi"


async def test_taken_over_and_queued_runs_count_unrefused(store: Ledger) -> None:
    """A worker with room for one run takes over two, one of them with a post behind it."""
    gate, both, held = anyio.Event(), anyio.Event(), anyio.Event()
    async with killable_worker(store, ScriptedModel([["on", gate], ["on", gate]])) as dying:
        lost = [await post(dying.runs, says(), key=key) for key in (KEY, OTHER)]
        queued = await post(dying.runs, says("more"), on_busy="enqueue")
        await dying.kill()
    over = [both, *words("taken over")]
    model = ScriptedModel([over, over, ["queued", held]])
    async with worker(store, model, timing=replace(RECOVERING, owner_runs=1)) as runs:
        while model.open_streams < 2:
            await anyio.lowlevel.checkpoint()
        both.set()
        for run in lost:
            await followed(runs, run)
        while (await store.status(KEY)).run_id != queued.run_id:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(TooManyRuns):
            await post(runs, says(), key=OTHER)
        held.set()
        await followed(runs, queued)
