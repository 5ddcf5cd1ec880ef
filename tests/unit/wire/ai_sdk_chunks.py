"""Chunks of the AI SDK, as tests of its encoder expect them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.ai_sdk import Json

from passback.core.events import (
    Completed,
    RunEvent,
    RunFinished,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
)
from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    MessageId,
    OwnerId,
    RunId,
    RunRef,
)
from passback.wire.ai_sdk.encoder import UiEncoder

RUN = RunRef(ConversationKey(OwnerId("o"), ConversationId("c")), RunId("run_1"))
TURN = TurnStarted(MessageId("m"))
A, B = CallId("call_a"), CallId("call_b")
END = RunFinished(Completed())
SERVER: Json = {"dynamic": True, "providerExecuted": True}
BEGIN: Json = {
    "type": "start",
    "messageId": "run_1",
    "messageMetadata": {"conversationId": "c", "runId": "run_1"},
}
STEP: Json = {"type": "start-step"}
STEP_END: Json = {"type": "finish-step"}
STOP: Json = {"type": "finish", "finishReason": "stop", "messageMetadata": {"reason": "end_turn"}}
HANDED: Json = {"type": "finish", "finishReason": "tool-calls", "messageMetadata": {}}


def encoder(message_id: str = "run_1", **more: Any) -> UiEncoder:
    return UiEncoder(RUN, message_id, **more)


def fed(one: UiEncoder, *events: RunEvent) -> list[Json]:
    return [json.loads(chunk) for event in events for chunk in one.feed(event)]


def play(*events: RunEvent, **more: Any) -> list[Json]:
    return fed(encoder(**more), *events)


def body(*events: RunEvent, **more: Any) -> list[Json]:
    """Return what comes between the message's start and its finish."""
    first, *between, last = play(*events, END, **more)
    assert (first["type"], last["type"]) == ("start", "finish")
    return between


def call(call_id: CallId, arguments: str = "{}", **more: Any) -> Sequence[RunEvent]:
    begun = replace(ToolCallStarted(call_id, "look", client=False), **more)
    return (begun, ToolCallArguments(call_id, arguments), ToolCallEnded(call_id))


def chunks_of_call(call_id: CallId, value: object = {}, **flags: Any) -> list[Json]:
    named = {"toolCallId": call_id, "toolName": "look"}
    text = json.dumps(value, separators=(",", ":"))
    return [
        {"type": "tool-input-start", **named, **flags},
        {"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": text},
        {"type": "tool-input-available", **named, "input": value, **flags},
    ]


def chunks_of_request(call_id: CallId, name: str = "look", **more: Any) -> list[Json]:
    """A request for approval: the call is begun again as one that is not executed here."""
    reason = more.pop("reason", None)
    flags = {"dynamic": True, "providerExecuted": False, **more}
    asked = {"type": "tool-approval-request", "approvalId": call_id, "toolCallId": call_id}
    return [
        {"type": "tool-input-start", "toolCallId": call_id, "toolName": name, **flags},
        {"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": "{}"},
        {**asked, "reason": reason} if reason else asked,
    ]


def output(call_id: CallId, value: object) -> Json:
    return {
        "type": "tool-output-available",
        "toolCallId": call_id,
        "output": value,
        "providerExecuted": True,
    }


def failure(call_id: CallId, text: str) -> Json:
    return {
        "type": "tool-output-error",
        "toolCallId": call_id,
        "errorText": text,
        "providerExecuted": True,
    }
