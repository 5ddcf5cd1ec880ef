"""How values are written down: JSON bytes for the stores, which keep them as opaque strings.

One codec for all stores and for the API's own answers, so that a record written by one version of a store can be
read by another.
"""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter

from passback.core.changes import OpenTurns, Queued
from passback.core.events import RunEvent
from passback.core.messages import Message, Owed, ToolSpec
from passback.core.state import State

_TaggedMessage: TypeAlias = Annotated[Message, Field(discriminator="role")]
_TaggedEvent: TypeAlias = Annotated[RunEvent, Field(discriminator="type")]

_message: TypeAdapter[Message] = TypeAdapter(_TaggedMessage)
_events: TypeAdapter[list[RunEvent]] = TypeAdapter(list[_TaggedEvent])
_owed: TypeAdapter[list[Owed]] = TypeAdapter(list[Owed])
_tools: TypeAdapter[list[ToolSpec]] = TypeAdapter(list[ToolSpec])
_queued: TypeAdapter[Queued] = TypeAdapter(Queued)
_state: TypeAdapter[State] = TypeAdapter(State)
_open_turns: TypeAdapter[OpenTurns] = TypeAdapter(OpenTurns)
# written by their serializers: most of what `dump_json` costs is to hand on its many options


def dump_message(message: Message, /) -> bytes:
    return _message.serializer.to_json(message)


def load_message(record: bytes, /) -> Message:
    return _message.validate_json(record)


def dump_events(events: Sequence[RunEvent], /) -> bytes:
    """One entry of a run's log: a batch of events."""
    return _events.serializer.to_json(list(events))


def load_events(record: bytes, /) -> list[RunEvent]:
    return _events.validate_json(record)


def dump_owed(owed: Sequence[Owed], /) -> bytes:
    return _owed.serializer.to_json(list(owed))


def load_owed(record: bytes, /) -> tuple[Owed, ...]:
    return tuple(_owed.validate_json(record))


def dump_open_turns(open_turns: OpenTurns, /) -> bytes:
    return _open_turns.serializer.to_json(open_turns)


def load_open_turns(record: bytes, /) -> OpenTurns:
    return _open_turns.validate_json(record)


def dump_tools(tools: Sequence[ToolSpec], /) -> bytes:
    return _tools.serializer.to_json(list(tools))


def load_tools(record: bytes, /) -> tuple[ToolSpec, ...]:
    return tuple(_tools.validate_json(record))


def dump_queued(queued: Queued, /) -> bytes:
    return _queued.serializer.to_json(queued)


def load_queued(record: bytes, /) -> Queued:
    return _queued.validate_json(record)


def dump_state(state: State, /) -> bytes:
    """Without what is as in a new conversation: mostly that is all but a few numbers."""
    return _state.serializer.to_json(state, exclude_defaults=True)


def load_state(record: bytes, /) -> State:
    return _state.validate_json(record)
