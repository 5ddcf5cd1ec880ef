"""Text as UTF-8 can hold it: halves of characters, which a text that was cut may end in, become U+FFFD."""

import json
from collections.abc import Callable


def mended(text: str) -> str:
    """The text with U+FFFD in place of each lone surrogate; a pair that was split in two becomes one character."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def write_json(value: object, default: Callable[[object], object] | None = None) -> bytes:
    """Write a value as JSON in UTF-8, also one that has halves of characters in its texts, or in its keys.

    Args:
        value: the value.
        default: makes JSON of what is none.

    Raises:
        TypeError: it is not JSON.
        ValueError: it has a number or a circle that JSON has not.
        RecursionError: it is nested too deep.
    """
    return mended(json.dumps(value, default=default, ensure_ascii=False, allow_nan=False)).encode()
