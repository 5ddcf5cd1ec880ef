"""Limits of runs, conversations and owners: where they end a run, and what is left then."""

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.killable_worker import Faults, killable_worker
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.runs import (
    KEY,
    OTHER,
    PAINT,
    call_ids,
    contents,
    events,
    outcome,
    post,
    record,
    reply,
    result,
    until,
    worker,
)
from tests.support.runs import says as user
from tests.support.store_values import new_key
from tests.support.transcript_rules import faults_of
from tests.unit.engine.budget_agents import (
    BUDGET,
    SOON,
    backend,
    look,
    looks,
    of_conversation,
    of_owner,
    of_run,
    reports,
    serving,
    tokens_of,
    uses,
)

from passback.agent import Agent
from passback.core.budgets import Budget, BudgetLimits, Left, Price
from passback.core.changes import Lease
from passback.core.deltas import Finish
from passback.core.errors import ConfigurationError, StoreUnavailable
from passback.core.events import (
    Completed,
    Failed,
    HandedBack,
    RunFinished,
    TextDelta,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    AssistantMessage,
    ConversationId,
    ConversationKey,
    Message,
    OwnerId,
    RunId,
    RunRef,
    ToolMessage,
    Usage,
)
from passback.core.state import State
from passback.engine.ledger import Ledger
from passback.engine.spending import BudgetSpent, Meter
from passback.models.scripted import ScriptedModel, calls, says
from passback.toolsets.functions import tool

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- runs
@pytest.mark.promise("P5")
async def test_a_run_ends_before_the_model_call_that_its_tokens_do_not_allow(store: Ledger) -> None:
    model = ScriptedModel([looks(60), looks(60), uses(1)])
    async with worker(store, model, look, budget=of_run(tokens=100)) as runs:
        shown = await events(runs, await post(runs, user()))
        assert shown[-1] == RunFinished(BUDGET)
        assert reports(shown) == [Left(3, 40), Left(2, 0)]
        assert faults_of(await record(runs), running=False) == []
        assert await contents(runs) == ["hi", "", "seen", "", "seen"]
        assert len(model.requests) == 2
        # the next run has its own
        assert await reply(runs, user("go on", "u2")) == "ok"
        assert await tokens_of(runs) == 121


async def test_a_call_that_uses_the_rest_is_the_last(memory: Ledger) -> None:
    async with worker(memory, ScriptedModel([uses(100)]), budget=of_run(tokens=100)) as runs:
        seen = await events(runs, await post(runs, user()))
    assert (seen[-1], reports(seen)) == (RunFinished(Completed()), [Left(3, 0)])


async def test_what_a_run_costs_is_limited_by_the_price_of_its_model(memory: Ledger) -> None:
    model = ScriptedModel([looks(1_000_000)])
    price, budget = Price(0.5, 1.5), of_run(cost=0.75)
    async with worker(memory, model, look, budget=budget, price=price) as runs:
        seen = await events(runs, await post(runs, user()))
        assert (await runs.status(KEY)).state.cost == 1.0
    assert (seen[-1], reports(seen)) == (RunFinished(BUDGET), [Left(3, cost=0.0)])


async def test_a_model_without_usage_spends_nothing(memory: Ledger) -> None:
    model = ScriptedModel([calls(("look", {})), says("ok")])
    async with worker(memory, model, look, budget=of_run(tokens=1)) as runs:
        assert await reply(runs, user()) == "ok"


async def test_what_the_client_owes_is_handed_back_when_the_budget_is_used_up(
    store: Ledger,
) -> None:
    model = ScriptedModel([uses(100, calls(("paint", {})))])
    async with worker(store, model, budget=of_conversation(tokens=100)) as runs:
        handed = await outcome(runs, await post(runs, user(), tools=[PAINT]))
        assert isinstance(handed, HandedBack)
        [call] = await call_ids(runs)
        seen = await events(runs, await post(runs, result(call)))
        assert seen[-1] == RunFinished(BUDGET)
        assert faults_of(await record(runs), running=False) == []
        assert await call_ids(runs) == []


# ---------------------------------------------------------------- conversations
async def test_a_conversation_that_has_spent_all_says_nothing_more_and_keeps_what_is_posted(
    store: Ledger,
) -> None:
    model = ScriptedModel([uses(100)])
    async with worker(store, model, budget=of_conversation(tokens=50, seconds=500)) as runs:
        assert await reply(runs, user()) == "ok"
        seen = await events(runs, await post(runs, user("more", "u2")))
        assert seen[-1] == RunFinished(BUDGET)
        [report] = [event for event in seen if isinstance(event, UsageReported)]
        assert report.usage == Usage()
        assert report.left is not None
        assert (report.left.turns, report.left.tokens) == (3, 0)
        assert not any(isinstance(event, TextDelta | TurnStarted) for event in seen)
        assert await contents(runs) == ["hi", "ok", "more"]
        # another conversation has its own
        assert isinstance(await outcome(runs, await post(runs, user(), key=OTHER)), Failed)
    assert len(model.requests) == 1


