"""Structured data that is a table: a text that says that it is CSV or TSV, read as rows. Pure.

`{"mediaType": "text/csv", "text": ...}` with the lines `customer,open` and `Ann,120` is `[{"customer": "Ann", "open": 120}]`. The
data itself may be a table, and so may be what a key of it holds; deeper, such an object is one like any other.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from itertools import islice
from math import isfinite
from typing import Final

from pydantic import JsonValue

from passback.core.values import value

DELIMITERS: Final[Mapping[str, str]] = {"text/csv": ",", "text/tab-separated-values": "\t"}
"""What separates the fields of a line, by the type of the text."""

_NAME = 80  # characters of a column's name that a problem shows
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False}
# as JSON writes numbers, so that 007 stays a text; no integer here is beyond a double
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,299})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,3})?")


class BadTable(ValueError):
    """What is wrong with a table, in words."""


@value
class Table:
    """The text of a table, and its type: one of `DELIMITERS`."""

    text: str
    media_type: str


@value
class MixedColumn:
    """A column that holds texts, although most of its fields are numbers.

    Args:
        others: how many of its fields are not.
        fields: how many there are, without empty ones.
        first: the first one that is not a number.
    """

    name: str
    others: int
    fields: int
    first: str

    def share(self, of: str = "its") -> str:
        """Say how many of its fields are no numbers; `of` says which were looked at."""
        verb = "is not a number" if self.others == 1 else "are not numbers"
        return f"{self.others} of {of} {self.fields} fields {verb}"


def table_of(data: JsonValue, /) -> Table | None:
    """The table that a value is; None: it is something else."""
    if not isinstance(data, dict):
        return None
    kind, text = data.get("mediaType"), data.get("text")
    if not isinstance(kind, str) or not isinstance(text, str):
        return None
    media_type = kind.partition(";")[0].strip().lower()
    return Table(text.removeprefix("\ufeff"), media_type) if media_type in DELIMITERS else None


def tables_in(data: JsonValue, /) -> Iterator[tuple[str, Table]]:
    """The tables of structured data, each with its key; of data that is a table itself, that is empty."""
    if (whole := table_of(data)) is not None:
        yield "", whole
    elif isinstance(data, dict):
        for key, each in data.items():
            if (table := table_of(each)) is not None:
                yield key, table


def with_rows(data: JsonValue, /) -> JsonValue:
    """Structured data with the rows of each table in its place. Raises BadTable."""
    if (whole := table_of(data)) is not None:
        return list[JsonValue](read_rows(whole))
    rows: dict[str, JsonValue] = {
        key: list[JsonValue](read_rows(table)) for key, table in tables_in(data)
    }
    return {**data, **rows} if isinstance(data, dict) else data


def read_rows(table: Table, /) -> list[dict[str, JsonValue]]:
    """The rows, as objects with the names of the header.

    An empty field is null. A column whose other fields are all numbers as JSON has them, or all true or false, holds
    those, also where blanks stand around them; any other holds texts, as they are.

    Raises:
        BadTable: as `check_table`.
    """
    header, *rows = _lines(table)
    columns = [_typed(column) for column in zip(*rows, strict=True)]
    return [dict(zip(header, row, strict=True)) for row in zip(*columns, strict=True)]


def check_table(table: Table, /) -> None:
    """Raise BadTable for a table that has no header, whose lines have other fields, or whose quotes do not end."""
    for _ in _lines(table):
        pass


def head_of(table: Table, rows: int, /) -> tuple[list[str], list[list[str]]]:
    """The header and the first rows, as texts. Raises BadTable for what is wrong with these."""
    header, *first = islice(_lines(table), rows + 1)
    return header, first


def mixed_columns(table: Table, /) -> Sequence[MixedColumn]:
    """Return the columns of which fewer fields are something else than are numbers. Raises BadTable as `check_table`."""
    header, *rows = _lines(table)
    mixed: list[MixedColumn] = []
    for name, column in zip(header, zip(*rows, strict=True), strict=False):
        present = [bare for field in column if (bare := field.strip())]
        others = [field for field in present if not _is_number(field)]
        if 0 < len(others) < len(present) - len(others):
            mixed.append(MixedColumn(name, len(others), len(present), others[0]))
    return mixed


# ---------------------------------------------------------------- lines
def _lines(table: Table) -> Iterator[list[str]]:
    """The fields of the header and of each row; blank lines do not count."""
    delimiter = DELIMITERS[table.media_type]
    reader = csv.reader(StringIO(table.text, newline=""), delimiter=delimiter, strict=True)
    lines = filter(None, reader)
    try:
        header = next(lines, None)
        if header is None:
            raise BadTable("it has no header: its first line has to name its columns")
        _check_header(header, delimiter)
        yield header
        for fields in lines:
            if len(fields) != len(header):
                raise BadTable(
                    f"line {reader.line_num} has {_fields(len(fields))}, and the header {len(header)}"
                )
            yield fields
    except csv.Error as error:
        why = str(error)
        if why == "unexpected end of data":
            why = "a quoted field does not end"
        raise BadTable(f"line {reader.line_num}: {why}") from None


def _check_header(names: Sequence[str], delimiter: str) -> None:
    if not all(names):
        raise BadTable(f"column {names.index('') + 1} of its header has no name")
    seen = set[str]()
    for name in names:
        if name in seen:
            raise BadTable(f"its header has the column {name[:_NAME]!r} twice")
        seen.add(name)
    other = next((mark for mark in ",;\t" if mark in names[0]), "")
    if len(names) == 1 and other:
        raise BadTable(
            f"its header is a single column, {names[0][:_NAME]!r}: separate its fields by {delimiter!r}"
        )


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"


# ---------------------------------------------------------------- values
def _typed(column: Sequence[str]) -> Sequence[JsonValue]:
    bare = [field.strip() for field in column]
    present = [field for field in bare if field]
    if all(field in _BOOLEANS for field in present):
        return [_BOOLEANS[field] if field else None for field in bare]
    if all(map(_is_number, present)):
        return [_number(field) if field else None for field in bare]
    return [field or None for field in column]


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and isfinite(float(text))


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)
