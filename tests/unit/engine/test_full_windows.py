"""Conversations that become too large for their model: runs make room and go on."""

import anyio
import pytest
from tests.support.runs import KEY, events, outcome, post, record, says
from tests.unit.engine.budget_agents import serving, tokens_of
from tests.unit.engine.small_windows import (
    WINDOW,
    look,
    shown,
    small_window_worker,
    summary_in,
    talk,
    window_events,
)
from tests.unit.engine.sub_agents import TASK, helper, lead_worker

from passback.agent import Agent
from passback.core.budgets import Left
from passback.core.deltas import ReasoningChunk, UsageChunk
from passback.core.errors import ModelUnavailable
from passback.core.events import (
    Cancelled,
    Compacted,
    Completed,
    ContextWarned,
    RunEvent,
    RunFinished,
    TextDelta,
    UsageReported,
    innermost_event,
)
from passback.core.messages import SummaryMessage, ToolMessage, Usage
from passback.engine.ledger import Ledger
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- the three steps
async def test_a_run_says_once_that_the_window_fills(memory: Ledger) -> None:
    model = ScriptedModel([calls(("look", {"size": 10})), words("hi")])
    async with small_window_worker(memory, model, look) as runs:
        seen = await events(runs, await post(runs, says("u" * 5_200)))
    (warned,) = window_events(seen)
    assert isinstance(warned, ContextWarned)
    assert (warned.window, 1_300 <= warned.used < 1_600) == (WINDOW, True)


async def test_far_below_the_thresholds_nothing_is_said_and_nothing_changed(memory: Ledger) -> None:
    model = ScriptedModel([words("hi")])
    async with small_window_worker(memory, model) as runs:
        assert window_events(await talk(runs, 100)) == []
    assert shown(model.requests[0]) == ["0" * 100]


async def test_old_results_are_left_out_of_what_the_model_is_shown_and_stay_in_the_record(
    memory: Ledger,
) -> None:
    first, later = calls(("look", {"size": 4_000})), calls(("look", {"size": 900}))
    model = ScriptedModel([first, later, later, later, words("hi")])
    async with small_window_worker(memory, model, look) as runs:
        seen = await events(runs, await post(runs, says()))
        kept = await record(runs)
    assert [(e.step, e.before > e.after) for e in seen if isinstance(e, Compacted)] == [
        ("snip", True)
    ]
    results = [m.content for m in model.requests[-1].messages if isinstance(m, ToolMessage)]
    assert results == [
        "[An older result, left out to save room: 4000 characters]",
        *["x" * 900] * 3,
    ]
    whole = [m.content for m in kept if isinstance(m, ToolMessage)]
    assert whole == ["x" * 4_000, *["x" * 900] * 3]


async def test_a_single_large_result_is_shortened_with_a_mark(memory: Ledger) -> None:
    model = ScriptedModel([calls(("look", {"size": 100_000})), words("hi")])
    async with small_window_worker(memory, model, look) as runs:
        seen = await events(runs, await post(runs, says()))
    assert [e.step for e in seen if isinstance(e, Compacted)] == ["micro"]
    result = str(model.requests[-1].messages[-1].content)
    assert len(result) < 600
    assert result.startswith("xxx")
    assert "characters left out to save room" in result


async def test_many_large_results_of_one_turn_are_shortened_until_they_fit(memory: Ledger) -> None:
    model = ScriptedModel([calls(*[("look", {"size": 9_000})] * 16), words("hi")])
    async with small_window_worker(memory, model, look) as runs:
        assert await outcome(runs, await post(runs, says())) == Completed()
    assert sum(len(str(content)) for content in shown(model.requests[-1])) < 4 * WINDOW


async def test_the_model_writes_a_summary_which_the_record_keeps(memory: Ledger) -> None:
    usage = Usage(1_500, 30)
    model = ScriptedModel(
        [
            words("a"),
            words("b"),
            words("c"),
            [UsageChunk(usage), *words("the ", "notes")],
            words("d"),
        ]
    )
    async with small_window_worker(memory, model) as runs:
        seen = await talk(runs, 2_000, 2_000, 2_000, 1_000)
        kept = await record(runs)
    assert [type(each) for each in window_events(seen)] == [ContextWarned, UsageReported, Compacted]
    assert window_events(seen)[1] == UsageReported(usage, Left(turns=19), "scripted")
    summary = summary_in(kept)
    assert (summary.content, summary.asked, summary.usage) == ("the notes", "", usage)
    assert [m.id for m in kept][-3:-1] == ["u3", summary.id]
    assert summary.keeps == 2
    asked, last = model.requests[-2:]
    assert asked.tools == ()
    assert "[user]\n0000" in str(asked.messages[0].content)
    assert "[assistant]\nb" in str(asked.messages[0].content)
    first, *others = shown(last)
    assert "the notes" in str(first)
    assert others == ["c", "3" * 1_000]
    assert [e.text for e in seen if isinstance(e, TextDelta)] == ["d"]


