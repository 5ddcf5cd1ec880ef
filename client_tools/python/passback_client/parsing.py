"""Reads events and other values from the server's JSON."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from passback_client import events
from passback_client.errors import BadAnswer
from passback_client.events import PLACE, Event, JsonObject, Unknown
from passback_client.fields import read_object, text

_KINDS: Mapping[str, TypeAdapter[Any]] = {
    "text": TypeAdapter(events.Text),
    "reasoning": TypeAdapter(events.Reasoning),
    "tool-call-start": TypeAdapter(events.ToolCallStart),
    "tool-call-args": TypeAdapter(events.ToolCallArgs),
    "tool-call-end": TypeAdapter(events.ToolCallEnd),
    "tool-result": TypeAdapter(events.ToolResult),
    "tool-begin": TypeAdapter(events.ToolBegin),
    "tool-progress": TypeAdapter(events.ToolProgress),
    "agent-text": TypeAdapter(events.AgentText),
    "plan": TypeAdapter(events.Plan),
    "state": TypeAdapter(events.StateChange),
    "owed": TypeAdapter(events.Owed),
    "run-queued": TypeAdapter(events.RunQueued),
    "run-start": TypeAdapter(events.RunStart),
    "run-end": TypeAdapter(events.RunEnd),
    "rewind": TypeAdapter(events.Rewind),
    "interrupt": TypeAdapter(events.Interrupt),
    "error": TypeAdapter(events.Failure),
    "usage": TypeAdapter(events.Usage),
    "output": TypeAdapter(events.Output),
    "context": TypeAdapter(events.ContextUse),
    "message": TypeAdapter(events.MessageStart),
}


def parse_event(data: str, place: str) -> Event:
    """Read one event; unknown fields are ignored.

    Raises:
        BadAnswer: it is not an event, or lacks a field of its type.
    """
    fields = read_object(data)
    kind = text(fields, "type")
    known: TypeAdapter[Event] | None = _KINDS.get(kind)
    return read(known, {**fields, PLACE: place}) if known else Unknown(kind, fields, id=place)


_ValueT = TypeVar("_ValueT")


def read(form: TypeAdapter[_ValueT], fields: JsonObject) -> _ValueT:
    """Make a value from the fields of a JSON object; unknown fields are ignored.

    Raises:
        BadAnswer: fields are missing or of another type; it names them.
    """
    try:
        return form.validate_python(fields)
    except ValidationError as error:
        names = ", ".join(".".join(map(str, each["loc"])) for each in error.errors())
        raise BadAnswer(f"the server sent JSON with missing or wrong fields: {names}") from None
