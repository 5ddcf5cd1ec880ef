"""The shapes of the native events of the `/send-message` protocol.

Only `text` has a field `content`: a published client prints that field of whatever event it meets.
"""

from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field, JsonValue, TypeAdapter
from typing_extensions import TypedDict

from passback.core.budgets import Left
from passback.core.events import CompactionStep
from passback.core.messages import OwedKind, PlanEntry, PlanPriority, PlanStatus, Synthetic, Usage


class LeftView(TypedDict):
    """What is left of the tightest limit of each kind; what is not limited is not there."""

    turns: NotRequired[int]
    tokens: NotRequired[int]
    seconds: NotRequired[float]
    cost: NotRequired[float]


def left_view(left: Left, /) -> LeftView:
    view: LeftView = {}
    if left.turns is not None:
        view["turns"] = left.turns
    if left.tokens is not None:
        view["tokens"] = left.tokens
    if left.seconds is not None:
        view["seconds"] = _round(left.seconds)
    if left.cost is not None:
        view["cost"] = _round(left.cost)
    return view


def _round(number: float) -> float:
    return round(number, 6)


class PlanEntryView(TypedDict):
    """One thing that the agent means to do."""

    content: str
    priority: PlanPriority
    status: PlanStatus


def plan_entry(entry: PlanEntry, /) -> PlanEntryView:
    return {"content": entry.content, "priority": entry.priority, "status": entry.status}


class UsageView(TypedDict):
    """Tokens of model calls, as the provider counts them; `estimated` is there when an answer was cut before it said."""

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
    """The server answered a call itself: its own tool ran, or `synthetic` says why there is a result without that."""

    type: Literal["tool-result"]
    toolCallId: str
    result: str
    isError: NotRequired[bool]
    synthetic: NotRequired[Synthetic]
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


class PlanEvent(TypedDict):
    """What the agent means to do now; it replaces what it said before (include: plan)."""

    type: Literal["plan"]
    entries: list[PlanEntryView]
    parentToolCallId: NotRequired[str]


class ReasoningEvent(TypedDict):
    """A piece of the model's reasoning (include: reasoning)."""

    type: Literal["reasoning"]
    delta: str
    parentToolCallId: NotRequired[str]


class UsageEvent(TypedDict):
    """Tokens of the model call that just ended (include: usage), and what is left then of the run's limits.

    `estimated` is there when its answer was cut before the provider had counted it. `model` is the name of the one that
    was called, and not there where the tokens are of several.
    """

    type: Literal["usage"]
    inputTokens: int
    outputTokens: int
    cachedTokens: int
    reasoningTokens: int
    estimated: NotRequired[bool]
    left: NotRequired[LeftView]
    model: NotRequired[str]
    parentToolCallId: NotRequired[str]


class ContextEvent(TypedDict):
    """How full the model's window is, in estimated tokens (include: context).

    With `window`: a warning. With `step` and `before`: the model is shown less from here on.
    """

    type: Literal["context"]
    used: int
    window: NotRequired[int]
    step: NotRequired[CompactionStep]
    before: NotRequired[int]
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
    """The last event of a run (include: run). `reason` is there when it completed, or failed: then it is the code.

    `model` is the name of the model that spoke last in the run, sub-agents aside; it is left out when none did.
    """

    type: Literal["run-end"]
    outcome: Literal["completed", "handed-back", "cancelled", "failed"]
    reason: NotRequired[str]
    model: NotRequired[str]


class OwedCall(TypedDict):
    """A call that the client has to answer.

    `arguments` is JSON text: that of `Questions`, to be answered by `Answers`, where `kind` is `question`. `reason` is why an approval is asked for, and `parentToolCallId` is the call of the sub-agent
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
    | PlanEvent
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
NATIVE_EVENT: TypeAdapter[NativeEvent] = TypeAdapter(NativeEvent)
