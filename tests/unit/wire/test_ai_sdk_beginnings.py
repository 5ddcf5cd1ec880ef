"""A message that a client needs from its beginning is shown as its runs have shown it."""

from tests.unit.wire.ai_sdk_chunks import (
    BEGIN,
    END,
    SERVER,
    STEP,
    STEP_END,
    TURN,
    A,
    B,
    chunks_of_call,
    chunks_of_request,
    failure,
    output,
    play,
)

from passback.core.events import (
    Cancelled,
    RunFinished,
    TextDelta,
    ToolResulted,
)
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    ChildMessage,
    DataPart,
    Message,
    MessageId,
    Reasoning,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
)
from passback.wire.ai_sdk.encoder import NOT_MADE

WIPE = ToolCall(CallId("call_w"), "wipe", "{}", asks="approval", title="Wipe")
PAINT = ToolCall(A, "look", "{}", client=True)
FAILS = ToolCall(B, "look", "{}", client=True)
LATE = ToolCall(CallId("call_l"), "look", "{}", client=True)
INNER = ToolCall(CallId("call_i"), "look", "{}")
_CHILD = AssistantMessage(MessageId("m2"), "secret", (INNER,), usage=Usage(1, 1))
EARLIER: tuple[Message, ...] = (
    AssistantMessage(
        MessageId("m1"),
        "on it",
        (WIPE, PAINT, FAILS, LATE),
        (Reasoning("hm", "p"),),
        usage=Usage(2, 2),
    ),
    ChildMessage(WIPE.id, _CHILD),
    ChildMessage(WIPE.id, ToolMessage(MessageId("t0"), INNER.id, "in")),
    ToolMessage(MessageId("t1"), A, (DataPart(1),)),
    ToolMessage(MessageId("t2"), B, "broken", is_error=True),
    ToolMessage(MessageId("t3"), LATE.id, "late", True, "timeout"),
    ToolMessage(MessageId("t4"), CallId("call_x"), "unknown"),
    ApprovalMessage(MessageId("y"), WIPE.id, True, "fine"),
    ApprovalMessage(MessageId("z"), CallId("call_x"), True),
    SystemMessage(MessageId("s"), "no", "invalid"),
)


def test_the_beginning_of_a_message_is_shown_as_its_run_has_shown_it() -> None:
    chunks = play(TURN, TextDelta("done"), END, earlier=EARLIER, continues=True)
    named = {"toolCallId": WIPE.id, "toolName": "wipe"}
    of_wipe = {"toolMetadata": {"parentToolCallId": WIPE.id}}
    assert chunks == [
        BEGIN,
        STEP,
        {"type": "reasoning-start", "id": "1"},
        {"type": "reasoning-delta", "id": "1", "delta": "hm"},
        {"type": "reasoning-end", "id": "1"},
        {"type": "text-start", "id": "2"},
        {"type": "text-delta", "id": "2", "delta": "on it"},
        {"type": "text-end", "id": "2"},
        {"type": "tool-input-start", **named, **SERVER, "title": "Wipe"},
        {"type": "tool-input-delta", "toolCallId": WIPE.id, "inputTextDelta": "{}"},
        {"type": "tool-input-available", **named, "input": {}, **SERVER, "title": "Wipe"},
        *chunks_of_call(A),
        *chunks_of_call(B),
        *chunks_of_call(LATE.id),
        *chunks_of_call(INNER.id, **SERVER, **of_wipe),
        output(INNER.id, "in"),
        {"type": "tool-output-available", "toolCallId": A, "output": 1},
        {"type": "tool-output-error", "toolCallId": B, "errorText": "broken"},
        failure(LATE.id, "late"),
        *chunks_of_request(WIPE.id, "wipe", title="Wipe"),
        {
            "type": "tool-approval-response",
            "approvalId": WIPE.id,
            "approved": True,
            "reason": "fine",
        },
        STEP_END,
        STEP,
        {"type": "text-start", "id": "3"},
        {"type": "text-delta", "id": "3", "delta": "done"},
        {"type": "text-end", "id": "3"},
        failure(WIPE.id, NOT_MADE),
        STEP_END,
        {
            "type": "finish",
            "finishReason": "stop",
            "messageMetadata": {
                "usage": {
                    "inputTokens": 3,
                    "outputTokens": 3,
                    "totalTokens": 6,
                    "cachedInputTokens": 0,
                    "reasoningTokens": 0,
                },
                "reason": "end_turn",
            },
        },
    ]


def test_a_beginning_without_words_shows_its_calls_and_a_denial_without_a_reason() -> None:
    asked = ToolCall(A, "look", "{}", asks="approval")
    earlier: tuple[Message, ...] = (
        AssistantMessage(MessageId("m1"), "", (asked,)),
        ApprovalMessage(MessageId("y"), A, False),
    )
    denied = ToolResulted(A, "the user denied it", True, "denied")
    chunks = play(denied, RunFinished(Cancelled()), earlier=earlier, continues=True)
    assert chunks[1:] == [
        STEP,
        *chunks_of_call(A, **SERVER),
        *chunks_of_request(A),
        {"type": "tool-approval-response", "approvalId": A, "approved": False},
        STEP_END,
        {"type": "tool-output-denied", "toolCallId": A},
        STEP,
        STEP_END,
        {"type": "abort", "reason": "cancelled"},
        {"type": "finish", "finishReason": "interrupted", "messageMetadata": {}},
    ]
