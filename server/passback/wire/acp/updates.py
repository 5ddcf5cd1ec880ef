"""Updates of a session: what an editor is told of a run, live and from the record. Pure.

A call is announced once, and its last update has its result, whichever way the editor learns of
it. Sub-agents are shown as the content of the call on which they work.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias

from passback.core.events import (
    Compacted,
    ContextWarned,
    Logged,
    PlanUpdated,
    Position,
    ReasoningDelta,
    Rewound,
    RunEvent,
    TextDelta,
    ToolBegan,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnStarted,
    UsageReported,
    join_events,
    stream_of,
    unwrap_event,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Content,
    DataPart,
    Location,
    Message,
    Owed,
    Plan,
    SummaryMessage,
    ToolKind,
    ToolMessage,
    UserMessage,
)
from passback.core.text import read_json
from passback.core.titles import fold_title
from passback.core.values import value
from passback.wire.acp.posted import show_part, text_block

Update: TypeAlias = dict[str, Any]
Status: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]

_FINAL: Final = frozenset[Status]({"completed", "failed"})
_SHOWN_OF_AGENT: Final = 4_000  # characters, the last ones of what a sub-agent has said so far
_TITLE: Final = 200  # characters
_DIGITS: Final = 9  # of costs: a sum of fractions has more


@value
class Description:
    """The way in which a call is shown, once its arguments are known.

    Attributes:
        content: as in a tool call of the protocol: texts, diffs, terminals.
    """

    title: str
    kind: ToolKind
    locations: tuple[Location, ...] = ()
    content: tuple[Update, ...] = ()


Describe: TypeAlias = Callable[[str, str], Description | None]
"""Returns how a call of a client tool, by its name and arguments, is shown; None: by its name."""


@value
class Abilities:
    """The kinds of updates that not every editor takes."""

    notices: bool = False
    compaction: bool = False


@dataclass(slots=True, eq=False)
class Call:
    """A call as the editor sees it.

    Attributes:
        client: a client executes it.
        parent: the call on which the sub-agent works that made it.
        pieces: of its arguments.
        begun_at: the event that began it.
        told: what the editor knows of it.
        said: by the sub-agent that works on it, the end of it.
        has_said_more: than the editor knows.
    """

    id: CallId
    name: str
    title: str
    kind: ToolKind
    client: bool
    parent: CallId | None = None
    pieces: list[str] = field(default_factory=list[str])
    begun_at: Position | None = None
    announced: bool = False
    told: Update = field(default_factory=dict[str, Any])
    status: Status = "pending"
    said: str = ""
    has_said_more: bool = False
    description: Description | None = None

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def say(self, text: str) -> None:
        """Add what its sub-agent says."""
        self.said = (self.said + text)[-_SHOWN_OF_AGENT:]
        self.has_said_more = True

    @property
    def view(self) -> Update:
        """All that is known of it, without its status."""
        shown = self.description or Description(self.title or self.name, self.kind)
        view: Update = {
            "toolCallId": self.id,
            "title": short_title(shown.title) or self.name,
            "kind": shown.kind,
            "name": self.name,
        }
        if shown.locations:
            view["locations"] = locations_view(shown.locations)
        if shown.content:
            view["content"] = list(shown.content)
        if self.pieces:
            view["rawInput"] = read_json(self.arguments)
        if self.parent is not None:
            view["_meta"] = {"passback": {"parentToolCallId": self.parent}}
        return view


class Updates:
    """Makes the updates of one session. It is fed every event of its runs, or its record.

    Args:
        abilities: what the editor takes.
        describe: how calls of the editor's own tools are shown.
        currency: of costs.
    """

    def __init__(self, abilities: Abilities, describe: Describe, currency: str = "USD", /) -> None:
        self._abilities = abilities
        self._describe = describe
        self._calls: dict[CallId, Call] = {}
        self._message_id = ""
        self._currency = currency
        self._usage: Update = {}

    # ---------------------------------------------------------------- live
    def feed(self, batch: Sequence[Logged], /) -> list[Update]:
        """Return the updates of events, neighbouring pieces of one text joined."""
        updates: list[Update] = []
        for stream, group in groupby(batch, lambda logged: stream_of(logged.event)):
            if stream is None:
                for position, event in group:
                    updates += self._feed_event(event, position)
            else:
                pieces = list(group)
                joined = join_events([each.event for each in pieces])
                updates += self._feed_event(joined, pieces[-1].position)
        for call in self._calls.values():
            if call.has_said_more and call.status == "in_progress":
                call.has_said_more = False
                updates += self._update(call, content=text_content(call.said.strip("\n")))
        return updates

    def _feed_event(self, event: RunEvent, position: Position) -> list[Update]:
        path, inner = unwrap_event(event)
        if path:
            return self._feed_agent(path, inner, position)
        match inner:
            case TurnStarted(message_id=message_id):
                self._message_id = message_id
                return []
            case TextDelta(text=text):
                return self._chunk("agent_message_chunk", text)
            case ReasoningDelta(text=text):
                return self._chunk("agent_thought_chunk", text)
            case ToolCallStarted():
                return self._announce(self._begin(inner, position))
            case _:
                return [*self._feed_call(inner), *self._feed_state(inner)]

    def _feed_state(self, event: RunEvent) -> list[Update]:
        """Return the updates of an event that is about the whole conversation."""
        match event:
            case PlanUpdated(entries=entries):
                return [plan_update(entries)]
            case UsageReported(context_used=int(used), window=int(window)):
                # with the cost that is known: an editor may take each update as a whole
                self._usage |= {"sessionUpdate": "usage_update", "used": used, "size": window}
                return [dict(self._usage)]
            case Rewound(to=to):
                return self._fail(lambda call: call.begun_at is not None and call.begun_at > to)
            case ContextWarned(used=used, window=window):
                return self._notice("warning", f"{used * 100 // window} % of the context is full")
            case Compacted(summary=SummaryMessage() as summary):
                return self._compaction(summary)
            case _:
                return []

    def _feed_call(self, event: RunEvent) -> list[Update]:
        """Return the updates of an event of a call that was begun before."""
        call = self._calls.get(getattr(event, "call_id", CallId("")))
        if isinstance(event, ToolCallArguments) and call is not None:
            call.pieces.append(event.delta)
        if call is None:
            return []
        match event:
            case ToolCallEnded():
                return self._complete(call)
            case ToolBegan(locations=locations):
                shown = {"locations": locations_view(locations)} if locations else {}
                return self.begin(call.id, **shown)
            case ToolProgressed(text=text):
                return self._update(call, content=text_content(text))
            case ToolResulted(content=content, is_error=is_error):
                return self.settle(call.id, content, is_error=is_error)
            case _:
                return []

    def _feed_agent(
        self, path: Sequence[CallId], event: RunEvent, position: Position
    ) -> list[Update]:
        """Return the updates of what a sub-agent does: its words go to the outermost call."""
        outer = self._calls.get(path[0])
        if isinstance(event, ToolCallStarted):
            self._begin(event, position, parent=path[-1])
        if outer is not None and isinstance(event, TextDelta):
            outer.say(event.text)
        elif outer is not None and isinstance(event, ToolCallEnded):
            updates = self._feed_call(event)
            if (call := self._calls.get(event.call_id)) is not None:
                outer.say(f"\n• {call.view['title']}\n")
            return updates
        return self._feed_call(event)

    def _begin(
        self, event: ToolCallStarted, position: Position, parent: CallId | None = None
    ) -> Call:
        call = Call(event.call_id, event.name, event.title, event.kind, event.client)
        call.parent = parent
        call.begun_at = position
        self._calls[call.id] = call
        return call

    def _complete(self, call: Call) -> list[Update]:
        """Return the update for a call whose arguments are known: what is new of it."""
        self._describe_call(call)
        if not call.announced:
            return []
        told, call.told = call.told, call.view
        news = {name: each for name, each in call.told.items() if told.get(name) != each}
        return self._update(call, **news) if news else []

    def _describe_call(self, call: Call) -> None:
        if call.client:  # a server tool may have the same name
            call.description = self._describe(call.name, call.arguments)

    def _announce(self, call: Call) -> list[Update]:
        if call.announced:
            return []
        call.announced, call.told = True, call.view
        return [{"sessionUpdate": "tool_call", **call.told, "status": "pending"}]

    def _update(self, call: Call, **fields: Any) -> list[Update]:
        """Return an update of a call; none if the editor does not know the call."""
        if not call.announced or call.status in _FINAL:
            return []
        return [{"sessionUpdate": "tool_call_update", "toolCallId": call.id, **fields}]

    def _fail(self, applies: Callable[[Call], bool]) -> list[Update]:
        found = [call for call in self._calls.values() if applies(call)]
        return [update for call in found for update in self._end(call, "failed")]

    def _end(self, call: Call, status: Status, **fields: Any) -> list[Update]:
        updates = self._update(call, status=status, **fields)
        call.status = status
        return updates

    def _chunk(self, kind: str, text: str) -> list[Update]:
        if not text:
            return []
        message_id = {"messageId": self._message_id} if self._message_id else {}
        return [{"sessionUpdate": kind, "content": text_block(text), **message_id}]

    def _notice(self, severity: str, title: str) -> list[Update]:
        if not self._abilities.notices:
            return []
        return [{"sessionUpdate": "notice", "severity": severity, "title": title}]

    def _compaction(self, summary: SummaryMessage) -> list[Update]:
        if summary.forgets:
            return []
        if not self._abilities.compaction:
            return self._notice("info", "What was said before is summed up for the model")
        return [
            {
                "sessionUpdate": "compaction_update",
                "compactionId": summary.id,
                "status": "completed",
                "summary": [text_block(summary.content)],
            }
        ]

    def spend(self, cost: float, /) -> list[Update]:
        """Return the update for the cost of the whole conversation; none if it is known, or zero.

        It needs the use of the context, which the editor is told with it.
        """
        amount = round(cost, _DIGITS)
        shown = {"amount": amount, "currency": self._currency}
        if not amount or not self._usage or self._usage.get("cost") == shown:
            return []
        self._usage["cost"] = shown
        return [dict(self._usage)]

    # ---------------------------------------------------------------- calls that the editor makes
    def announce(self, owed: Owed, /) -> list[Update]:
        """Return the updates for a call that the editor has to know before it is asked."""
        call = self._calls.get(owed.id)
        if call is None:
            call = Call(owed.id, owed.name, "", "other", owed.kind != "approval")
            call.parent = owed.parent_id
            call.pieces.append(owed.arguments)
            self._calls[owed.id] = call
        self._describe_call(call)
        return self._announce(call)

    def view(self, call_id: CallId, /) -> Update:
        """Return all that is known of a call that was announced, to be sent with a request."""
        call = self._calls[call_id]
        call.told = call.view
        return {**call.told, "status": "pending"}

    def begin(self, call_id: CallId, /, **fields: Any) -> list[Update]:
        """Return the update for a call whose tool begins to work."""
        call = self._calls[call_id]
        updates = self._update(call, status="in_progress", **fields)
        call.status = "in_progress"
        return updates

    def show(self, call_id: CallId, content: Sequence[Update], /) -> list[Update]:
        """Return the update for content of a call that is worked on, which stays."""
        call = self._calls[call_id]
        known = call.description or Description(call.title or call.name, call.kind)
        call.description = replace(known, content=tuple(content))
        return self._update(call, content=list(content))

    def settle(self, call_id: CallId, content: Content, /, *, is_error: bool) -> list[Update]:
        """Return the update for the result of a call."""
        call = self._calls[call_id]
        # what is done was begun: an editor that comes late is told so, too
        begun = self.begin(call_id) if call.status == "pending" and not is_error else []
        shown: Update = {}
        known = call.description.content if call.description is not None else ()
        # what was to be done stays beside its result; a diff or a terminal is the result
        texts = [each for each in known if each["type"] == "content"]
        if is_error or len(texts) == len(known):
            shown["content"] = [*texts, *content_view(content)]
        match content:
            case (DataPart(data),):
                shown["rawOutput"] = data
            case _:
                pass
        return begun + self._end(call, "failed" if is_error else "completed", **shown)

    def settle_all(self) -> list[Update]:
        """Return the updates that end all open calls, and forget the calls: a prompt is over."""
        updates = self._fail(lambda call: call.status not in _FINAL)
        self._calls.clear()
        return updates

    # ---------------------------------------------------------------- the record
    def read(self, messages: Iterable[Message], /) -> list[Update]:
        """Return the updates for messages of the record, the next ones."""
        updates: list[Update] = []
        for message in messages:
            updates += self._read_message(message)
        return updates

    def _read_message(self, message: Message) -> list[Update]:
        match message:
            case UserMessage(id=message_id, content=content):
                parts = (content,) if isinstance(content, str) else content
                return [
                    {
                        "sessionUpdate": "user_message_chunk",
                        "content": show_part(part),
                        "messageId": message_id,
                    }
                    for part in parts
                ]
            case AssistantMessage():
                return self._read_answer(message)
            case ToolMessage(call_id=call_id, content=content, is_error=is_error):
                if call_id not in self._calls:
                    return []
                return self.settle(call_id, content, is_error=is_error)
            case SummaryMessage():
                return self._compaction(message)
            case _:  # decisions, what sub-agents said: the calls' results have it
                return []

    def _read_answer(self, message: AssistantMessage) -> list[Update]:
        self._message_id = message.id
        updates: list[Update] = []
        for thought in message.reasoning:
            updates += self._chunk("agent_thought_chunk", thought.text)
        content = message.content
        for part in (content,) if isinstance(content, str) else content:
            if part:
                block = {"content": show_part(part), "messageId": message.id}
                updates.append({"sessionUpdate": "agent_message_chunk", **block})
        for made in message.tool_calls:
            call = Call(made.id, made.name, made.title, made.kind, made.client)
            call.pieces.append(made.arguments)
            self._describe_call(call)
            self._calls[call.id] = call
            updates += self._announce(call)
        return updates


def short_title(text: str, /) -> str:
    """Return a text as a title: one line without hidden characters, cut with a mark."""
    return shorten(fold_title(text), _TITLE)


def shorten(text: str, most: int, /) -> str:
    """Return a text in at most so many characters, with a mark where it is cut."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def locations_view(locations: Sequence[Location], /) -> list[Update]:
    """Return locations as the protocol has them."""
    return [
        {"path": each.path} if each.line is None else {"path": each.path, "line": each.line}
        for each in locations
    ]


def plan_update(entries: Plan, /) -> Update:
    """Return the update for a plan, whole."""
    shown = [
        {"content": each.content, "priority": each.priority, "status": each.status}
        for each in entries
    ]
    return {"sessionUpdate": "plan", "entries": shown}


def text_content(text: str, /) -> list[Update]:
    """Return text as the content of a tool call."""
    return [{"type": "content", "content": text_block(text)}]


def content_view(content: Content, /) -> list[Update]:
    """Return a result as the content of a tool call."""
    parts = (content,) if isinstance(content, str) else content
    return [{"type": "content", "content": show_part(part)} for part in parts]
