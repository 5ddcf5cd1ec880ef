"""The values that clients of the chat socket are shown: turns, their blocks and their calls. Pure.

A turn is one model call of one agent, or a message of the user. `Turn` and `Call` grow while a run
goes on, and hold the same in the end when they are read from the record.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from passback.core.events import TurnEnded
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Content,
    MediaPart,
    RunId,
    SummaryMessage,
    Synthetic,
    Usage,
    as_text,
)
from passback.core.questions import ASK_USER, Questions, find_question_flaw
from passback.core.text import read_json
from passback.native.times import utc_timestamp

JsonDict: TypeAlias = dict[str, Any]

TurnStatus: TypeAlias = Literal["streaming", "completed", "paused", "interrupted"]
CallStatus: TypeAlias = Literal[
    "pending", "awaiting_answer", "awaiting_result", "done", "error", "cancelled"
]

NO_RUN: Final = RunId("")

QUESTION_TOOL: Final = "AskUserQuestion"
"""The name by which clients know the calls of `ask_user`."""

_OPEN: Final = frozenset[CallStatus]({"pending", "awaiting_answer", "awaiting_result"})
_CANCELLING: Final = frozenset[Synthetic]({"superseded", "interrupted", "timeout", "unanswered"})
_SHOWN_TASK: Final = 200  # characters of a sub-agent's task beside its questions
_PREVIEW: Final = 200  # characters of a summary


def describe_media(part: MediaPart, /) -> str:
    """Return words in place of an attachment: its name or address, never its data."""
    address = "" if part.url.startswith("data:") else part.url
    return f"[{part.type}: {part.name or address or part.media_type or 'attached'}]"


def shown_text(content: Content, /) -> str:
    """Return content as one text."""
    return as_text(content, media=describe_media)


def text_blocks(content: Content, /) -> list[JsonDict]:
    """Return the blocks of a user's message: one for each part."""
    parts = [content] if isinstance(content, str) else [shown_text((part,)) for part in content]
    return [{"type": "text", "content": text} for text in parts if text]


def status_of_result(synthetic: Synthetic | None, *, is_error: bool) -> CallStatus:
    """Return the status of a call with a result."""
    if synthetic in _CANCELLING:
        return "cancelled"
    return "error" if is_error else "done"


@dataclass(slots=True, eq=False)
class Loop:
    """One agent at work: the main agent, or a sub-agent on a call.

    Attributes:
        path: the calls on which it works, outermost first; empty for the main agent.
        call: the last of them; None for the main agent.
        run_id: the run of its last turn.
        count: its turns in that run.
        sequence: the sequence of its last turn.
        turn: its last turn; all calls in earlier ones are answered.
    """

    path: tuple[CallId, ...]
    call: "Call | None"
    run_id: RunId = NO_RUN
    count: int = 0
    sequence: int = 0
    turn: "Turn | None" = None

    def next_id(self, run_id: RunId, /) -> str:
        """Return the id of its next turn in a run: it depends on the order of its turns alone."""
        count = self.count + 1 if run_id == self.run_id else 1
        return ".".join((run_id, *self.path[-1:], str(count)))

    def next_turn(self, run_id: RunId, turn_id: str = "", /) -> "Turn":
        """Begin its next turn, in a run, or with an id if it belongs to none."""
        turn_id = turn_id or self.next_id(run_id)
        self.count = self.count + 1 if run_id == self.run_id else 1
        self.run_id = run_id
        self.sequence += 1
        self.turn = Turn(turn_id, self, self.sequence, run_id)
        return self.turn

    def drop_turn(self) -> None:
        """Take back its last turn, which came to nothing: the next one has its place."""
        self.count -= 1
        self.sequence -= 1
        self.turn = None


@dataclass(slots=True, eq=False)
class Call:
    """A call of a tool.

    Attributes:
        turn: the turn whose answer made it.
        raw: the pieces of its arguments so far.
        tool_name, display_name, arguments: as clients see them, once it is complete.
        result: the text of its result; None if it has none.
        interrupted: it was stopped, or never made.
        question: of an open call, the question of a sub-agent below that waits for an answer.
    """

    id: CallId
    turn: "Turn"
    name: str
    title: str = ""
    client: bool = False
    raw: list[str] = field(default_factory=list[str])
    tool_name: str = ""
    display_name: str = ""
    arguments: str = ""
    status: CallStatus = "pending"
    result: str | None = None
    duration: int = 0
    interrupted: bool = False
    question: JsonDict | None = None

    @property
    def is_open(self) -> bool:
        return self.status in _OPEN

    def complete(self, arguments: str, /) -> None:
        """Set what clients see of it; a question is shown in the protocol's own form."""
        questions = self._questions(arguments)
        self.tool_name = self.name if questions is None else QUESTION_TOOL
        self.display_name = self.title or self.tool_name
        self.arguments = arguments if questions is None else json.dumps(questions)
        self.raw.clear()

    def _questions(self, arguments: str) -> JsonDict | None:
        if not (self.client and self.name == ASK_USER.name) or find_question_flaw(arguments):
            return None
        asked = Questions.model_validate_json(arguments).questions
        return {
            "questions": [
                {
                    "question": each.question,
                    **({"header": each.header} if each.header else {}),
                    "options": [
                        {"label": option.label, "description": option.description}
                        if option.description
                        else {"label": option.label}
                        for option in each.options
                    ],
                    "multiSelect": each.multiple,
                }
                for each in asked
            ],
            "source_loop": source_loop(self.turn.loop),
        }

    @property
    def announcement(self) -> JsonDict:
        """The call without its result, as `add_tool_call` has it."""
        return {
            "id": self.id,
            "tool_name": self.tool_name,
            "display_name": self.display_name,
            "arguments": self.arguments,
            "status": self.status,
        }

    @property
    def view(self) -> JsonDict:
        """The call within its turn."""
        shown = self.announcement
        if self.result is not None:
            shown |= {"result": self.result, "duration_ms": self.duration}
        if self.question is not None:
            shown["pending_question_ref"] = self.question
        return shown


