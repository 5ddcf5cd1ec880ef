"""Conversations of clients with the examples of docs/examples, in lines that can be read."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from tests.support.wire import DONE, Answer, Client, Json, merged

WAIT = "/send-message?wait=true"
ALL = ["agents", "plan", "progress", "reasoning", "context", "output", "owed", "run"]

Dialog: TypeAlias = Callable[[Client], Awaitable[None]]
DIALOGS: dict[str, Dialog] = {}


def example_dialog(name: str) -> Callable[[Dialog], Dialog]:
    """Register the conversation of a client with the example of this name."""

    def register(dialog: Dialog) -> Dialog:
        DIALOGS[name] = dialog
        return dialog

    return register


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
"""Formats of events; all others are shown as their JSON."""


class Listener:
    """Name calls by their tools: `name #2` for the second of a name, `agent > name` in an agent."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self._names: dict[str | None, str] = {}

    def describe(self, answer: Answer) -> list[str]:
        """Return a line for each event but the start of a run; neighbouring pieces are joined."""
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
