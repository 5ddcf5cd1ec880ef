"""Events of a run, its outcomes, and positions in its log."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from pydantic import JsonValue
from typing_extensions import override

from passback.core.budgets import Left
from passback.core.errors import InvalidCursor
from passback.core.messages import (
    CallId,
    Content,
    JsonObject,
    Location,
    MessageId,
    Owed,
    Plan,
    RunId,
    SummaryMessage,
    Synthetic,
    ToolKind,
    Usage,
)

CompactionStep: TypeAlias = Literal["snip", "micro", "summary", "cut"]
"""How room was made: old results removed, large results shortened, a summary by the model, or
messages removed without a replacement.
"""

CompletedReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turns", "refusal", "budget"]


@dataclass(frozen=True, slots=True)
class Completed:
    reason: CompletedReason = "end_turn"
    type: Literal["completed"] = "completed"


@dataclass(frozen=True, slots=True)
class HandedBack:
    owed: tuple[Owed, ...]
    type: Literal["handed-back"] = "handed-back"


@dataclass(frozen=True, slots=True)
class Cancelled:
    type: Literal["cancelled"] = "cancelled"


@dataclass(frozen=True, slots=True)
class Failed:
    code: str
    message: str
    retryable: bool = False
    retry_after: float | None = None  # seconds until a new attempt may succeed, if known
    type: Literal["failed"] = "failed"


Outcome: TypeAlias = Completed | HandedBack | Cancelled | Failed


class Position(NamedTuple):
    """The position of an event in its run's log: ordered, and never reused.

    `epoch` grows with each lease of the conversation; `seq` counts events within it, from 1.
    """

    epoch: int
    seq: int

    @override
    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"


START = Position(0, 0)


@dataclass(frozen=True, slots=True)
class RunQueued:
    """The run waits for the end of another run of its conversation."""

    run_id: RunId
    type: Literal["run-queued"] = "run-queued"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run begins, with what its client has posted.

    Attributes:
        first: the position of the first message behind those of earlier runs, or of the first one
            that replaces others.
        posted: the number of messages from there on, before the run's own.
        rolled_back: what readers of earlier runs know from `first` on is no longer read: a run was
            rolled back, or the conversation goes on with another branch.
    """

    run_id: RunId
    first: int = field(default=0, compare=False)
    posted: int = field(default=0, compare=False)
    rolled_back: bool = field(default=False, compare=False)
    type: Literal["run-started"] = "run-started"


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A model call begins; what follows belongs to the assistant message `message_id`.

    `started` is the time, in milliseconds since 1970, as in `AssistantMessage`; 0 if unknown.
    """

    message_id: MessageId
    started: int = field(default=0, compare=False)
    type: Literal["turn-started"] = "turn-started"


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The answer of a model call is in the record, as the assistant message `message_id`.

    The other fields are that message's. A call that leaves no message has no such event.
    """

    message_id: MessageId
    model: str = ""
    usage: Usage | None = None
    window: int = field(default=0, compare=False)
    duration: int = field(default=0, compare=False)
    type: Literal["turn-ended"] = "turn-ended"


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str
    type: Literal["text-delta"] = "text-delta"


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str
    type: Literal["reasoning-delta"] = "reasoning-delta"


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """The model begins a call. `title` and `kind` are the tool's, as in `ToolSpec`."""

    call_id: CallId
    name: str
    client: bool
    title: str = ""
    kind: ToolKind = "other"
    type: Literal["tool-call-started"] = "tool-call-started"


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A piece of a call's arguments. A call has at least one; joined they are one JSON text."""

    call_id: CallId
    delta: str
    type: Literal["tool-call-arguments"] = "tool-call-arguments"


@dataclass(frozen=True, slots=True)
class ToolCallEnded:
    """The arguments are complete. A client tool's result may be posted from here on (P4)."""

    call_id: CallId
    type: Literal["tool-call-ended"] = "tool-call-ended"


@dataclass(frozen=True, slots=True)
class ToolBegan:
    """A tool of the server begins to work on a call, which is valid and permitted.

    A call that a later run goes on with, such as a sub-agent's, begins once in each of them.
    `locations` are the files that it is about, as far as the tool says.
    """

    call_id: CallId
    locations: tuple[Location, ...] = ()
    type: Literal["tool-began"] = "tool-began"


@dataclass(frozen=True, slots=True)
class ToolProgressed:
    """Progress of a server tool's call, in the tool's words."""

    call_id: CallId
    text: str
    type: Literal["tool-progressed"] = "tool-progressed"


@dataclass(frozen=True, slots=True)
class ToolResulted:
    """A result that the server gave: its tool ran, or `synthetic` says why it did not.

    `duration` is in milliseconds, as in `ToolMessage`. It does not take part in comparisons.
    """

    call_id: CallId
    content: Content
    is_error: bool = False
    synthetic: Synthetic | None = None
    duration: int = field(default=0, compare=False)
    type: Literal["tool-resulted"] = "tool-resulted"


@dataclass(frozen=True, slots=True)
class PlanUpdated:
    """A new plan of the agent, which replaces the one before."""

    entries: Plan
    type: Literal["plan-updated"] = "plan-updated"


@dataclass(frozen=True, slots=True)
class StateChanged:
    """A change of the state that server tools share with clients.

    Attributes:
        values: keys with their new values.
        removed: keys that are gone.
    """

    values: JsonObject
    removed: tuple[str, ...] = ()
    type: Literal["state-changed"] = "state-changed"


