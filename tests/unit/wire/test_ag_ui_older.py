"""Events for clients from before AG-UI 1.0."""

import json
from typing import Any

import pytest
from tests.unit.wire.ag_ui_events import CALL, DEEP, OTHER
from tests.unit.wire.ag_ui_site import Json, types_of

from passback.core.events import (
    Cancelled,
    Completed,
    HandedBack,
    Nested,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnStarted,
)
from passback.core.messages import MessageId, Owed
from passback.wire.ag_ui.encoder import AgUiEncoder

TURN = TurnStarted(MessageId("m1"))


def shown(*events: RunEvent) -> list[Json]:
    made = AgUiEncoder("t", "r", older=True)
    return [json.loads(frame) for event in events for frame in made.feed(event)]


def end_of(outcome: Any) -> Json:
    end = shown(RunFinished(outcome))[-1]
    assert (end.pop("type"), end.pop("threadId"), end.pop("runId")) == ("RUN_FINISHED", "t", "r")
    return end


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (Completed(), {}),
        (Completed("budget"), {"metadata": {"reason": "budget"}}),
        (Cancelled(), {"metadata": {"reason": "cancelled"}}),
        (HandedBack(()), {}),
        (
            HandedBack((Owed(CALL, "paint", "{}"),)),
            {"metadata": {"pendingToolCallIds": [CALL]}},
        ),
    ],
)
def test_an_end_without_interrupts_has_no_outcome(outcome: Any, end: Json) -> None:
    assert end_of(outcome) == end


def test_interrupts_stay_and_name_no_sub_agent() -> None:
    owed = (Owed(CALL, "erase", "{}", "approval", parent_id=DEEP), Owed(OTHER, "paint", "{}"))
    end = end_of(HandedBack(owed))
    assert end["metadata"] == {"pendingToolCallIds": [OTHER]}
    [interrupt] = end["outcome"]["interrupts"]
    assert (end["outcome"]["type"], interrupt["id"]) == ("interrupt", CALL)
    assert "subagentRunId" not in interrupt


def test_of_a_sub_agent_its_calls_are_shown_as_the_agents_own() -> None:
    inner: list[RunEvent] = [
        TurnStarted(MessageId("h1")),
        ReasoningDelta("hm"),
        TextDelta("secret"),
        ToolCallStarted(OTHER, "look", client=False),
        ToolCallArguments(OTHER, "{}"),
        ToolCallEnded(OTHER),
        ToolProgressed(OTHER, "looking"),
        ToolResulted(OTHER, "seen"),
        RunFinished(Completed()),
    ]
    seen = shown(
        TURN,
        TextDelta("on it"),
        ToolCallStarted(CALL, "helper", client=False),
        ToolCallEnded(CALL),
        *(Nested(CALL, each) for each in inner),
        ToolResulted(CALL, "found"),
        RunFinished(Completed()),
    )
    assert types_of(seen) == [
        "RUN_STARTED",
        "STEP_STARTED",
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("TOOL_CALL_START", "TOOL_CALL_END"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "CUSTOM", "TOOL_CALL_RESULT"),
        *("TOOL_CALL_RESULT", "STEP_FINISHED", "RUN_FINISHED"),
    ]
    assert "secret" not in json.dumps(seen)
    assert "subagentRunId" not in json.dumps(seen)
    calls = [each for each in seen if each["type"] == "TOOL_CALL_START"]
    assert [each.get("parentMessageId") for each in calls] == ["m1", None]
