"""Messages that do not fit a model's window: the fate of runs, workers and sub-agents."""

import anyio
import pytest
from tests.support.killable_worker import killable_worker
from tests.support.runs import (
    KEY,
    PAINT,
    QUICK,
    RECOVERING,
    events,
    outcome,
    post,
    record,
    result,
    says,
    until,
)
from tests.unit.core.admission import minting
from tests.unit.engine.small_windows import (
    WINDOW,
    look,
    shown,
    small_window_worker,
    summary_in,
    talk,
)

from passback.context.compaction import Compaction
from passback.core.context import Unbounded
from passback.core.deltas import ModelRequest, UsageChunk
from passback.core.errors import MessageTooLarge, ModelContextExceeded
from passback.core.events import Compacted, Completed, ContextWarned, Failed, HandedBack, TextDelta
from passback.core.messages import (
    AssistantMessage,
    ChildMessage,
    JsonObject,
    Message,
    MessageId,
    Reasoning,
    SummaryMessage,
    Usage,
    UserMessage,
)
from passback.core.posts import OnBusy
from passback.core.transcript import paired_messages
from passback.engine.agents import Agents, AgentSpec, ServedAgent
from passback.engine.commands import Commands
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.toolbox import ToolSources
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.functions import FunctionTools, tool

pytestmark = pytest.mark.anyio


def no_call(usage: Usage) -> None:
    raise AssertionError(usage)


@tool(name="look")
def reasoned(size: int, why: str) -> str:
    """Look at something large, for a reason."""
    return why[:0] + "x" * size


TOO_LONG = ModelContextExceeded("the conversation is too long for the model")


# ---------------------------------------------------------------- requests that cannot fit
@pytest.mark.parametrize("on_busy", ["reject", "enqueue"])
async def test_a_message_that_no_window_takes_is_refused_and_not_stored(
    memory: Ledger, on_busy: OnBusy
) -> None:
    """A post that would be queued is refused too, and the conversation goes on."""
    gate = anyio.Event()
    model = ScriptedModel([words("a"), [gate, *words("b")], words("hi")])
    async with small_window_worker(memory, model) as runs:
        await talk(runs, 100)
        going_on = await post(runs, says("more")) if on_busy == "enqueue" else None
        before = await record(runs)
        with pytest.raises(MessageTooLarge, match="the last message is too large for the model"):
            await post(runs, says("u" * 20_000, "large"), on_busy=on_busy)
        assert await record(runs) == before
        gate.set()
        if going_on is not None:
            await outcome(runs, going_on)
        assert await outcome(runs, await post(runs, says("sorry", "small"))) == Completed()
    assert shown(model.requests[-1])[-1] == "sorry"


async def test_earlier_large_messages_and_results_are_not_refused(memory: Ledger) -> None:
    """Room can be made for them: the one is summarised, the other is shortened."""
    model = ScriptedModel([words("notes"), calls(("paint", {})), words("notes"), words("hi")])
    async with small_window_worker(memory, model) as runs:
        large = (says("u" * 20_000, "large"), says("hi", "small"))
        handed_back = await outcome(runs, await post(runs, *large, tools=[PAINT]))
        assert isinstance(handed_back, HandedBack)
        painted = result(handed_back.owed[0].id, "x" * 20_000)
        assert await outcome(runs, await post(runs, painted)) == Completed()


async def test_a_large_command_is_no_matter_of_the_window(memory: Ledger) -> None:
    commands = Commands(enabled=True)
    spec = AgentSpec(ScriptedModel([]), context=Compaction(WINDOW), commands=commands)
    service = RunService(memory, Agents([ServedAgent(spec)]), QUICK)
    with anyio.fail_after(10):
        async with service.running():
            said = await outcome(service, await post(service, says("/help " + "x" * 20_000)))
    assert said == Completed()


