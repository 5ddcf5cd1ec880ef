"""Run events become chunks of a UI message."""

import json
from typing import Any

import pytest
from tests.support.ai_sdk import Json
from tests.unit.wire.ai_sdk_chunks import (
    BEGIN,
    END,
    HANDED,
    RUN,
    SERVER,
    STEP,
    STEP_END,
    STOP,
    TURN,
    A,
    B,
    body,
    call,
    chunks_of_call,
    chunks_of_request,
    encoder,
    failure,
    fed,
    output,
    play,
)

from passback.core.events import (
    START,
    Cancelled,
    Compacted,
    Completed,
    ContextWarned,
    Cursor,
    Failed,
    HandedBack,
    Nested,
    Outcome,
    OutputAccepted,
    PlanUpdated,
    ReasoningDelta,
    Rewound,
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
    UsageReported,
)
from passback.core.messages import (
    DataPart,
    MediaPart,
    MessageId,
    Owed,
    PlanEntry,
    TextPart,
    Usage,
)
from passback.wire.ai_sdk.encoder import NOT_MADE, UiEncoder, parked_chunks


# ---------------------------------------------------------------- texts, steps and ends
def test_a_run_is_a_message_and_each_turn_a_step() -> None:
    assert play(
        RunStarted(RUN.run_id),
        TURN,
        ReasoningDelta("hm, "),
        ReasoningDelta("well"),
        TextDelta('"hi'),
        TextDelta('\u2028"'),
        TurnEnded(MessageId("m")),
        UsageReported(Usage(7, 3, 2, 1)),
        TURN,
        TextDelta("there"),
        UsageReported(Usage(10, 20, estimated=True)),
        RunFinished(Completed(), "gpt"),
    ) == [
        BEGIN,
        STEP,
        {"type": "reasoning-start", "id": "1"},
        {"type": "reasoning-delta", "id": "1", "delta": "hm, "},
        {"type": "reasoning-delta", "id": "1", "delta": "well"},
        {"type": "reasoning-end", "id": "1"},
        {"type": "text-start", "id": "2"},
        {"type": "text-delta", "id": "2", "delta": '"hi'},
        {"type": "text-delta", "id": "2", "delta": '\u2028"'},
        {"type": "text-end", "id": "2"},
        STEP_END,
        STEP,
        {"type": "text-start", "id": "3"},
        {"type": "text-delta", "id": "3", "delta": "there"},
        {"type": "text-end", "id": "3"},
        STEP_END,
        {
            "type": "finish",
            "finishReason": "stop",
            "messageMetadata": {
                "model": "gpt",
                "usage": {
                    "inputTokens": 17,
                    "outputTokens": 23,
                    "totalTokens": 40,
                    "cachedInputTokens": 2,
                    "reasoningTokens": 1,
                    "estimated": True,
                },
                "reason": "end_turn",
            },
        },
    ]


def test_each_chunk_is_one_line_of_ascii_and_the_last_is_done() -> None:
    one = encoder()
    frames = [
        *one.feed(TURN),
        *one.feed(TextDelta("你\n")),
        *one.feed(TextDelta("\u2028")),
        *one.end(),
    ]
    assert all(frame.isascii() and "\n" not in frame for frame in frames)
    assert frames[-1] == "[DONE]"


def test_a_run_that_waits_has_begun_its_message() -> None:
    one = encoder()
    assert fed(one, RunQueued(RUN.run_id)) == [BEGIN]
    assert fed(one, RunStarted(RUN.run_id), ToolBegan(A), Rewound(START)) == []


def test_text_outside_a_turn_opens_a_step() -> None:
    assert body(TextDelta("a command's answer"))[0] == STEP


def test_a_turn_that_says_nothing_leaves_its_step_to_the_next() -> None:
    assert body(TURN, TURN) == [STEP, STEP_END]


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Completed("end_turn"), "stop"),
        (Completed("max_tokens"), "length"),
        (Completed("refusal"), "content-filter"),
        (Completed("max_turns"), "other"),
        (Completed("budget"), "other"),
    ],
)
def test_the_reason_of_an_end_is_the_nearest_one_and_ours_in_the_metadata(
    outcome: Completed, reason: str
) -> None:
    assert play(RunFinished(outcome)) == [
        BEGIN,
        {"type": "finish", "finishReason": reason, "messageMetadata": {"reason": outcome.reason}},
    ]


