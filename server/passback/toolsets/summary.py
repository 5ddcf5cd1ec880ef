"""A summary of JSON by the standard library's statistics: of records field by field, of values as one column."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from math import isfinite
from statistics import StatisticsError, mean, median, stdev
from typing import Final

from pydantic import JsonValue

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
