"""Parts that all builders share: events, checks of their values, and the parent builder."""

import json
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Protocol, TypeAlias, cast

from pydantic import JsonValue

Event: TypeAlias = dict[str, JsonValue]

_json_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class Misuse(ValueError):
    """A step that is not legal in this state, for this type of content, or with this value."""


def encode(event: Event, /) -> str:
    """Return an event as one line of ASCII JSON. Raise Misuse for values that JSON cannot hold."""
    try:
        return _json_encoder.encode(event)
    except (TypeError, ValueError) as error:
        raise Misuse(f"an event is made of JSON's values: {error}") from None


class ParentBuilder(Protocol):
    """The builder of what a message or a part belongs to."""

    def next_number(self) -> int:
        """Return the next `sequence_number`, and use it up."""
        ...

    def emit(self, event: Event, /) -> Event:
        """Give the event the next `sequence_number`, call `on_event`, and return the event."""
        ...

    def close_child(self, event: Event, /) -> None:
        """Take over a child that has ended with this event."""
        ...


def require_text(value: object, what: str, /) -> str:
    """Return a text. Raise Misuse if the value is not one; `what` names it."""
    if not isinstance(value, str):
        raise Misuse(f"{what} is a str, and this is {_type_name(value)}")
    return value


def require_filled_text(value: object, what: str, /) -> str:
    """Return a text that is not empty. Raise Misuse if the value is not one."""
    if not (text := require_text(value, what)):
        raise Misuse(f"{what} is empty")
    return text


def require_one_of(value: object, what: str, legal: Collection[str], /) -> str:
    """Return one of the legal texts. Raise Misuse if the value is none of them."""
    if not isinstance(value, str) or value not in legal:
        raise Misuse(f"{what} is one of {', '.join(legal)}, and this is {value!r}"[:400])
    return str(value)  # a member of an enumeration as its plain text


def copy_object(value: object, what: str, /) -> Event:
    """Return a deep copy of an object, so that the caller cannot change an event afterwards.

    Raises:
        Misuse: the value is not an object, or has values that JSON cannot hold.
    """
    if not isinstance(value, Mapping):
        raise Misuse(f"{what} is a dict, and this is {_type_name(value)}")
    try:
        return _copy_mapping(cast("Mapping[object, object]", value), what)
    except RecursionError:
        raise Misuse(f"{what} is nested too deeply") from None


def copy_value(value: object, what: str, /) -> JsonValue:
    """Return a deep copy of any JSON value. Raise Misuse as `copy_object` does."""
    return copy_object({"": value}, what)[""]


def _copy_mapping(value: Mapping[object, object], what: str) -> Event:
    return {
        require_text(key, f"a key of {what}"): _copy_any(each, what) for key, each in value.items()
    }


def _copy_any(value: object, what: str) -> JsonValue:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float) and isfinite(value):  # JSON has no NaN and no infinity
        return value
    if isinstance(value, Mapping):
        return _copy_mapping(cast("Mapping[object, object]", value), what)
    if isinstance(value, list | tuple):
        return [_copy_any(each, what) for each in cast("Sequence[object]", value)]
    found = str(value) if isinstance(value, float) else f"a value of the type {_type_name(value)}"
    raise Misuse(f"{what} has {found}, which JSON has not")


def _type_name(value: object) -> str:
    return type(value).__name__
