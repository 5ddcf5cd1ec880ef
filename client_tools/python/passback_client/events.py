"""The events of a stream: frozen values, one class per kind of event.

`id` is the event's place, by which the stream can be read on after it; empty where there is none.

`parsing.read` makes these values from JSON. A field is read by its name in camel case
(`is_error` from `isError`), or by the alias that it has here; one with a default may be missing.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import AliasPath, ConfigDict, Field, JsonValue, SkipValidation
from pydantic.alias_generators import to_camel

JsonObject: TypeAlias = dict[str, JsonValue]

PLACE: Final = ""
"""The key of an event's `id`, which is not part of its JSON."""

_CallId: TypeAlias = Annotated[str, Field(alias="toolCallId")]
_CallName: TypeAlias = Annotated[str, Field(alias="toolCallName")]
_ParentCallId: TypeAlias = Annotated[str | None, Field(alias="parentToolCallId")]


@dataclass(frozen=True, slots=True)
class FromJson:
    """A value that `parsing.read` makes."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel)


@dataclass(frozen=True, slots=True)
class _Placed(FromJson):
    id: Annotated[str, Field(alias=PLACE)] = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class _Nestable(_Placed):
    """An event that a sub-agent may have, too: then `parent_call_id` is the call that it
    works on.
    """

    parent_call_id: _ParentCallId = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Text(_Placed):
    """A piece of the answer; the pieces joined are the whole."""

    content: str


@dataclass(frozen=True, slots=True)
class Reasoning(_Nestable):
    """A piece of the model's reasoning (include: reasoning)."""

    delta: str


@dataclass(frozen=True, slots=True)
class ToolCallStart(_Nestable):
    """The model starts a call of a tool of the client or the server.

    Attributes:
        call_id: of the call.
        name: of the tool.
        title: the tool's name for people (include: tools); empty if it has none.
        kind: what the tool does: `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`,
            `fetch` or `other` (include: tools).
    """

    call_id: _CallId
    name: _CallName
    title: str = ""
    kind: str = "other"


@dataclass(frozen=True, slots=True)
class ToolCallArgs(_Nestable):
    """A piece of a call's arguments; joined they are one JSON text."""

    call_id: _CallId
    delta: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd(_Nestable):
    """The arguments are complete."""

    call_id: _CallId


@dataclass(frozen=True, slots=True)
class ToolResult(_Nestable):
    """The server answered a call itself.

    Attributes:
        call_id: of the call.
        result: the text for the model.
        is_error: the tool failed, or the server wrote an error instead.
        synthetic: why the server wrote it itself, if no tool returned it: `invalid`, `denied` or
            `interrupted`.
        duration_ms: how long the tool worked, if known (include: tools).
    """

    call_id: _CallId
    result: str
    is_error: bool = False
    synthetic: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Location(FromJson):
    """A file that a call is about, or one of its lines."""

    path: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ToolBegin(_Nestable):
    """A tool of the server begins to work on a call, which is valid and allowed (include: tools).

    `locations` are the files that the call is about, as far as the tool says.
    """

    call_id: _CallId
    locations: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolProgress(_Nestable):
    """The progress of a call of a server tool (include: progress)."""

    call_id: _CallId
    text: str


@dataclass(frozen=True, slots=True)
class AgentText(_Placed):
    """A piece of what a sub-agent says that works on a call (include: agents); it is no part of the
    answer.
    """

    parent_call_id: Annotated[str, Field(alias="parentToolCallId")]
    delta: str


@dataclass(frozen=True, slots=True)
class ToolAnswer(_Placed):
    """A tool of this client ran, and its result was posted. It comes from this library, not from
    the server.
    """

    call_id: str
    name: str
    content: JsonValue
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Decided(_Placed):
    """`approve` of this client decided on a call of a server tool, and that was posted.

    It comes from this library, not from the server.
    """

    call_id: str
    name: str
    approved: bool
    reason: str = ""
    always: bool = False


@dataclass(frozen=True, slots=True)
class Interrupt(_Placed):
    """The run ended to ask something: the answer goes to `Client.decide`, or comes from `approve`.

    Attributes:
        interrupt_id: for the answer.
        reason: for the person who is asked.
        kind: `approval` of a call of a server tool.
        name: of the tool.
        arguments: of the call, as JSON text.
    """

    interrupt_id: Annotated[str, Field(alias="id")]
    reason: str = ""
    kind: Annotated[str, Field(validation_alias=AliasPath("payload", "kind"))] = ""
    name: Annotated[str, Field(validation_alias=AliasPath("payload", "toolCallName"))] = ""
    arguments: Annotated[str, Field(validation_alias=AliasPath("payload", "arguments"))] = ""


