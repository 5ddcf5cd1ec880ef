"""What a process of its own does for the data tools: a query may take any time and memory, and is killed at last."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from passback.core.tables import BadTable, head_of, mixed_columns, tables_in, with_rows
from passback.schemas.arguments import judge
from passback.schemas.declared import Unfit, fit
from passback.schemas.keywords import TooMuch

_FIELDS = 60
_COMMON = 5
_CHARS = 80
_LEVELS = 2

_TYPES: Mapping[type, str] = {
    str: "text",
    bool: "boolean",
    int: "number",
    float: "number",
    list: "list",
    dict: "object",
    type(None): "null",
}

_FIGURES: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "mean": mean,
    "median": median,
    "stdev": stdev,
}


def summary(value: JsonValue, /, *, levels: int = _LEVELS) -> JsonValue:
    """Of a list, how many items it has and what they are; of an object, what its keys hold; anything else itself."""
    if isinstance(value, list):
        return _of_list(value)
    if not isinstance(value, dict):
        return {"type": _kind(value), "value": _short(value)}
    if not levels:
        return {"type": "object", "keys": len(value)}
    first = islice(value.items(), _FIELDS)
    fields: dict[str, JsonValue] = {
        _cut(key): summary(each, levels=levels - 1) for key, each in first
    }
    return {"type": "object", "keys": len(value), "fields": fields}


def _of_list(items: list[JsonValue]) -> JsonValue:
    records = [each for each in items if isinstance(each, dict)]
    if not records:
        return {"type": "list", "items": len(items), **_column(items)}
    keys = Counter(key for record in records for key in record)
    fields: dict[str, JsonValue] = {
        _cut(key): {
            "missing": len(records) - count,
            **_column([record[key] for record in records if key in record]),
        }
        for key, count in islice(keys.items(), _FIELDS)
    }
    shown: dict[str, JsonValue] = {"type": "list", "items": len(items), "records": len(records)}
    others = [each for each in items if not isinstance(each, dict)]
    if others:
        shown["others"] = _column(others)
    return {**shown, "field_count": len(keys), "fields": fields}


def _column(values: Sequence[JsonValue]) -> dict[str, JsonValue]:
    types = Counter(map(_kind, values))
    told: dict[str, JsonValue] = {"types": dict(types)}
    numbers = [*_numbers(values)]
    if numbers:
        told |= {"min": min(numbers), "max": max(numbers), **_statistics(numbers)}
    elif types.keys() <= {"text", "null"} and types["text"]:
        # dates, as they are mostly written, are in their order
        texts = [value for value in values if isinstance(value, str)]
        told |= {"min": _cut(min(texts)), "max": _cut(max(texts))}
    simple = Counter(_hashable(values))
    if simple:
        told["distinct"] = len(simple)
        told["most_common"] = [
            {"value": _short(value), "count": count}
            for (_, value), count in simple.most_common(_COMMON)
        ]
    return told


def _hashable(values: Iterable[JsonValue]) -> Iterable[tuple[str, str | float | bool | None]]:
    """With their types: true is not 1."""
    for value in values:
        if not isinstance(value, list | dict):
            yield _kind(value), value


def _numbers(values: Iterable[JsonValue]) -> Iterable[float]:
    """Those that have a place among the others: an expression may give infinity, or NaN."""
    for value in values:
        if isinstance(value, bool):
            continue
        if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
            yield value


def _statistics(numbers: Sequence[float]) -> dict[str, JsonValue]:
    """Those that a double can hold; of a single number there is no deviation."""
    told: dict[str, JsonValue] = {}
    for name, compute in _FIGURES.items():
        with suppress(OverflowError, StatisticsError):
            figure = compute(numbers)
            if isinstance(figure, int) or isfinite(figure):
                told[name] = figure
    return told


def _kind(value: JsonValue) -> str:
    return _TYPES[type(value)]


def _short(value: str | float | bool | None) -> JsonValue:
    return _cut(value) if isinstance(value, str) else value


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS else f"{text[:_CHARS]}..."


if sys.platform != "win32":
    import resource

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

_PART = 16 * 1024 * 1024
"""Characters of what is validated."""

_JUDGE_SECONDS = 8.0
"""Of CPU time, for a check: less than the query's own, so that it can say why it ends."""

_NOTES = 5  # columns of a table of which a result says that they hold texts
_NAMED = 80  # characters of a name or a field in these notes