def test_a_cancelled_run_is_aborted_and_interrupted() -> None:
    assert play(TURN, TextDelta("hal"), RunFinished(Cancelled()))[4:] == [
        {"type": "text-end", "id": "1"},
        STEP_END,
        {"type": "abort", "reason": "cancelled"},
        {"type": "finish", "finishReason": "interrupted", "messageMetadata": {}},
    ]


def test_a_failed_run_ends_with_a_text_for_the_user() -> None:
    failed = Failed("model_error", "the model is gone", retryable=True)
    assert play(TURN, TextDelta("hal"), RunFinished(failed))[4:] == [
        {"type": "text-end", "id": "1"},
        STEP_END,
        {
            "type": "message-metadata",
            "messageMetadata": {"failure": {"code": "model_error", "retryable": True}},
        },
        {"type": "error", "errorText": "the model is gone"},
    ]


def test_a_stream_that_cannot_go_on_ends_with_an_error() -> None:
    one = encoder()
    failed = Failed("store_error", "the store is gone")
    error = {"type": "error", "errorText": "the store is gone"}
    assert [json.loads(chunk) for chunk in one.fail(failed)] == [BEGIN, error]
    fed(one, TURN, TextDelta("a"))
    ended = [json.loads(chunk) for chunk in one.fail(failed)]
    assert ended == [{"type": "text-end", "id": "1"}, error]


# ---------------------------------------------------------------- calls
def test_a_server_tools_call_is_dynamic_and_not_for_the_client() -> None:
    assert body(TURN, TextDelta("on it"), *call(A, title="Look"), ToolResulted(A, "seen")) == [
        STEP,
        {"type": "text-start", "id": "1"},
        {"type": "text-delta", "id": "1", "delta": "on it"},
        {"type": "text-end", "id": "1"},
        *chunks_of_call(A, **SERVER, title="Look"),
        output(A, "seen"),
        STEP_END,
    ]


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ((DataPart({"a": [1]}),), {"a": [1]}),
        (
            (TextPart("a"), TextPart("b")),
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        ),
        (
            (MediaPart("image", "https://x.test/a.png"),),
            [{"type": "image", "url": "https://x.test/a.png"}],
        ),
    ],
)
def test_a_result_is_json_where_it_is_data(content: Any, value: object) -> None:
    assert output(A, value) in body(TURN, *call(A), ToolResulted(A, content))


def test_a_clients_call_ends_the_message_and_is_for_the_client() -> None:
    owed = HandedBack((Owed(A, "look", '{"at":1}'),))
    assert play(TURN, *call(A, '{"at":1}', client=True), RunFinished(owed)) == [
        BEGIN,
        STEP,
        *chunks_of_call(A, {"at": 1}),
        STEP_END,
        HANDED,
    ]


@pytest.mark.parametrize("arguments", ["{", "NaN", '{"a":' * 300 + "1" + "}" * 300])
def test_arguments_that_are_no_json_stay_a_text(arguments: str) -> None:
    chunks = body(TURN, *call(A, arguments))
    [whole] = [each for each in chunks if each["type"] == "tool-input-available"]
    assert whole["input"] == arguments


def test_an_invalid_call_is_settled_here_whosever_tool_it_is() -> None:
    begun = ToolCallStarted(A, "look", client=True)
    invalid = ToolResulted(A, "no such key", True, "invalid")
    between = body(TURN, begun, ToolCallArguments(A, "{"), invalid)
    assert between[3:] == [failure(A, "no such key"), STEP_END]


def test_a_result_before_the_end_of_its_call_ends_the_call() -> None:
    between = body(TURN, *call(A)[:2], ToolResulted(A, "seen"))
    assert between == [STEP, *chunks_of_call(A, **SERVER), output(A, "seen"), STEP_END]


def test_what_belongs_to_no_call_of_the_message_is_left_out() -> None:
    stray = (ToolCallArguments(B, "{}"), ToolCallEnded(B), ToolResulted(B, "x"))
    late = (*call(A), ToolResulted(A, "again"), ToolCallArguments(A, "{}"))
    between = body(TURN, *stray, *call(A), ToolResulted(A, "seen"), *late)
    assert between == [STEP, *chunks_of_call(A, **SERVER), output(A, "seen"), STEP_END]


def test_a_call_that_has_no_result_at_the_end_gets_an_error() -> None:
    between = body(TURN, *call(A), ToolCallStarted(B, "look", client=True))
    begun = {"type": "tool-input-start", "toolCallId": B, "toolName": "look"}
    assert between[4:] == [begun, failure(A, NOT_MADE), failure(B, NOT_MADE), STEP_END]


