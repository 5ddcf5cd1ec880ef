"""Structured data that is a table: CSV or TSV text, read as rows. Pure.

`{"mediaType": "text/csv", "text": ...}` with the lines `customer,open` and `Ann,120` is
`[{"customer": "Ann", "open": 120}]`. A table may be the data itself or the value of one of its
keys; such an object at a deeper level is not a table.
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

# The separator of fields, by media type.
DELIMITERS: Final[Mapping[str, str]] = {"text/csv": ",", "text/tab-separated-values": "\t"}

# Characters of a column's name that an error shows.
_MAX_NAME = 80  # characters of a column's name that a problem shows
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False}
# numbers as JSON writes them, so 007 stays a text; 300 digits fit a double
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,299})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,3})?")


class BadTable(ValueError):
    """A table that cannot be read; the message says why."""


@value
class Table:
    """The text of a table, and its media type: a key of `DELIMITERS`."""

    text: str
    media_type: str


@value
class MixedColumn:
    """A column that is read as texts although most of its fields are numbers.

    Args:
        others: the number of fields that are not numbers.
        fields: the number of fields that are not empty.
        first: the first field that is not a number.
    """

    name: str
    others: int
    fields: int
    first: str

    def share(self, of: str = "its") -> str:
        """Return how many fields are not numbers; `of` names the rows that were looked at."""
        verb = "is not a number" if self.others == 1 else "are not numbers"
        return f"{self.others} of {of} {self.fields} fields {verb}"


def find_table(data: JsonValue, /) -> Table | None:
    """Return the table in a value; None if it is something else."""
    if not isinstance(data, dict):
        return None
    kind, text = data.get("mediaType"), data.get("text")
    if not isinstance(kind, str) or not isinstance(text, str):
        return None
    media_type = kind.partition(";")[0].strip().lower()
    # a byte order mark, as spreadsheets write it, is not part of the first name
    return Table(text.removeprefix("\ufeff"), media_type) if media_type in DELIMITERS else None


def find_tables(data: JsonValue, /) -> Iterator[tuple[str, Table]]:
    """Yield the tables of structured data, each with its key; empty if the data is itself one."""
    if (whole := find_table(data)) is not None:
        yield "", whole
    elif isinstance(data, dict):
        for key, each in data.items():
            if (table := find_table(each)) is not None:
                yield key, table


def replace_tables(data: JsonValue, /) -> JsonValue:
    """Return structured data with rows in place of its tables.

    Raises:
        BadTable: a table cannot be read.
    """
    if (whole := find_table(data)) is not None:
        return list[JsonValue](read_rows(whole))
    rows: dict[str, JsonValue] = {
        key: list[JsonValue](read_rows(table)) for key, table in find_tables(data)
    }
    return {**data, **rows} if isinstance(data, dict) else data


def read_rows(table: Table, /) -> list[dict[str, JsonValue]]:
    """Return the rows of a table as objects, with the header's names as keys.

    An empty field is null. A column whose other fields are all numbers (as JSON writes them), or
    all true or false, has those values, blanks around them ignored; any other column has texts, as
    they are.

    Raises:
        BadTable: as `check_table`.
    """
    header, *rows = _read_lines(table)
    columns = [_typed_column(column) for column in zip(*rows, strict=True)]
    return [dict(zip(header, row, strict=True)) for row in zip(*columns, strict=True)]


def check_table(table: Table, /) -> None:
    """Check that a table can be read.

    Raises:
        BadTable: it has no header, a line with another number of fields, or a quote that does not
            end.
    """
    for _ in _read_lines(table):
        pass


def read_head(table: Table, rows: int, /) -> tuple[list[str], list[list[str]]]:
    """Return the header and the first rows, as texts.

    Raises:
        BadTable: these lines cannot be read.
    """
    header, *first = islice(_read_lines(table), rows + 1)
    return header, first


def mixed_columns(table: Table, /) -> Sequence[MixedColumn]:
    """Return the columns in which most, but not all, fields are numbers.

    Raises:
        BadTable: as `check_table`.
    """
    header, *rows = _read_lines(table)
    mixed: list[MixedColumn] = []
    for name, column in zip(header, zip(*rows, strict=True), strict=False):
        present = [bare for field in column if (bare := field.strip())]
        others = [field for field in present if not _is_number(field)]
        if 0 < len(others) < len(present) - len(others):
            mixed.append(MixedColumn(name, len(others), len(present), others[0]))
    return mixed


def _read_lines(table: Table) -> Iterator[list[str]]:
    """Yield the fields of the header and of each row; skip blank lines."""
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
                count = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
                raise BadTable(f"line {reader.line_num} has {count}, and the header {len(header)}")
            yield fields
    except csv.Error as error:
        # csv's own words for it do not say what to look for
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
            raise BadTable(f"its header has the column {name[:_MAX_NAME]!r} twice")
        seen.add(name)
    # one column with another separator in its name: most likely the media type is wrong
    other = next((mark for mark in ",;\t" if mark in names[0]), "")
    if len(names) == 1 and other:
        raise BadTable(
            f"its header is a single column, {names[0][:_MAX_NAME]!r}: "
            f"separate its fields by {delimiter!r}"
        )


def _typed_column(column: Sequence[str]) -> Sequence[JsonValue]:
    bare = [field.strip() for field in column]
    present = [field for field in bare if field]
    if all(field in _BOOLEANS for field in present):
        return [_BOOLEANS[field] if field else None for field in bare]
    if all(map(_is_number, present)):
        # digits alone are an integer
        return [
            (int(field) if field.lstrip("-").isdigit() else float(field)) if field else None
            for field in bare
        ]
    return [field or None for field in column]


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and isfinite(float(text))
