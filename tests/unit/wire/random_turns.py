"""Random turns of a model: texts, thoughts, calls of all kinds, and answers that are no answers."""

import json
from collections.abc import Sequence
from typing import Any

import anyio
from hypothesis import strategies as st

from passback.core.deltas import Finish, ReasoningBlock, ReasoningChunk, UsageChunk
from passback.core.errors import ModelError
from passback.core.messages import (
    UNNAMED,
    ApprovalMessage,
    Owed,
    PostedMessage,
    Reasoning,
    ToolMessage,
    Usage,
)
from passback.models.scripted import Step, calls, says
from passback.toolsets.functions import ToolError, tool

HANG = "wait for ever"
"""The text at which a run is to be stopped."""

QUESTIONS = {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}


@tool
def look(at: str = "") -> str:
    """Look."""
    return f"seen {at}"


@tool
def breaks() -> str:
    """Break."""
    raise ToolError("broken")


CALLS: dict[str, dict[str, Any]] = {
    "look": {"at": "the sky"},
    "breaks": {},
    "erase": {},
    "paint": {},
    "ask_user": QUESTIONS,
    "helper": {"task": "find it"},
    "nosuch": {},
}
WRONG: dict[str, dict[str, Any]] = {
    "look": {"at": 1},
    "paint": {"no": 1},
    "ask_user": {"questions": []},
}


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


def answer(owed: Owed, denies: bool) -> PostedMessage:
    """Return what a client answers to a call that it owes something."""
    if owed.kind == "approval":
        return ApprovalMessage(UNNAMED, owed.id, not denies)
    content = json.dumps({"answers": [{"selected": ["a"]}]}) if owed.kind == "question" else "done"
    return ToolMessage(UNNAMED, owed.id, content, is_error=denies)