def test_arguments_that_come_in_another_step_are_left_out() -> None:
    """A client would make a second part of them."""
    begun, piece, ended = call(A)
    between = body(TURN, begun, TURN, piece, ended)
    assert between[2:] == [STEP_END, STEP, failure(A, NOT_MADE), STEP_END]


# ---------------------------------------------------------------- approvals
def test_an_approval_is_asked_for_with_its_call() -> None:
    owed = Owed(A, "look", "{}", "approval", "It cannot be undone.")
    assert play(TURN, *call(A)[:2], RunFinished(HandedBack((owed,)))) == [
        BEGIN,
        STEP,
        *chunks_of_call(A, **SERVER)[:2],
        *chunks_of_request(A, reason="It cannot be undone."),
        STEP_END,
        HANDED,
    ]


def test_calls_that_are_owed_and_not_in_the_message_are_added() -> None:
    owed = (Owed(A, "look", "{}", "approval", parent_id=B), Owed(B, "paint", "{}", "question"))
    of_b: Json = {"toolMetadata": {"parentToolCallId": B}}
    assert play(RunFinished(HandedBack(owed))) == [
        BEGIN,
        STEP,
        *chunks_of_request(A, **of_b),
        {"type": "tool-input-available", "toolCallId": B, "toolName": "paint", "input": {}},
        STEP_END,
        HANDED,
    ]


def test_an_approval_of_an_older_step_is_asked_for_where_the_call_is() -> None:
    owed = Owed(A, "look", "{}", "approval")
    assert play(RunFinished(HandedBack((owed,))), open_calls=[A], continues=True)[1:-1] == [
        chunks_of_request(A)[-1]
    ]


def test_a_run_after_answers_goes_on_with_the_message_of_the_client() -> None:
    going = encoder("mine", open_calls=[A, B], continues=True, usage=Usage(1, 2))
    assert fed(
        going,
        ToolCallEnded(A),
        ToolResulted(A, "seen"),
        ToolResulted(B, "no", True, "denied"),
        UsageReported(Usage(3, 4)),
        TURN,
        TextDelta("done"),
        RunFinished(Completed()),
    ) == [
        {**BEGIN, "messageId": "mine"},
        output(A, "seen"),
        {"type": "tool-output-denied", "toolCallId": B},
        STEP,
        {"type": "text-start", "id": "1"},
        {"type": "text-delta", "id": "1", "delta": "done"},
        {"type": "text-end", "id": "1"},
        STEP_END,
        {
            "type": "finish",
            "finishReason": "stop",
            "messageMetadata": {
                "usage": {
                    "inputTokens": 4,
                    "outputTokens": 6,
                    "totalTokens": 10,
                    "cachedInputTokens": 0,
                    "reasoningTokens": 0,
                },
                "reason": "end_turn",
            },
        },
    ]


@pytest.mark.parametrize("outcome", [Completed(), Cancelled(), Failed("lost", "lost")])
def test_a_run_after_answers_that_says_nothing_adds_a_step(outcome: Outcome) -> None:
    """Otherwise a client posts the answers of the last step for ever."""
    going = play(RunFinished(outcome), continues=True, open_calls=[A])
    assert going[1:4] == [failure(A, NOT_MADE), STEP, STEP_END]
    begun = play(RunFinished(outcome))
    assert STEP not in begun


def test_results_that_leave_other_calls_open_add_no_step() -> None:
    assert [json.loads(each) for each in parked_chunks("run_1")[:-1]] == [
        {"type": "start", "messageId": "run_1"},
        {"type": "finish", "finishReason": "tool-calls"},
    ]
    assert parked_chunks("run_1")[-1] == "[DONE]"


