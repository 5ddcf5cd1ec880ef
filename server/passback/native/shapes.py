"""The types of the native events of the `/send-message` protocol.

Only `text` has a field `content`, because a published client prints that field of any event.
"""

from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field, JsonValue, TypeAdapter
from typing_extensions import TypedDict

from passback.core.budgets import Left
from passback.core.events import CompactionStep
from passback.core.messages import OwedKind, PlanEntry, PlanPriority, PlanStatus, Synthetic, Usage

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
    """The model begins a call, of a client tool or of a server tool."""

    type: Literal["tool-call-start"]
    toolCallId: str
    toolCallName: str
    parentToolCallId: NotRequired[str]


class ToolCallArgsEvent(TypedDict):
    """A piece of the call's arguments. There is at least one. Joined they are one JSON text."""

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
    """The result of a call that the server answered itself.

    Its own tool ran, or `synthetic` is the reason why there is a result without that.
    """

    type: Literal["tool-result"]
    toolCallId: str
    result: str
    isError: NotRequired[bool]
    synthetic: NotRequired[Synthetic]
    parentToolCallId: NotRequired[str]


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


class ErrorEvent(TypedDict):
    """The run failed, and `[DONE]` follows. The conversation stays usable.

    `retryAfter` is in seconds, if known.
    """

    type: Literal["error"]
    error: str
    code: str
    retryable: bool
    retryAfter: NotRequired[float]


class ToolProgressEvent(TypedDict):
    """The progress of a server tool's call (include: progress)."""

    type: Literal["tool-progress"]
    toolCallId: str
    text: str
    parentToolCallId: NotRequired[str]


class AgentTextEvent(TypedDict):
    """A piece of the text of a sub-agent that works on a call (include: agents)."""

    type: Literal["agent-text"]
    parentToolCallId: str
    delta: str


class PlanEvent(TypedDict):
    """The agent's plan, which replaces the one before it (include: plan)."""

    type: Literal["plan"]
    entries: list[PlanEntryView]
    parentToolCallId: NotRequired[str]


class ReasoningEvent(TypedDict):
    """A piece of the model's reasoning (include: reasoning)."""

    type: Literal["reasoning"]
    delta: str
    parentToolCallId: NotRequired[str]


class UsageEvent(TypedDict):
    """Tokens of the model call that just ended, and the rest of the run's limits (include: usage).

    `estimated` is there when the answer was stopped before the provider had counted it. `model` is
    the name of the model that was called. It is left out where the tokens are of several models.
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
    """The use of the model's context window, in estimated tokens (include: context).

    With `window`, it is a warning. With `step` and `before`, the prompt was compacted.
    """

    type: Literal["context"]
    used: int
    window: NotRequired[int]
    step: NotRequired[CompactionStep]
    before: NotRequired[int]
    parentToolCallId: NotRequired[str]


class OutputEvent(TypedDict):
    """The answer, which fits the output schema. Its text was a draft (include: output)."""

    type: Literal["output"]
    value: JsonValue


class MessageEvent(TypedDict):
    """The id of the assistant message to which the next events belong (include: message-ids)."""

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
    """The last event of a run (include: run).

    `reason` is there when the run completed, and when it failed: then it is the error's code.
    `model` is the name of the model that answered last in the run, sub-agents aside. It is left
    out when none did.
    """

    type: Literal["run-end"]
    outcome: Literal["completed", "handed-back", "cancelled", "failed"]
    reason: NotRequired[str]
    model: NotRequired[str]


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


class OwedEvent(TypedDict):
    """The calls that the client has to answer before the conversation goes on (include: owed)."""

    type: Literal["owed"]
    toolCalls: list[OwedCall]


class RewindEvent(TypedDict):
    """Another worker took the run over: its events after the id `to` are void (include: rewind)."""

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
