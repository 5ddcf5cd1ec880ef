"""The encoder of the native events of `/send-message`, which several routes share."""

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
from passback.core.messages import CallId, Owed, as_text
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

# Events that a request may ask for beyond the protocol's own ones.
INCLUDABLE = frozenset(
    {
        *("agents", "context", "message-ids", "output", "owed", "plan", "progress"),
        *("reasoning", "rewind", "run", "usage"),
    }
)

DONE = "[DONE]"


_encode_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def native_data(event: NativeEvent, /) -> str:
    """Return an event as one line of ASCII."""
    return _encode_json(event)


_CallEvent: TypeAlias = ToolCallStarted | ToolCallArguments | ToolCallEnded | ToolResulted
_CountedEvent: TypeAlias = UsageReported | ContextWarned | Compacted
_RunEvent: TypeAlias = RunQueued | RunStarted | OutputAccepted
_StepEvent: TypeAlias = TurnStarted | ReasoningDelta | ToolProgressed | PlanUpdated | _CountedEvent

# The word of `INCLUDABLE` that a request needs for an event to be sent.
_NEEDED_WORD: Mapping[type[RunEvent], str] = {
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


class NativeEncoder:
    """Encodes run events as native ones. It keeps no state: a stream may begin anywhere in a run.

    Args:
        include: words of `INCLUDABLE`.
    """

    def __init__(self, include: frozenset[str] = frozenset()) -> None:
        self._include = include

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        match event:
            case TextDelta():  # most events are text: written by hand, which is faster
                return (f'{{"type":"text","content":{quoted(event.text)}}}',)
            case ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | ToolResulted():
                return (native_data(_call_event(event)),)
            case RunFinished():
                return [native_data(native) for native in self._ending_events(event)]
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
                is_wanted = _NEEDED_WORD[type(event)] in self._include
                return (native_data(_included_event(event)),) if is_wanted else ()
            case Nested(call_id, inner):
                return self._nested_data(call_id, inner)
            case Rewound():  # `rewind` encodes it
                return ()
            case _:
                assert_never(event)

    def _nested_data(self, parent: CallId, event: RunEvent) -> Sequence[str]:
        """Return the data of a sub-agent's event, if it is included.

        Its calls are sent as all others. Its text is no part of the answer, and has to be asked
        for.
        """
        match event:
            case Nested(call_id, inner):
                return self._nested_data(call_id, inner)
            case TextDelta(text):
                needed: set[str] = {"agents"}
                native: NativeEvent = {
                    "type": "agent-text",
                    "parentToolCallId": parent,
                    "delta": text,
                }
            case ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | ToolResulted():
                needed, native = set(), _call_event(event, parent)
            case (
                TurnStarted()
                | ReasoningDelta()
                | ToolProgressed()
                | PlanUpdated()
                | ContextWarned()
                | Compacted()
            ):
                needed, native = {"agents", _NEEDED_WORD[type(event)]}, _step_event(event, parent)
            case UsageReported():  # even without `agents`, or a sum of the usage would be too small
                needed, native = {"usage"}, _step_event(event, parent)
            case _:  # the beginning and end of its run: that run is not one of the client's
                return ()
        return (native_data(native),) if needed <= self._include else ()

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        if "rewind" not in self._include:
            return ()
        return (native_data({"type": "rewind", "to": str(to)}),)

    def fail(self, failed: Failed, /) -> Sequence[str]:
        return (native_data(_error_event(failed)),)

    def end(self) -> Sequence[str]:
        return (DONE,)

    def _ending_events(self, end: RunFinished) -> list[NativeEvent]:
        outcome = end.outcome
        endings: list[NativeEvent] = []
        if isinstance(outcome, Failed):
            endings.append(_error_event(outcome))
        if isinstance(outcome, HandedBack):
            # approvals are among the protocol's own events, other calls have to be included
            endings.extend(
                _interrupt_event(each) for each in outcome.owed if each.kind == "approval"
            )
            if "owed" in self._include:
                endings.append(owed_event(outcome.owed))
        if "run" in self._include:
            endings.append(_run_end_event(end))
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
            text = as_text(event.content, media=lambda part: part.url)
            result: ToolResultEvent = {
                "type": "tool-result",
                "toolCallId": event.call_id,
                "result": text,
            }
            if event.is_error:
                result["isError"] = True
            if event.synthetic:
                result["synthetic"] = event.synthetic
            native = result
        case _:
            assert_never(event)
    if parent is not None:
        native["parentToolCallId"] = parent
    return native


def _included_event(event: _RunEvent | _StepEvent) -> NativeEvent:
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
            return _usage_event(event)
        case ContextWarned(used, window):
            return {"type": "context", "used": used, "window": window}
        case Compacted(step, before, after):
            return {"type": "context", "used": after, "step": step, "before": before}
        case _:
            assert_never(event)


def _usage_event(reported: UsageReported) -> UsageEvent:
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
    if reported.model:  # empty where the tokens are of several models
        event["model"] = reported.model
    return event


def _error_event(failed: Failed) -> ErrorEvent:
    error: ErrorEvent = {
        "type": "error",
        "error": failed.message,
        "code": failed.code,
        "retryable": failed.retryable,
    }
    if failed.retry_after is not None:
        error["retryAfter"] = failed.retry_after
    return error


def _run_end_event(end: RunFinished) -> RunEndEvent:
    outcome = end.outcome
    native: RunEndEvent = {"type": "run-end", "outcome": outcome.type}
    if isinstance(outcome, Completed):
        native["reason"] = outcome.reason
    elif isinstance(outcome, Failed):
        native["reason"] = outcome.code
    if end.model:  # empty when no model answered
        native["model"] = end.model
    return native


def _interrupt_event(owed: Owed) -> InterruptEvent:
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
