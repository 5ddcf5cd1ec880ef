"""Runs that a test tells event by event, and a client that is told of their turns."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from tests.support.logged_runs import RUN
from tests.unit.wire.chat_client import ChatClient

from passback.core.events import (
    Completed,
    Logged,
    Nested,
    Outcome,
    Position,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolResulted,
    TurnEnded,
    TurnStarted,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Message,
    MessageId,
    Owed,
    RunId,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.wire.chat.projections import JsonDict
from passback.wire.chat.said import Said
from passback.wire.chat.turns import Turns

TURN = TurnStarted(MessageId("m"))
TURN_ENDED = TurnEnded(MessageId("m"))
COMPLETED = Completed()
ASK = '{"questions":[{"question":"Which?","options":[{"label":"a","description":"A"},{"label":"b"}]}]}'
ASKED = (
    '{"questions": [{"question": "Which?", "options": [{"label": "a", "description": "A"}, '
    '{"label": "b"}], "multiSelect": false}], "source_loop": %s}'
)


def user(message_id: str = "u", text: str = "hi", **fields: Any) -> UserMessage:
    return UserMessage(MessageId(message_id), text, run_id=RUN.run_id, **fields)


class Story:
    """A run that is told as it goes."""

    def __init__(
        self, *messages: Message, posted: Sequence[Message] = (), first: int | None = None
    ) -> None:
        self.turns = Turns(messages)
        self.client = ChatClient(self.turns.views)
        self.epoch, self.seqs = 1, count(1)
        self.said: list[Said] = []
        first = len(messages) if first is None else first
        self.tell(RunStarted(RUN.run_id, first, len(posted)), posted=posted)

    def tell(self, *events: RunEvent, posted: Sequence[Message] = ()) -> list[Said]:
        said: list[Said] = []
        for event in events:
            position = Position(self.epoch, next(self.seqs))
            said += self.turns.feed(RUN, Logged(position, event), posted)
        self.client.take(said)
        self.said += said
        return said

    def end(self, outcome: Outcome = COMPLETED) -> JsonDict:
        self.tell(RunFinished(outcome))
        return self.client.ends[-1]

    def turn(self, turn_id: str) -> JsonDict:
        return self.client.turns[turn_id]


def names(said: Sequence[Said]) -> list[str]:
    return [each.data.get("patch_type", each.name) for each in said]


def call(call_id: str, name: str = "look", arguments: str = "{}", **kind: Any) -> list[RunEvent]:
    started = ToolCallStarted(CallId(call_id), name, kind.pop("client", False), **kind)
    return [started, ToolCallArguments(CallId(call_id), arguments)]


def ended(call_id: str) -> ToolCallEnded:
    return ToolCallEnded(CallId(call_id))


def resulted(call_id: str, text: str = "seen", **fields: Any) -> ToolResulted:
    return ToolResulted(CallId(call_id), text, **fields)


def nested(path: str, *events: RunEvent) -> list[RunEvent]:
    made = list(events)
    for call_id in reversed(path.split()):
        made = [Nested(CallId(call_id), event) for event in made]
    return made


def owed(call_id: str, kind: Any = "tool_result", parent: str | None = None) -> Owed:
    return Owed(CallId(call_id), "x", "{}", kind, parent_id=CallId(parent) if parent else None)


def paused(*calls: ToolCall, run_id: str = "run_0") -> AssistantMessage:
    return AssistantMessage(MessageId("a"), "", calls, run_id=RunId(run_id))


def made(call_id: str, name: str = "paint", **fields: Any) -> ToolCall:
    return ToolCall(CallId(call_id), name, "{}", client=fields.pop("client", True), **fields)


def answered(call_id: str, text: str = "done", **fields: Any) -> ToolMessage:
    return ToolMessage(MessageId(f"t_{call_id}"), CallId(call_id), text, **fields)


EARLIER = UserMessage(MessageId("u0"), "go", run_id=RunId("run_0"))


def helper_asks(story: Story) -> None:
    story.tell(TURN, *call("h", "helper", '{"task": "find it"}'), TURN_ENDED, ended("h"))
    inner = (TURN, TextDelta("I ask."), *call("i", "inner"), TURN_ENDED, ended("i"))
    story.tell(*nested("h", *inner))
    story.tell(*nested("h i", TURN, *call("q", "ask_user", ASK, client=True), ended("q")))
