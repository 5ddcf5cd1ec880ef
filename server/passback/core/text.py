"""Text from elsewhere, made so that it can be written down, and shown to others."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic_core import ErrorDetails

_AN_OBJECT: Final = "Input should be an object"
_PLAIN: Final = {
    "dataclass_type": _AN_OBJECT,
    "dict_type": _AN_OBJECT,
    "model_attributes_type": _AN_OBJECT,
    "model_type": _AN_OBJECT,
    "union_tag_not_found": "Field required",
}
"""For the kinds of errors whose own words name classes, or a type of Python's."""


def mended(text: str, /) -> str:
    """The text with U+FFFD in place of each lone surrogate; a pair that was split in two becomes one character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def apart(text: str, /) -> str:
    """A copy to be written down as JSON: the writer leaves the UTF-8 of what is not ASCII with its text, as long as that is there."""
    return text if text.isascii() else text[:1] + text[1:]


_CUT = "\n[cut: the result was longer than the limit]"


def shortened(text: str, limit: int, /) -> str:
    """At most `limit` characters of a tool's result; what is cut says so."""
    return text if len(text) <= limit else text[:limit] + _CUT


def plain_problem(detail: ErrorDetails, /) -> str:
    """What is wrong with a value, for those who know nothing of our classes."""
    return _PLAIN.get(detail["type"], detail["msg"].removeprefix("Value error, "))


def nearest(text: str, known: Iterable[str], /) -> Sequence[str]:
    """Return the known text that a text is likely to be a misspelling of, if there is one."""
    return difflib.get_close_matches(text, list(known), 1)


def did_you_mean(likely: Sequence[str], /) -> str:
    """Return the question behind the name of a thing that there is not; empty where nothing is likely."""
    return f" (did you mean {' or '.join(likely)}?)" if likely else ""
