"""Text and JSON from outside: repair, shorten and check it. Untrusted until checked."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import JsonValue
from pydantic_core import ErrorDetails, from_json

_WANTS_OBJECT: Final = "Input should be an object"
_WANTS_LIST: Final = "Input should be a valid list"
# For error types whose message from pydantic names a class or a Python type.
_PLAIN_MESSAGES: Final = {
    "dataclass_type": _WANTS_OBJECT,
    "dict_type": _WANTS_OBJECT,
    "frozen_set_type": _WANTS_LIST,
    "mapping_type": _WANTS_OBJECT,
    "model_attributes_type": _WANTS_OBJECT,
    "model_type": _WANTS_OBJECT,
    "set_type": _WANTS_LIST,
    "tuple_type": _WANTS_LIST,
    "union_tag_not_found": "Field required",
}
_COLLECTION: Final = re.compile(r"(Tuple|Set|Frozenset)(?= should have at )")


def replace_surrogates(text: str, /) -> str:
    """Return the text with U+FFFD for each lone surrogate; halves of a split pair are joined."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def copy_text(text: str, /) -> str:
    """Return a copy of a text that is to be encoded as JSON.

    The encoder caches the UTF-8 of a text that is not ASCII on the text object; a copy keeps that
    memory from living as long as the original does.
    """
    return text if text.isascii() else text[:1] + text[1:]


def text_tokens(text: str, /) -> int:
    """Estimate the tokens of a text.

    Four ASCII characters are one token. Others count by their bytes: about one token for a Chinese
    character.
    """
    length = len(text)
    if text.isascii():
        return (length + 3) // 4
    bytes_more = len(text.encode("utf-8", "surrogatepass")) - length
    return (length + 2 * bytes_more + 3) // 4


_CUT_NOTICE = "\n[cut: the result was longer than the limit]"


def shorten_result(text: str, limit: int, /) -> str:
    """Return the first `limit` characters of a tool's result, with a notice if any were cut off."""
    return text if len(text) <= limit else text[:limit] + _CUT_NOTICE


def describe_validation_error(detail: ErrorDetails, /) -> str:
    """Return a validation error in words that do not mention our classes, or Python's."""
    if (plain := _PLAIN_MESSAGES.get(detail["type"])) is not None:
        return plain
    return _COLLECTION.sub("List", detail["msg"].removeprefix("Value error, "), count=1)


_MAX_SUGGESTIONS = 3  # names
_WORDS: Final = re.compile(r"[^_-]+")
_MAX_COMPARED = 100  # characters of a text: the time grows with the square


def nearest_names(text: str, known: Iterable[str], /) -> Sequence[str]:
    """Return the known names that a text is likely to mean: the nearest by edit distance.

    If none is near, return those that contain all words of the text.
    """
    names = list(known)
    if len(text) > _MAX_COMPARED:
        return []
    distances = {name: _edit_distance(text, name) for name in names}
    least = min(distances.values(), default=_MAX_COMPARED)
    if least <= max(1, len(text) // 4):
        return [name for name in names if distances[name] == least][:_MAX_SUGGESTIONS]
    words = set(_WORDS.findall(text))
    return [name for name in names if words and words <= set(_WORDS.findall(name))][
        :_MAX_SUGGESTIONS
    ]


def _edit_distance(text: str, name: str) -> int:
    """Return how many edits turn a text into a name.

    An edit inserts, deletes or replaces a character, or swaps two neighbours.
    """
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
    """Return a question to put behind an unknown name; empty if nothing is likely."""
    *some, last = likely or [""]
    meant = f"{', '.join(some)} or {last}" if some else last
    return f" (did you mean {meant}?)" if meant else ""


def find_prototype_key(given: JsonValue, /) -> str | None:
    """Return a key in a value, at any depth, by which JavaScript may change a prototype.

    They are `__proto__`, and `prototype` of an object `constructor`, which comes as
    `constructor.prototype`. Careful parsers refuse a text that has one.
    """
    level = [given]
    while level := [each for each in level if isinstance(each, dict | list)]:
        for each in (one for one in level if isinstance(one, dict)):
            if "__proto__" in each:
                return "__proto__"
            made = each.get("constructor")
            if isinstance(made, dict) and "prototype" in made:
                return "constructor.prototype"
        level = [
            inner for each in level for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return None


MAX_ARGUMENT_CHARACTERS: Final = (
    256 * 1024
)  # of a call's arguments: more would block the event loop


def read_json(text: str, /) -> JsonValue:
    """Return the value of a JSON text, None if it is none; numbers are finite."""
    try:
        value: JsonValue = from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    return value


def bare_json(text: str, /) -> str:
    """Return a text without the fence of Markdown that many models put around JSON."""
    text = text.strip()
    first, _, rest = text.partition("\n")
    return (
        rest.removesuffix("```").strip()
        if first.startswith("```") and rest.endswith("```")
        else text
    )


_MAX_SHOWN = 200  # characters of wrong arguments that an error repeats


def find_arguments_flaw(arguments: str, /) -> str | None:
    """Return what is wrong with a call's arguments, to follow "the arguments"; None if nothing."""
    if len(arguments) > MAX_ARGUMENT_CHARACTERS:
        return f"are longer than {MAX_ARGUMENT_CHARACTERS} characters."
    if not isinstance(read_json(arguments), dict):
        return f"are not a JSON object: {arguments[:_MAX_SHOWN]}"
    if (key := _repeated_key(arguments)) is not None:
        return f"have the key {key[:_MAX_SHOWN]!r} twice in one object."
    return None


def _repeated_key(text: str) -> str | None:
    """Return a key that a JSON object in the text has twice; None if there is none.

    Parsers take the last value, while a person who reads the text may see the first.
    """
    repeated: list[str] = []

    def record_repeats(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                repeated.append(key)
            seen.add(key)

    # numbers stay texts: int() of thousands of digits is slow, and raises
    json.loads(text, object_pairs_hook=record_repeats, parse_int=str, parse_float=str)
    return repeated[0] if repeated else None
