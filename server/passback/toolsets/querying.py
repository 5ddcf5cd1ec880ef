"""What a process of its own does for the data tools: a query may take any time and memory, and is killed at last."""

import json
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import JsonValue
from pydantic_core import from_json, to_json

from passback.core.messages import JsonObject
from passback.core.tables import BadTable, head_of, mixed_columns, tables_in, with_rows
from passback.schemas.arguments import judge
from passback.schemas.declared import Unfit, fit
from passback.schemas.keywords import TooMuch
from passback.toolsets.summary import summary

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
