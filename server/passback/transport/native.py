"""The native events of the `/send-message` protocol: their shapes, and the encoder that several routes share.

Only `text` has a field `content`: a published client prints that field of whatever event it meets.
"""

import json
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Annotated, Literal, NotRequired, TypeAlias, assert_never

from pydantic import Field, JsonValue, TypeAdapter
from typing_extensions import TypedDict

from passback.core.events import (
    Completed,
    Cursor,
    Failed,
    HandedBack,
    Outcome,
    OutputAccepted,
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
    ToolResulted,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import MediaPart, Owed, OwedKind, as_text

INCLUDABLE = frozenset({"reasoning", "usage", "message-ids", "run", "owed", "output", "rewind"})
"""What a request may ask to be told beyond the protocol's own events."""

DONE = "[DONE]"


# ---------------------------------------------------------------- shapes
class TextEvent(TypedDict):
    """A piece of the answer; the pieces joined are the whole."""

    type: Literal["text"]
    content: str


class ToolCallStartEvent(TypedDict):
    """The model begins a call, of a client tool or of a server tool."""

    type: Literal["tool-call-start"]
    toolCallId: str
    toolCallName: str


class ToolCallArgsEvent(TypedDict):
    """A piece of the call's arguments: at least one comes, and joined they are one JSON text."""

    type: Literal["tool-call-args"]
    toolCallId: str
    delta: str


class ToolCallEndEvent(TypedDict):
    """The arguments are complete. The result of a client tool may be posted from this moment on."""

    type: Literal["tool-call-end"]
    toolCallId: str


class ToolResultEvent(TypedDict):
    """The server answered a call itself: its own tool ran, or the call was not valid."""

    type: Literal["tool-result"]
    toolCallId: str
    result: str


class ApprovalPayload(TypedDict):
    """The call that needs approval; `arguments` is JSON text."""

    kind: Literal["approval"]
    toolCallId: str
    toolCallName: str
    arguments: str


class InterruptEvent(TypedDict):
    """A person has to say whether a call of a server tool may be made. `resume` answers; `id` is the call's."""

    type: Literal["interrupt"]
    id: str
    reason: str
    payload: ApprovalPayload


class ErrorEvent(TypedDict):
    """The run failed; `[DONE]` follows. The conversation stays usable. `retryAfter` is in seconds, where known."""

    type: Literal["error"]
    error: str
    code: str
    retryable: bool
    retryAfter: NotRequired[float]


class ReasoningEvent(TypedDict):
    """A piece of the model's reasoning (include: reasoning)."""

    type: Literal["reasoning"]
    delta: str


class UsageEvent(TypedDict):
    """Tokens of the model call that just ended (include: usage)."""

    type: Literal["usage"]
    inputTokens: int
    outputTokens: int
    cachedTokens: int
    reasoningTokens: int


class OutputEvent(TypedDict):
    """The answer fits the output schema that was asked for: this is it; its text was a draft (include: output)."""

    type: Literal["output"]
    value: JsonValue


class MessageEvent(TypedDict):
    """What follows belongs to this assistant message (include: message-ids)."""

    type: Literal["message"]
    messageId: str


class RunQueuedEvent(TypedDict):
    """The run waits until another one of its conversation has ended (include: run)."""

    type: Literal["run-queued"]
    runId: str


class RunStartEvent(TypedDict):
    """The run begins (include: run)."""

    type: Literal["run-start"]
    runId: str


class RunEndEvent(TypedDict):
    """The last event of a run (include: run). `reason` is there when it completed, or failed: then it is the code."""

    type: Literal["run-end"]
    outcome: Literal["completed", "handed-back", "cancelled", "failed"]
    reason: NotRequired[str]


class OwedCall(TypedDict):
    """A call that the client has to answer; `arguments` is JSON text, `reason` is why an approval is asked for."""

    id: str
    name: str
    arguments: str
    kind: OwedKind
    reason: NotRequired[str]


class OwedEvent(TypedDict):
    """What the client has to answer before the conversation goes on (include: owed)."""

    type: Literal["owed"]
    toolCalls: list[OwedCall]


class RewindEvent(TypedDict):
    """Another worker took the run over: of this run, all is void that came behind the id `to` (include: rewind)."""

    type: Literal["rewind"]
    to: str


NativeEvent: TypeAlias = Annotated[
    TextEvent
    | ToolCallStartEvent
    | ToolCallArgsEvent
    | ToolCallEndEvent
    | ToolResultEvent
    | InterruptEvent
    | ErrorEvent
    | ReasoningEvent
    | UsageEvent
    | OutputEvent
    | MessageEvent
    | RunQueuedEvent
    | RunStartEvent
    | RunEndEvent
    | OwedEvent
    | RewindEvent,
    Field(discriminator="type"),
]
NATIVE_EVENT: TypeAdapter[NativeEvent] = TypeAdapter(NativeEvent)

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def native_data(event: NativeEvent, /) -> str:
    """An event as one line of ASCII."""
    return _encode(event)


# ---------------------------------------------------------------- run events to native ones
_CallEvent: TypeAlias = ToolCallStarted | ToolCallArguments | ToolCallEnded | ToolResulted
_AskedEvent: TypeAlias = (
    RunQueued | RunStarted | TurnStarted | ReasoningDelta | UsageReported | OutputAccepted
)


class NativeEncoder:
    """Run events to native ones, without a memory, so that a stream may begin anywhere in a run.

    Args:
        include: of `INCLUDABLE`; other words mean nothing.
    """

    def __init__(self, include: frozenset[str] = frozenset()) -> None:
        self._include = include

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        match event:
            case TextDelta(text):
                return (f'{{"type":"text","content":{quoted(text)}}}',)
            case ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | ToolResulted():
                return (native_data(_call_event(event)),)
            case RunFinished(outcome):
                return [native_data(native) for native in self._endings(outcome)]
            case (
                RunQueued()
                | RunStarted()
                | TurnStarted()
                | ReasoningDelta()
                | UsageReported()
                | OutputAccepted()
            ):
                wanted, native = _asked_event(event)
                return (native_data(native),) if wanted in self._include else ()
            case Rewound():  # `rewind` tells of it
                return ()
            case _:
                assert_never(event)

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        if "rewind" not in self._include:
            return ()
        return (native_data({"type": "rewind", "to": str(to)}),)

    def fail(self, failed: Failed, /) -> Sequence[str]:
        return (native_data(_error(failed)),)

    def end(self) -> Sequence[str]:
        return (DONE,)

    def _endings(self, outcome: Outcome) -> list[NativeEvent]:
        endings: list[NativeEvent] = []
        if isinstance(outcome, Failed):
            endings.append(_error(outcome))
        if isinstance(outcome, HandedBack):
            endings.extend(_interrupt(each) for each in outcome.owed if each.kind == "approval")
            if "owed" in self._include:
                endings.append(owed_event(outcome.owed))
        if "run" in self._include:
            endings.append(_run_end(outcome))
        return endings


def _call_event(event: _CallEvent) -> NativeEvent:
    match event:
        case ToolCallStarted(call_id, name):
            return {"type": "tool-call-start", "toolCallId": call_id, "toolCallName": name}
        case ToolCallArguments(call_id, delta):
            return {"type": "tool-call-args", "toolCallId": call_id, "delta": delta}
        case ToolCallEnded(call_id):
            return {"type": "tool-call-end", "toolCallId": call_id}
        case ToolResulted(call_id, content):
            return {
                "type": "tool-result",
                "toolCallId": call_id,
                "result": as_text(content, media=_url),
            }
        case _:
            assert_never(event)


def _url(part: MediaPart) -> str:
    return part.url


def _asked_event(event: _AskedEvent) -> tuple[str, NativeEvent]:
    """What has to be included for it to be sent, and what then is."""
    match event:
        case RunQueued(run_id):
            return "run", {"type": "run-queued", "runId": run_id}
        case RunStarted(run_id):
            return "run", {"type": "run-start", "runId": run_id}
        case TurnStarted(message_id):
            return "message-ids", {"type": "message", "messageId": message_id}
        case ReasoningDelta(text):
            return "reasoning", {"type": "reasoning", "delta": text}
        case OutputAccepted(value):
            return "output", {"type": "output", "value": value}
        case UsageReported(usage):
            return "usage", {
                "type": "usage",
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
                "cachedTokens": usage.cached_tokens,
                "reasoningTokens": usage.reasoning_tokens,
            }
        case _:
            assert_never(event)


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


def _run_end(outcome: Outcome) -> RunEndEvent:
    end: RunEndEvent = {"type": "run-end", "outcome": outcome.type}
    if isinstance(outcome, Completed):
        end["reason"] = outcome.reason
    elif isinstance(outcome, Failed):
        end["reason"] = outcome.code
    return end


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
    return call


def owed_event(owed: Sequence[Owed], /) -> OwedEvent:
    return {"type": "owed", "toolCalls": [owed_call(each) for each in owed]}
