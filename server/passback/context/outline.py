"""An outline of JSON that is too large to be shown: its shape, its sizes, its first records."""

from collections.abc import Sequence
from itertools import islice

from pydantic import JsonValue
from pydantic_core import to_json

from passback.core.tables import BadTable, head_of, table_of
from passback.core.values import value

_BYTES = 6 * 1024
"""Of an outline, at most."""


@value
class _Room:
    """How much is shown: levels, items of a list, keys of an object, characters of a text or a key."""

    depth: int
    items: int
    keys: int
    chars: int


_ROOMS: Sequence[_Room] = (
    _Room(5, 3, 60, 200),
    _Room(4, 2, 40, 80),
    _Room(3, 2, 20, 40),
    _Room(2, 1, 4, 24),
)


def outline(value: JsonValue, /) -> JsonValue:
    """The largest outline that is not too large.

    A list is `{"items": how many, "first": [...]}`, a table its columns and first rows; a long text, and what lies too deep,
    says how large it is.
    """
    outlines = (_outline(value, room, room.depth) for room in _ROOMS)
    return next(shown for shown in outlines if len(to_json(shown)) <= _BYTES)


def _outline(value: JsonValue, room: _Room, depth: int) -> JsonValue:
    match value:
        case str():
            return _short(value, room.chars)
        case list():
            first = [_outline(each, room, depth - 1) for each in value[: room.items]]
            return {"items": len(value), "first": first if depth else []}
        case dict() if depth == room.depth and (table := _table(value, room)):
            return table
        case dict():
            keys = islice(value, room.keys if depth else 0)
            shown: dict[str, JsonValue] = {
                _short(key, room.chars): (depth == room.depth and _table(value[key], room))
                or _outline(value[key], room, depth - 1)
                for key in keys
            }
            left = len(value) - len(shown)
            return {**shown, "...": f"{left} more"} if left else shown
        case int() if abs(value) > 10**room.chars:
            return "a number of many digits"
        case _:
            return value


def _table(value: JsonValue, room: _Room) -> dict[str, JsonValue] | None:
    """None: it is no table that can be read."""
    table = table_of(value)
    if table is None:
        return None
    try:
        columns, rows = head_of(table, room.items)
    except BadTable:
        return None
    shown: dict[str, JsonValue] = {
        "mediaType": table.media_type,
        "columns": [_short(name, room.chars) for name in columns[: room.keys]],
        "first": [[_short(field, room.chars) for field in row[: room.keys]] for row in rows],
        "characters": len(table.text),
    }
    left = len(columns) - room.keys
    return {**shown, "...": f"{left} more columns"} if left > 0 else shown


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}... ({len(text)} characters)"
