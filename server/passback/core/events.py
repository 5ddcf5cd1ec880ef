"""What a run says: the union of its events, the outcomes, and the place of an event in the log."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from pydantic import JsonValue
from typing_extensions import override

from passback.core.budgets import Left
from passback.core.errors import InvalidCursor
from passback.core.messages import CallId, Content, MessageId, Owed, Plan, RunId, Synthetic, Usage

CompactionStep: TypeAlias = Literal["snip", "micro", "summary", "cut"]
"""How room was made: old results were left out, large ones shortened, the model wrote a summary, or nothing took its place."""

CompletedReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turns", "refusal", "budget"]


# ---------------------------------------------------------------- outcomes
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
    retry_after: float | None = None
    """Seconds after which a new attempt may succeed, where somebody said so."""
    type: Literal["failed"] = "failed"


Outcome: TypeAlias = Completed | HandedBack | Cancelled | Failed


# ---------------------------------------------------------------- events
class Position(NamedTuple):
    """The place of an event in its run's log: ordered, and never reused.

    `epoch` grows with each lease of the conversation, `seq` counts events from 1 within it.
    """

    epoch: int
    seq: int

    @override
    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"


START = Position(0, 0)


@dataclass(frozen=True, slots=True)
class RunQueued:
    """The run waits for another one of its conversation to end."""

    run_id: RunId
    type: Literal["run-queued"] = "run-queued"


@dataclass(frozen=True, slots=True)
class RunStarted:
    run_id: RunId
    type: Literal["run-started"] = "run-started"


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A model call begins; what follows belongs to the assistant message `message_id`."""

    message_id: MessageId
    type: Literal["turn-started"] = "turn-started"


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
    call_id: CallId
    name: str
    client: bool
    type: Literal["tool-call-started"] = "tool-call-started"


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A piece of the call's arguments; a call has at least one, and joined they are one JSON text."""

    call_id: CallId
    delta: str
    type: Literal["tool-call-arguments"] = "tool-call-arguments"


@dataclass(frozen=True, slots=True)
class ToolCallEnded:
    """The arguments are complete. For a client tool a commitment: the result may be posted now (P4)."""

    call_id: CallId
    type: Literal["tool-call-ended"] = "tool-call-ended"


@dataclass(frozen=True, slots=True)
class ToolProgressed:
    """How far a server tool's call is, in its own words."""

    call_id: CallId
    text: str
    type: Literal["tool-progressed"] = "tool-progressed"


@dataclass(frozen=True, slots=True)
class ToolResulted:
    """The server answered a call: its own tool ran, or `synthetic` says why there is a result without that."""

    call_id: CallId
    content: Content
    is_error: bool = False
    synthetic: Synthetic | None = None
    type: Literal["tool-resulted"] = "tool-resulted"


@dataclass(frozen=True, slots=True)
class PlanUpdated:
    """What the agent means to do now: it replaces what it said before."""

    entries: Plan
    type: Literal["plan-updated"] = "plan-updated"


@dataclass(frozen=True, slots=True)
class UsageReported:
    """Tokens of the model call that just ended, and what is left then of the limits of the run.

    `model` is the name of the one that was called; empty where the tokens are of several.
    """

    usage: Usage
    left: Left | None = None
    model: str = ""
    type: Literal["usage-reported"] = "usage-reported"


@dataclass(frozen=True, slots=True)
class OutputAccepted:
    """The answer fits the output schema that was asked for: this is its value. What streamed before was a draft."""

    value: JsonValue
    type: Literal["output-accepted"] = "output-accepted"


@dataclass(frozen=True, slots=True)
class ContextWarned:
    """What the model is shown has begun to fill its window: both in tokens, `used` estimated."""

    used: int
    window: int
    type: Literal["context-warned"] = "context-warned"


@dataclass(frozen=True, slots=True)
class Compacted:
    """The model is shown less from here on: estimated tokens before and after. The record is as it was."""

    step: CompactionStep
    before: int
    after: int
    type: Literal["compacted"] = "compacted"


@dataclass(frozen=True, slots=True)
class Rewound:
    """Another worker took the run over: what came after `to` is void (P10).

    The log does not hold the void events any more; a reader who saw none of them is not told of it. What was committed among
    them, by sub-agents beside one whose turn broke off, follows once more. Where the log has lost that, `to` is `START`, and
    no reader can go on.
    """

    to: Position
    type: Literal["rewound"] = "rewound"


@dataclass(frozen=True, slots=True)
class Nested:
    """What a sub-agent says that works on the call `call_id`."""

    call_id: CallId
    event: "RunEvent"
    type: Literal["nested"] = "nested"


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event of a run, exactly one (P6).

    `model` is the name of the one that spoke last in it, empty where none did; how a run ends does not depend on it.
    """

    outcome: Outcome
    model: str = field(default="", compare=False)
    type: Literal["run-finished"] = "run-finished"


RunEvent: TypeAlias = (
    RunQueued
    | RunStarted
    | TurnStarted
    | TextDelta
    | ReasoningDelta
    | ToolCallStarted
    | ToolCallArguments
    | ToolCallEnded
    | ToolProgressed
    | ToolResulted
    | PlanUpdated
    | UsageReported
    | OutputAccepted
    | ContextWarned
    | Compacted
    | Rewound
    | Nested
    | RunFinished
)


def innermost(event: RunEvent, /) -> RunEvent:
    """What a sub-agent says, however deep it is."""
    while isinstance(event, Nested):
        event = event.event
    return event


def unnested(event: RunEvent, /) -> tuple[tuple[CallId, ...], RunEvent]:
    """Return the calls on which a sub-agent works, outermost first, and what it says."""
    path: list[CallId] = []
    while isinstance(event, Nested):
        path.append(event.call_id)
        event = event.event
    return tuple(path), event


# ---------------------------------------------------------------- the log
class Logged(NamedTuple):
    """One event at its place."""

    position: Position
    event: RunEvent


class Cursor(NamedTuple):
    """A position of a named run: the `id:` of a server-sent event, `<run>.<epoch>-<seq>`."""

    run_id: RunId
    position: Position

    @override
    def __str__(self) -> str:
        return f"{self.run_id}.{self.position}"

    @classmethod
    def parse(cls, text: str, /) -> "Cursor":
        """Read a cursor back.

        Raises:
            InvalidCursor: not of this form.
        """
        run_id, dot, place = text.rpartition(".")
        epoch, dash, seq = place.partition("-")
        if not (dot and dash and run_id and _is_count(epoch) and _is_count(seq)):
            raise InvalidCursor("the cursor is not one that this server gave")
        return cls(RunId(run_id), Position(int(epoch), int(seq)))


def _is_count(text: str) -> bool:
    return len(text) <= 15 and text.isascii() and text.isdigit() and str(int(text)) == text
