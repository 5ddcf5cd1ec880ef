"""The calls of an answer, as a tree: calls of a sub-agent are within the call that it works on."""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import to_json

from passback_client.events import (
    AgentText,
    Interrupt,
    Location,
    Owed,
    OwedCall,
    ToolAnswer,
    ToolBegin,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    ToolProgress,
    ToolResult,
)

CallEvent: TypeAlias = (
    AgentText
    | Interrupt
    | Owed
    | ToolAnswer
    | ToolBegin
    | ToolCallArgs
    | ToolCallEnd
    | ToolCallStart
    | ToolProgress
    | ToolResult
)
"""Events that concern a call."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an agent, with its result.

    Attributes:
        id: its id.
        name: of the tool; empty if only events of its sub-agent were seen.
        arguments: JSON text, perhaps incomplete.
        complete: whether the arguments are complete.
        answered: whether there is a `result`, which may be None.
        result: of the server's tool, or of this client's.
        is_error: whether the tool failed, or the server wrote an error instead.
        synthetic: why the server wrote the result itself, if no tool returned it.
        title: the tool's name for people (include: tools, as the next four); empty if it has none.
        kind: what the tool does.
        began: whether a tool of the server has begun to work on it.
        locations: the files that it is about, as far as that tool says.
        duration_ms: how long that tool worked, if known.
        progress: the tool's progress (include: progress).
        agent_text: the text of the sub-agent that works on it (include: agents).
        calls: of that sub-agent.
    """

    id: str
    name: str
    arguments: str
    complete: bool = False
    answered: bool = False
    result: JsonValue = None
    is_error: bool = False
    synthetic: str | None = None
    progress: str = ""
    agent_text: str = ""
    calls: tuple["Call", ...] = ()
    title: str = ""
    kind: str = "other"
    began: bool = False
    locations: tuple[Location, ...] = ()
    duration_ms: int | None = None


@dataclass(slots=True)
class _Draft:
    """A call with its pieces, which are joined on demand."""

    call: Call
    parent: str | None = None
    arguments: list[str] = field(default_factory=list[str])
    words: list[str] = field(default_factory=list[str])

    def copy(self) -> "_Draft":
        return _Draft(self.call, self.parent, [*self.arguments], [*self.words])


def chars_of(event: CallEvent) -> int:
    """Return the number of characters of the event that are kept."""
    match event:
        case ToolCallArgs(delta=text) | AgentText(delta=text) | ToolResult(result=text):
            return len(text)
        case ToolAnswer(content=content):
            return len(content) if isinstance(content, str) else len(to_json(content))
        case Owed(calls):
            return sum(len(each.arguments) for each in calls)
        case ToolProgress(text=text):
            return len(text)
        case ToolBegin(locations=locations):
            return sum(len(each.path) for each in locations)
        case _:
            return 0


class Calls:
    """Collects calls, in the order in which they began; a parent comes before its children."""

    def __init__(self, drafts: dict[str, _Draft] | None = None) -> None:
        self._drafts = drafts or {}

    def copy(self) -> "Calls":
        """Return an independent copy."""
        return Calls({call_id: draft.copy() for call_id, draft in self._drafts.items()})

    def feed(self, event: CallEvent) -> None:
        match event:
            case ToolCallStart(call_id, name, title, kind):
                call = Call(call_id, name, "", title=title, kind=kind)
                self._begin(call, event.parent_call_id)
            case ToolCallArgs(call_id, delta):
                self._draft(call_id).arguments.append(delta)
            case AgentText(call_id, delta):
                self._draft(call_id).words.append(delta)
            case Owed(calls):
                for each in calls:
                    self._add_owed(each)
            case _:
                self._update(event)

    def tree(self) -> tuple[Call, ...]:
        """Return the answer's own calls, with those of sub-agents within them."""
        children: dict[str | None, list[Call]] = {}
        for call_id, draft in reversed(self._drafts.items()):
            call = replace(
                draft.call,
                arguments="".join(draft.arguments),
                agent_text="".join(draft.words),
                calls=tuple(reversed(children.pop(call_id, ()))),
            )
            children.setdefault(draft.parent, []).append(call)
        return tuple(reversed(children.get(None, ())))

    def _update(
        self, event: Interrupt | ToolAnswer | ToolBegin | ToolCallEnd | ToolProgress | ToolResult
    ) -> None:
        """Update a call; ignore one that is not known."""
        call_id = event.interrupt_id if isinstance(event, Interrupt) else event.call_id
        draft = self._drafts.get(call_id)
        if draft is not None:
            draft.call = _updated(draft.call, event)

    def _begin(self, call: Call, parent: str | None) -> None:
        known = self._drafts.get(call.id)
        if known is not None:  # keep its place, after its parent
            known.call = call
            known.arguments.clear()
            return
        if parent is not None:
            self._draft(parent)
        self._drafts[call.id] = _Draft(call, None if parent == call.id else parent)

    def _add_owed(self, owed: OwedCall) -> None:
        """Add an owed call that began before this client followed the run."""
        if owed.id not in self._drafts:
            self._begin(Call(owed.id, owed.name, "", complete=True), owed.parent_call_id)
            self._drafts[owed.id].arguments.append(owed.arguments)

    def _draft(self, call_id: str) -> _Draft:
        """Return the call, or a nameless one if it began before this client followed the run."""
        return self._drafts.setdefault(call_id, _Draft(Call(call_id, "", "", complete=True)))


def _updated(
    call: Call,
    event: Interrupt | ToolAnswer | ToolBegin | ToolCallEnd | ToolProgress | ToolResult,
) -> Call:
    match event:
        case ToolBegin(locations=locations):
            return replace(call, began=True, locations=locations)
        case ToolProgress(text=text):
            return replace(call, progress=text)
        case ToolResult():
            return replace(
                call,
                answered=True,
                result=event.result,
                is_error=event.is_error,
                synthetic=event.synthetic,
                duration_ms=event.duration_ms,
            )
        case ToolAnswer(content=content, is_error=is_error):
            return replace(call, answered=True, result=content, is_error=is_error)
        case _:
            return replace(call, complete=True)
