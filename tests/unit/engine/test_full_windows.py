"""Conversations that become too large for their model: runs make room and go on, or end with a clear error."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from tests.support.faults import mortal
from tests.support.runs import KEY, QUICK, SEEKING, events, outcome, post, record, says, until

from passback.context.compaction import Compaction
from passback.core.context import Unbounded
from passback.core.deltas import ModelRequest, UsageChunk
from passback.core.errors import ModelContextExceeded, ModelUnavailable
from passback.core.events import (
    Compacted,
    Completed,
    ContextWarned,
    Failed,
    RunEvent,
    TextDelta,
    UsageReported,
)
from passback.core.limits import Left
from passback.core.messages import (
    AssistantMessage,
    ChildMessage,
    Message,
    MessageId,
    Reasoning,
    SummaryMessage,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.ports import ModelClient, Store
from passback.core.transcript import paired
from passback.engine.agents import Actor, Agents
from passback.engine.loop import Brain
from passback.engine.runs import RunService
from passback.engine.supervisor import Tempo
from passback.engine.toolbox import Equipment
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.functions import Functions, FunctionTool, tool

pytestmark = pytest.mark.anyio

WINDOW = 2_000
"""Tokens: 8,000 characters."""

TOO_LONG = ModelContextExceeded("the conversation is too long for the model")


@tool
def look(size: int) -> str:
    """Look at something large."""
    return "x" * size


@asynccontextmanager
async def thinker(
    store: Store,
    model: ModelClient,
    *tools: FunctionTool,
    window: int = WINDOW,
    tempo: Tempo = QUICK,
) -> AsyncGenerator[RunService]:
    """A worker whose model has a small window."""
    brain = Brain(model, "be brief", context=Compaction(window))
    equipment = Equipment([Functions(tools)] if tools else [])
    service = RunService(store, Agents([Actor(brain, equipment)]), tempo)
    with anyio.fail_after(10):
        async with service.running():
            yield service


def told(seen: Sequence[RunEvent]) -> list[RunEvent]:
    return [each for each in seen if isinstance(each, ContextWarned | Compacted | UsageReported)]


def shown(request: ModelRequest) -> list[object]:
    return [message.content for message in request.messages]


def summary_in(messages: Sequence[Message]) -> SummaryMessage:
    (found,) = [each for each in messages if isinstance(each, SummaryMessage)]
    return found


async def talk(runs: RunService, *sizes: int) -> list[RunEvent]:
    """Post messages of so many characters, one run each; gives what the last run said."""
    seen: list[RunEvent] = []
    for number, size in enumerate(sizes):
        seen = await events(runs, await post(runs, says(f"{number}" * size, f"u{number}")))
    return seen


# ---------------------------------------------------------------- the three steps
async def test_a_run_says_once_that_the_window_fills(memory: Store) -> None:
    model = ScriptedModel([calls(("look", {"size": 10})), words("hi")])
    async with thinker(memory, model, look) as runs:
        seen = await events(runs, await post(runs, says("u" * 5_200)))
    (warned,) = told(seen)
    assert isinstance(warned, ContextWarned)
    assert (warned.window, 1_300 <= warned.used < 1_600) == (WINDOW, True)


async def test_far_below_the_thresholds_nothing_is_said_and_nothing_changed(memory: Store) -> None:
    model = ScriptedModel([words("hi")])
    async with thinker(memory, model) as runs:
        assert told(await talk(runs, 100)) == []
    assert shown(model.requests[0]) == ["0" * 100]


async def test_old_results_are_left_out_of_what_the_model_is_shown_and_stay_in_the_record(
    memory: Store,
) -> None:
    first, later = calls(("look", {"size": 4_000})), calls(("look", {"size": 900}))
    model = ScriptedModel([first, later, later, later, words("hi")])
    async with thinker(memory, model, look) as runs:
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


async def test_a_single_large_result_is_shortened_with_a_mark(memory: Store) -> None:
    model = ScriptedModel([calls(("look", {"size": 100_000})), words("hi")])
    async with thinker(memory, model, look) as runs:
        seen = await events(runs, await post(runs, says()))
    assert [e.step for e in seen if isinstance(e, Compacted)] == ["micro"]
    result = str(model.requests[-1].messages[-1].content)
    assert len(result) < 600
    assert result.startswith("xxx")
    assert "characters left out to save room" in result


async def test_many_large_results_of_one_turn_are_shortened_until_they_fit(memory: Store) -> None:
    model = ScriptedModel([calls(*[("look", {"size": 9_000})] * 16), words("hi")])
    async with thinker(memory, model, look) as runs:
        assert await outcome(runs, await post(runs, says())) == Completed()
    assert sum(len(str(content)) for content in shown(model.requests[-1])) < 4 * WINDOW


async def test_the_model_writes_a_summary_which_the_record_keeps(memory: Store) -> None:
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
    async with thinker(memory, model) as runs:
        seen = await talk(runs, 2_000, 2_000, 2_000, 1_000)
        kept = await record(runs)
    assert [type(each) for each in told(seen)] == [ContextWarned, UsageReported, Compacted]
    assert told(seen)[1] == UsageReported(usage, Left(turns=19))
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


async def test_the_next_run_starts_from_the_summary_on_any_worker(memory: Store) -> None:
    model = ScriptedModel([words("a"), words("b"), words("c"), words("notes"), words("d")])
    async with thinker(memory, model) as runs:
        await talk(runs, 2_000, 2_000, 2_000, 1_000)
    other = ScriptedModel([words("e")])
    async with thinker(memory, other) as runs:
        await events(runs, await post(runs, says("and?", "last")))
    first, *others = shown(other.requests[0])
    assert "notes" in str(first)
    assert others == ["c", "3" * 1_000, "d", "and?"]


async def test_a_run_that_outgrows_the_window_keeps_the_users_words_in_the_summary(
    memory: Store,
) -> None:
    long: list[Step] = ["y" * 1_800, *calls(("look", {"size": 10}))]
    model = ScriptedModel([long, long, long, long, words("notes"), words("done")])
    async with thinker(memory, model, look) as runs:
        assert await outcome(runs, await post(runs, says("find the key"))) == Completed()
        summary = summary_in(await record(runs))
    assert summary.asked == "find the key"
    assert summary.keeps == 2  # the last turn and its result
    assert "find the key" in str(shown(model.requests[-1])[0])


async def test_the_users_words_are_handed_on_from_summary_to_summary(memory: Store) -> None:
    long: list[Step] = ["y" * 1_800, *calls(("look", {"size": 10}))]
    again = [long, long, long, words("more notes")]
    model = ScriptedModel([*[long] * 4, words("notes"), *again, words("done")])
    async with thinker(memory, model, look) as runs:
        assert await outcome(runs, await post(runs, says("find the key"))) == Completed()
        made = [each for each in await record(runs) if isinstance(each, SummaryMessage)]
    assert [(each.content, each.asked) for each in made] == [
        ("notes", "find the key"),
        ("more notes", "find the key"),
    ]
    assert "notes" in str(model.requests[-2].messages[0].content)  # it knows the first ones


async def test_behind_a_summary_a_turn_may_still_be_shortened(memory: Store) -> None:
    many = calls(*[("look", {"size": 9_000})] * 16)
    model = ScriptedModel([words("a"), many, words("notes"), words("done")])
    async with thinker(memory, model, look) as runs:
        await talk(runs, 2_600)
        seen = await events(runs, await post(runs, says("now", "u1")))
    steps = [each.step for each in seen if isinstance(each, Compacted)]
    assert steps == ["micro", "summary", "micro", "micro"]
    assert sum(len(str(content)) for content in shown(model.requests[-1])) < 4 * WINDOW


async def test_what_has_nothing_older_is_shown_as_it_is_while_there_is_room(memory: Store) -> None:
    model = ScriptedModel([words("hi")])
    async with thinker(memory, model) as runs:
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
async def test_without_a_summary_a_run_goes_on_while_there_is_room(
    memory: Store, failing: list[Step]
) -> None:
    model = ScriptedModel([words("a"), words("b"), words("c"), failing, words("d")])
    async with thinker(memory, model) as runs:
        seen = await talk(runs, 2_000, 2_000, 2_000, 500)
        kept = await record(runs)
    assert [e for e in seen if isinstance(e, Compacted)] == []
    assert not any(isinstance(each, SummaryMessage) for each in kept)
    assert len(shown(model.requests[-1])) == 7


async def test_a_run_does_not_ask_for_a_summary_again_that_failed(memory: Store) -> None:
    turn = calls(("look", {"size": 10}))
    away: list[Step] = [ModelUnavailable("away")]
    model = ScriptedModel([turn, away, turn, turn, words("hi")])
    async with thinker(memory, model, look) as runs:
        seen = await events(runs, await post(runs, says("u" * 6_400)))
    assert [type(each) for each in told(seen)] == [ContextWarned]
    assert [len(request.messages) for request in model.requests] == [1, 1, 3, 5, 7]


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
async def test_where_there_is_no_room_a_mark_takes_the_summarys_place(
    memory: Store, failing: list[Step]
) -> None:
    model = ScriptedModel([words("a"), words("b"), words("c"), failing, words("d")])
    async with thinker(memory, model) as runs:
        seen = await talk(runs, 2_000, 2_000, 2_000, 2_500)
        summary = summary_in(await record(runs))
    assert [e.step for e in seen if isinstance(e, Compacted)] == ["cut"]
    assert summary.content == "[6 earlier messages are left out here; no summary could be made]"
    assert len(model.requests) == 5  # one attempt at a summary


async def test_a_mark_keeps_the_summary_before(memory: Store) -> None:
    away: list[Step] = [ModelUnavailable("away")]
    before = [words("a"), words("b"), words("c"), words("notes"), words("d")]
    model = ScriptedModel([*before, words("e"), away, words("f")])
    async with thinker(memory, model) as runs:
        await talk(runs, 2_000, 2_000, 2_000, 1_000)
        await events(runs, await post(runs, says("4" * 3_000, "u4")))
        await events(runs, await post(runs, says("5" * 4_000, "u5")))
        last = [each for each in await record(runs) if isinstance(each, SummaryMessage)][-1]
    assert last.content.startswith("notes\n\n[")


async def test_a_model_that_does_not_stop_is_not_listened_to_for_ever(memory: Store) -> None:
    endless: list[Step] = ["z" * 1_000] * 1_000
    model = ScriptedModel([words("a"), words("b"), words("c"), endless, words("d")])
    async with thinker(memory, model) as runs:
        await talk(runs, 2_000, 2_000, 2_000, 1_000)
        summary = summary_in(await record(runs))
    assert len(summary.content) < 1_000
    assert "left out" in summary.content


# ---------------------------------------------------------------- what cannot fit
async def test_a_message_that_is_too_large_is_a_clear_error_and_the_conversation_goes_on(
    memory: Store,
) -> None:
    model = ScriptedModel([words("a"), words("notes"), words("hi")])
    async with thinker(memory, model) as runs:
        await talk(runs, 100)
        failed = await outcome(runs, await post(runs, says("u" * 20_000, "large")))
        assert isinstance(failed, Failed)
        assert (failed.code, failed.retryable) == ("context_too_large", False)
        assert "the last message is too large for the model" in failed.message
        assert len(model.requests) == 1
        assert await outcome(runs, await post(runs, says("sorry", "small"))) == Completed()
    assert shown(model.requests[-1])[1:] == ["sorry"]


async def test_a_prompt_that_is_too_large_is_named(memory: Store) -> None:
    brain = Brain(ScriptedModel([]), "p" * 20_000, context=Compaction(WINDOW))
    service = RunService(memory, Agents([Actor(brain)]), QUICK)
    with anyio.fail_after(10):
        async with service.running():
            failed = await outcome(service, await post(service, says()))
    assert isinstance(failed, Failed)
    assert "the agent's prompt and tools are too large" in failed.message


# ---------------------------------------------------------------- a service that takes less
async def test_a_request_that_is_refused_as_too_long_is_made_once_more_with_less(
    memory: Store,
) -> None:
    """The window is set too high: the service knows better."""
    model = ScriptedModel([words("a"), words("b"), [TOO_LONG], words("notes"), words("c")])
    async with thinker(memory, model, window=100_000) as runs:
        seen = await talk(runs, 2_000, 2_000, 500)
        assert seen[-1].type == "run-finished"
        summary = summary_in(await record(runs))
    assert summary.content == "notes"
    assert [e.step for e in seen if isinstance(e, Compacted)] == ["summary"]
    assert shown(model.requests[-1])[1:] == ["b", "2" * 500]


async def test_a_second_refusal_is_the_runs_end(memory: Store) -> None:
    model = ScriptedModel([words("a"), words("b"), [TOO_LONG], words("notes"), [TOO_LONG]])
    async with thinker(memory, model, window=100_000) as runs:
        await talk(runs, 2_000, 2_000)
        failed = await outcome(runs, await post(runs, says("2" * 500, "u2")))
    assert isinstance(failed, Failed)
    assert failed.code == "model_context_exceeded"


async def test_what_readers_have_seen_is_not_said_again(memory: Store) -> None:
    model = ScriptedModel([["well", TOO_LONG]])
    async with thinker(memory, model) as runs:
        failed = await outcome(runs, await post(runs, says()))
    assert isinstance(failed, Failed)
    assert failed.code == "model_context_exceeded"


async def test_without_a_window_a_refusal_is_the_runs_end_and_nothing_is_left_out(
    memory: Store,
) -> None:
    model = ScriptedModel([[TOO_LONG]])
    async with thinker(memory, model, window=0) as runs:
        failed = await outcome(runs, await post(runs, says("u" * 900_000)))
    assert isinstance(failed, Failed)
    assert failed.code == "model_context_exceeded"
    assert shown(model.requests[0]) == ["u" * 900_000]


async def test_what_the_service_counts_corrects_the_estimate(memory: Store) -> None:
    """By the estimate there is much room; by the service's count there is not."""
    counted: list[Step] = [UsageChunk(Usage(1_900, 10)), *calls(("look", {"size": 10}))]
    model = ScriptedModel([words("a"), counted, words("b")])
    async with thinker(memory, model, look) as runs:
        await talk(runs, 100)
        seen = await events(runs, await post(runs, says("u" * 4_000, "u1")))
    assert any(isinstance(each, ContextWarned) for each in seen)


