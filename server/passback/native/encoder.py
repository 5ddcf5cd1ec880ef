"""The encoder of the native events of the `/send-message` protocol, which several routes share."""

import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import TypeAlias, assert_never

from passback.core.events import (
    Compacted,
    Completed,
    ContextWarned,
    Cursor,
    Failed,
    HandedBack,
    Nested,
    OutputAccepted,
    PlanUpdated,
    ReasoningDelta,
    Rewound,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import CallId, MediaPart, Owed, as_text
from passback.native.shapes import (
    ApprovalPayload,
    ContextEvent,
    ErrorEvent,
    InterruptEvent,
    MessageEvent,
    NativeEvent,
    OwedCall,
    OwedEvent,
    PlanEvent,
    ReasoningEvent,
    RunEndEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    ToolProgressEvent,
    ToolResultEvent,
    UsageEvent,
    left_view,
    plan_entry,
    usage_view,
)

INCLUDABLE = frozenset(
    {
        *("agents", "context", "message-ids", "output", "owed", "plan", "progress"),
        *("reasoning", "rewind", "run", "usage"),
    }
)
"""What a request may ask to be told beyond the protocol's own events."""

DONE = "[DONE]"


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def native_data(event: NativeEvent, /) -> str:
    """An event as one line of ASCII."""
    return _encode(event)


# ---------------------------------------------------------------- run events to native ones
_CallEvent: TypeAlias = ToolCallStarted | ToolCallArguments | ToolCallEnded | ToolResulted
_CountedEvent: TypeAlias = UsageReported | ContextWarned | Compacted
_RunEvent: TypeAlias = RunQueued | RunStarted | OutputAccepted
_StepEvent: TypeAlias = TurnStarted | ReasoningDelta | ToolProgressed | PlanUpdated | _CountedEvent

_WANTED: Mapping[type[RunEvent], str] = {
    RunQueued: "run",
    RunStarted: "run",
    OutputAccepted: "output",
    TurnStarted: "message-ids",
    ReasoningDelta: "reasoning",
    ToolProgressed: "progress",
    PlanUpdated: "plan",
    UsageReported: "usage",
    ContextWarned: "context",
    Compacted: "context",
}
"""What has to be included for an event to be sent."""


class NativeEncoder:
    """Run events to native ones, without a memory, so that a stream may begin anywhere in a run.

    Args:
        include: of `INCLUDABLE`.
    """

    def __init__(self, include: frozenset[str] = frozenset()) -> None:
        self._include = include

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        match event:
            case TextDelta():
                return (f'{{"type":"text","content":{quoted(event.text)}}}',)
            case ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | ToolResulted():
                return (native_data(_call_event(event)),)
            case RunFinished():
                return [native_data(native) for native in self._endings(event)]
            case (
                RunQueued()
                | RunStarted()
                | TurnStarted()
                | ReasoningDelta()
                | UsageReported()
                | ToolProgressed()
                | PlanUpdated()
                | OutputAccepted()
                | ContextWarned()
                | Compacted()
            ):
                is_wanted = _WANTED[type(event)] in self._include
                return (native_data(_asked_event(event)),) if is_wanted else ()
            case Nested(call_id, inner):
                return self._nested(call_id, inner)
            case Rewound():  # `rewind` tells of it
                return ()
            case _:
                assert_never(event)

    def _nested(self, parent: CallId, event: RunEvent) -> Sequence[str]:
        """What a sub-agent says. Its calls are told like all others; its words are not the answer, and have to be asked for."""
        match event:
            case Nested(call_id, inner):
                return self._nested(call_id, inner)
            case TextDelta(text):
                wanted: set[str] = {"agents"}
                said: NativeEvent = {
                    "type": "agent-text",
                    "parentToolCallId": parent,
                    "delta": text,
                }
            case ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | ToolResulted():
                wanted, said = set(), _call_event(event, parent)
            case (
                TurnStarted()
                | ReasoningDelta()
                | ToolProgressed()
                | PlanUpdated()
                | ContextWarned()
                | Compacted()
            ):
                wanted, said = {"agents", _WANTED[type(event)]}, _step_event(event, parent)
            case UsageReported():  # without it, a sum of what was used would be too small
                wanted, said = {"usage"}, _step_event(event, parent)
            case _:  # its run is not one of the client's
                return ()
        return (native_data(said),) if wanted <= self._include else ()

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        if "rewind" not in self._include:
            return ()
        return (native_data({"type": "rewind", "to": str(to)}),)

    def fail(self, failed: Failed, /) -> Sequence[str]:
        return (native_data(_error(failed)),)

    def end(self) -> Sequence[str]:
        return (DONE,)

    def _endings(self, end: RunFinished) -> list[NativeEvent]:
        outcome = end.outcome
        endings: list[NativeEvent] = []
        if isinstance(outcome, Failed):
            endings.append(_error(outcome))
        if isinstance(outcome, HandedBack):
            endings.extend(_interrupt(each) for each in outcome.owed if each.kind == "approval")
            if "owed" in self._include:
                endings.append(owed_event(outcome.owed))
        if "run" in self._include:
            endings.append(_run_end(end))
        return endings


def _call_event(event: _CallEvent, parent: CallId | None = None) -> NativeEvent:
    native: ToolCallStartEvent | ToolCallArgsEvent | ToolCallEndEvent | ToolResultEvent
    match event:
        case ToolCallStarted(call_id, name):
            native = {"type": "tool-call-start", "toolCallId": call_id, "toolCallName": name}
        case ToolCallArguments(call_id, delta):
            native = {"type": "tool-call-args", "toolCallId": call_id, "delta": delta}
        case ToolCallEnded(call_id):
            native = {"type": "tool-call-end", "toolCallId": call_id}
        case ToolResulted():
            native = _result(event)
        case _:
            assert_never(event)
    if parent is not None:
        native["parentToolCallId"] = parent
    return native


def _result(event: ToolResulted) -> ToolResultEvent:
    result = as_text(event.content, media=_url)
    native: ToolResultEvent = {"type": "tool-result", "toolCallId": event.call_id, "result": result}
    if event.is_error:
        native["isError"] = True
    if event.synthetic:
        native["synthetic"] = event.synthetic
    return native


def _url(part: MediaPart) -> str:
    return part.url


def _asked_event(event: _RunEvent | _StepEvent) -> NativeEvent:
    match event:
        case RunQueued(run_id):
            return {"type": "run-queued", "runId": run_id}
        case RunStarted(run_id):
            return {"type": "run-start", "runId": run_id}
        case OutputAccepted(accepted):
            return {"type": "output", "value": accepted}
        case _:
            return _step_event(event)


def _step_event(event: _StepEvent, parent: CallId | None = None) -> NativeEvent:
    native: (
        ReasoningEvent | UsageEvent | MessageEvent | ToolProgressEvent | PlanEvent | ContextEvent
    )
    match event:
        case TurnStarted(message_id):
            native = {"type": "message", "messageId": message_id}
        case ReasoningDelta(text):
            native = {"type": "reasoning", "delta": text}
        case ToolProgressed(call_id, text):
            native = {"type": "tool-progress", "toolCallId": call_id, "text": text}
        case PlanUpdated(entries):
            native = {"type": "plan", "entries": [plan_entry(each) for each in entries]}
        case _:
            native = _counted_event(event)
    if parent is not None:
        native["parentToolCallId"] = parent
    return native


def _counted_event(event: _CountedEvent) -> UsageEvent | ContextEvent:
    match event:
        case UsageReported():
            return _usage(event)
        case ContextWarned(used, window):
            return {"type": "context", "used": used, "window": window}
        case Compacted(step, before, after):
            return {"type": "context", "used": after, "step": step, "before": before}
        case _:
            assert_never(event)


def _usage(reported: UsageReported) -> UsageEvent:
    view, left = usage_view(reported.usage), reported.left
    event: UsageEvent = {
        "type": "usage",
        "inputTokens": view["inputTokens"],
        "outputTokens": view["outputTokens"],
        "cachedTokens": view["cachedTokens"],
        "reasoningTokens": view["reasoningTokens"],
    }
    if "estimated" in view:
        event["estimated"] = True
    if left is not None:
        event["left"] = left_view(left)
    if reported.model:
        event["model"] = reported.model
    return event


def _error(failed: Failed) -> ErrorEvent:
    error: ErrorEvent = {
        "type": "error",
        "error": failed.message,
        "code": failed.code,
        "retryable": failed.retryable,
    }
    if failed.retry_after is not None:
        error["retryAfter"] = failed.retry_after
    return error


def _run_end(end: RunFinished) -> RunEndEvent:
    outcome = end.outcome
    native: RunEndEvent = {"type": "run-end", "outcome": outcome.type}
    if isinstance(outcome, Completed):
        native["reason"] = outcome.reason
    elif isinstance(outcome, Failed):
        native["reason"] = outcome.code
    if end.model:
        native["model"] = end.model
    return native


def _interrupt(owed: Owed) -> InterruptEvent:
    payload: ApprovalPayload = {
        "kind": "approval",
        "toolCallId": owed.id,
        "toolCallName": owed.name,
        "arguments": owed.arguments,
    }
    return {"type": "interrupt", "id": owed.id, "reason": owed.reason, "payload": payload}


def owed_call(owed: Owed, /) -> OwedCall:
    call: OwedCall = {
        "id": owed.id,
        "name": owed.name,
        "arguments": owed.arguments,
        "kind": owed.kind,
    }
    if owed.reason:
        call["reason"] = owed.reason
    if owed.parent_id is not None:
        call["parentToolCallId"] = owed.parent_id
    return call


def owed_event(owed: Sequence[Owed], /) -> OwedEvent:
    return {"type": "owed", "toolCalls": [owed_call(each) for each in owed]}
