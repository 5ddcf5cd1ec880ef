"""The native events of the `/send-message` protocol: their types, and what converts to them.

Only `text` has a field `content`, because a published client prints that field of any event.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field, JsonValue, TypeAdapter
from typing_extensions import TypedDict

from passback.core import events
from passback.core.budgets import Left
from passback.core.messages import (
    CallId,
    Location,
    Owed,
    OwedKind,
    PlanEntry,
    PlanPriority,
    PlanStatus,
    Synthetic,
    ToolKind,
    Usage,
    as_text,
)
from passback.core.values import DEFERRED
from passback.native.times import utc_timestamp

_DIGITS = 6  # decimals of amounts; the others are the error of summing floats


class LeftView(TypedDict):
    """The rest of the tightest limit of each kind. Kinds without a limit are left out."""

    turns: NotRequired[int]
    tokens: NotRequired[int]
    seconds: NotRequired[float]
    cost: NotRequired[float]


def left_view(left: Left, /) -> LeftView:
    """Return the rest of the limits, with seconds and cost rounded to 6 digits."""
    view: LeftView = {}
    if left.turns is not None:
        view["turns"] = left.turns
    if left.tokens is not None:
        view["tokens"] = left.tokens
    if left.seconds is not None:
        view["seconds"] = round(left.seconds, _DIGITS)
    if left.cost is not None:
        view["cost"] = round(left.cost, _DIGITS)
    return view


class PlanEntryView(TypedDict):
    """One step of the agent's plan."""

    content: str
    priority: PlanPriority
    status: PlanStatus


def plan_entry(entry: PlanEntry, /) -> PlanEntryView:
    """Return the view of one step of a plan."""
    return {"content": entry.content, "priority": entry.priority, "status": entry.status}


class UsageView(TypedDict):
    """Tokens of model calls, as the provider counts them.

    `estimated` is there when an answer was stopped before the provider had reported them.
    """

    inputTokens: int
    outputTokens: int
    cachedTokens: int
    reasoningTokens: int
    estimated: NotRequired[bool]


def usage_view(usage: Usage, /) -> UsageView:
    view: UsageView = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cachedTokens": usage.cached_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }
    if usage.estimated:
        view["estimated"] = True
    return view


class TextEvent(TypedDict):
    """A piece of the answer. The pieces joined are the whole answer."""

    type: Literal["text"]
    content: str


class ToolCallStartEvent(TypedDict):
    """The model begins a call, of a client tool or of a server tool.

    `title` is the tool's name for people, and `kind` what it does (include: tools). They are left
    out if the tool has none.
    """

    type: Literal["tool-call-start"]
    toolCallId: str
    toolCallName: str
    title: NotRequired[str]
    kind: NotRequired[ToolKind]
    parentToolCallId: NotRequired[str]


def tool_call_start(event: events.ToolCallStarted, /) -> ToolCallStartEvent:
    return {"type": "tool-call-start", "toolCallId": event.call_id, "toolCallName": event.name}


def titled_call_start(event: events.ToolCallStarted, /) -> ToolCallStartEvent:
    """Return the event with the tool's title and kind, as far as it has them."""
    native = tool_call_start(event)
    if event.title:
        native["title"] = event.title
    if event.kind != "other":
        native["kind"] = event.kind
    return native


class ToolCallArgsEvent(TypedDict):
    """A piece of the call's arguments. There is at least one. Joined they are one JSON text."""

    type: Literal["tool-call-args"]
    toolCallId: str
    delta: str
    parentToolCallId: NotRequired[str]


def tool_call_args(event: events.ToolCallArguments, /) -> ToolCallArgsEvent:
    return {"type": "tool-call-args", "toolCallId": event.call_id, "delta": event.delta}


class ToolCallEndEvent(TypedDict):
    """The arguments are complete. The result of a client tool may be posted from this moment on."""

    type: Literal["tool-call-end"]
    toolCallId: str
    parentToolCallId: NotRequired[str]


def tool_call_end(event: events.ToolCallEnded, /) -> ToolCallEndEvent:
    return {"type": "tool-call-end", "toolCallId": event.call_id}


class ToolResultEvent(TypedDict):
    """The result of a call that the server answered itself.

    Its own tool ran, or `synthetic` is the reason why there is a result without that. `durationMs`
    is how long the tool worked (include: tools), left out if that is not known.
    """

    type: Literal["tool-result"]
    toolCallId: str
    result: str
    isError: NotRequired[bool]
    synthetic: NotRequired[Synthetic]
    durationMs: NotRequired[int]
    parentToolCallId: NotRequired[str]


def tool_result(event: events.ToolResulted, /) -> ToolResultEvent:
    text = as_text(event.content, media=lambda part: part.url)
    native: ToolResultEvent = {"type": "tool-result", "toolCallId": event.call_id, "result": text}
    if event.is_error:
        native["isError"] = True
    if event.synthetic:
        native["synthetic"] = event.synthetic
    return native


def timed_result(event: events.ToolResulted, /) -> ToolResultEvent:
    """Return the event with the time that the tool worked, if it did."""
    native = tool_result(event)
    if event.duration:
        native["durationMs"] = event.duration
    return native