# ---------------------------------------------------------------- workers that die
@pytest.mark.promise("P5", "P10")
async def test_a_worker_that_dies_after_the_summary_leaves_a_transcript_to_go_on_from(
    store: Store,
) -> None:
    model = ScriptedModel([words("a"), words("b"), words("c"), words("notes"), [anyio.Event()]])
    async with thinker(store, model) as runs:
        await talk(runs, 2_000, 2_000, 2_000)
    async with mortal(store, model, context=Compaction(WINDOW)) as dying:
        run = await post(dying.runs, says("3" * 1_000, "u3"))
        await until(dying.runs, run, Compacted)
        await dying.kill()
    heir = ScriptedModel([words("d")])
    async with thinker(store, heir, tempo=SEEKING) as runs:
        assert await outcome(runs, run) == Completed()
        kept = await record(runs)
    assert summary_in(kept).content == "notes"
    assert isinstance(kept[-1], AssistantMessage)
    first, *others = shown(heir.requests[0])
    assert "notes" in str(first)
    assert others == ["c", "3" * 1_000]


async def test_only_what_is_still_shown_is_read_of_a_conversation(memory: Store) -> None:
    model = ScriptedModel([words("a"), words("b"), words("c"), words("notes"), words("d")])
    async with thinker(memory, model) as runs:
        await talk(runs, 2_000, 2_000, 2_000, 1_000)
        loaded = await memory.load(KEY)
        assert [m.role for m in loaded.messages] == ["assistant", "user", "summary", "assistant"]
        assert loaded.start == 5
        assert len(await record(runs)) == 9


