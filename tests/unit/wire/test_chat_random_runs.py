"""Whatever a run does, what clients of the chat socket are told adds up to its record."""

import json
from collections.abc import Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.runs import KEY, PAINT, record, worker
from tests.unit.engine.sub_agents import erase, helper
from tests.unit.wire.chat_watcher import HANG, Stop, Watcher, recorded_turns

from passback.core.deltas import Finish, ReasoningBlock, ReasoningChunk, UsageChunk
from passback.core.errors import ModelError, UnknownMessage
from passback.core.messages import (
    UNNAMED,
    ApprovalMessage,
    MessageId,
    Owed,
    PostedMessage,
    Reasoning,
    RunRef,
    ToolMessage,
    Usage,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.core.questions import ASK_USER
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls, says
from passback.toolsets.agents import AgentTools
from passback.toolsets.functions import ToolError, tool
from passback.wire.chat.history import find_end_of_turn, project
from passback.wire.chat.projections import JsonDict

pytestmark = pytest.mark.anyio

QUESTIONS = {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}


@tool
def look(at: str = "") -> str:
    """Look."""
    return f"seen {at}"


@tool
def breaks() -> str:
    """Break."""
    raise ToolError("broken")


CALLS: dict[str, JsonDict] = {
    "look": {"at": "the sky"},
    "breaks": {},
    "erase": {},
    "paint": {},
    "ask_user": QUESTIONS,
    "helper": {"task": "find it"},
    "nosuch": {},
}
WRONG: dict[str, JsonDict] = {"look": {"at": 1}, "paint": {"no": 1}, "ask_user": {"questions": []}}


def _thinks(turn: list[Step]) -> list[Step]:
    block = ReasoningBlock(Reasoning("hm, well", "scripted"))
    return [ReasoningChunk("hm, "), ReasoningChunk("well"), *turn[:-1], block, turn[-1]]


def _counted(turn: list[Step]) -> list[Step]:
    return [*turn[:-1], UsageChunk(Usage(7, 3)), turn[-1]]


def _calls(names: Sequence[str], wrong: Sequence[str]) -> list[Step]:
    made = [(name, CALLS[name]) for name in names] + [(name, WRONG[name]) for name in wrong]
    return calls(*made)


TEXTS = st.sampled_from(["on it", "你好", "a\nb"])
SAID = st.builds(lambda texts: says(*texts), st.lists(TEXTS, min_size=1, max_size=3))
CALLED = st.builds(
    lambda text, names, wrong: [*text, *_calls(names, wrong)],
    st.lists(TEXTS, max_size=1),
    st.lists(st.sampled_from([*CALLS, "helper", "helper"]), min_size=1, max_size=3),
    st.lists(st.sampled_from([*WRONG]), max_size=1),
)


def _whole(turn: list[Step], thinks: bool, counted: bool) -> list[Step]:
    turn = _counted(turn) if counted else turn
    return _thinks(turn) if thinks else turn


WHOLE = st.builds(_whole, SAID | CALLED | CALLED, st.booleans(), st.booleans())


def _odd(text: str) -> dict[str, list[Step]]:
    """Answers that are no answers, by their names; they are made anew for each."""
    return {
        "error": [ReasoningChunk("hm"), text, ModelError("the model is gone")],
        "cut": [text, *calls(("look", {}))[:-1]],
        "nothing": [Finish("stop")],
        "thought": [ReasoningChunk("hm"), Finish("stop")],
        "long": [text, UsageChunk(Usage(1, 1)), Finish("length")],
        "refusal": [text, Finish("refusal")],
        "hang": [HANG, anyio.Event()],
    }


ODD = st.builds(lambda kind, text: _odd(text)[kind], st.sampled_from([*_odd("")]), TEXTS)
TURNS = st.lists(WHOLE | WHOLE | ODD, min_size=1, max_size=6)
REACTIONS = st.lists(st.sampled_from(["answer", "deny", "go on", "close"]), min_size=3, max_size=3)
STOPS: st.SearchStrategy[list[Stop]] = st.lists(
    st.sampled_from(["rollback", "rollback", "interrupt", "cancel"]), max_size=3
)


def _answer(owed: Owed, denies: bool) -> PostedMessage:
    if owed.kind == "approval":
        return ApprovalMessage(UNNAMED, owed.id, not denies)
    content = json.dumps({"answers": [{"selected": ["a"]}]}) if owed.kind == "question" else "done"
    return ToolMessage(UNNAMED, owed.id, content, is_error=denies)


async def _react(runs: RunService, owed: Sequence[Owed], reaction: str) -> RunRef | None:
    if reaction == "close" and owed:
        return await runs.close_calls(KEY)
    if reaction == "go on" or not owed:
        messages: tuple[PostedMessage, ...] = (UserMessage(UNNAMED, "and now?"),)
    else:
        messages = tuple(_answer(each, reaction == "deny") for each in owed)
    started = await runs.start(StartRun(KEY, messages))
    assert isinstance(started, RunRef)
    return started


async def check_ends_of_turns(runs: RunService) -> None:
    """The messages up to the end of each turn have that turn, those before it, and no other."""
    messages = await record(runs)
    places = {message.id: place for place, message in enumerate(messages, 1)}
    turns = project(messages)
    for turn in turns:
        if turn["parent_fork_tool_call_id"] is None:
            end = await find_end_of_turn(runs, KEY, turn["sequence"])
            kept = [each["id"] for each in project(messages[: places[end]])]
            assert kept == [each["id"] for each in turns[: len(kept)]]
            roots = [each for each in turns[: len(kept)] if not each["parent_fork_tool_call_id"]]
            assert roots[-1] == turn
    with pytest.raises(UnknownMessage):
        await find_end_of_turn(runs, KEY, len(messages) + 1)


@examples(60)
@given(TURNS, TURNS, REACTIONS, STOPS)
async def test_patches_add_up_to_turns_and_turns_to_the_record(
    script: list[list[Step]], helpers: list[list[Step]], reactions: list[str], stops: list[Stop]
) -> None:
    model = ScriptedModel(script)
    agent = helper(ScriptedModel(helpers), look, erase)
    async with (
        open_ledger("memory:") as store,
        worker(
            store,
            model,
            look,
            breaks,
            erase,
            toolsets=[AgentTools([agent])],
            offers=[ASK_USER],
        ) as runs,
    ):
        watcher = Watcher(runs, stops)
        first = StartRun(KEY, (UserMessage(MessageId("u"), "go"),), (PAINT,))
        run: object = await runs.start(first)
        for reaction in [*reactions, ""]:
            assert isinstance(run, RunRef)
            await watcher.follow(run)
            assert watcher.client.kept == await recorded_turns(runs)
            if reaction:
                run = await _react(runs, (await runs.status(KEY)).owed, reaction)
        await check_ends_of_turns(runs)
