"""The encoder of AG-UI, event by event: whatever comes, what begins ends, and in order."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.lanes import examples
from tests.unit.wire.ag_ui_events import CALL, DEEP, DONE, EVENTS, OTHER, OUTCOMES, RUN
from tests.unit.wire.ag_ui_site import Json, types_of

from passback.core.events import (
    Cancelled,
    Completed,
    CompletedReason,
    Cursor,
    Failed,
    HandedBack,
    Nested,
    OutputAccepted,
    PlanUpdated,
    Position,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    StateChanged,
    TextDelta,
    ToolBegan,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    CallId,
    MediaPart,
    MessageId,
    Owed,
    PlanEntry,
    TextPart,
    ToolCall,
    Usage,
)
from passback.wire.ag_ui.encoder import AgUiEncoder, owed_outcome

TURN = TurnStarted(MessageId("m1"))
STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}
FINISHED = {
    "type": "RUN_FINISHED",
    "threadId": "t",
    "runId": "r",
    "outcome": {"type": "success"},
}


def encoder(**fields: Any) -> AgUiEncoder:
    return AgUiEncoder("t", "r", **fields)


def said_by(made: AgUiEncoder, *events: RunEvent) -> list[Json]:
    """Return the AG-UI events of run events."""
    return [json_of(frame) for event in events for frame in made.feed(event)]


def json_of(frame: str) -> Json:
    assert frame.isascii()
    assert "\n" not in frame
    value: Json = json.loads(frame)
    assert None not in value.values()
    return value


def between(*events: RunEvent, **fields: Any) -> list[Json]:
    """Return what comes between the start and the end of a run that completes."""
    seen = said_by(encoder(**fields), *events, DONE)
    assert (seen[0], seen[-1]["type"]) == (STARTED, "RUN_FINISHED")
    return seen[1:-1]


def without_steps(seen: Sequence[Json]) -> list[Json]:
    return [each for each in seen if not each["type"].startswith("STEP_")]


# ---------------------------------------------------------------- text and reasoning
def test_a_text_is_one_message_within_a_step() -> None:
    assert between(RunStarted(RUN), TURN, TextDelta("Hel"), TextDelta('lo "é"')) == [
        {"type": "STEP_STARTED", "stepName": "turn 1"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Hel"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": 'lo "é"'},
        {"type": "TEXT_MESSAGE_END", "messageId": "m1"},
        {"type": "STEP_FINISHED", "stepName": "turn 1"},
    ]


def test_a_text_without_a_turn_has_an_id_all_the_same() -> None:
    assert between(TextDelta("hi"))[0] == {
        "type": "TEXT_MESSAGE_START",
        "messageId": "r_message",
        "role": "assistant",
    }


def test_reasoning_is_a_message_of_its_own_that_ends_before_the_text() -> None:
    seen = without_steps(between(TURN, ReasoningDelta("hm"), ReasoningDelta("m"), TextDelta("a")))
    named = {"messageId": "m1_reasoning"}
    assert seen == [
        {"type": "REASONING_START", **named},
        {"type": "REASONING_MESSAGE_START", **named, "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", **named, "delta": "hm"},
        {"type": "REASONING_MESSAGE_CONTENT", **named, "delta": "m"},
        {"type": "REASONING_MESSAGE_END", **named},
        {"type": "REASONING_END", **named},
        {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "a"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m1"},
    ]


def test_a_text_ends_before_more_reasoning() -> None:
    seen = without_steps(between(TURN, TextDelta("a"), ReasoningDelta("hm"), TextDelta("b")))
    assert types_of(seen) == [
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"),
        *("REASONING_MESSAGE_END", "REASONING_END"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
    ]


def test_a_turn_ends_the_step_before_it() -> None:
    second = TurnStarted(MessageId("m2"))
    seen = between(TURN, TextDelta("a"), TurnEnded(MessageId("m1")), second, TextDelta("b"))
    assert [(each["type"], each.get("stepName")) for each in seen if "stepName" in each] == [
        ("STEP_STARTED", "turn 1"),
        ("STEP_FINISHED", "turn 1"),
        ("STEP_STARTED", "turn 2"),
        ("STEP_FINISHED", "turn 2"),
    ]
    assert [each["messageId"] for each in seen if each["type"] == "TEXT_MESSAGE_END"] == [
        "m1",
        "m2",
    ]


def test_the_run_begins_when_it_is_queued() -> None:
    made = encoder()
    assert said_by(made, RunQueued(RUN)) == [STARTED]
    assert said_by(made, RunStarted(RUN), DONE) == [FINISHED]
    assert said_by(made, TextDelta("late"), DONE) == []
    assert (made.end(), made.rewind(Cursor(RUN, Position(1, 1)))) == ((), ())


# ---------------------------------------------------------------- calls
def test_a_call_of_the_server_has_its_result() -> None:
    seen = between(
        TURN,
        TextDelta("a"),
        ToolCallStarted(CALL, "look", client=False),
        ToolCallArguments(CALL, '{"a":'),
        ToolCallArguments(CALL, "1}"),
        ToolCallEnded(CALL),
        ToolBegan(CALL),
        ToolProgressed(CALL, "half"),
        ToolResulted(CALL, (TextPart("seen"), MediaPart("image", "https://a.b/c"))),
    )
    assert without_steps(seen)[2:] == [
        {"type": "TEXT_MESSAGE_END", "messageId": "m1"},
        {
            "type": "TOOL_CALL_START",
            "toolCallId": CALL,
            "toolCallName": "look",
            "parentMessageId": "m1",
        },
        {"type": "TOOL_CALL_ARGS", "toolCallId": CALL, "delta": '{"a":'},
        {"type": "TOOL_CALL_ARGS", "toolCallId": CALL, "delta": "1}"},
        {"type": "TOOL_CALL_END", "toolCallId": CALL},
        {
            "type": "CUSTOM",
            "name": "passback.progress",
            "value": {"toolCallId": CALL, "text": "half"},
        },
        {
            "type": "TOOL_CALL_RESULT",
            "messageId": "call_1_result",
            "toolCallId": CALL,
            "content": "seen\nhttps://a.b/c",
            "role": "tool",
        },
    ]


def test_an_invalid_call_ends_before_its_result() -> None:
    seen = without_steps(
        between(
            TURN,
            ToolCallStarted(CALL, "paint", client=True),
            ToolCallArguments(CALL, "{}"),
            ToolResulted(CALL, "no", True, "invalid"),
        )
    )
    assert types_of(seen)[-2:] == ["TOOL_CALL_END", "TOOL_CALL_RESULT"]
    assert seen[-1]["metadata"] == {"isError": True, "synthetic": "invalid"}


def test_only_the_first_result_and_the_first_start_of_a_call_count() -> None:
    seen = between(
        ToolCallStarted(CALL, "look", client=False),
        ToolCallStarted(CALL, "look", client=False),
        ToolCallEnded(CALL),
        ToolCallArguments(CALL, "{}"),
        ToolResulted(CALL, "a"),
        ToolResulted(CALL, "b"),
    )
    assert types_of(seen) == ["TOOL_CALL_START", "TOOL_CALL_END", "TOOL_CALL_RESULT"]


def test_a_call_of_an_earlier_run_has_only_its_result_here() -> None:
    seen = between(ToolCallEnded(CALL), ToolResulted(CALL, "erased"))
    assert types_of(seen) == ["TOOL_CALL_RESULT"]


def test_a_call_that_broke_off_has_a_result() -> None:
    """A client would take it for one of its own."""
    [_, _, result] = between(ToolCallStarted(CALL, "look", client=False))
    assert (result["type"], result["metadata"]["synthetic"]) == ("TOOL_CALL_RESULT", "interrupted")


# ---------------------------------------------------------------- ends
def end_of(outcome: Any, *events: RunEvent) -> Json:
    return said_by(encoder(), *events, RunFinished(outcome))[-1]


@pytest.mark.parametrize("reason", ["max_tokens", "max_turns", "refusal", "budget"])
def test_an_end_that_is_not_the_answers_own_has_its_reason(reason: CompletedReason) -> None:
    assert end_of(Completed(reason)) == {**FINISHED, "metadata": {"reason": reason}}


def test_client_tools_are_pending() -> None:
    owed = (Owed(CALL, "paint", "{}"), Owed(OTHER, "paint", "{}"))
    assert end_of(HandedBack(owed))["outcome"] == {
        "type": "success",
        "pendingToolCallIds": [CALL, OTHER],
    }


def test_an_approval_and_a_question_are_interrupts() -> None:
    owed = (
        Owed(CALL, "erase", '{"a":1}', "approval", "It cannot be undone.", parent_id=DEEP),
        Owed(OTHER, "ask_user", "{}", "question"),
        Owed(DEEP, "paint", "{}"),
    )
    end = end_of(HandedBack(owed))
    assert end["metadata"] == {"pendingToolCallIds": [DEEP]}
    approval, question = end["outcome"]["interrupts"]
    assert approval["responseSchema"]["required"] == ["approved"]
    assert question["responseSchema"]["required"] == ["answers"]
    del approval["responseSchema"], question["responseSchema"]
    assert approval == {
        "id": CALL,
        "reason": "tool_call",
        "message": "It cannot be undone.",
        "toolCallId": CALL,
        "subagentRunId": DEEP,
        "metadata": {"kind": "approval", "toolCallName": "erase", "arguments": '{"a":1}'},
    }
    assert question == {
        "id": OTHER,
        "reason": "input_required",
        "toolCallId": OTHER,
        "metadata": {"kind": "question", "toolCallName": "ask_user", "arguments": "{}"},
    }


def test_only_what_is_owed_is_pending_and_interrupts_may_expire() -> None:
    assert owed_outcome(()) == {"outcome": None}
    outcome: Any = owed_outcome([Owed(CALL, "erase", "{}", "approval")], "2026-01-01T00:00:00Z")
    assert outcome["metadata"] is None
    assert outcome["outcome"]["interrupts"][0]["expiresAt"] == "2026-01-01T00:00:00Z"


def test_a_cancelled_run_says_so_and_leaves_nothing_open() -> None:
    seen = said_by(encoder(), TURN, TextDelta("a"), RunFinished(Cancelled()))
    assert types_of(seen)[-3:] == ["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED"]
    assert seen[-1]["outcome"] == {"type": "cancelled"}


def test_a_failed_run_ends_with_an_error() -> None:
    failed = Failed("model_error", "it is gone", True, 2.5)
    assert end_of(failed, TURN, TextDelta("a")) == {
        "type": "RUN_ERROR",
        "message": "it is gone",
        "code": "model_error",
        "metadata": {"retryable": True, "retryAfter": 2.5},
    }


def test_a_stream_that_cannot_go_on_ends_with_an_error_once() -> None:
    made = encoder()
    said_by(made, TURN, TextDelta("a"))
    failed = Failed("rewound", "read it again", retryable=True)
    assert types_of([json_of(each) for each in made.fail(failed)]) == [
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_ERROR",
    ]
    assert (list(made.fail(failed)), said_by(made, DONE)) == ([], [])


def test_usage_is_that_of_each_model_and_the_result_is_the_accepted_value() -> None:
    end = end_of(
        Completed(),
        UsageReported(Usage(10, 2, 4, 1), model="openai:gpt-5"),
        Nested(CALL, UsageReported(Usage(1, 1), model="openai:gpt-5")),
        UsageReported(Usage(3, 4), model="demo"),
        UsageReported(Usage(5, 6)),
        OutputAccepted({"a": [1]}),
    )
    assert end["result"] == {"a": [1]}
    assert end["usage"] == [
        {
            "provider": "openai",
            "model": "gpt-5",
            "inputTokens": 11,
            "outputTokens": 3,
            "totalTokens": 14,
            "reasoningTokens": 1,
            "cachedInputTokens": 4,
        },
        {
            "model": "demo",
            "inputTokens": 3,
            "outputTokens": 4,
            "totalTokens": 7,
            "reasoningTokens": 0,
            "cachedInputTokens": 0,
        },
        {
            "inputTokens": 5,
            "outputTokens": 6,
            "totalTokens": 11,
            "reasoningTokens": 0,
            "cachedInputTokens": 0,
        },
    ]


# ---------------------------------------------------------------- state
def test_the_first_plan_keeps_the_clients_state_and_later_ones_are_changes() -> None:
    one, two = PlanUpdated((PlanEntry("a"),)), PlanUpdated((PlanEntry("b", "high", "completed"),))
    entry = {"content": "a", "priority": "medium", "status": "pending"}
    later = {"content": "b", "priority": "high", "status": "completed"}
    assert between(one, two, state={"color": "red"}) == [
        {"type": "STATE_SNAPSHOT", "snapshot": {"color": "red", "plan": [entry]}},
        {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/plan", "value": [later]}]},
    ]
    assert types_of(between(one)) == ["STATE_DELTA"]


def test_a_history_is_sent_before_the_run_with_the_plan() -> None:
    made = encoder(history='[{"id":"u"}]', plan=(PlanEntry("a"),), state={})
    said = said_by(made, DONE)
    assert types_of(said) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"]
    assert said[1]["messages"] == [{"id": "u"}]
    assert said[-1] == FINISHED


def test_a_key_that_clients_do_not_apply_is_left_out() -> None:
    shared = {"__proto__": 1, "a": 1}
    changed = StateChanged({"__proto__": 2, "b": {"__proto__": 3}}, ("__proto__",))
    assert (
        between(changed, changed, state={"__proto__": 0}, shared=shared)[1:]
        == [
            {
                "type": "STATE_DELTA",
                "delta": [{"op": "add", "path": "/b", "value": {"__proto__": 3}}],
            }
        ]
        * 2
    )
    # a client that has the rest is sent nothing
    assert between(state={"a": 1}, shared=shared) == []


def test_what_tools_write_is_the_state_and_later_changes_of_it() -> None:
    changed = StateChanged({"a/b~": 1}, ("gone",))
    shared = {"color": "red", "gone": 1}
    plan = PlanUpdated((PlanEntry("a"),))
    entry = {"content": "a", "priority": "medium", "status": "pending"}
    assert between(changed, Nested(CALL, changed), plan, state={"mine": 0}, shared=shared) == [
        {"type": "STATE_SNAPSHOT", "snapshot": {"mine": 0, "color": "red", "gone": 1}},
        *[
            {
                "type": "STATE_DELTA",
                "delta": [
                    {"op": "add", "path": "/a~1b~0", "value": 1},
                    {"op": "add", "path": "/gone", "value": None},
                    {"op": "remove", "path": "/gone"},
                ],
            }
        ]
        * 2,
        {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/plan", "value": [entry]}]},
    ]
    # a client that has it all is sent changes only
    assert between(changed, state={**shared, "mine": 0}, shared=shared) == [
        {"type": "STATE_SNAPSHOT", "snapshot": {"mine": 0, "color": "red", "a/b~": 1}}
    ]
    assert between(state=shared, shared=shared) == []


# ---------------------------------------------------------------- sub-agents
def helped(*events: RunEvent, call: CallId = CALL) -> list[RunEvent]:
    return [Nested(call, event) for event in events]


def test_a_sub_agent_has_its_own_messages_and_ends_with_its_call() -> None:
    seen = without_steps(
        between(
            TURN,
            ToolCallStarted(CALL, "helper", client=False),
            ToolCallEnded(CALL),
            *helped(TurnStarted(MessageId("h1")), ReasoningDelta("hm"), TextDelta("found")),
            *helped(PlanUpdated((PlanEntry("a"),)), RunFinished(Completed())),
            ToolResulted(CALL, "found"),
        )
    )
    tag = {"subagentRunId": CALL}
    assert seen[2] == {
        "type": "SUBAGENT_STARTED",
        **tag,
        "name": "helper",
        "parentToolCallId": CALL,
        "parentMessageId": "m1",
    }
    assert all(each["subagentRunId"] == CALL for each in seen[2:-1])
    assert types_of(seen)[-4:] == [
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "SUBAGENT_FINISHED",
        "TOOL_CALL_RESULT",
    ]
    assert seen[-2] == {"type": "SUBAGENT_FINISHED", **tag, "outcome": {"type": "success"}}
    assert "subagentRunId" not in seen[-1]


def test_sub_agents_speak_at_once() -> None:
    one, two = helped(TextDelta("a")), helped(TextDelta("b"), call=OTHER)
    seen = between(*one, *two, *one, *two)
    texts = [each for each in seen if each["type"] == "TEXT_MESSAGE_CONTENT"]
    assert [(each["messageId"], each["delta"]) for each in texts] == [
        ("call_1_message", "a"),
        ("call_2_message", "b"),
        ("call_1_message", "a"),
        ("call_2_message", "b"),
    ]


def test_a_failed_sub_agent_ends_with_those_that_it_called_and_says_no_more() -> None:
    deep = Nested(CALL, Nested(DEEP, TextDelta("deep")))
    seen = between(
        *helped(ToolCallStarted(DEEP, "deeper", client=False)),
        deep,
        ToolResulted(CALL, "gone", is_error=True),
        deep,
        *helped(TextDelta("late")),
    )
    kinds = [(each["type"], each.get("subagentRunId")) for each in seen]
    assert kinds[-6:] == [
        ("TEXT_MESSAGE_END", DEEP),
        ("SUBAGENT_ERROR", DEEP),
        ("TOOL_CALL_END", CALL),
        ("TOOL_CALL_RESULT", CALL),
        ("SUBAGENT_ERROR", CALL),
        ("TOOL_CALL_RESULT", None),
    ]
    started = [each for each in seen if each["type"] == "SUBAGENT_STARTED"]
    assert started[1] == {
        "type": "SUBAGENT_STARTED",
        "subagentRunId": DEEP,
        "name": "deeper",
        "parentSubagentRunId": CALL,
        "parentToolCallId": DEEP,
        "parentMessageId": "call_1_message",
    }


def test_sub_agents_that_wait_for_the_client_are_suspended() -> None:
    owed = (
        Owed(OTHER, "erase", "{}", "approval", parent_id=DEEP),
        Owed(CallId("call_4"), "paint", "{}", parent_id=CALL),
    )
    seen = said_by(
        encoder(),
        *helped(TextDelta("a")),
        *helped(TextDelta("b"), call=DEEP),
        RunFinished(HandedBack(owed)),
    )
    suspended = [each for each in seen if each["type"] == "SUBAGENT_FINISHED"]
    assert [(each["subagentRunId"], each["outcome"]) for each in suspended] == [
        (DEEP, {"type": "suspended", "interruptIds": [OTHER]}),
        (CALL, {"type": "suspended"}),
    ]


def test_sub_agents_of_a_cancelled_run_end_with_an_error() -> None:
    seen = said_by(encoder(), *helped(TextDelta("a")), RunFinished(Cancelled()))
    assert [each["message"] for each in seen if each["type"] == "SUBAGENT_ERROR"] == ["cancelled"]


def test_a_sub_agent_that_goes_on_has_the_name_that_an_earlier_run_called() -> None:
    known = {CALL: ToolCall(CALL, "helper", "{}")}
    started = [
        between(TURN, *helped(TextDelta("a")), known=each)[1]
        for each in (known, {OTHER: known[CALL]})
    ]
    assert [each["name"] for each in started] == ["helper", "agent"]
    assert "parentMessageId" not in started[0]


# ---------------------------------------------------------------- any events at all
@examples(300)
@given(st.lists(EVENTS, max_size=20), OUTCOMES)
def test_what_begins_ends_whatever_the_events_are(events: list[RunEvent], outcome: Any) -> None:
    made = encoder(state={})
    seen = said_by(made, *events, RunFinished(outcome))
    open_ones: set[tuple[str, str]] = set()
    for each in seen:
        kind = each["type"]
        name = next(
            (each[key] for key in ("messageId", "toolCallId", "stepName") if key in each),
            each.get("subagentRunId", ""),
        )
        owner = "" if kind.startswith("SUBAGENT") else each.get("subagentRunId", "")
        what, _, phase = kind.rpartition("_")
        entry = (what, f"{owner} {name}")
        if phase in {"START", "STARTED"} and what != "RUN":
            assert entry not in open_ones
            open_ones.add(entry)
        elif phase in {"CONTENT", "ARGS"}:
            assert entry in open_ones
        elif (phase in {"END", "FINISHED"} and what != "RUN") or kind == "SUBAGENT_ERROR":
            open_ones.remove(entry)
    assert not open_ones
    assert seen[0] == STARTED
    ends = [each for each in seen if each["type"] in {"RUN_FINISHED", "RUN_ERROR"}]
    assert ends == seen[-1:]
