"""Text that UTF-8 can encode: lone surrogates, as at the end of a cut text, become U+FFFD."""

import json
from typing import cast

from pydantic_core import to_jsonable_python


def replace_surrogates(text: str) -> str:
    """Return the text with U+FFFD for each lone surrogate; a pair becomes one character."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def replace_surrogates_in(value: object) -> object:
    """Return the value for `to_json`, with U+FFFD for lone surrogates in its texts and keys.

    Raises:
        PydanticSerializationError, ValueError: something in it is not JSON.
        RecursionError: it is nested too deep.
    """
    match value:
        case str():
            return replace_surrogates(value)
        case dict():
            pairs = cast("dict[object, object]", value).items()
            return {
                replace_surrogates(key) if isinstance(key, str) else key: replace_surrogates_in(
                    each
                )
                for key, each in pairs
            }
        case list() | tuple() | set() | frozenset():
            return [replace_surrogates_in(each) for each in cast("list[object]", value)]
        case None | int() | float():
            return value
        case _:
            return replace_surrogates_in(to_jsonable_python(value))


def write_json(value: object) -> bytes:
    """Write a value as JSON in UTF-8, with U+FFFD for lone surrogates in its texts and keys.

    Raises:
        TypeError: it is not JSON.
        ValueError: it has a number that JSON does not have, or a cycle.
        RecursionError: it is nested too deep.
    """
    return replace_surrogates(json.dumps(value, ensure_ascii=False, allow_nan=False)).encode()
