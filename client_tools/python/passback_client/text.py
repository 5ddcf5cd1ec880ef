"""Text as UTF-8 can hold it: halves of characters, which a text that was cut may end in, become
U+FFFD.
"""

import json
from typing import cast

from pydantic_core import to_jsonable_python


def mended(text: str) -> str:
    """The text with U+FFFD in place of each lone surrogate; a pair that was split in two becomes
    one character.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def mended_value(value: object) -> object:
    """Return the value for `to_json`, with U+FFFD for halves of characters in its texts and keys.

    Raises:
        PydanticSerializationError, ValueError: something in it is not JSON.
        RecursionError: it is nested too deep.
    """
    match value:
        case str():
            return mended(value)
        case dict():
            pairs = cast("dict[object, object]", value).items()
            return {
                mended(key) if isinstance(key, str) else key: mended_value(each)
                for key, each in pairs
            }
        case list() | tuple() | set() | frozenset():
            return [mended_value(each) for each in cast("list[object]", value)]
        case None | int() | float():
            return value
        case _:
            return mended_value(to_jsonable_python(value))


def write_json(value: object) -> bytes:
    """Write a value as JSON in UTF-8, also one that has halves of characters in its texts, or in
    its keys.

    Raises:
        TypeError: it is not JSON.
        ValueError: it has a number or a circle that JSON has not.
        RecursionError: it is nested too deep.
    """
    return mended(json.dumps(value, ensure_ascii=False, allow_nan=False)).encode()
