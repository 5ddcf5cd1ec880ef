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
    Nested,
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
    ToolProgressed,
    ToolResulted,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import CallId, MediaPart, Owed, OwedKind, as_text
from passback.transport.usage import usage_view

INCLUDABLE = frozenset(
    {"agents", "message-ids", "output", "owed", "progress", "reasoning", "rewind", "run", "usage"}
)
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
    parentToolCallId: NotRequired[str]


class ToolCallArgsEvent(TypedDict):
    """A piece of the call's arguments: at least one comes, and joined they are one JSON text."""

    type: Literal["tool-call-args"]
    toolCallId: str
    delta: str
    parentToolCallId: NotRequired[str]


class ToolCallEndEvent(TypedDict):
    """The arguments are complete. The result of a client tool may be posted from this moment on."""

    type: Literal["tool-call-end"]
    toolCallId: str
    parentToolCallId: NotRequired[str]


class ToolResultEvent(TypedDict):
    """The server answered a call itself: its own tool ran, or the call was not valid."""

    type: Literal["tool-result"]
    toolCallId: str
    result: str
    parentToolCallId: NotRequired[str]


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


class ToolProgressEvent(TypedDict):
    """How far a server tool's call is (include: progress)."""

    type: Literal["tool-progress"]
    toolCallId: str
    text: str
    parentToolCallId: NotRequired[str]


class AgentTextEvent(TypedDict):
    """A piece of what a sub-agent says that works on a call (include: agents)."""

    type: Literal["agent-text"]
    parentToolCallId: str
    delta: str


class ReasoningEvent(TypedDict):
    """A piece of the model's reasoning (include: reasoning)."""

    type: Literal["reasoning"]
    delta: str
    parentToolCallId: NotRequired[str]


class UsageEvent(TypedDict):
    """Tokens of the model call that just ended (include: usage)."""

    type: Literal["usage"]
    inputTokens: int
    outputTokens: int
    cachedTokens: int
    reasoningTokens: int
    parentToolCallId: NotRequired[str]


class OutputEvent(TypedDict):
    """The answer fits the output schema that was asked for: this is it; its text was a draft (include: output)."""

    type: Literal["output"]
    value: JsonValue


class MessageEvent(TypedDict):
    """What follows belongs to this assistant message (include: message-ids)."""

    type: Literal["message"]
    messageId: str
    parentToolCallId: NotRequired[str]


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
    """A call that the client has to answer.

    `arguments` is JSON text, `reason` is why an approval is asked for, and `parentToolCallId` is the call of the sub-agent
    that makes this one.
    """

    id: str
    name: str
    arguments: str
    kind: OwedKind
    reason: NotRequired[str]
    parentToolCallId: NotRequired[str]


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
    | ToolProgressEvent
    | AgentTextEvent
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
    RunQueued
    | RunStarted
    | TurnStarted
    | ReasoningDelta
    | UsageReported
    | ToolProgressed
    | OutputAccepted
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
                | ToolProgressed()
                | OutputAccepted()
            ):
                wanted, native = _asked_event(event)
                return (native_data(native),) if wanted in self._include else ()
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
            case TurnStarted() | ReasoningDelta() | UsageReported() | ToolProgressed():
                kind, said = _asked_event(event, parent)
                wanted = {"agents", kind}
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


def _call_event(event: _CallEvent, parent: CallId | None = None) -> NativeEvent:
    native: ToolCallStartEvent | ToolCallArgsEvent | ToolCallEndEvent | ToolResultEvent
    match event:
        case ToolCallStarted(call_id, name):
            native = {"type": "tool-call-start", "toolCallId": call_id, "toolCallName": name}
        case ToolCallArguments(call_id, delta):
            native = {"type": "tool-call-args", "toolCallId": call_id, "delta": delta}
        case ToolCallEnded(call_id):
            native = {"type": "tool-call-end", "toolCallId": call_id}
        case ToolResulted(call_id, content):
            result = as_text(content, media=_url)
            native = {"type": "tool-result", "toolCallId": call_id, "result": result}
        case _:
            assert_never(event)
    if parent is not None:
        native["parentToolCallId"] = parent
    return native


def _url(part: MediaPart) -> str:
    return part.url


def _asked_event(event: _AskedEvent, parent: CallId | None = None) -> tuple[str, NativeEvent]:
    """What has to be included for it to be sent, and what then is."""
    native: ReasoningEvent | UsageEvent | MessageEvent | ToolProgressEvent
    match event:
        case RunQueued(run_id):
            return "run", {"type": "run-queued", "runId": run_id}
        case RunStarted(run_id):
            return "run", {"type": "run-start", "runId": run_id}
        case TurnStarted(message_id):
            wanted, native = "message-ids", {"type": "message", "messageId": message_id}
        case ReasoningDelta(text):
            wanted, native = "reasoning", {"type": "reasoning", "delta": text}
        case OutputAccepted(value):
            return "output", {"type": "output", "value": value}
        case ToolProgressed(call_id, text):
            wanted = "progress"
            native = {"type": "tool-progress", "toolCallId": call_id, "text": text}
        case UsageReported(usage):
            view = usage_view(usage)
            wanted = "usage"
            native = {
                "type": "usage",
                "inputTokens": view["inputTokens"],
                "outputTokens": view["outputTokens"],
                "cachedTokens": view["cachedTokens"],
                "reasoningTokens": view["reasoningTokens"],
            }
        case _:
            assert_never(event)
    if parent is not None:
        native["parentToolCallId"] = parent
    return wanted, native


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
    if owed.parent_id is not None:
        call["parentToolCallId"] = owed.parent_id
    return call


def owed_event(owed: Sequence[Owed], /) -> OwedEvent:
    return {"type": "owed", "toolCalls": [owed_call(each) for each in owed]}
