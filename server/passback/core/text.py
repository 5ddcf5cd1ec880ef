"""Text and JSON from elsewhere: repaired, shortened and checked. Hostile until read."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic_core import ErrorDetails, from_json

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


_SUGGESTED = 3  # names at most
_WORDS: Final = re.compile(r"[^_-]+")
_COMPARED = 100  # characters of a text: the work grows with the square


def nearest(text: str, known: Iterable[str], /) -> Sequence[str]:
    """Return the known texts that a text is likely to be a misspelling of, or some words of; several where they are equally near."""
    names = list(known)
    if len(text) > _COMPARED:
        return []
    distances = {name: _edits(text, name) for name in names}
    least = min(distances.values(), default=_COMPARED)
    if least <= max(1, len(text) // 4):
        return [name for name in names if distances[name] == least][:_SUGGESTED]
    words = set(_WORDS.findall(text))
    return [name for name in names if words and words <= set(_WORDS.findall(name))][:_SUGGESTED]


def _edits(text: str, name: str) -> int:
    """Return how many characters to insert, drop, replace or swap with their neighbour make the name of a text."""
    before, last = list[int](), list(range(len(name) + 1))
    for row, character in enumerate(text, 1):
        line = [row]
        for column, other in enumerate(name, 1):
            edits = min(last[column] + 1, line[-1] + 1, last[column - 1] + (character != other))
            swapped = (
                row > 1 and column > 1 and text[row - 2 : row] == name[column - 2 : column][::-1]
            )
            line.append(min(edits, before[column - 2] + 1) if swapped else edits)
        before, last = last, line
    return last[-1]


def did_you_mean(likely: Sequence[str], /) -> str:
    """Return the question behind the name of a thing that there is not; empty where nothing is likely."""
    *some, last = likely or [""]
    meant = f"{', '.join(some)} or {last}" if some else last
    return f" (did you mean {meant}?)" if meant else ""


MOST_CHARACTERS: Final = 256 * 1024
"""Of one call's arguments: more would hold up the event loop while they are read."""

_SHOWN = 200
"""Characters that are shown again of what is wrong."""


def flaw_in(arguments: str, /) -> str | None:
    """Return what is wrong with a call's arguments, in words that follow on "the arguments"; None: nothing."""
    if len(arguments) > MOST_CHARACTERS:
        return f"are longer than {MOST_CHARACTERS} characters."
    if not _is_json_object(arguments):
        return f"are not a JSON object: {arguments[:_SHOWN]}"
    if (key := _repeated_key(arguments)) is not None:
        return f"have the key {key[:_SHOWN]!r} twice in one object."
    return None


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(from_json(text, allow_inf_nan=False), dict)
    except ValueError:
        return False


def _repeated_key(text: str) -> str | None:
    """A key that an object in a JSON text has twice: parsers take the last one, and who reads the text may see the first."""
    repeated: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                repeated.append(key)
            seen.add(key)

    json.loads(text, object_pairs_hook=look, parse_int=str, parse_float=str)
    return repeated[0] if repeated else None
