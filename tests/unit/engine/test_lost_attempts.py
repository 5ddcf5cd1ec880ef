"""Usage of failed attempts in a list of models: reported and spent, but not the answer's."""

import pytest
from tests.support.runs import KEY, events, outcome, post, record, worker
from tests.support.runs import says as user
from tests.unit.engine.budget_agents import BUDGET, look, of_owner, of_run, reports, tokens_of
from tests.unit.engine.small_windows import small_window_worker, talk

from passback.core.budgets import Left, Price
from passback.core.deltas import AnsweredBy, LostUsageChunk, UsageChunk
from passback.core.errors import ModelUnavailable
from passback.core.events import Compacted, Failed, RunFinished, UsageReported
from passback.core.messages import AssistantMessage, SummaryMessage, Usage
from passback.engine.ledger import Ledger
from passback.models.fallback import Fallback
from passback.models.scripted import ScriptedModel, Step, calls, says

pytestmark = pytest.mark.anyio

LOST, OWN = Usage(40, 0), Usage(7, 2)
DOWN = ModelUnavailable("down")


def usage_chunk(usage: Usage) -> UsageChunk:
    return UsageChunk(usage)


def failing(*usage: Usage) -> ScriptedModel:
    """A model that tells what each of its answers used, and then fails."""
    return ScriptedModel([[usage_chunk(each), DOWN] for each in usage])


async def test_usage_of_failed_attempts_is_reported_and_spent(store: Ledger) -> None:
    last = ScriptedModel([[usage_chunk(OWN), *says("so")]])
    model = Fallback([failing(LOST), failing(Usage(1)), last])
    async with worker(store, model, price=Price(1.0, 1.0)) as runs:
        seen = await events(runs, await post(runs, user()))
        assert seen[-2] == UsageReported(Usage(48, 2), Left(turns=3), "scripted")
        state = (await runs.status(KEY)).state
        # the message has its own: what it says of the model's window is not to be doubled
        assert (state.usage, state.tokens, state.cost) == (OWN, 50, 50 / 1_000_000)
        [answer] = [each for each in await record(runs) if isinstance(each, AssistantMessage)]
        assert answer.usage == OWN


async def test_lost_usage_is_reported_when_the_last_attempt_fails_too(memory: Ledger) -> None:
    model = Fallback([failing(LOST, LOST), ScriptedModel([says("so"), [DOWN]])])
    async with worker(memory, model) as runs:
        for post_id, ending in (("u1", None), ("u2", Failed("model_unavailable", "down", True))):
            seen = await events(runs, await post(runs, user("hi", post_id)))
            assert seen[-2] == UsageReported(LOST, Left(turns=3), "scripted")
            if ending:
                assert seen[-1] == RunFinished(ending)
        assert await tokens_of(runs) == 80


@pytest.mark.promise("P5")
async def test_lost_usage_counts_before_the_next_model_call(memory: Ledger) -> None:
    steps: list[Step] = calls(("look", {}))
    model = Fallback([failing(LOST), ScriptedModel([steps, says("never")])])
    async with worker(memory, model, look, budget=of_run(tokens=40)) as runs:
        seen = await events(runs, await post(runs, user()))
    assert (seen[-1], reports(seen)) == (RunFinished(BUDGET), [Left(3, 0)])


async def test_usage_of_summary_attempts_is_reported_apart(memory: Ledger) -> None:
    texts = [says("a"), says("b"), says("c"), [usage_chunk(OWN), *says("notes")], says("d")]
    # the attempt is reported as a list of models does it
    texts[3] = [AnsweredBy("other"), LostUsageChunk(LOST), LostUsageChunk(Usage(1)), *texts[3]]
    async with small_window_worker(memory, ScriptedModel(texts)) as runs:
        seen = await talk(runs, 2_000, 2_000, 2_000, 1_000)
        [summary] = [each for each in await record(runs) if isinstance(each, SummaryMessage)]
        assert summary.usage == OWN
        assert await tokens_of(runs) == 50
    place = next(at for at, each in enumerate(seen) if isinstance(each, Compacted))
    assert seen[place - 1] == UsageReported(Usage(48, 2), Left(turns=19), "other")


@pytest.mark.promise("P11")
async def test_impossible_usage_is_not_believed(store: Ledger) -> None:
    """No sum that overflows lifts a limit, whichever client and attempt reports it."""
    wild = [usage_chunk(Usage(10**30, -5, 10**30, -1)), *says("so")]
    model = ScriptedModel([[LostUsageChunk(Usage(-(10**30), 10**30)), *wild], says("never")])
    async with worker(store, model, budget=of_owner(tokens=5_000)) as runs:
        seen = await events(runs, await post(runs, user()))
        most = 10**12
        assert seen[-2] == UsageReported(
            Usage(most, most, most), Left(turns=3, tokens=0), "scripted"
        )
        assert await outcome(runs, await post(runs, user("more", "u2"))) == BUDGET


async def test_what_was_lost_does_not_make_the_window_smaller(memory: Ledger) -> None:
    """Counts of the service teach how its window fills; another attempt's would teach it wrong."""
    many = Usage(100_000)
    answers = ScriptedModel(
        [[usage_chunk(Usage(700)), *says("a")], [usage_chunk(Usage(1_300)), *says("b")]]
    )
    async with small_window_worker(memory, Fallback([failing(many, many), answers])) as runs:
        await outcome(runs, await post(runs, user("x" * 2_000, "u1")))
        seen = await events(runs, await post(runs, user("x" * 2_000, "u2")))
    assert [type(each) for each in seen if isinstance(each, Compacted)] == []
