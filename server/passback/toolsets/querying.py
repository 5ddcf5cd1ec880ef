"""The code that answers a data query, in a process of its own.

A query may take any time and memory; the process is killed when it passes its deadline.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from statistics import StatisticsError, mean, median, stdev
from typing import Final

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import JsonValue
from pydantic_core import from_json, to_json

from passback.core.messages import JsonObject
from passback.core.tables import BadTable, find_tables, mixed_columns, read_head, replace_tables
from passback.schemas.arguments import check_json
from passback.schemas.checks import InvalidSchema, check_schema
from passback.schemas.keywords import CheckTimeout

if sys.platform != "win32":
    import resource

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

_MAX_VALIDATED_CHARACTERS = 16 * 1024 * 1024

# Seconds of CPU time: less than a query's deadline, so that the check can still say why it ends.
_JUDGE_SECONDS = 8.0

_MAX_NOTES = 5  # columns that notes name
_NOTE_CHARACTERS = 80  # of a name or a field in these notes

MEMORY = 1024 * 1024 * 1024  # bytes of address space; Python itself takes a third

# bounds of a summary
_MAX_FIELDS = 60
_MAX_COMMON_VALUES = 5
_MAX_VALUE_CHARACTERS = 80
_MAX_LEVELS = 2  # nested objects whose fields are shown

_TYPE_NAMES: Mapping[type, str] = {
    str: "text",
    bool: "boolean",
    int: "number",
    float: "number",
    list: "list",
    dict: "object",
    type(None): "null",
}

_STATISTICS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "mean": mean,
    "median": median,
    "stdev": stdev,
}


def summary(value: JsonValue, /, *, levels: int = _MAX_LEVELS) -> JsonValue:
    """Summarise a list by its items, an object by its fields, and return any other value itself."""
    if isinstance(value, list):
        return _list_summary(value)
    if not isinstance(value, dict):
        return {"type": _type_name(value), "value": _shortened_value(value)}
    if not levels:
        return {"type": "object", "keys": len(value)}
    first = islice(value.items(), _MAX_FIELDS)
    fields: dict[str, JsonValue] = {
        _shortened_text(key): summary(each, levels=levels - 1) for key, each in first
    }
    return {"type": "object", "keys": len(value), "fields": fields}


def _list_summary(items: list[JsonValue]) -> JsonValue:
    records = [each for each in items if isinstance(each, dict)]
    if not records:
        return {"type": "list", "items": len(items), **_column_summary(items)}
    keys = Counter(key for record in records for key in record)
    fields: dict[str, JsonValue] = {
        _shortened_text(key): {
            "missing": len(records) - count,
            **_column_summary([record[key] for record in records if key in record]),
        }
        for key, count in islice(keys.items(), _MAX_FIELDS)
    }
    shown: dict[str, JsonValue] = {"type": "list", "items": len(items), "records": len(records)}
    others = [each for each in items if not isinstance(each, dict)]
    if others:
        shown["others"] = _column_summary(others)
    return {**shown, "field_count": len(keys), "fields": fields}


def _column_summary(values: Sequence[JsonValue]) -> dict[str, JsonValue]:
    types = Counter(map(_type_name, values))
    column: dict[str, JsonValue] = {"types": dict(types)}
    # infinity and NaN, which an expression may give, cannot be ordered; a boolean is an int
    numbers = [
        value
        for value in values
        if (isinstance(value, int) and not isinstance(value, bool))
        or (isinstance(value, float) and isfinite(value))
    ]
    if numbers:
        column |= {"min": min(numbers), "max": max(numbers)}
        for name, compute in _STATISTICS.items():
            # a single number has no deviation, and a double cannot hold every figure
            with suppress(OverflowError, StatisticsError):
                figure = compute(numbers)
                if isinstance(figure, int) or isfinite(figure):
                    column[name] = figure
    elif types.keys() <= {"text", "null"} and types["text"]:
        # of texts too: dates, as they are mostly written, sort by time
        texts = [value for value in values if isinstance(value, str)]
        column |= {"min": _shortened_text(min(texts)), "max": _shortened_text(max(texts))}
    # with their types, because in Python `True == 1`
    simple = Counter(
        (_type_name(value), value) for value in values if not isinstance(value, list | dict)
    )
    if simple:
        column["distinct"] = len(simple)
        column["most_common"] = [
            {"value": _shortened_value(value), "count": count}
            for (_, value), count in simple.most_common(_MAX_COMMON_VALUES)
        ]
    return column


def _type_name(value: JsonValue) -> str:
    return _TYPE_NAMES[type(value)]


def _shortened_value(value: str | float | bool | None) -> JsonValue:
    return _shortened_text(value) if isinstance(value, str) else value


def _shortened_text(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}..."


@dataclass(frozen=True, slots=True)
class Query:
    """A query of structured data.

    Args:
        expression: JMESPath; selects the value to work on.
        most: maximum of characters in the result.
        summarised: return a summary of the value.
        schema: validate the value against this JSON Schema and return the report.
    """

    expression: str
    most: int
    summarised: bool = False
    schema: JsonObject | None = None


def run_query(text: bytes, query: Query, /) -> str:
    """Limit the memory of this process, then answer the query.

    For a process that does nothing else. Raises as `answer_query`.
    """
    if sys.platform != "win32":  # it has no such limit: time is the only bound there
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        with suppress(ValueError, OSError):  # the process has a lower limit already
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
    return answer_query(text, query)


def answer_query(text: bytes, query: Query, /) -> str:
    """Answer a query of a JSON text, in which tables are lists of rows.

    The answer is JSON, or a validation report. A note precedes it for each column that the query
    names and that holds texts although most of its fields are numbers.

    Raises:
        ValueError: there is no result; the text tells the model why.
    """
    notes = ""
    try:
        data: JsonValue = from_json(text)
        rows = replace_tables(data)
        notes = _mixed_column_notes(data, query)
        found: JsonValue = jmespath.search(query.expression, rows)
        if query.schema is not None:
            return notes + _validation_report(found, query.schema)
        return notes + _json_text(summary(found) if query.summarised else found, query.most)
    except BadTable as problem:
        raise ValueError(f"A table in the data cannot be read: {problem}.") from None
    except JMESPathError as error:
        reason = str(error)[:400]
        raise ValueError(f"{notes}The expression is not valid JMESPath: {reason}") from None
    except (MemoryError, RecursionError):
        raise ValueError("The expression takes too much memory.") from None
    except (ArithmeticError, TypeError):
        raise ValueError(f"{notes}The expression cannot be applied to these values.") from None


def _mixed_column_notes(data: JsonValue, query: Query) -> str:
    """Return a note for each column that holds texts although most of its fields are numbers.

    Only columns that the query names are noted; for a summary, all.
    """
    text = query.expression if query.schema is None else f"{query.expression} {query.schema}"

    def is_named(column: str) -> bool:
        return query.summarised or re.search(rf"(?<!\w){re.escape(column)}(?!\w)", text) is not None

    mixed = (
        (key, one)
        for key, table in find_tables(data)
        if any(map(is_named, read_head(table, 0)[0]))  # saves parsing all rows once more
        for one in mixed_columns(table)
        if is_named(one.name)
    )
    return "".join(
        f"Note: the column {_quoted_name(one.name)}{f' of {_quoted_name(key)}' if key else ''} "
        f"holds texts, as {one.share()}, the first {_quoted_name(one.first)}. "
        "to_number() makes numbers of its texts, and null of the others.\n"
        for key, one in islice(mixed, _MAX_NOTES)
    )


def _quoted_name(text: str) -> str:
    return repr(text if len(text) <= _NOTE_CHARACTERS else f"{text[:_NOTE_CHARACTERS]}...")


def _validation_report(found: JsonValue, schema: JsonObject) -> str:
    """Return whether a value fits a schema; of a list of records, each one is checked.

    A schema of type `array` is for the list as a whole.

    Raises:
        ValueError: the schema, or the size of the value, allows no check; for the model.
    """
    try:
        fitting = check_schema(dict(schema), of=None)
    except InvalidSchema as problem:
        raise ValueError(f"The schema cannot be used: {problem}.") from None
    text = _json_text(found, _MAX_VALIDATED_CHARACTERS)
    if len(text) == _MAX_VALIDATED_CHARACTERS:
        raise ValueError("This part of the data is too large to be validated at once.")
    kinds = fitting.get("type")
    is_of_lists = "array" in kinds if isinstance(kinds, list) else kinds == "array"
    each = (
        isinstance(found, list) and not is_of_lists and all(isinstance(one, dict) for one in found)
    )
    try:
        wrong = check_json(to_json(fitting), text, _JUDGE_SECONDS, each=each)
    except CheckTimeout:
        raise ValueError("The check takes too long: ask for less.") from None
    if wrong is not None:
        return f"It does not fit: {wrong}"
    return (
        f"Each of the {len(found)} rows fits." if each and isinstance(found, list) else "It fits."
    )


def _json_text(value: JsonValue, most: int) -> str:
    """Return the first `most` characters of a value as JSON.

    Raises:
        ValueError: the value has a number that JSON does not have; for the model.
    """
    pieces: list[str] = []
    size = 0
    try:
        # Piece by piece: one list may occur many times in a result, and its text could be huge.
        for piece in _ENCODER.iterencode(value):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                break
    except ValueError:
        raise ValueError(
            "The result has a number that JSON does not have: infinite, none (NaN), "
            "or of too many digits."
        ) from None
    return "".join(pieces)[:most]