@pytest.mark.parametrize(
    ("count", "named"),
    [(1, "the last turn with its result is"), (400, "the last turn with its 400 results is")],
)
async def test_results_that_are_too_large_however_short_are_named(
    memory: Ledger, count: int, named: str
) -> None:
    arguments: JsonObject = {"size": 5_000, "why": "x" * (9_000 // count)}
    async with small_window_worker(
        memory, ScriptedModel([calls(*[("look", arguments)] * count)]), reasoned
    ) as runs:
        failed = await outcome(runs, await post(runs, says()))
    assert isinstance(failed, Failed)
    assert failed.message.startswith(f"{named} too large for the model: about ")


async def test_a_prompt_that_is_too_large_is_named(memory: Ledger) -> None:
    spec = AgentSpec(ScriptedModel([]), "p" * 20_000, context=Compaction(WINDOW))
    service = RunService(memory, Agents([ServedAgent(spec)]), QUICK)
    with anyio.fail_after(10):
        async with service.running():
            failed = await outcome(service, await post(service, says()))
    assert isinstance(failed, Failed)
    assert "the agent's prompt and tools are too large" in failed.message


# ---------------------------------------------------------------- a service that takes less
async def test_a_request_refused_as_too_long_is_shortened_once(memory: Ledger) -> None:
    """The window is set too high: the service knows better."""
    model = ScriptedModel([words("a"), words("b"), [TOO_LONG], words("notes"), words("c")])
    async with small_window_worker(memory, model, window=100_000) as runs:
        seen = await talk(runs, 2_000, 2_000, 500)
        assert seen[-1].type == "run-finished"
        summary = summary_in(await record(runs))
    assert summary.content == "notes"
    assert [e.step for e in seen if isinstance(e, Compacted)] == ["summary"]
    assert shown(model.requests[-1])[1:] == ["b", "2" * 500]


async def test_a_second_refusal_is_the_runs_end(memory: Ledger) -> None:
    model = ScriptedModel([words("a"), words("b"), [TOO_LONG], words("notes"), [TOO_LONG]])
    async with small_window_worker(memory, model, window=100_000) as runs:
        await talk(runs, 2_000, 2_000)
        failed = await outcome(runs, await post(runs, says("2" * 500, "u2")))
    assert isinstance(failed, Failed)
    assert failed.code == "model_context_exceeded"


async def test_what_readers_have_seen_is_not_said_again(memory: Ledger) -> None:
    model = ScriptedModel([["well", TOO_LONG]])
    async with small_window_worker(memory, model) as runs:
        failed = await outcome(runs, await post(runs, says()))
    assert isinstance(failed, Failed)
    assert failed.code == "model_context_exceeded"


async def test_without_a_window_a_refusal_ends_the_run(memory: Ledger) -> None:
    model = ScriptedModel([[TOO_LONG]])
    async with small_window_worker(memory, model, window=0) as runs:
        failed = await outcome(runs, await post(runs, says("u" * 900_000)))
    assert isinstance(failed, Failed)
    assert failed.code == "model_context_exceeded"
    assert shown(model.requests[0]) == ["u" * 900_000]


@pytest.mark.parametrize("estimated", [False, True])
async def test_the_services_count_corrects_the_estimate(memory: Ledger, estimated: bool) -> None:
    """Our estimate leaves much room, the service's count does not.

    A number that is no count of its own teaches nothing.
    """
    usage = Usage(1_900, 10, estimated=estimated)
    model = ScriptedModel(
        [words("a"), [UsageChunk(usage), *calls(("look", {"size": 10}))], words("b")]
    )
    async with small_window_worker(memory, model, look) as runs:
        await talk(runs, 100)
        seen = await events(runs, await post(runs, says("u" * 4_000, "u1")))
    assert any(isinstance(each, ContextWarned) for each in seen) == (not estimated)


# ---------------------------------------------------------------- workers that die
@pytest.mark.promise("P5", "P10")
async def test_a_worker_that_dies_after_the_summary_loses_nothing(store: Ledger) -> None:
    model = ScriptedModel([words("a"), words("b"), words("c"), words("notes"), [anyio.Event()]])
    async with small_window_worker(store, model) as runs:
        await talk(runs, 2_000, 2_000, 2_000)
    async with killable_worker(store, model, context=Compaction(WINDOW)) as dying:
        run = await post(dying.runs, says("3" * 1_000, "u3"))
        await until(dying.runs, run, Compacted)
        await dying.kill()
    next_model = ScriptedModel([words("d")])
    async with small_window_worker(store, next_model, timing=RECOVERING) as runs:
        assert await outcome(runs, run) == Completed()
        kept = await record(runs)
    assert summary_in(kept).content == "notes"
    assert isinstance(kept[-1], AssistantMessage)
    first, *others = shown(next_model.requests[0])
    assert "notes" in str(first)
    assert others == ["c", "3" * 1_000]


async def test_only_what_is_still_shown_is_read_of_a_conversation(memory: Ledger) -> None:
    model = ScriptedModel([words("a"), words("b"), words("c"), words("notes"), words("d")])
    async with small_window_worker(memory, model) as runs:
        await talk(runs, 2_000, 2_000, 2_000, 1_000)
        loaded = await memory.load(KEY)
        assert [m.role for m in loaded.messages] == ["assistant", "user", "summary", "assistant"]
        assert loaded.start == 5
        assert len(await record(runs)) == 9


async def test_a_run_that_is_taken_back_takes_its_summary_along(memory: Ledger) -> None:
    started = anyio.Event()
    model = ScriptedModel(
        [words("a"), words("b"), words("c"), words("notes"), ["d", started], words("e")]
    )
    async with small_window_worker(memory, model) as runs:
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
async def test_a_sub_agent_has_a_window_of_its_own(memory: Ledger) -> None:
    long: list[Step] = ["y" * 1_800, *calls(("look", {"size": 10}))]
    child = AgentSpec(
        ScriptedModel([long, long, long, long, words("notes"), words("found")]),
        context=Compaction(WINDOW),
    )
    helper = ServedAgent(child, ToolSources([FunctionTools([look])]), "helper")
    model = ScriptedModel([calls(("helper", {"task": "find the key"})), words("thanks")])
    tools = AgentTools([AgentTool.of(helper, "Finds things.")])
    spec = AgentSpec(model, context=Compaction(WINDOW))
    service = RunService(memory, Agents([ServedAgent(spec, ToolSources([tools]))]), QUICK)
    with anyio.fail_after(10):
        async with service.running():
            assert await outcome(service, await post(service, says())) == Completed()
            kept = await record(service)
    inner = [each.message for each in kept if isinstance(each, ChildMessage)]
    assert "find the key" in summary_in(inner).asked
    assert not any(isinstance(each, SummaryMessage) for each in kept)
    assert (await memory.load(KEY)).start == 0


# ---------------------------------------------------------------- by hand
async def test_a_context_can_be_summarised_by_hand(memory: Ledger) -> None:
    model = ScriptedModel([words("notes")])
    context = Compaction(0).watch(model, ModelRequest((), "be brief"), minting())
    messages: list[Message] = [
        UserMessage(says().id, "x" * 400_000),
        says("two", "u2"),
        says("three", "u3"),
    ]
    spent: list[Usage] = []
    made = await context.compact(messages, spent.append)
    (summary,) = made.append
    assert (summary.content, summary.keeps) == ("notes", 2)
    assert shown(ModelRequest(made.messages))[1:] == ["two", "three"]
    again = await context.compact([*messages, summary], spent.append)
    assert (again.append, spent) == ((), [])


async def test_a_summary_that_keeps_another_one_is_the_only_one_that_is_shown() -> None:
    context = Compaction(WINDOW).watch(ScriptedModel([]), ModelRequest(()), minting())
    messages: list[Message] = [
        says("one", "u1"),
        SummaryMessage(MessageId("s1"), "first notes", 1),
        says("two", "u2"),
        SummaryMessage(MessageId("s2"), "second notes", 3),
        says("three", "u3"),
    ]
    made = await context.fit(messages, no_call)
    assert made.messages == paired_messages(messages)
    assert [each.id for each in made.messages] == ["s2", "u1", "u2", "u3"]


async def test_where_not_even_the_question_has_room_the_model_is_not_asked() -> None:
    model = ScriptedModel([])
    context = Compaction(300).watch(model, ModelRequest(()), minting())
    made = await context.fit([says("x" * 600), says("y" * 600, "u2")], no_call)
    assert [each.content for each in made.append] == [
        "[1 earlier messages are left out here; no summary could be made]"
    ]
    assert [each.id for each in made.messages] == [made.append[0].id, "u2"]


async def test_reasoning_that_is_sent_back_counts(memory: Ledger) -> None:
    thought = AssistantMessage(
        MessageId("a"), "hm", reasoning=(Reasoning("r" * 6_000, "scripted", "opaque"),)
    )
    aside = AssistantMessage(MessageId("a"), "hm", reasoning=(Reasoning("r" * 6_000, "scripted"),))
    for message, is_much in ((thought, True), (aside, False)):
        context = Compaction(WINDOW).watch(ScriptedModel([]), ModelRequest(()), minting())
        assert (context.at_once([says(), message, says("go on", "u2")]) is None) == is_much


async def test_without_a_policy_the_model_is_shown_everything() -> None:
    context = Unbounded().watch(ScriptedModel([]), ModelRequest(()), minting())
    messages: list[Message] = [says("x" * 900_000)]
    assert (await context.fit(messages, no_call)).messages == tuple(messages)
    assert await context.compact(messages, no_call) == await context.fit(messages, no_call)
    context.counted(Usage(1))
    assert not context.exceeded()
