"""What all builders have in common: events, what may stand in them, and where they get their numbers."""

import json
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Protocol, TypeAlias, cast

from pydantic import JsonValue

Event: TypeAlias = dict[str, JsonValue]

_json_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class Misuse(ValueError):
    """A step that is not legal now, or not for this type of content, or not with this value."""


def encode(event: Event, /) -> str:
    """An event as one line of ASCII JSON. Raises Misuse for values that JSON has not."""
    try:
        return _json_encoder.encode(event)
    except (TypeError, ValueError) as error:
        raise Misuse(f"an event is made of JSON's values: {error}") from None


class ParentBuilder(Protocol):
    """What a message or a part is made for."""

    def next_number(self) -> int:
        """Draw the next `sequence_number`."""
        ...

    def emit(self, event: Event, /) -> Event:
        """Give the event the next `sequence_number`, and tell it to those who listen; returns it."""
        ...

    def close_child(self, event: Event, /) -> None:
        """It has ended, with this event."""
        ...


def require_text(value: object, what: str, /) -> str:
    """Raises Misuse: it is no text."""
    if not isinstance(value, str):
        raise Misuse(f"{what} is a str, and this is {_type_name(value)}")
    return value


def require_filled_text(value: object, what: str, /) -> str:
    """Raises Misuse: it is no text, or an empty one."""
    if not (text := require_text(value, what)):
        raise Misuse(f"{what} is empty")
    return text


def require_one_of(value: object, what: str, legal: Collection[str], /) -> str:
    """Raises Misuse: it is none of these."""
    if not isinstance(value, str) or value not in legal:
        raise Misuse(f"{what} is one of {', '.join(legal)}, and this is {value!r}"[:400])
    return str(value)  # a member of an enumeration as its plain text


def copy_object(value: object, what: str, /) -> Event:
    """A copy of an object: nobody changes it afterwards. Raises Misuse: it is none, or JSON has no such values."""
    if not isinstance(value, Mapping):
        raise Misuse(f"{what} is a dict, and this is {_type_name(value)}")
    try:
        return _copy_mapping(cast("Mapping[object, object]", value), what)
    except RecursionError:
        raise Misuse(f"{what} is nested too deeply") from None


def copy_value(value: object, what: str, /) -> JsonValue:
    """A copy of any JSON value. Raises as `copy_object`."""
    return copy_object({"": value}, what)[""]


def _copy_mapping(value: Mapping[object, object], what: str) -> Event:
    return {
        require_text(key, f"a key of {what}"): _copy_any(each, what) for key, each in value.items()
    }


def _copy_any(value: object, what: str) -> JsonValue:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float) and isfinite(value):
        return value
    if isinstance(value, Mapping):
        return _copy_mapping(cast("Mapping[object, object]", value), what)
    if isinstance(value, list | tuple):
        return [_copy_any(each, what) for each in cast("Sequence[object]", value)]
    told = str(value) if isinstance(value, float) else f"a value of the type {_type_name(value)}"
    raise Misuse(f"{what} has {told}, which JSON has not")


def _type_name(value: object) -> str:
    return type(value).__name__
