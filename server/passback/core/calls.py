"""What the arguments of a call have to be before anybody reads them: whoever wrote them, they are hostile input. Pure."""

import json
from typing import Final

from pydantic_core import from_json

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
