"""An outline of JSON that is too large to be shown: its shape, its sizes, its first records."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import to_json

from passback.core.tables import BadTable, Table, head_of, mixed_columns, table_of, tables_in
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

_LOOKED_AT = 16 * 1024  # characters of all tables together whose columns are looked at

_Mixed: TypeAlias = Mapping[str, Mapping[str, str]]
"""What is said of columns, by the keys of their tables and their own names."""


def outline(value: JsonValue, /) -> JsonValue:
    """The largest outline that is not too large.

    A list is `{"items": how many, "first": [...]}`, a table its columns and first rows, with those that hold texts although most
    of their fields are numbers; a long text, and what lies too deep, says how large it is.
    """
    mixed = _mixed(value)
    outlines = (_outline(value, room, room.depth, mixed) for room in _ROOMS)
    return next(shown for shown in outlines if len(to_json(shown)) <= _BYTES)


def _outline(value: JsonValue, room: _Room, depth: int, mixed: _Mixed) -> JsonValue:
    match value:
        case str():
            return _short(value, room.chars)
        case list():
            first = [_outline(each, room, depth - 1, mixed) for each in value[: room.items]]
            return {"items": len(value), "first": first if depth else []}
        case dict() if depth == room.depth and (table := _table(value, room, mixed.get(""))):
            return table
        case dict():
            keys = islice(value, room.keys if depth else 0)
            shown: dict[str, JsonValue] = {
                _short(key, room.chars): (
                    depth == room.depth and _table(value[key], room, mixed.get(key))
                )
                or _outline(value[key], room, depth - 1, mixed)
                for key in keys
            }
            left = len(value) - len(shown)
            return {**shown, "...": f"{left} more"} if left else shown
        case int() if abs(value) > 10**room.chars:
            return "a number of many digits"
        case _:
            return value


def _table(
    value: JsonValue, room: _Room, mixed: Mapping[str, str] | None
) -> dict[str, JsonValue] | None:
    """None: it is no table that can be read. `mixed` is said of its columns."""
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
    if mixed:
        first = islice(mixed.items(), room.keys)
        shown["mixed"] = {_short(name, room.chars): told for name, told in first}
    left = len(columns) - room.keys
    return {**shown, "...": f"{left} more columns"} if left > 0 else shown


def _mixed(value: JsonValue) -> _Mixed:
    """Return what is said of the columns that hold texts although most of their fields are numbers.

    Each table that can be shown has an equal share of the characters that are looked at: their parsing holds up all else.
    """
    tables = dict(islice(tables_in(value), _ROOMS[0].keys))
    share = _LOOKED_AT // max(1, len(tables))
    return {key: found for key, table in tables.items() if (found := _mixed_in(table, share))}


def _mixed_in(table: Table, chars: int) -> Mapping[str, str]:
    text = table.text[: chars + 1]
    is_whole = len(text) <= chars
    whole_lines = text if is_whole else text[: text.rfind("\n", 0, chars) + 1]
    try:
        mixed = mixed_columns(Table(whole_lines, table.media_type))
    except BadTable:  # the last line that is looked at is within a quoted field
        return {}
    of = "its" if is_whole else "its first"
    return {one.name: f"text: {one.share(of)}" for one in mixed}


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}... ({len(text)} characters)"
