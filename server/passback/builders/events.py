"""What all builders have in common: events, and where they get their numbers."""

import json
from typing import Protocol, TypeAlias

from pydantic import JsonValue

Event: TypeAlias = dict[str, JsonValue]

_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class Misuse(ValueError):
    """A step that is not legal now, or not for this type of content."""


def encode(event: Event, /) -> str:
    """An event as one line of ASCII JSON. Raises ValueError for numbers that JSON has not."""
    return _encoder.encode(event)


class Home(Protocol):
    """What a message or a part is made for."""

    def number(self) -> int:
        """The next `sequence_number`."""
        ...

    def close(self, event: Event, /) -> None:
        """It has ended, with this event."""
        ...