class ApprovalPayload(TypedDict):
    """The call that needs approval. `arguments` is JSON text."""

    kind: Literal["approval"]
    toolCallId: str
    toolCallName: str
    arguments: str


class InterruptEvent(TypedDict):
    """A call of a server tool needs a person's approval. `resume` answers it by the call's `id`."""

    type: Literal["interrupt"]
    id: str
    reason: str
    payload: ApprovalPayload


def interrupt(owed: Owed, /) -> InterruptEvent:
    payload: ApprovalPayload = {
        "kind": "approval",
        "toolCallId": owed.id,
        "toolCallName": owed.name,
        "arguments": owed.arguments,
    }
    return {"type": "interrupt", "id": owed.id, "reason": owed.reason, "payload": payload}


class ErrorEvent(TypedDict):
    """The run failed, and `[DONE]` follows. The conversation stays usable.

    `retryAfter` is in seconds, if known.
    """

    type: Literal["error"]
    error: str
    code: str
    retryable: bool
    retryAfter: NotRequired[float]


def error(failed: events.Failed, /) -> ErrorEvent:
    native: ErrorEvent = {
        "type": "error",
        "error": failed.message,
        "code": failed.code,
        "retryable": failed.retryable,
    }
    if failed.retry_after is not None:
        native["retryAfter"] = failed.retry_after
    return native


class LocationView(TypedDict):
    """A file that a call is about, or one of its lines."""

    path: str
    line: NotRequired[int]


def location_view(location: Location, /) -> LocationView:
    if location.line is None:
        return {"path": location.path}
    return {"path": location.path, "line": location.line}


class ToolBeginEvent(TypedDict):
    """A tool of the server begins to work on a call, which is valid and allowed (include: tools).

    `locations` are the files that the call is about, left out if the tool names none.
    """

    type: Literal["tool-begin"]
    toolCallId: str
    locations: NotRequired[list[LocationView]]
    parentToolCallId: NotRequired[str]


def tool_begin(event: events.ToolBegan, /) -> ToolBeginEvent:
    native: ToolBeginEvent = {"type": "tool-begin", "toolCallId": event.call_id}
    if event.locations:
        native["locations"] = [location_view(each) for each in event.locations]
    return native


class ToolProgressEvent(TypedDict):
    """The progress of a server tool's call (include: progress)."""

    type: Literal["tool-progress"]
    toolCallId: str
    text: str
    parentToolCallId: NotRequired[str]


def tool_progress(event: events.ToolProgressed, /) -> ToolProgressEvent:
    return {"type": "tool-progress", "toolCallId": event.call_id, "text": event.text}


class AgentTextEvent(TypedDict):
    """A piece of the text of a sub-agent that works on a call (include: agents)."""

    type: Literal["agent-text"]
    parentToolCallId: str
    delta: str


def agent_text(text: str, parent: CallId, /) -> AgentTextEvent:
    return {"type": "agent-text", "parentToolCallId": parent, "delta": text}


class PlanEvent(TypedDict):
    """The agent's plan, which replaces the one before it (include: plan)."""

    type: Literal["plan"]
    entries: list[PlanEntryView]
    parentToolCallId: NotRequired[str]


def plan(event: events.PlanUpdated, /) -> PlanEvent:
    return {"type": "plan", "entries": [plan_entry(each) for each in event.entries]}


class StateEvent(TypedDict):
    """A change of the shared state: new values, and keys that are gone (include: state)."""

    type: Literal["state"]
    values: dict[str, JsonValue]
    removed: list[str]
    parentToolCallId: NotRequired[str]


def state(event: events.StateChanged, /) -> StateEvent:
    return {"type": "state", "values": dict(event.values), "removed": [*event.removed]}


class ReasoningEvent(TypedDict):
    """A piece of the model's reasoning (include: reasoning)."""

    type: Literal["reasoning"]
    delta: str
    parentToolCallId: NotRequired[str]


def reasoning(event: events.ReasoningDelta, /) -> ReasoningEvent:
    return {"type": "reasoning", "delta": event.text}


class UsageEvent(TypedDict):
    """Tokens of the model call that just ended, and the rest of the run's limits (include: usage).

    `estimated` is there when the answer was stopped before the provider had counted it. `model` is
    the name of the model that was called. It is left out where the tokens are of several models.
    `contextUsed` is an estimate of the tokens of the conversation behind this answer, and
    `contextWindow` the number that the model can take. Each is left out if it is not known.
    """

    type: Literal["usage"]
    inputTokens: int
    outputTokens: int
    cachedTokens: int
    reasoningTokens: int
    estimated: NotRequired[bool]
    left: NotRequired[LeftView]
    model: NotRequired[str]
    contextUsed: NotRequired[int]
    contextWindow: NotRequired[int]
    parentToolCallId: NotRequired[str]


