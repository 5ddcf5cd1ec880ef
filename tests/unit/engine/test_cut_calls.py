"""Model calls that are cut, or come to nothing: what they used is told and spent all the same, at the run's end at the latest."""

import anyio
import pytest
from tests.support.runs import KEY, events, post, record
from tests.support.runs import says as user
from tests.unit.engine.budget_agents import serving, tokens_of
from tests.unit.engine.small_windows import WINDOW, small_window_worker, summary_in, talk
from tests.unit.engine.sub_agents import TASK, helper, lead_worker

from passback.agent import Agent
from passback.core.deltas import ReasoningChunk, UsageChunk
from passback.core.errors import ModelUnavailable
from passback.core.events import (
    Cancelled,
    Completed,
    RunEvent,
    RunFinished,
    TextDelta,
    UsageReported,
    innermost_event,
)
from passback.core.messages import Usage
from passback.core.ports import Store
from passback.models.scripted import ScriptedModel, Step, says

pytestmark = pytest.mark.anyio

TALK = [says("a"), says("b"), says("c")]
SIZES = (2_000, 2_000, 2_000, 1_000)


def reported(said: list[RunEvent]) -> list[Usage]:
    told = map(innermost_event, said)
    return [event.usage for event in told if isinstance(event, UsageReported)]


def spent(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


async def test_a_summary_that_is_not_listened_to_any_longer_costs_what_was_asked_and_said(
    memory: Store,
) -> None:
    rambling: list[Step] = ["z" * 1_000] * 1_000
    async with small_window_worker(memory, ScriptedModel([*TALK, rambling, says("d")])) as runs:
        [usage] = reported(await talk(runs, *SIZES))
        assert usage.estimated
        assert 500 < usage.input_tokens < 2_000
        assert 100 < usage.output_tokens < 1_000
        assert summary_in(await record(runs)).usage == usage
        assert (await tokens_of(runs), (await runs.status(KEY)).state.usage) == (
            spent(usage),
            usage,
        )


async def test_a_summary_that_fails_costs_what_it_had_thought_and_what_the_service_counted(
    memory: Store,
) -> None:
    failing: list[Step] = [
        UsageChunk(Usage(1_234)),
        ReasoningChunk("hm. " * 10),
        ModelUnavailable(""),
    ]
    async with small_window_worker(memory, ScriptedModel([*TALK, failing, says("d")])) as runs:
        assert reported(await talk(runs, *SIZES)) == [Usage(1_234, 10, estimated=True)]
        assert await tokens_of(runs) == 1_244


async def test_a_summary_that_never_began_costs_nothing(memory: Store) -> None:
    model = ScriptedModel([*TALK, [ModelUnavailable("")], says("d")])
    async with small_window_worker(memory, model) as runs:
        assert reported(await talk(runs, *SIZES)) == []


@pytest.mark.promise("P7")
@pytest.mark.parametrize("asked", ["3" * 1_000, "/compact"])
async def test_a_run_that_is_cancelled_in_its_summary_tells_what_that_used(asked: str) -> None:
    model = ScriptedModel([*TALK, ["some notes", anyio.Event(), *says("never")]])
    async with serving(Agent(model=model, window=WINDOW)) as runs:
        await talk(runs, *SIZES[:3])
        run = await post(runs, user(asked, "u3"))
        while len(model.requests) < 4:
            await anyio.wait_all_tasks_blocked()
        await anyio.wait_all_tasks_blocked()
        assert await runs.cancel(run)
        said = await events(runs, run)
        assert said[-1] == RunFinished(Cancelled())
        [usage] = reported(said)
        assert (usage.estimated, usage.output_tokens) == (True, 3)
        assert usage.input_tokens > 1_000
        assert await tokens_of(runs) == spent(usage)


@pytest.mark.promise("P7")
async def test_a_run_that_is_cancelled_tells_also_what_its_sub_agents_used(memory: Store) -> None:
    lead = ScriptedModel([[UsageChunk(Usage(10, 1)), *TASK]])
    other = ScriptedModel([[UsageChunk(Usage(20)), "thinking", anyio.Event()]])
    async with lead_worker(memory, lead, helper(other)) as runs:
        run = await post(runs, user())
        async with runs.follow(run) as batches:
            async for batch in batches:
                if any(isinstance(innermost_event(each.event), TextDelta) for each in batch):
                    break
        assert await runs.cancel(run)
        said = await events(runs, run)
        assert reported(said) == [Usage(10, 1), Usage(20, 2, estimated=True)]
        assert [type(event) for event in said[-2:]] == [UsageReported, RunFinished]
        assert await tokens_of(runs) == 33


async def test_what_a_sub_agent_used_that_failed_is_told_at_the_end_of_the_run(
    memory: Store,
) -> None:
    lead = ScriptedModel([[UsageChunk(Usage(1)), *TASK], [UsageChunk(Usage(2)), *says("so be it")]])
    other = ScriptedModel([[UsageChunk(Usage(40)), ModelUnavailable("down")]])
    async with lead_worker(memory, lead, helper(other)) as runs:
        said = await events(runs, await post(runs, user()))
        assert said[-1] == RunFinished(Completed())
        told = reported(said)
        assert told == [Usage(1), Usage(2), Usage(40, estimated=True)]
        assert await tokens_of(runs) == 43
        again = await events(runs, await post(runs, user("more", "u2")))
        assert reported(again) == []