async def test_the_next_run_starts_from_the_summary_on_any_worker(memory: Ledger) -> None:
    model = ScriptedModel([words("a"), words("b"), words("c"), words("notes"), words("d")])
    async with small_window_worker(memory, model) as runs:
        await talk(runs, 2_000, 2_000, 2_000, 1_000)
    other = ScriptedModel([words("e")])
    async with small_window_worker(memory, other) as runs:
        await events(runs, await post(runs, says("and?", "last")))
    first, *others = shown(other.requests[0])
    assert "notes" in str(first)
    assert others == ["c", "3" * 1_000, "d", "and?"]


async def test_a_summary_within_a_run_keeps_the_users_words(memory: Ledger) -> None:
    long: list[Step] = ["y" * 1_800, *calls(("look", {"size": 10}))]
    model = ScriptedModel([long, long, long, long, words("notes"), words("done")])
    async with small_window_worker(memory, model, look) as runs:
        assert await outcome(runs, await post(runs, says("find the key"))) == Completed()
        summary = summary_in(await record(runs))
    assert summary.asked == "find the key"
    assert summary.keeps == 2  # the last turn and its result
    assert "find the key" in str(shown(model.requests[-1])[0])


async def test_the_users_words_are_handed_on_from_summary_to_summary(memory: Ledger) -> None:
    long: list[Step] = ["y" * 1_800, *calls(("look", {"size": 10}))]
    again = [long, long, long, words("more notes")]
    model = ScriptedModel([*[long] * 4, words("notes"), *again, words("done")])
    async with small_window_worker(memory, model, look) as runs:
        assert await outcome(runs, await post(runs, says("find the key"))) == Completed()
        made = [each for each in await record(runs) if isinstance(each, SummaryMessage)]
    assert [(each.content, each.asked) for each in made] == [
        ("notes", "find the key"),
        ("more notes", "find the key"),
    ]
    assert "notes" in str(model.requests[-2].messages[0].content)  # it knows the first ones


async def test_behind_a_summary_a_turn_may_still_be_shortened(memory: Ledger) -> None:
    many = calls(*[("look", {"size": 9_000})] * 16)
    model = ScriptedModel([words("a"), many, words("notes"), words("done")])
    async with small_window_worker(memory, model, look) as runs:
        await talk(runs, 2_600)
        seen = await events(runs, await post(runs, says("now", "u1")))
    steps = [each.step for each in seen if isinstance(each, Compacted)]
    assert steps == ["micro", "summary", "micro", "micro"]
    assert sum(len(str(content)) for content in shown(model.requests[-1])) < 4 * WINDOW


async def test_what_has_nothing_older_is_shown_as_it_is_while_there_is_room(memory: Ledger) -> None:
    model = ScriptedModel([words("hi")])
    async with small_window_worker(memory, model) as runs:
        assert await outcome(runs, await post(runs, says("u" * 6_800))) == Completed()
    assert shown(model.requests[0]) == ["u" * 6_800]


# ---------------------------------------------------------------- summaries that fail
FAILING: dict[str, list[Step]] = {
    "away": [ModelUnavailable("away")],
    "empty": words(""),
    "broken off": ["half a sum"],
    "calls": calls(("look", {"size": 1})),
}


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
async def test_a_run_goes_on_unsummarised_while_there_is_room(
    memory: Ledger, failing: list[Step]
) -> None:
    model = ScriptedModel([words("a"), words("b"), words("c"), failing, words("d")])
    async with small_window_worker(memory, model) as runs:
        seen = await talk(runs, 2_000, 2_000, 2_000, 500)
        kept = await record(runs)
    assert [e for e in seen if isinstance(e, Compacted)] == []
    assert not any(isinstance(each, SummaryMessage) for each in kept)
    assert len(shown(model.requests[-1])) == 7


async def test_a_run_does_not_ask_for_a_summary_again_that_failed(memory: Ledger) -> None:
    turn = calls(("look", {"size": 10}))
    away: list[Step] = [ModelUnavailable("away")]
    model = ScriptedModel([turn, away, turn, turn, words("hi")])
    async with small_window_worker(memory, model, look) as runs:
        seen = await events(runs, await post(runs, says("u" * 6_400)))
    assert [type(each) for each in window_events(seen)] == [ContextWarned]
    assert [len(request.messages) for request in model.requests] == [1, 1, 3, 5, 7]


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
async def test_where_there_is_no_room_a_mark_takes_the_summarys_place(
    memory: Ledger, failing: list[Step]
) -> None:
    model = ScriptedModel([words("a"), words("b"), words("c"), failing, words("d")])
    async with small_window_worker(memory, model) as runs:
        seen = await talk(runs, 2_000, 2_000, 2_000, 2_500)
        summary = summary_in(await record(runs))
    assert [e.step for e in seen if isinstance(e, Compacted)] == ["cut"]
    assert summary.content == "[6 earlier messages are left out here; no summary could be made]"
    assert len(model.requests) == 5  # one attempt at a summary