def usage(event: events.UsageReported, /) -> UsageEvent:
    used = usage_view(event.usage)
    native: UsageEvent = {
        "type": "usage",
        "inputTokens": used["inputTokens"],
        "outputTokens": used["outputTokens"],
        "cachedTokens": used["cachedTokens"],
        "reasoningTokens": used["reasoningTokens"],
    }
    if "estimated" in used:
        native["estimated"] = True
    if event.left is not None:
        native["left"] = left_view(event.left)
    if event.model:  # empty where the tokens are of several models
        native["model"] = event.model
    if event.context_used is not None:
        native["contextUsed"] = event.context_used
    if event.window is not None:
        native["contextWindow"] = event.window
    return native


class ContextEvent(TypedDict):
    """The use of the model's context window, in estimated tokens (include: context).

    With `window`, it is a warning. With `step` and `before`, the prompt was compacted.
    """

    type: Literal["context"]
    used: int
    window: NotRequired[int]
    step: NotRequired[events.CompactionStep]
    before: NotRequired[int]
    parentToolCallId: NotRequired[str]


def context_warning(event: events.ContextWarned, /) -> ContextEvent:
    return {"type": "context", "used": event.used, "window": event.window}


def compaction(event: events.Compacted, /) -> ContextEvent:
    return {"type": "context", "used": event.after, "step": event.step, "before": event.before}


class OutputEvent(TypedDict):
    """The answer, which fits the output schema. Its text was a draft (include: output)."""

    type: Literal["output"]
    value: JsonValue


def accepted_output(event: events.OutputAccepted, /) -> OutputEvent:
    return {"type": "output", "value": event.value}


class MessageEvent(TypedDict):
    """A model call begins: the next events belong to this message of the assistant (include:
    message-ids).

    `startedAt` is the time of the server's clock, RFC 3339 in UTC, left out if it is not known.
    """

    type: Literal["message"]
    messageId: str
    startedAt: NotRequired[str]
    parentToolCallId: NotRequired[str]


def message_start(event: events.TurnStarted, /) -> MessageEvent:
    native: MessageEvent = {"type": "message", "messageId": event.message_id}
    if event.started:
        native["startedAt"] = utc_timestamp(event.started)
    return native


class RunQueuedEvent(TypedDict):
    """The run waits until another one of its conversation has ended (include: run)."""

    type: Literal["run-queued"]
    runId: str


def run_queued(event: events.RunQueued, /) -> RunQueuedEvent:
    return {"type": "run-queued", "runId": event.run_id}


class RunStartEvent(TypedDict):
    """The run begins (include: run)."""

    type: Literal["run-start"]
    runId: str


def run_start(event: events.RunStarted, /) -> RunStartEvent:
    return {"type": "run-start", "runId": event.run_id}


class RunEndEvent(TypedDict):
    """The last event of a run (include: run).

    `reason` is there when the run completed, and when it failed: then it is the error's code.
    `model` is the name of the model that answered last in the run, sub-agents aside. It is left
    out when none did.
    """

    type: Literal["run-end"]
    outcome: Literal["completed", "handed-back", "cancelled", "failed"]
    reason: NotRequired[str]
    model: NotRequired[str]


def run_end(end: events.RunFinished, /) -> RunEndEvent:
    outcome = end.outcome
    native: RunEndEvent = {"type": "run-end", "outcome": outcome.type}
    if isinstance(outcome, events.Completed):
        native["reason"] = outcome.reason
    elif isinstance(outcome, events.Failed):
        native["reason"] = outcome.code
    if end.model:  # empty when no model answered
        native["model"] = end.model
    return native


class OwedCall(TypedDict):
    """A call that the client has to answer.

    `arguments` is JSON text. If `kind` is `question`, it is that of `Questions`, to be answered by
    `Answers`. `reason` is why an approval is asked for, and `parentToolCallId` is the call of the
    sub-agent that makes this one.
    """

    id: str
    name: str
    arguments: str
    kind: OwedKind
    reason: NotRequired[str]
    parentToolCallId: NotRequired[str]


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


class OwedEvent(TypedDict):
    """The calls that the client has to answer before the conversation goes on (include: owed)."""

    type: Literal["owed"]
    toolCalls: list[OwedCall]


def owed_event(owed: Sequence[Owed], /) -> OwedEvent:
    return {"type": "owed", "toolCalls": [owed_call(each) for each in owed]}


class RewindEvent(TypedDict):
    """Another worker took the run over: its events after the id `to` are void (include: rewind)."""

    type: Literal["rewind"]
    to: str


def rewind(to: events.Cursor, /) -> RewindEvent:
    return {"type": "rewind", "to": str(to)}


NativeEvent: TypeAlias = Annotated[
    TextEvent
    | ToolCallStartEvent
    | ToolCallArgsEvent
    | ToolCallEndEvent
    | ToolResultEvent
    | InterruptEvent
    | ErrorEvent
    | ToolBeginEvent
    | ToolProgressEvent
    | AgentTextEvent
    | PlanEvent
    | StateEvent
    | ReasoningEvent
    | UsageEvent
    | OutputEvent
    | ContextEvent
    | MessageEvent
    | RunQueuedEvent
    | RunStartEvent
    | RunEndEvent
    | OwedEvent
    | RewindEvent,
    Field(discriminator="type"),
]
NATIVE_EVENT: TypeAdapter[NativeEvent] = TypeAdapter(NativeEvent, config=DEFERRED)