def source_loop(loop: Loop, /) -> JsonDict | None:
    """Return the sub-agent that asks, as the arguments of its question name it; None for the main
    agent.
    """
    if loop.call is None:
        return None
    return {"loop_name": loop.call.tool_name, "description": _task_of(loop.call.arguments)}


def question_reference(call: Call, /) -> JsonDict:
    """Return the reference to a sub-agent's question that the calls above it have."""
    asking = source_loop(call.turn.loop) or {"loop_name": "", "description": ""}
    return {
        "child_loop_name": asking["loop_name"],
        "child_tool_call_id": call.id,
        "description": asking["description"],
    }


def _task_of(arguments: str) -> str:
    given = read_json(arguments)
    task = given.get("task") if isinstance(given, dict) else None
    return task[:_SHOWN_TASK] if isinstance(task, str) else ""


def compaction_view(summary: SummaryMessage, /) -> JsonDict:
    """Return the fields that only the turn of a compaction has."""
    known = summary.before > 0
    return {
        "compaction_id": summary.id,
        "summary_preview": summary.content[:_PREVIEW],
        "summary_full": summary.content,
        "archived_count": summary.turns if known else None,
        "tokens_before": summary.before if known else None,
        "tokens_after": summary.after if known else None,
        "saved_ratio": round(max(0, 1 - summary.after / summary.before), 3) if known else None,
        "trigger": summary.trigger if known else None,
    }


@dataclass(slots=True, eq=False)
class Turn:
    """One turn.

    Attributes:
        run_id: the run that it belongs to; empty for what no run of this server said.
        thoughts, words: the pieces of its text so far.
        given: the blocks of a message of the user, which has nothing else.
        calls: in the model's order. Clients know the first `shown` of them.
        partial: its answer was stopped early.
        ended: `turn:end` was sent.
        told: `turn:start` was sent.
        is_void: clients know a turn of its id that came to nothing.
        summary: of a compaction, which has nothing else.
        patches: the number of patches sent in the run that it belongs to.
        is_recorded: its answer is in the record.
        model, usage, duration, window: of its answer, once that is in the record, as in
            `AssistantMessage`.
        started: when it began, in milliseconds since 1970; 0 if unknown.
    """

    id: str
    loop: Loop
    sequence: int
    run_id: RunId = NO_RUN
    role: Literal["user", "assistant", "system"] = "assistant"
    thoughts: list[str] = field(default_factory=list[str])
    words: list[str] = field(default_factory=list[str])
    given: Sequence[JsonDict] = ()
    calls: list[Call] = field(default_factory=list[Call])
    shown: int = 0
    status: TurnStatus = "streaming"
    partial: bool = False
    ended: bool = False
    told: bool = False
    is_void: bool = False
    patches: int = 0
    summary: SummaryMessage | None = None
    is_recorded: bool = False
    model: str = ""
    usage: Usage | None = None
    duration: int = 0
    window: int = 0
    started: int = 0

    def note_answer(self, answer: AssistantMessage | SummaryMessage | TurnEnded, /) -> None:
        """Set what is known of an answer once it is in the record."""
        self.is_recorded = True
        self.model, self.usage = answer.model, answer.usage
        self.duration, self.window = answer.duration, answer.window

    @property
    def is_input(self) -> bool:
        """True if it is a message of the user or the operator."""
        return self.role != "assistant" and self.summary is None

    @property
    def is_empty(self) -> bool:
        """True if the record has nothing of it: thoughts alone are no answer."""
        return self.role == "assistant" and not (self.words or self.calls)

    def settled_status(self) -> TurnStatus:
        """Return its status at its end: it follows from its answer and its calls."""
        if self.partial or any(call.interrupted for call in self.calls):
            return "interrupted"
        return "paused" if any(call.is_open for call in self.calls) else "completed"

    @property
    def view(self) -> JsonDict:
        """The whole turn (TurnProjection)."""
        usage = self.usage
        view: JsonDict = {
            "id": self.id,
            "sequence": self.sequence,
            "turn_id": self.id,
            "loop_id": self.loop_id,
            "kind": "compaction" if self.summary else "message",
            "role": self.role,
            "status": self.status,
            "blocks": self._blocks(),
            "tool_calls": [call.view for call in self.calls[: self.shown]],
            "model": self.model or None,
            "usage": None
            if usage is None
            else {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
            "duration_ms": self.duration,
            "started_at": utc_timestamp(self.started) if self.started else None,
            "context_window": self.window,
            "memory_refs": None,
            "parent_fork_tool_call_id": self.loop.path[-1] if self.loop.path else None,
        }
        return view if self.summary is None else view | compaction_view(self.summary)

    @property
    def loop_id(self) -> str:
        return self.loop.path[-1] if self.loop.path else "root"

    def _blocks(self) -> list[JsonDict]:
        said = (("thinking", self.thoughts), ("text", self.words))
        blocks = [{"type": kind, "content": "".join(text)} for kind, text in said if text]
        return [*self.given, *blocks]