@pytest.mark.parametrize("left_over", ["half", ""])
async def test_what_a_failed_or_silent_call_used_counts_also_without_a_message(
    memory: Ledger, left_over: str
) -> None:
    cut = uses(100, [left_over, StoreUnavailable("gone")])
    silent = uses(100, [Finish("stop")])
    async with worker(memory, ScriptedModel([cut, silent])) as runs:
        await outcome(runs, await post(runs, user()))
        await outcome(runs, await post(runs, user("again", "u2")))
        assert await tokens_of(runs) == 200


async def test_what_was_taken_back_stays_spent(memory: Ledger) -> None:
    model = ScriptedModel([looks(60), uses(7, ["half", anyio.Event()]), uses(1)])
    async with worker(memory, model, look) as runs:
        first = await post(runs, user())
        await until(runs, first, TextDelta)
        await events(runs, await post(runs, user("no", "u2"), on_busy="rollback"))
        assert await contents(runs) == ["no", "ok"]
        state = (await runs.status(KEY)).state
    assert state.usage == Usage(1)
    assert state.tokens == 60 + 7 + 1
    assert state.seconds > 0


async def test_sub_agents_spend_what_their_run_may_spend(memory: Ledger) -> None:
    task = calls(("helper", {"task": "find it"}))
    lead = ScriptedModel([uses(10, task)])
    other = ScriptedModel([looks(90), uses(1)])
    helper = Agent(model=other, name="helper", description="Helps.", tools=[look])
    boss = Agent(model=lead, agents=[helper], budget=of_run(tokens=100))
    async with serving(boss) as runs:
        seen = await events(runs, await post(runs, user()))
        assert seen[-1] == RunFinished(BUDGET)
        assert await tokens_of(runs) == 100
        [stopped] = [each for each in await record(runs) if isinstance(each, ToolMessage)]
    assert (stopped.content, stopped.is_error) == ("[The agent was stopped before its end.]", True)
    assert (len(lead.requests), len(other.requests)) == (1, 1)


# ---------------------------------------------------------------- time
@pytest.mark.promise("P5")
async def test_a_model_call_is_cut_when_the_time_is_over_and_its_words_stay(store: Ledger) -> None:
    model = ScriptedModel([uses(8, ["half an answer", anyio.Event()]), uses(1)])
    async with worker(store, model, budget=of_run(seconds=SOON)) as runs:
        seen = await events(runs, await post(runs, user()))
        assert seen[-1] == RunFinished(BUDGET)
        assert reports(seen) == [Left(3, seconds=0.0)]
        answer = (await record(runs))[-1]
        assert isinstance(answer, AssistantMessage)
        assert (answer.content, answer.partial) == ("half an answer", True)
        assert (await runs.status(KEY)).state.seconds >= SOON
        assert await reply(runs, user("go on", "u2")) == "ok"
    assert model.open_streams == 0


@pytest.mark.promise("P5")
async def test_a_tool_is_stopped_when_the_time_is_over(store: Ledger) -> None:
    @tool
    async def wait() -> str:
        await anyio.sleep_forever()
        return "never"

    model = ScriptedModel([calls(("wait", {})), says("ok")])
    async with worker(store, model, wait, budget=of_run(seconds=SOON)) as runs:
        assert await outcome(runs, await post(runs, user())) == BUDGET
        assert faults_of(await record(runs), running=False) == []
        closed = (await record(runs))[-1]
        assert isinstance(closed, ToolMessage)
        assert closed.synthetic == "interrupted"
        assert await reply(runs, user("go on", "u2")) == "ok"


async def test_a_conversation_without_time_asks_no_model(memory: Ledger) -> None:
    model = ScriptedModel([["half", anyio.Event()]])
    async with worker(memory, model, budget=of_conversation(seconds=SOON)) as runs:
        assert await outcome(runs, await post(runs, user())) == BUDGET
        asked = len(model.requests)  # 0 if a busy machine takes all of the time before
        seen = await events(runs, await post(runs, user("more", "u2")))
        assert (seen[-1], reports(seen)) == (RunFinished(BUDGET), [Left(4, seconds=0.0)])
    assert len(model.requests) == asked


