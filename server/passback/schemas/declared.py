"""Whether a JSON Schema that somebody declares is one of ours. It is data: never fetched, its patterns not run here."""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from pydantic import JsonValue

from passback.core.messages import JsonObject
from passback.schemas.metaschemas import metaschema

KEYS: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def parts(schema: JsonValue, /) -> Iterator[JsonValue]:
    """The schema and all in it that costs time to check: objects, arrays, booleans."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif not isinstance(value, bool):
            continue
        yield value


def texts(part: JsonObject, /, *keys: str) -> list[str]:
    return [value for key in keys if isinstance(value := part.get(key), str)]


def anchors(schema: JsonValue, /) -> dict[str, JsonValue]:
    """What `#name` leads to. Draft 7 knows no such names."""
    objects = [part for part in parts(schema) if isinstance(part, dict)]
    if isinstance(schema, dict) and "draft-07" in str(schema.get("$schema")):
        return {}
    return {
        f"#{name}": part for part in objects for name in texts(part, "$anchor", "$dynamicAnchor")
    }


def target(schema: JsonValue, named: Mapping[str, JsonValue], reference: str, /) -> JsonValue:
    """The schema that a reference leads to: `named`, or by a JSON pointer, percent-encoded.

    Raises:
        LookupError: it leads nowhere, or to something that is no schema.
    """
    if reference in named:
        return named[reference]
    first, *steps = unquote(reference.removeprefix("#")).split("/")
    if first or not reference.startswith("#"):
        raise LookupError(reference)
    for step in steps:
        schema = _below(schema, step.replace("~1", "/").replace("~0", "~"))
    if isinstance(schema, dict | bool):
        return schema
    raise LookupError(reference)


# ---------------------------------------------------------------- what is applied to one value
_INSIDE = 64
_APPLIED = 10_000
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else")
_NAMED: Final = ("dependentSchemas", "dependencies")


def is_bounded(schema: JsonValue, named: Mapping[str, JsonValue], /) -> bool:
    """Whether few schemas are applied to one and the same value, and not too many inside each other.

    A schema that refers to itself is fine if it does so for the parts of a value: a value has an end.
    """
    known: dict[int, tuple[int, int]] = {}

    def visit(part: JsonValue, above: int) -> tuple[int, int]:
        """How many schemas a part applies, itself included, and how many of them inside each other."""
        count, height = known.get(id(part), (1, 1))
        if id(part) not in known:
            for each in _in_place(schema, named, part) if above < _INSIDE else ():
                applied, inside = visit(each, above + 1)
                count, height = count + applied, max(height, inside + 1)
            known[id(part)] = count, height
        if above + height > _INSIDE or count > _APPLIED:
            raise OverflowError
        return count, height

    try:
        for part in parts(schema):
            visit(part, 0)
    except OverflowError:
        return False
    return True


def _in_place(
    schema: JsonValue, named: Mapping[str, JsonValue], part: JsonValue
) -> Iterator[JsonValue]:
    """What a part of a schema applies to the same value as itself; the references have targets."""
    if not isinstance(part, dict):
        return
    for reference in texts(part, *KEYS):
        yield target(schema, named, reference)
    for key in _LISTS:
        each = part.get(key)
        yield from each if isinstance(each, list) else ()
    yield from (part[key] for key in _SINGLE if key in part)
    for key in _NAMED:
        each = part.get(key)
        yield from each.values() if isinstance(each, dict) else ()


def _below(value: JsonValue, key: str) -> JsonValue:
    if isinstance(value, dict):
        return value[key]
    if isinstance(value, list) and key.isdecimal() and len(key) < 6:
        return value[int(key)]
    raise LookupError(key)


_VALUES = 1_000
"""Objects, arrays and booleans in one schema: checking one costs up to 0.2 ms, another value some hundredths of that."""


class Unfit(Exception):
    """What is wrong with a schema, in words."""


def fit(schema: JsonValue, /, *, of: str | None = "object") -> JsonObject:
    """The schema, with its type. May take a fifth of a second: not for the event loop.

    Args:
        schema: nested no deeper than a parser allows.
        of: the type that it has to be of; None: any.

    Raises:
        Unfit: it is none that values can be checked with.
    """
    if not isinstance(schema, dict):
        raise Unfit("its schema is not an object")
    if of is not None and schema.setdefault("type", of) != of:
        raise Unfit(f"its schema is not of type {of!r}")
    if size(schema) > _VALUES:
        raise Unfit(f"its schema has more than {_VALUES} parts")
    fitting = metaschema(schema)
    if fitting is None:
        raise Unfit("its $schema is none of draft 2020-12, 2019-09 and draft-07")
    problem = next(fitting.iter_errors(schema), None)
    if problem is not None:
        raise Unfit(f"its schema is not a valid JSON Schema at {problem.json_path[:200]}")
    _check_references(schema)
    return schema


def size(schema: JsonObject, /) -> int:
    """How many parts cost time to check."""
    return sum(1 for _ in parts(dict(schema)))


def _check_references(schema: dict[str, JsonValue]) -> None:
    """Refuse a reference that leaves the schema or leads nowhere, and other names below the top; none is ever fetched."""
    named = anchors(schema)
    for part in parts(schema):
        if not isinstance(part, dict):
            continue
        if part is not schema and texts(part, "$id", "$schema"):
            raise Unfit("its schema has an $id or a $schema below its top")
        for reference in texts(part, *KEYS):
            if not reference.startswith("#"):
                raise Unfit("its schema has a reference to another document")
            try:
                target(schema, named, reference)
            except LookupError:
                raise Unfit("its schema has a reference that leads nowhere") from None
    if not is_bounded(schema, named):
        raise Unfit("its schema applies too many schemas to one value, or one to itself")