@dataclass(frozen=True, slots=True)
class OwedCall(FromJson):
    """A call that the client must answer.

    Attributes:
        id: of the call; of an approval, this is the interrupt's id, too.
        name: of the tool.
        arguments: JSON text.
        kind: `tool_result`, `approval` or `question`.
        reason: of an approval.
        parent_call_id: the call of the sub-agent that makes this one; None for the agent itself.
        deadline: end of the time to answer (RFC 3339, by the server's clock);
            `Client.conversation` knows it.
        claimed_until: end of a client's claim, in the same form.
    """

    id: str
    name: str
    arguments: str
    kind: str = "tool_result"
    reason: str = ""
    parent_call_id: _ParentCallId = None
    deadline: str | None = None
    claimed_until: str | None = None


@dataclass(frozen=True, slots=True)
class Owed(_Placed):
    """The calls that the client has to answer before the conversation goes on; this library answers
    what it can.
    """

    calls: Annotated[tuple[OwedCall, ...], Field(alias="toolCalls")]


@dataclass(frozen=True, slots=True)
class RunQueued(_Placed):
    """The run waits until another one of its conversation has ended."""

    run_id: str


@dataclass(frozen=True, slots=True)
class RunStart(_Placed):
    run_id: str


@dataclass(frozen=True, slots=True)
class RunEnd(_Placed):
    """The last event of a run.

    Attributes:
        outcome: `completed`, `handed-back`, `cancelled` or `failed`.
        reason: why it completed, or the code of its failure.
        model: the name of the model that answered last in it, sub-agents aside, if known.
    """

    outcome: str
    reason: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Rewind(_Placed):
    """Another worker took the run over: all events of this run after the id `to` are void.

    `Answer` takes it back by itself.
    """

    to: str


@dataclass(frozen=True, slots=True)
class Failure(_Placed):
    """The run failed; the conversation stays usable. `retry_after` is in seconds, if known."""

    message: Annotated[str, Field(alias="error")]
    code: str = "unknown"
    retryable: bool = False
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Left(FromJson):
    """The rest of the tightest limit of each kind; None: there is none, or it is not reported here.

    Attributes:
        turns: model calls of this run.
        tokens: of input and output together.
        seconds: of work.
        cost: in the currency of the server's prices.
    """

    turns: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Usage(_Nestable):
    """Tokens of the model call that just ended (include: usage).

    `estimated`: its answer was cut before the provider had counted it. `left`: of the run's limits,
    behind it. `model`: which one was called; empty: the tokens are of several. `context_used`: an
    estimate of the tokens of the conversation behind this answer. `context_window`: tokens that the
    model can take. Both are None if unknown.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    estimated: bool = False
    left: Left | None = None
    model: str = ""
    context_used: int | None = None
    context_window: int | None = None


@dataclass(frozen=True, slots=True)
class Output(_Placed):
    """The answer fits the output schema that was asked for, or the agent's: this is it, its text
    was a draft.
    """

    value: Annotated[JsonValue, SkipValidation]


@dataclass(frozen=True, slots=True)
class ContextUse(_Nestable):
    """The use of the model's window, in estimated tokens (include: context).

    With a `window` it is a warning; with a `step` the model is shown less from here on, and
    `before` is what it was.
    """

    used: int
    window: int | None = None
    step: str | None = None
    before: int | None = None


@dataclass(frozen=True, slots=True)
class MessageStart(_Nestable):
    """A model call begins: later events belong to this message of the history (include:
    message-ids). `started_at` is the server's time (RFC 3339), None if it is not known.
    """

    message_id: str
    started_at: str | None = None


@dataclass(frozen=True, slots=True)
class PlanEntry(FromJson):
    """One thing that the agent means to do.

    Attributes:
        content: what it is.
        priority: `high`, `medium` or `low`.
        status: `pending`, `in_progress` or `completed`.
    """

    content: str
    priority: str
    status: str


@dataclass(frozen=True, slots=True)
class Plan(_Nestable):
    """The agent's plan; it replaces the one before (include: plan)."""

    entries: tuple[PlanEntry, ...]


@dataclass(frozen=True, slots=True)
class StateChange(_Nestable):
    """A change of the shared state: new values, and keys that are gone (include: state)."""

    values: JsonObject
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unknown(_Placed):
    """An event of a kind that this version does not know."""

    type: str
    fields: JsonObject


Event: TypeAlias = (
    Text
    | Reasoning
    | ToolCallStart
    | ToolCallArgs
    | ToolCallEnd
    | ToolResult
    | ToolBegin
    | ToolProgress
    | AgentText
    | ToolAnswer
    | Decided
    | Interrupt
    | Owed
    | RunQueued
    | RunStart
    | RunEnd
    | Rewind
    | Failure
    | Usage
    | Output
    | ContextUse
    | MessageStart
    | Plan
    | StateChange
    | Unknown
)

Include: TypeAlias = Literal[
    "reasoning",
    "usage",
    "message-ids",
    "progress",
    "agents",
    "plan",
    "state",
    "context",
    "output",
    "tools",
]
"""More kinds of events; `output` comes in any case."""
OnBusy: TypeAlias = Literal["reject", "enqueue", "interrupt", "rollback"]
OnDisconnect: TypeAlias = Literal["continue", "cancel"]
Content: TypeAlias = str | list[JsonObject]