async def test_the_time_of_an_owner_ends_a_run_too(memory: Ledger) -> None:
    model = ScriptedModel([["half", anyio.Event()]])
    async with worker(memory, model, budget=of_owner(seconds=SOON)) as runs:
        assert await outcome(runs, await post(runs, user())) == BUDGET
        asked = len(model.requests)  # 0 if a busy machine takes all of the time before
        assert await outcome(runs, await post(runs, user(), key=OTHER)) == BUDGET
    assert len(model.requests) == asked


# ---------------------------------------------------------------- other workers
@pytest.mark.promise("P10")
async def test_what_a_lost_worker_had_spent_counts_for_the_one_that_goes_on(store: Ledger) -> None:
    budget = of_run(tokens=100)
    dying_model = ScriptedModel([looks(60), uses(9, ["void", anyio.Event()])])
    model = ScriptedModel([looks(60), uses(1)])
    async with (
        worker(store, model, look, budget=budget) as other,
        killable_worker(store, dying_model, look, budget=budget) as dying,
    ):
        run = await post(dying.runs, user())
        await until(dying.runs, run, TextDelta)
        await dying.kill()
        seen = await events(other, run)
        assert seen[-1] == RunFinished(BUDGET)
        assert reports(seen) == [Left(3, 40), Left(2, 0)]
        assert await tokens_of(other) == 120
    assert len(model.requests) == 1


# ---------------------------------------------------------------- calls beside the turns
@pytest.mark.parametrize("command", ["/compact", "/help"])
async def test_a_command_without_a_model_is_answered_without_budget(command: str) -> None:
    model = ScriptedModel([uses(100)])
    async with serving(Agent(model=model, budget=of_conversation(tokens=100))) as runs:
        await reply(runs, user())
        ended = await outcome(runs, await post(runs, user(command, "u2")))
    assert ended == (BUDGET if command == "/compact" else Completed())


async def test_a_summary_is_counted_and_may_be_the_last_model_call(memory: Ledger) -> None:
    model = ScriptedModel([says("a"), says("b"), says("c"), uses(100, says("the notes"))])
    agent = Agent(model=model, window=2_000, budget=of_conversation(tokens=100))
    async with serving(agent) as runs:
        for number in range(3):
            await events(runs, await post(runs, user(f"{number}" * 2_000, f"u{number}")))
        seen = await events(runs, await post(runs, user("3" * 1_000, "u3")))
        assert (seen[-1], reports(seen)) == (RunFinished(BUDGET), [Left(19, 0)])
        assert await tokens_of(runs) == 100
        assert "summary" in {message.role for message in await record(runs)}


async def test_a_summary_that_was_asked_for_is_counted(memory: Ledger) -> None:
    model = ScriptedModel([says("one " * 500), says("two " * 500), uses(70, says("in short"))])
    async with serving(Agent(model=model, window=2_000)) as runs:
        await reply(runs, user("one"))
        await reply(runs, user("two", "u2"))
        seen = await events(runs, await post(runs, user("/compact", "u3")))
        assert reports(seen) == [Left(20)]
        assert await tokens_of(runs) == 70


# ---------------------------------------------------------------- settings
async def test_the_tighter_one_of_the_agents_and_the_servers_limits_counts() -> None:
    model = ScriptedModel([uses(60), uses(60)])
    agent = Agent(model=model, budget=of_conversation(tokens=1_000))
    async with serving(agent, conversation_budget="tokens=50") as runs:
        await reply(runs, user())
        assert await outcome(runs, await post(runs, user("more", "u2"))) == BUDGET


def test_a_limit_of_the_cost_needs_prices() -> None:
    with pytest.raises(ConfigurationError, match="PASSBACK_PRICES"):
        backend(Agent(model="demo", budget=of_owner(cost=1)))
    backend(Agent(model="demo", budget=of_owner(cost=1)), prices="openai:gpt-5=1/2")


async def test_prices_are_those_of_the_models_name() -> None:
    model = ScriptedModel([uses(2_000_000)], name="openai:large")
    async with serving(Agent(model=model), prices="openai:small=9/9, openai:large=1/2") as runs:
        await reply(runs, user())
        assert (await runs.status(KEY)).state.cost == 3.0


