"""JSON of models and tools as the client takes it.

The client's parser ends a stream in which an object has the key `__proto__`, or an object
`constructor` the key `prototype`, at any depth. A value with such a key is sent as its JSON text:
nothing is lost, and the person who approves a call sees all of it.
"""

import json
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json

from passback.core.events import StateChanged
from passback.core.messages import Content, DataPart
from passback.core.text import find_prototype_key, read_json
from passback.native.parts import show_content
from passback.native.shapes import StateEvent, state

REFUSED_INPUT: Final = (
    "This client does not take arguments with the key __proto__, or prototype within constructor. "
    "Call the tool again without it."
)
"""The error of a call that the client would have to make. A client posts it as the result."""

_write_json: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode


def takes_arguments(arguments: str, /) -> bool:
    """Return whether the client takes the value of a call's arguments."""
    return find_prototype_key(read_json(arguments)) is None


def read_arguments(arguments: str, /) -> JsonValue:
    """Return the value of a call's arguments, or their text if the client does not take it."""
    try:
        value: JsonValue = from_json(arguments, allow_inf_nan=False)
    except ValueError:
        return arguments
    return value if find_prototype_key(value) is None else arguments


def show_value(value: JsonValue, /) -> JsonValue:
    """Return a value, or its JSON text if the client does not take it."""
    text = _write_json(value)
    if "__proto__" not in text and "constructor" not in text:  # much faster than to look into it
        return value
    return value if find_prototype_key(value) is None else text


def show_output(content: Content, /) -> JsonValue:
    """Return the value of a result."""
    match content:
        case str():
            return content
        case (DataPart(data),):
            return show_value(data)
        case _:
            return show_value(show_content(content))


def show_state(changed: StateChanged, /) -> StateEvent:
    """Return a change of the shared state without the keys that the client does not take.

    Only states from before these keys were refused can have them.
    """
    shown = state(changed)
    shown["values"] = {
        name: each
        for name, each in shown["values"].items()
        if find_prototype_key({name: each}) is None
    }
    return shown