async def test_a_run_that_is_taken_back_takes_its_summary_along(memory: Store) -> None:
    started = anyio.Event()
    model = ScriptedModel(
        [words("a"), words("b"), words("c"), words("notes"), ["d", started], words("e")]
    )
    async with thinker(memory, model) as runs:
        await talk(runs, 2_000, 2_000, 1_500)
        run = await post(runs, says("3" * 1_500, "u3"))
        await until(runs, run, TextDelta)
        instead = await post(runs, says("no, this", "u4"), on_busy="rollback")
        assert await outcome(runs, instead) == Completed()
        kept = await record(runs)
    assert not any(isinstance(each, SummaryMessage) for each in kept)
    assert shown(model.requests[-1]) == [
        *["0" * 2_000, "a", "1" * 2_000, "b", "2" * 1_500, "c"],
        "no, this",
    ]


# ---------------------------------------------------------------- sub-agents
async def test_a_sub_agent_has_a_window_of_its_own(memory: Store) -> None:
    long: list[Step] = ["y" * 1_800, *calls(("look", {"size": 10}))]
    child = Brain(
        ScriptedModel([long, long, long, long, words("notes"), words("found")]),
        context=Compaction(WINDOW),
    )
    helper = Actor(child, Equipment([Functions([look])]), "helper")
    model = ScriptedModel([calls(("helper", {"task": "find the key"})), words("thanks")])
    tools = AgentTools([AgentTool.of(helper, "Finds things.")])
    brain = Brain(model, context=Compaction(WINDOW))
    service = RunService(memory, Agents([Actor(brain, Equipment([tools]))]), QUICK)
    with anyio.fail_after(10):
        async with service.running():
            assert await outcome(service, await post(service, says())) == Completed()
            kept = await record(service)
    inner = [each.message for each in kept if isinstance(each, ChildMessage)]
    assert "find the key" in summary_in(inner).asked
    assert not any(isinstance(each, SummaryMessage) for each in kept)
    assert (await memory.load(KEY)).start == 0