MEMORY = 1024 * 1024 * 1024
"""Bytes of address space for a query, of which Python itself takes a third."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of structured data.

    Args:
        expression: JMESPath; what it finds is worked on.
        most: characters of the result that are wanted.
        summarised: a summary of it is the result.
        schema: whether it fits this JSON Schema is the result.
    """

    expression: str
    most: int
    summarised: bool = False
    schema: JsonObject | None = None


def run_query(text: bytes, query: Query, /) -> str:
    """As `answer_query`, in a process that is there for nothing else: its memory is bounded from now on."""
    _confine()
    return answer_query(text, query)


def answer_query(text: bytes, query: Query, /) -> str:
    """What a query finds in a JSON text, in which tables are their rows: JSON, or words on whether it fits.

    Before it stands a note on each column that holds texts although most of its fields are numbers, if the query names it.

    Raises:
        ValueError: for the model: why there is no result.
    """
    notes = ""
    try:
        data: JsonValue = from_json(text)
        rows = with_rows(data)
        notes = _notes(data, query)
        found: JsonValue = jmespath.search(query.expression, rows)
        if query.schema is not None:
            return notes + _judged(found, query.schema)
        return notes + _dumped(summary(found) if query.summarised else found, query.most)
    except BadTable as problem:
        raise ValueError(f"A table in the data cannot be read: {problem}.") from None
    except JMESPathError as error:
        told = str(error)[:400]
        raise ValueError(f"{notes}The expression is not valid JMESPath: {told}") from None
    except (MemoryError, RecursionError):
        raise ValueError("The expression takes too much memory.") from None
    except (ArithmeticError, TypeError):
        raise ValueError(f"{notes}The expression cannot be applied to these values.") from None


def _notes(data: JsonValue, query: Query) -> str:
    """Return a line for each column that a query names and that holds texts for a few of its fields; of a summary, for all."""
    words = query.expression if query.schema is None else f"{query.expression} {query.schema}"

    def is_named(column: str) -> bool:
        return (
            query.summarised or re.search(rf"(?<!\w){re.escape(column)}(?!\w)", words) is not None
        )

    mixed = (
        (key, one)
        for key, table in tables_in(data)
        if any(map(is_named, head_of(table, 0)[0]))  # else none of its rows is read again
        for one in mixed_columns(table)
        if is_named(one.name)
    )
    return "".join(
        f"Note: the column {_quoted(one.name)}{f' of {_quoted(key)}' if key else ''} holds texts, as {one.share()}, "
        f"the first {_quoted(one.first)}. to_number() makes numbers of its texts, and null of the others.\n"
        for key, one in islice(mixed, _NOTES)
    )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _NAMED else f"{text[:_NAMED]}...")


def _judged(found: JsonValue, schema: JsonObject) -> str:
    """Of a list of records each one is judged, unless the schema is one of lists."""
    try:
        fitting = fit(dict(schema), of=None)
    except Unfit as problem:
        raise ValueError(f"The schema cannot be used: {problem}.") from None
    text = _dumped(found, _PART)
    if len(text) == _PART:
        raise ValueError("This part of the data is too large to be validated at once.")
    kinds = fitting.get("type")
    is_of_lists = "array" in kinds if isinstance(kinds, list) else kinds == "array"
    each = (
        isinstance(found, list) and not is_of_lists and all(isinstance(one, dict) for one in found)
    )
    try:
        wrong = judge(to_json(fitting), text, _JUDGE_SECONDS, each=each)
    except TooMuch:
        raise ValueError("The check takes too long: ask for less.") from None
    if wrong is not None:
        return f"It does not fit: {wrong}"
    return (
        f"Each of the {len(found)} rows fits." if each and isinstance(found, list) else "It fits."
    )


def _confine() -> None:
    if sys.platform == "win32":
        return  # there, time is the only bound
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError, OSError):  # a lower bound is there already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))


def _dumped(value: JsonValue, most: int) -> str:
    """The same list may stand in a result many times: what is not wanted is not even written.

    Raises:
        ValueError: for the model: there is a number in it that JSON does not have.
    """
    pieces: list[str] = []
    size = 0
    try:
        for piece in _ENCODER.iterencode(value):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                break
    except ValueError:
        raise ValueError(
            "The result has a number that JSON does not have: infinite, none (NaN), or of too many digits."
        ) from None
    return "".join(pieces)[:most]