# ---------------------------------------------------------------- sub-agents
def test_a_sub_agents_calls_name_the_call_that_they_work_on_and_its_text_is_live_only() -> None:
    of_a = {"toolMetadata": {"parentToolCallId": A}}
    inner = (
        TURN,
        TextDelta("look"),
        ReasoningDelta("hm"),
        *call(B),
        ToolResulted(B, "seen"),
        UsageReported(Usage(1, 1)),
        OutputAccepted({}),
        PlanUpdated((PlanEntry("b"),)),
    )
    between = body(
        TURN,
        *call(A),
        *(Nested(A, each) for each in inner),
        Nested(A, Nested(B, TextDelta("deep"))),
        ToolResulted(A, "done"),
    )
    entry = {"content": "b", "priority": "medium", "status": "pending"}
    assert between == [
        STEP,
        *chunks_of_call(A, **SERVER),
        {
            "type": "data-agent-text",
            "data": {"parentToolCallId": A, "delta": "look"},
            "transient": True,
        },
        *chunks_of_call(B, **SERVER, **of_a),
        output(B, "seen"),
        {"type": "data-plan", "id": A, "data": {"entries": [entry], "parentToolCallId": A}},
        {
            "type": "data-agent-text",
            "data": {"parentToolCallId": B, "delta": "deep"},
            "transient": True,
        },
        output(A, "done"),
        STEP_END,
    ]
    ended = play(Nested(A, UsageReported(Usage(5, 6))), END)[-1]
    assert ended["messageMetadata"]["usage"]["totalTokens"] == 11


def test_what_a_sub_agent_left_open_ends_with_its_own_call() -> None:
    inner = [Nested(A, each) for each in call(B)]
    between = body(TURN, *call(A), *inner, ToolResulted(A, "it failed", True), TextDelta("so"))
    ends = [each for each in between if each["type"] == "tool-output-error"]
    assert ends == [failure(A, "it failed"), failure(B, NOT_MADE)]
    assert between.index(ends[1]) < between.index({"type": "text-start", "id": "1"})


def test_a_sub_agents_call_does_not_end_the_agents_text() -> None:
    between = body(TURN, TextDelta("a"), Nested(A, call(B)[0]), TextDelta("b"))
    texts = [each for each in between if each["type"].startswith("text-")]
    assert [each["type"] for each in texts] == [
        "text-start",
        "text-delta",
        "text-delta",
        "text-end",
    ]


# ---------------------------------------------------------------- data
def test_plan_progress_and_output_are_parts_and_the_context_is_live_only() -> None:
    plan = PlanUpdated((PlanEntry("a", "high", "completed"),))
    between = body(
        TURN,
        plan,
        *call(A),
        ToolProgressed(A, "half"),
        ContextWarned(90, 100),
        Compacted("snip", 90, 50),
        OutputAccepted({"b": 1}),
    )
    entry = {"content": "a", "priority": "high", "status": "completed"}
    data = [each for each in between if each["type"].startswith("data-")]
    assert data[:2] == [
        {"type": "data-plan", "id": "plan", "data": {"entries": [entry]}},
        {"type": "data-progress", "id": A, "data": {"toolCallId": A, "text": "half"}},
    ]
    assert [(each["type"], each["transient"]) for each in data[2:4]] == [("data-context", True)] * 2
    assert data[4:] == [{"type": "data-output", "id": "output", "data": {"b": 1}}]


def test_a_change_of_the_shared_state_is_live_only() -> None:
    changed = StateChanged({"a": 1}, ("b",))
    chunk = {
        "type": "data-state",
        "data": {"type": "state", "values": {"a": 1}, "removed": ["b"]},
        "transient": True,
    }
    assert [each for each in body(TURN, changed, Nested(A, changed)) if each == chunk] == [
        chunk
    ] * 2


# ---------------------------------------------------------------- take-overs
REWOUND: Json = {"type": "data-rewind", "data": {}, "transient": True}


def rewound(one: UiEncoder) -> list[Json]:
    return [json.loads(chunk) for chunk in one.rewind(Cursor(RUN.run_id, START))]


def test_a_turn_that_is_void_takes_its_step_back() -> None:
    one = encoder()
    fed(one, TURN, *call(A), TurnEnded(MessageId("m")), ToolResulted(A, "seen"), TURN)
    fed(one, TextDelta("hal"), *call(B))
    assert rewound(one) == [{"type": "reset-step"}, REWOUND]
    assert fed(one, TURN, TextDelta("whole"), END) == [
        {"type": "text-start", "id": "2"},
        {"type": "text-delta", "id": "2", "delta": "whole"},
        {"type": "text-end", "id": "2"},
        STEP_END,
        STOP,
    ]


def test_a_turn_that_is_stored_stays_when_its_tools_are_made_again() -> None:
    one = encoder()
    fed(one, TURN, *call(A), TurnEnded(MessageId("m")), ToolProgressed(A, "half"))
    assert rewound(one) == [REWOUND]
    assert fed(one, ToolResulted(A, "seen")) == [output(A, "seen")]
