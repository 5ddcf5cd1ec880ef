"""An outline of JSON that is too large to be shown: its shape, its sizes, its first records."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice

from pydantic import JsonValue
from pydantic_core import to_json

from passback.core.tables import BadTable, Table, head_of, mixed_columns, table_of
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
    _Room(2, 1, 2, 16),
)

_LOOKED_AT = 128 * 1024  # characters of a table whose columns are looked at


def outline(value: JsonValue, /) -> JsonValue:
    """The largest outline that is not too large.

    A list is `{"items": how many, "first": [...]}`, a table its columns and first rows, with those that hold texts although most
    of their fields are numbers; a long text, and what lies too deep, says how large it is.
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
    if mixed := _mixed(table.text[:_LOOKED_AT], table.media_type):
        first = islice(mixed.items(), room.keys)
        shown["mixed"] = {_short(name, room.chars): told for name, told in first}
    left = len(columns) - room.keys
    return {**shown, "...": f"{left} more columns"} if left > 0 else shown


@lru_cache(maxsize=32)  # a conversation's data is outlined for each of its runs
def _mixed(text: str, media_type: str) -> Mapping[str, JsonValue]:
    """Return what is said of the columns that hold texts although most of their fields are numbers, by their names."""
    is_whole = len(text) < _LOOKED_AT
    whole_lines = text if is_whole else text[: text.rfind("\n") + 1]
    try:
        mixed = mixed_columns(Table(whole_lines, media_type))
    except BadTable:  # the last line that is looked at is within a quoted field
        return {}
    of = "its" if is_whole else "its first"
    return {one.name: f"text: {one.share(of)}" for one in mixed}


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}... ({len(text)} characters)"