# ---------------------------------------------------------------- whatever is used
@examples(40)
@given(
    used=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=4),
    run=st.none() | st.integers(1, 100),
    conversation=st.none() | st.integers(1, 200),
    owner=st.none() | st.integers(1, 200),
)
async def test_no_model_is_called_beyond_a_limit_and_what_was_spent_never_falls(
    used: list[list[int]], run: int | None, conversation: int | None, owner: int | None
) -> None:
    """Each list is what the turns of one run use, if all of them come."""
    key = new_key()
    budget = Budget(BudgetLimits(run), BudgetLimits(conversation), BudgetLimits(owner))
    spent = 0
    async with open_ledger("memory:") as opened:
        for number, turns in enumerate(used):
            model = ScriptedModel([*(looks(each) for each in turns[:-1]), uses(turns[-1])])
            async with worker(opened, model, look, budget=budget) as runs:
                ended = await outcome(runs, await post(runs, user("go", f"u{number}"), key=key))
                now = (await runs.status(key)).state.tokens
                messages: list[Message] = await record(runs, key)
            made, in_run = 0, 0
            for tokens in turns:
                left = [
                    limit - amount
                    for limit, amount in ((run, in_run), (conversation, spent), (owner, spent))
                    if limit is not None
                ]
                if any(amount <= 0 for amount in left):
                    break
                made, in_run, spent = made + 1, in_run + tokens, spent + tokens
            assert len(model.requests) == made
            assert ended == (Completed() if made == len(turns) else BUDGET)
            assert now == spent
            assert faults_of(messages, running=False) == []


# ---------------------------------------------------------------- spending
WHOLE, CUT, NOTHING = Usage(3, 2), Usage(10, 5, estimated=True), Usage()


@pytest.mark.parametrize(
    ("reported", "rest"),
    [
        ([], [UsageReported(WHOLE + CUT)]),
        ([WHOLE], [UsageReported(CUT)]),
        ([CUT, WHOLE], []),
        ([WHOLE, CUT], []),
        ([NOTHING, WHOLE, CUT], []),
    ],
)
async def test_usage_that_no_event_reported_is_reported_at_the_end(
    memory: Ledger, reported: Sequence[Usage], rest: Sequence[UsageReported]
) -> None:
    run = RunRef(ConversationKey(OwnerId("o"), ConversationId("c")), RunId("r"))
    meter = Meter(Budget(), State(), Lease(run, 1, "fence"), memory)
    for usage in (None, NOTHING, WHOLE, CUT):
        meter.count_usage(usage, Price())
    for usage in reported:
        meter.with_remaining([UsageReported(usage)], 1)
    assert list(meter.unreported_usage()) == rest


# ---------------------------------------------------------------- calls that go on
RUN = RunRef(ConversationKey(OwnerId("o"), ConversationId("c")), RunId("r"))
LIMITS = BudgetLimits(tokens=600)
BUDGETS = [Budget(run=LIMITS), Budget(conversation=LIMITS), Budget(owner=LIMITS)]


def meter_of(budget: Budget, store: Ledger) -> Meter:
    return Meter(budget, State(), Lease(RUN, 1, "fence"), store)


@pytest.mark.parametrize("budget", BUDGETS)
async def test_parallel_calls_count_with_their_limits(memory: Ledger, budget: Budget) -> None:
    """500 tokens each, of which there is room for two: sub-agents share the meter of their run."""
    meter = meter_of(budget, memory)
    with await meter.reserve(0, Price()), await meter.reserve(0, Price()):
        with pytest.raises(BudgetSpent):
            await meter.reserve(0, Price())
        meter.count_usage(Usage(5, 5), Price())
    with await meter.reserve(0, Price()):
        meter.count_usage(Usage(590), Price())
    with pytest.raises(BudgetSpent):
        await meter.reserve(0, Price())


@pytest.mark.parametrize("budget", BUDGETS)
async def test_two_posts_at_once_do_not_both_give_up(memory: Ledger, budget: Budget) -> None:
    budget = budget.within(Budget(run=BudgetLimits(tokens=500)))
    meter = meter_of(budget, memory)
    begun: list[str] = []
    over = anyio.Event()

    async def call() -> None:
        try:
            with await meter.reserve(0, Price()):
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


async def test_a_cost_is_reserved_too(memory: Ledger) -> None:
    price = Price(output=1_000.0)
    meter = meter_of(Budget(run=BudgetLimits(cost=0.4)), memory)
    with await meter.reserve(0, price), pytest.raises(BudgetSpent):
        await meter.reserve(0, price)


async def test_a_call_that_cannot_be_counted_is_not_reserved(memory: Ledger) -> None:
    faults = Faults(memory)
    faults.plan["spend"] = ["refuse"]
    meter = meter_of(Budget(owner=BudgetLimits(tokens=1)), faults.store)
    with pytest.raises(StoreUnavailable):
        await meter.reserve(0, Price())
    with await meter.reserve(0, Price()):
        pass