@dataclass(frozen=True, slots=True)
class UsageReported:
    """Usage of one model call, or of several that no event has reported yet, and what is left of
    the run's limits.

    Attributes:
        model: the name of the model; empty if the usage is of several.
        context_used: estimated tokens of the agent's context behind this answer; None if unknown.
        window: tokens of the model's context window; None if unknown.
    """

    usage: Usage
    left: Left | None = None
    model: str = ""
    context_used: int | None = None
    window: int | None = None
    type: Literal["usage-reported"] = "usage-reported"


@dataclass(frozen=True, slots=True)
class OutputAccepted:
    """The answer fits the output schema; `value` is its value.

    The text streamed before was a draft.
    """

    value: JsonValue
    type: Literal["output-accepted"] = "output-accepted"


@dataclass(frozen=True, slots=True)
class ContextWarned:
    """The request begins to fill the model's window. In tokens; `used` is an estimate."""

    used: int
    window: int
    type: Literal["context-warned"] = "context-warned"


@dataclass(frozen=True, slots=True)
class Compacted:
    """The model is shown less from here on: estimated tokens before and after.

    The record keeps what it has. `summary` is the message that is added to it in place of others;
    None if none is. It does not take part in comparisons.
    """

    step: CompactionStep
    before: int
    after: int
    summary: SummaryMessage | None = field(default=None, compare=False)
    type: Literal["compacted"] = "compacted"


@dataclass(frozen=True, slots=True)
class Rewound:
    """Another worker took the run over: events after `to` are void (P10).

    The log does not hold the void events, and readers that saw none of them do not get this event.
    Events among them that were committed, by sub-agents beside one that was interrupted, follow
    again. If the log has lost those, `to` is `START`, and readers cannot continue.
    """

    to: Position
    type: Literal["rewound"] = "rewound"


@dataclass(frozen=True, slots=True)
class Nested:
    """An event of the sub-agent that works on the call `call_id`."""

    call_id: CallId
    event: "RunEvent"
    type: Literal["nested"] = "nested"


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event of a run, exactly one (P6).

    `model` is the name of the model that answered last, empty if none did. It does not take part in
    comparisons.
    """

    outcome: Outcome
    model: str = field(default="", compare=False)
    type: Literal["run-finished"] = "run-finished"


RunEvent: TypeAlias = (
    RunQueued
    | RunStarted
    | TurnStarted
    | TurnEnded
    | TextDelta
    | ReasoningDelta
    | ToolCallStarted
    | ToolCallArguments
    | ToolCallEnded
    | ToolBegan
    | ToolProgressed
    | ToolResulted
    | PlanUpdated
    | StateChanged
    | UsageReported
    | OutputAccepted
    | ContextWarned
    | Compacted
    | Rewound
    | Nested
    | RunFinished
)


def innermost_event(event: RunEvent, /) -> RunEvent:
    """Return the event of the sub-agent, however deep it is nested."""
    while isinstance(event, Nested):
        event = event.event
    return event


def unwrap_event(event: RunEvent, /) -> tuple[tuple[CallId, ...], RunEvent]:
    """Return the calls on which sub-agents work, outermost first, and the event itself."""
    path: list[CallId] = []
    while isinstance(event, Nested):
        path.append(event.call_id)
        event = event.event
    return tuple(path), event


class Logged(NamedTuple):
    """One event and its position."""

    position: Position
    event: RunEvent


class Cursor(NamedTuple):
    """A position in the log of a named run.

    As text `<run>.<epoch>-<seq>`: the `id:` of a server-sent event.
    """

    run_id: RunId
    position: Position

    @override
    def __str__(self) -> str:
        return f"{self.run_id}.{self.position}"

    @classmethod
    def parse(cls, text: str, /) -> "Cursor":
        """Parse a cursor.

        Raises:
            InvalidCursor: the text is no cursor.
        """
        run_id, dot, place = text.rpartition(".")
        epoch, dash, seq = place.partition("-")
        if not (dot and dash and run_id and _is_count(epoch) and _is_count(seq)):
            raise InvalidCursor("the cursor is not one that this server gave")
        return cls(RunId(run_id), Position(int(epoch), int(seq)))


def _is_count(text: str) -> bool:
    # one text for one number, and few digits: int() is slow for many
    return len(text) <= 15 and text.isascii() and text.isdigit() and str(int(text)) == text


def stream_of(event: RunEvent, /) -> object:
    """Return what is equal for events that `join_events` may join, None for one that stands
    alone.
    """
    if isinstance(event, ToolCallArguments):
        return event.call_id
    return type(event) if isinstance(event, TextDelta | ReasoningDelta) else None


def join_events(events: Sequence[RunEvent], /) -> RunEvent:
    """Return neighbouring pieces of one stream as one event; what stands alone is that event."""
    first = events[0]
    if len(events) == 1:
        return first
    if isinstance(first, ToolCallArguments):
        deltas = [event.delta for event in events if isinstance(event, ToolCallArguments)]
        return ToolCallArguments(first.call_id, "".join(deltas))
    texts = [event.text for event in events if isinstance(event, TextDelta | ReasoningDelta)]
    kind = TextDelta if isinstance(first, TextDelta) else ReasoningDelta
    return kind("".join(texts))