# ---------------------------------------------------------------- by hand
async def test_a_context_can_be_summarised_by_hand(memory: Store) -> None:
    model = ScriptedModel([words("notes")])
    context = Compaction(0).watch(model, ModelRequest((), "be brief"))
    messages: list[Message] = [
        UserMessage(says().id, "x" * 400_000),
        says("two", "u2"),
        says("three", "u3"),
    ]
    made = await context.compact(messages)
    (summary,) = made.append
    assert (summary.content, summary.keeps) == ("notes", 2)
    assert shown(ModelRequest(made.messages))[1:] == ["two", "three"]
    again = await context.compact([*messages, summary])
    assert again.append == ()


async def test_a_summary_that_keeps_another_one_is_the_only_one_that_is_shown() -> None:
    context = Compaction(WINDOW).watch(ScriptedModel([]), ModelRequest(()))
    messages: list[Message] = [
        says("one", "u1"),
        SummaryMessage(MessageId("s1"), "first notes", 1),
        says("two", "u2"),
        SummaryMessage(MessageId("s2"), "second notes", 3),
        says("three", "u3"),
    ]
    made = await context.fit(messages)
    assert made.messages == paired(messages)
    assert [each.id for each in made.messages] == ["s2", "u1", "u2", "u3"]


async def test_where_not_even_the_question_has_room_the_model_is_not_asked() -> None:
    model = ScriptedModel([])
    context = Compaction(300).watch(model, ModelRequest(()))
    made = await context.fit([says("x" * 600), says("y" * 600, "u2")])
    assert [each.content for each in made.append] == [
        "[1 earlier messages are left out here; no summary could be made]"
    ]
    assert [each.id for each in made.messages] == [made.append[0].id, "u2"]


async def test_reasoning_that_is_sent_back_counts(memory: Store) -> None:
    thought = AssistantMessage(
        MessageId("a"), "hm", reasoning=(Reasoning("r" * 6_000, "scripted", "opaque"),)
    )
    aside = AssistantMessage(MessageId("a"), "hm", reasoning=(Reasoning("r" * 6_000, "scripted"),))
    for message, is_much in ((thought, True), (aside, False)):
        context = Compaction(WINDOW).watch(ScriptedModel([]), ModelRequest(()))
        assert (context.at_once([says(), message, says("go on", "u2")]) is None) == is_much


async def test_without_a_policy_the_model_is_shown_everything() -> None:
    context = Unbounded().watch(ScriptedModel([]), ModelRequest(()))
    messages: list[Message] = [says("x" * 900_000)]
    assert (await context.fit(messages)).messages == tuple(messages)
    assert await context.compact(messages) == await context.fit(messages)
    context.counted(Usage(1))
    assert not context.exceeded()