async def test_a_mark_keeps_the_summary_before(memory: Ledger) -> None:
    away: list[Step] = [ModelUnavailable("away")]
    before = [words("a"), words("b"), words("c"), words("notes"), words("d")]
    model = ScriptedModel([*before, words("e"), away, words("f")])
    async with small_window_worker(memory, model) as runs:
        await talk(runs, 2_000, 2_000, 2_000, 1_000)
        await events(runs, await post(runs, says("4" * 3_000, "u4")))
        await events(runs, await post(runs, says("5" * 4_000, "u5")))
        last = [each for each in await record(runs) if isinstance(each, SummaryMessage)][-1]
    assert last.content.startswith("notes\n\n[")


async def test_a_summary_that_does_not_end_is_cut(memory: Ledger) -> None:
    endless: list[Step] = ["z" * 1_000] * 1_000
    model = ScriptedModel([words("a"), words("b"), words("c"), endless, words("d")])
    async with small_window_worker(memory, model) as runs:
        await talk(runs, 2_000, 2_000, 2_000, 1_000)
        summary = summary_in(await record(runs))
    assert len(summary.content) < 1_000
    assert "left out" in summary.content


# ---------------------------------------------------------------- calls that are cut off
TALK = [words("a"), words("b"), words("c")]
SIZES = (2_000, 2_000, 2_000, 1_000)


def reported(seen: list[RunEvent]) -> list[Usage]:
    innermost = map(innermost_event, seen)
    return [event.usage for event in innermost if isinstance(event, UsageReported)]


def spent(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


async def test_a_cut_summary_costs_its_request_and_its_text(
    memory: Ledger,
) -> None:
    endless: list[Step] = ["z" * 1_000] * 1_000
    async with small_window_worker(memory, ScriptedModel([*TALK, endless, words("d")])) as runs:
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
    memory: Ledger,
) -> None:
    failing: list[Step] = [
        UsageChunk(Usage(1_234)),
        ReasoningChunk("hm. " * 10),
        ModelUnavailable(""),
    ]
    async with small_window_worker(memory, ScriptedModel([*TALK, failing, words("d")])) as runs:
        assert reported(await talk(runs, *SIZES)) == [Usage(1_234, 10, estimated=True)]
        assert await tokens_of(runs) == 1_244


async def test_a_summary_that_never_began_costs_nothing(memory: Ledger) -> None:
    model = ScriptedModel([*TALK, [ModelUnavailable("")], words("d")])
    async with small_window_worker(memory, model) as runs:
        assert reported(await talk(runs, *SIZES)) == []


@pytest.mark.promise("P7")
@pytest.mark.parametrize("asked", ["3" * 1_000, "/compact"])
async def test_a_run_that_is_cancelled_in_its_summary_tells_what_that_used(asked: str) -> None:
    model = ScriptedModel([*TALK, ["some notes", anyio.Event(), *words("never")]])
    async with serving(Agent(model=model, window=WINDOW)) as runs:
        await talk(runs, *SIZES[:3])
        run = await post(runs, says(asked, "u3"))
        while len(model.requests) < 4:
            await anyio.wait_all_tasks_blocked()
        await anyio.wait_all_tasks_blocked()
        assert await runs.cancel(run)
        seen = await events(runs, run)
        assert seen[-1] == RunFinished(Cancelled())
        [usage] = reported(seen)
        assert (usage.estimated, usage.output_tokens) == (True, 3)
        assert usage.input_tokens > 1_000
        assert await tokens_of(runs) == spent(usage)


@pytest.mark.promise("P7")
async def test_a_run_that_is_cancelled_tells_also_what_its_sub_agents_used(memory: Ledger) -> None:
    lead = ScriptedModel([[UsageChunk(Usage(10, 1)), *TASK]])
    other = ScriptedModel([[UsageChunk(Usage(20)), "thinking", anyio.Event()]])
    async with lead_worker(memory, lead, helper(other)) as runs:
        run = await post(runs, says())
        async with runs.follow(run) as batches:
            async for batch in batches:
                if any(isinstance(innermost_event(each.event), TextDelta) for each in batch):
                    break
        assert await runs.cancel(run)
        seen = await events(runs, run)
        assert reported(seen) == [Usage(10, 1), Usage(20, 2, estimated=True)]
        assert [type(event) for event in seen[-2:]] == [UsageReported, RunFinished]
        assert await tokens_of(runs) == 33


async def test_usage_of_a_failed_sub_agent_is_reported_at_the_end(memory: Ledger) -> None:
    lead = ScriptedModel(
        [[UsageChunk(Usage(1)), *TASK], [UsageChunk(Usage(2)), *words("so be it")]]
    )
    other = ScriptedModel([[UsageChunk(Usage(40)), ModelUnavailable("down")]])
    async with lead_worker(memory, lead, helper(other)) as runs:
        seen = await events(runs, await post(runs, says()))
        assert seen[-1] == RunFinished(Completed())
        usages = reported(seen)
        assert usages == [Usage(1), Usage(2), Usage(40, estimated=True)]
        assert await tokens_of(runs) == 43
        again = await events(runs, await post(runs, says("more", "u2")))
        assert reported(again) == []
