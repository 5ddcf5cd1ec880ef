"""What clients do with the examples of docs/examples, and what they are told, in lines that can be read."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from tests.support.wire import DONE, Answer, Client, Json, merged

WAIT = "/send-message?wait=true"
ALL = ["agents", "plan", "progress", "reasoning", "context", "output", "owed", "run"]

Play: TypeAlias = Callable[[Client], Awaitable[None]]
PLAYS: dict[str, Play] = {}


def plays(name: str) -> Callable[[Play], Play]:
    """What a client does with the example of this name."""

    def noted(play: Play) -> Play:
        PLAYS[name] = play
        return play

    return noted


_FORMS: Mapping[str, str] = {
    "run-start": "",
    "tool-call-start": "",
    "tool-call-args": "calls {call} {delta}",
    "tool-call-end": "complete: {call}",
    "tool-result": "{call}: {result}",
    "tool-progress": "{call}: {text}",
    "agent-text": "{parent} says: {delta}",
    "text": "text: {content}",
    "reasoning": "reasoning: {delta}",
    "interrupt": "may {call} be called? {reason}",
    "owed": "owed: {owed}",
    "run-end": "{outcome} {reason}",
}
"""How events are told; all others as their JSON."""


class Listener:
    """Knows the calls of a conversation by their tools: the second of a name is `name #2`, one of a sub-agent `agent > name`."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self._names: dict[str | None, str] = {}

    def told(self, answer: Answer) -> list[str]:
        """A line for each event, neighbouring pieces joined; but for the start of a run, of which there is nothing to tell."""
        assert answer.status == 200, answer.body
        lines = [self._line(data) for _, data in merged(answer.frames)]
        return [line for line in lines if line]

    def _line(self, data: str) -> str:
        if data == DONE:
            return DONE
        event: Json = json.loads(data)
        if event["type"] == "tool-call-start":
            self._name(event)
        form = _FORMS.get(event["type"])
        if form is None:
            return f"{event.pop('type')}: {json.dumps(event)}"
        names = {
            "call": self._names.get(event.get("toolCallId", event.get("id"))),
            "parent": self._names.get(event.get("parentToolCallId")),
            "owed": ", ".join(
                f"{self._names[each['id']]} ({each['kind']})" for each in event.get("toolCalls", ())
            ),
        }
        return form.format_map({"reason": "", **event, **names}).strip()

    def _name(self, event: Json) -> None:
        parent = event.get("parentToolCallId")
        name = f"{self._names[parent]} > " if parent else ""
        name += event["toolCallName"]
        count = 1 + sum(each.split(" #")[0] == name for each in self.ids)
        name = name if count == 1 else f"{name} #{count}"
        self.ids[name] = event["toolCallId"]
        self._names[event["toolCallId"]] = name


def roles(messages: list[Json]) -> list[str]:
    return [message["role"] for message in messages]
