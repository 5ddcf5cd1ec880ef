"""What a run used is told of once, whoever told of it and in whatever order; and what calls may use is reserved."""

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest
from tests.support.killable_worker import Faults

from passback.core.budgets import Budget, BudgetLimits, Price
from passback.core.changes import Lease
from passback.core.context import Unbounded
from passback.core.errors import StoreUnavailable
from passback.core.events import UsageReported
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId, RunRef, Usage
from passback.core.ports import Store
from passback.core.state import State
from passback.engine.spending import BudgetSpent, Meter

pytestmark = pytest.mark.anyio

WHOLE, CUT, NOTHING = Usage(3, 2), Usage(10, 5, estimated=True), Usage()


@pytest.mark.parametrize(
    ("told", "rest"),
    [
        ([], [UsageReported(WHOLE + CUT)]),
        ([WHOLE], [UsageReported(CUT)]),
        ([CUT, WHOLE], []),
        ([WHOLE, CUT], []),
        ([NOTHING, WHOLE, CUT], []),
    ],
)
async def test_the_rest_is_what_no_event_told_of(
    memory: Store, told: Sequence[Usage], rest: Sequence[UsageReported]
) -> None:
    run = RunRef(ConversationKey(OwnerId("o"), ConversationId("c")), RunId("r"))
    meter = Meter(Budget(), State(), Lease(run, 1, "fence"), memory)
    for usage in (None, NOTHING, WHOLE, CUT):
        meter.count_usage(usage, Price())
    for usage in told:
        meter.with_remaining([UsageReported(usage)], 1)
    assert list(meter.unreported_usage()) == rest


# ---------------------------------------------------------------- calls that go on
RUN = RunRef(ConversationKey(OwnerId("o"), ConversationId("c")), RunId("r"))
LIMITS = BudgetLimits(tokens=600)
BUDGETS = [Budget(run=LIMITS), Budget(conversation=LIMITS), Budget(owner=LIMITS)]


def meter_of(budget: Budget, store: Store) -> Meter:
    return Meter(budget, State(), Lease(RUN, 1, "fence"), store)


@pytest.mark.parametrize("budget", BUDGETS)
async def test_calls_side_by_side_count_with_what_they_may_use(
    memory: Store, budget: Budget
) -> None:
    """500 tokens each, of which there is room for two: sub-agents share the meter of their run."""
    meter, context = meter_of(budget, memory), Unbounded()
    with await meter.reserve(context, Price()), await meter.reserve(context, Price()):
        with pytest.raises(BudgetSpent):
            await meter.reserve(context, Price())
        meter.count_usage(Usage(5, 5), Price())
    with await meter.reserve(context, Price()):
        meter.count_usage(Usage(590), Price())
    with pytest.raises(BudgetSpent):
        await meter.reserve(context, Price())


@pytest.mark.parametrize("budget", BUDGETS)
async def test_two_that_begin_in_the_same_instant_do_not_both_give_up(
    memory: Store, budget: Budget
) -> None:
    budget = budget.within(Budget(run=BudgetLimits(tokens=500)))
    meter = meter_of(budget, memory)
    begun: list[str] = []
    over = anyio.Event()

    async def call() -> None:
        try:
            with await meter.reserve(Unbounded(), Price()):
                begun.append("called")
                await over.wait()
        except BudgetSpent:
            begun.append("refused")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            tasks.start_soon(call)
            while len(begun) < 2:
                await anyio.lowlevel.checkpoint()
            over.set()
    assert sorted(begun) == ["called", "refused"]


async def test_a_cost_is_reserved_too(memory: Store) -> None:
    price = Price(output=1_000.0)
    meter = meter_of(Budget(run=BudgetLimits(cost=0.4)), memory)
    with await meter.reserve(Unbounded(), price), pytest.raises(BudgetSpent):
        await meter.reserve(Unbounded(), price)


async def test_a_call_that_cannot_be_counted_is_not_reserved(memory: Store) -> None:
    faults = Faults(memory)
    faults.plan["spend"] = ["refuse"]
    meter = meter_of(Budget(owner=BudgetLimits(tokens=1)), faults.store)
    with pytest.raises(StoreUnavailable):
        await meter.reserve(Unbounded(), Price())
    with await meter.reserve(Unbounded(), Price()):
        pass
