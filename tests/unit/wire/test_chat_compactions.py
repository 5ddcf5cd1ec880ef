"""A compaction is a turn of its own, told as the record has it."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.runs import KEY, post, says, worker
from tests.unit.engine.small_windows import WINDOW, look, small_window_worker
from tests.unit.wire.chat_story import TURN, Story, call, ended, names, nested, resulted, user
from tests.unit.wire.chat_watcher import Watcher, recorded_turns

from passback.context.compaction import Compaction
from passback.core.deltas import Finish, UsageChunk
from passback.core.errors import MessageTooLarge, ModelContextExceeded
from passback.core.events import Compacted, TextDelta
from passback.core.messages import CallId, ChildMessage, MessageId, SummaryMessage, Usage
from passback.engine.agents import AgentSpec, ServedAgent
from passback.engine.service import RunService
from passback.engine.toolbox import ToolSources
from passback.models.scripted import ScriptedModel, Step, calls
from passback.models.scripted import says as words
from passback.toolsets.agents import AgentTool, AgentTools
from passback.toolsets.functions import FunctionTools
from passback.wire.chat.history import project
from passback.wire.chat.projections import JsonDict

pytestmark = pytest.mark.anyio

SUMMARY = SummaryMessage(
    MessageId("s"),
    "the notes" * 100,
    1,
    usage=Usage(7, 3),
    model="m",
    duration=40,
    started=1_769_860_680_000,
    window=2_000,
    turns=5,
    before=1_500,
    after=500,
    trigger="manual",
)


async def talk(runs: RunService, watcher: Watcher, *sizes: int) -> list[JsonDict]:
    """Post messages of so many characters; return the turns of compactions, as they were told."""
    for number, size in enumerate(sizes):
        await watcher.follow(await post(runs, says(f"{number}" * size, f"u{number}")))
    return compactions(watcher)


def compactions(watcher: Watcher) -> list[JsonDict]:
    return [turn for turn in watcher.client.turns.values() if turn["kind"] == "compaction"]


# ---------------------------------------------------------------- one turn
def test_a_compaction_has_the_fields_of_the_protocol() -> None:
    story = Story(posted=[user()])
    said = story.tell(Compacted("summary", 1_500, 500, SUMMARY), TURN, TextDelta("a"))
    assert names(said) == ["turn:start", "turn:end", "turn:start", "add_content"]
    story.end()
    assert story.turn("s") == {
        "id": "s",
        "sequence": 2,
        "turn_id": "s",
        "loop_id": "root",
        "kind": "compaction",
        "role": "system",
        "status": "completed",
        "blocks": [],
        "tool_calls": [],
        "model": "m",
        "usage": {"input_tokens": 7, "output_tokens": 3},
        "duration_ms": 40,
        "started_at": "2026-01-31T11:58:00.000Z",
        "context_window": 2_000,
        "memory_refs": None,
        "parent_fork_tool_call_id": None,
        "compaction_id": "s",
        "summary_preview": SUMMARY.content[:200],
        "summary_full": SUMMARY.content,
        "archived_count": 5,
        "tokens_before": 1_500,
        "tokens_after": 500,
        "saved_ratio": 0.667,
        "trigger": "manual",
    }
    assert project([user(), SUMMARY])[1] == story.turn("s")
    assert story.turn("run_1.1")["sequence"] == 3


def test_what_an_old_summary_does_not_tell_is_null() -> None:
    [turn] = project([SummaryMessage(MessageId("s"), "notes", 1)])
    unknown = ("archived_count", "tokens_before", "tokens_after", "saved_ratio", "trigger")
    assert [turn[name] for name in (*unknown, "model", "started_at")] == [None] * 7
    assert turn["summary_full"] == "notes"


def test_a_compaction_that_saves_nothing_has_saved_nothing() -> None:
    [turn] = project([SummaryMessage(MessageId("s"), "notes", 1, before=5, after=6)])
    assert turn["saved_ratio"] == 0


def test_what_was_forgotten_is_no_compaction() -> None:
    assert project([SummaryMessage(MessageId("s"), "", 0)]) == []


def test_room_made_without_a_summary_is_no_turn() -> None:
    story = Story(posted=[user()])
    assert story.tell(Compacted("snip", 1_500, 500)) == []


def test_a_sub_agents_compaction_belongs_to_it() -> None:
    story = Story(posted=[user()])
    story.tell(*nested("h", Compacted("summary", 1_500, 500, SUMMARY)))
    recorded = ChildMessage(CallId("h"), SUMMARY)
    [turn] = project([recorded])
    assert turn == story.turn("s")
    assert (turn["loop_id"], turn["parent_fork_tool_call_id"]) == ("h", "h")


def test_an_agent_may_fail_right_behind_its_compaction() -> None:
    story = Story(posted=[user()])
    story.tell(TURN, *call("h", "helper"), ended("h"))
    story.tell(*nested("h", TURN, Compacted("summary", 1_500, 500, SUMMARY)))
    story.tell(resulted("h", "broken", is_error=True))
    story.end()
    kept = story.client.kept.values()
    assert [(each["id"], each["loop_id"], each["status"]) for each in kept] == [
        ("u", "root", "completed"),
        ("run_1.1", "root", "completed"),
        ("s", "h", "completed"),
    ]


def test_a_turn_that_came_to_nothing_before_a_compaction_is_void() -> None:
    story = Story(posted=[user()])
    said = story.tell(TURN, Compacted("summary", 1_500, 500, SUMMARY))
    assert names(said) == ["turn:start", "turn:end"]
    assert said[0].data["id"] == "s"
    story.tell(TURN, TextDelta("a"))
    story.end()
    assert [(each["id"], each["sequence"]) for each in story.client.kept.values()] == [
        ("u", 1),
        ("s", 2),
        ("run_1.1", 3),
    ]


# ---------------------------------------------------------------- real runs
async def test_a_compaction_of_a_full_window_is_told_as_the_record_has_it() -> None:
    notes = [UsageChunk(Usage(1_500, 30)), *words("notes")]
    model = ScriptedModel([words("a"), words("b"), words("c"), notes, words("d")])
    async with open_ledger("memory:") as store, small_window_worker(store, model) as runs:
        watcher = Watcher(runs)
        [told] = await talk(runs, watcher, 2_000, 2_000, 2_000, 1_000)
        assert watcher.client.kept == await recorded_turns(runs)
    assert (told["trigger"], told["summary_full"], told["archived_count"]) == ("auto", "notes", 5)
    assert (told["model"], told["context_window"]) == ("scripted", WINDOW)
    assert told["usage"] == {"input_tokens": 1_500, "output_tokens": 30}
    assert told["tokens_before"] > told["tokens_after"] > 0
    assert told["duration_ms"] >= 0
    assert told["started_at"] is not None


async def test_a_compaction_that_the_user_asks_for_is_manual() -> None:
    model = ScriptedModel([words("a"), words("b"), words("notes")])
    async with open_ledger("memory:") as store, small_window_worker(store, model) as runs:
        watcher = Watcher(runs)
        assert await talk(runs, watcher, 2_000, 1_500) == []
        await watcher.follow(await runs.compact(KEY))
        [told] = compactions(watcher)
        assert watcher.client.kept == await recorded_turns(runs)
    assert (told["trigger"], told["summary_full"]) == ("manual", "notes")


async def test_a_compaction_after_a_refused_request_is_a_forced_retry() -> None:
    script: list[list[Step]] = [
        words("a"),
        words("b"),
        [ModelContextExceeded("too long")],
        words("notes"),
        words("c"),
        words("d"),
        words("more notes"),
        words("e"),
    ]
    async with (
        open_ledger("memory:") as store,
        small_window_worker(store, ScriptedModel(script), window=8_000) as runs,
    ):
        watcher = Watcher(runs)
        await talk(runs, watcher, 6_000, 6_000, 6_000)
        await watcher.follow(await post(runs, says("3" * 6_000, "u3")))
        await watcher.follow(await post(runs, says("4" * 18_000, "u4")))
        told = [(turn["trigger"], turn["summary_full"]) for turn in compactions(watcher)]
        assert told == [("forced_retry", "notes"), ("auto", "more notes")]
        assert watcher.client.kept == await recorded_turns(runs)


SIZES = st.integers(1, 2_500)
POSTS = st.lists(SIZES | st.just("compact"), min_size=1, max_size=6)


def _answer(size: int, kind: str) -> list[Step]:
    match kind:
        case "look":
            return ["y" * (size // 4), *calls(("look", {"size": size}))]
        case "helper":
            return calls(("helper", {"task": "z" * size}))
        case "long":
            return ["y" * size, UsageChunk(Usage(size, 3)), Finish("length")]
        case "refused":
            return [ModelContextExceeded("too long")]
        case _:
            return words("y" * size)


KINDS = st.sampled_from(["text", "text", "look", "look", "helper", "long", "refused"])
ANSWERS = st.lists(st.builds(_answer, SIZES, KINDS), min_size=4, max_size=16)


@examples(60)
@given(POSTS, ANSWERS, ANSWERS, st.sampled_from([0, WINDOW]))
async def test_turns_and_compactions_add_up_to_the_record(
    posts: list[int | str], script: list[list[Step]], helpers: list[list[Step]], window: int
) -> None:
    policy = Compaction(window)
    spec = AgentSpec(ScriptedModel(helpers), "help", max_turns=4, context=Compaction(WINDOW))
    actor = ServedAgent(spec, ToolSources([FunctionTools([look])]), "helper")
    tools = AgentTools([AgentTool.of(actor, "Helps.")])
    async with (
        open_ledger("memory:") as store,
        worker(store, ScriptedModel(script), look, toolsets=[tools], context=policy) as runs,
    ):
        watcher = Watcher(runs)
        for number, size in enumerate([1, *posts]):
            with suppress(MessageTooLarge):
                run = (
                    await post(runs, says("x" * size, f"u{number}"))
                    if isinstance(size, int)
                    else await runs.compact(KEY)
                )
                await watcher.follow(run)
            assert watcher.client.kept == await recorded_turns(runs)
