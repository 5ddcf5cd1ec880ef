"""Checks of the JSON Schemas that clients and authors declare.

A schema is data: references are never fetched, and its patterns are not run here.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from pydantic import JsonValue

from passback.core.messages import JsonObject
from passback.schemas.metaschemas import metaschema_of

REFERENCE_KEYWORDS: Final = (
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
)  # keywords whose value is a reference


def schema_parts(schema: JsonValue, /) -> Iterator[JsonValue]:
    """Yield the schema and everything in it that takes time to check: objects, arrays, booleans."""
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


def text_values(part: JsonObject, /, *keys: str) -> list[str]:
    """Return the values of those keys that are texts."""
    return [value for key in keys if isinstance(value := part.get(key), str)]


def schema_anchors(schema: JsonValue, /) -> dict[str, JsonValue]:
    """Return the schemas that `#name` refers to. Draft 7 has no such names."""
    objects = [part for part in schema_parts(schema) if isinstance(part, dict)]
    if isinstance(schema, dict) and "draft-07" in str(schema.get("$schema")):
        return {}
    return {
        f"#{name}": part
        for part in objects
        for name in text_values(part, "$anchor", "$dynamicAnchor")
    }


def resolve_reference(
    schema: JsonValue, named: Mapping[str, JsonValue], reference: str, /
) -> JsonValue:
    """Return the schema that a reference refers to, by name or by JSON pointer (percent-encoded).

    Raises:
        LookupError: it refers to nothing, or to something that is no schema.
    """
    if reference in named:
        return named[reference]
    first, *steps = unquote(reference.removeprefix("#")).split("/")
    if first or not reference.startswith("#"):
        raise LookupError(reference)
    for step in steps:
        schema = _child_of(schema, step.replace("~1", "/").replace("~0", "~"))
    if isinstance(schema, dict | bool):
        return schema
    raise LookupError(reference)


_MAX_DEPTH = 64  # schemas applied to one value, one inside the other
_MAX_APPLIED = 10_000  # schemas applied to one value
_LIST_KEYWORDS: Final = ("allOf", "anyOf", "oneOf")
_SCHEMA_KEYWORDS: Final = ("not", "if", "then", "else")
_MAP_KEYWORDS: Final = ("dependentSchemas", "dependencies")


def is_bounded(schema: JsonValue, named: Mapping[str, JsonValue], /) -> bool:
    """Return whether few schemas apply to one value, and not too many inside each other.

    A schema may refer to itself for the parts of a value, because a value has an end.
    """
    known: dict[int, tuple[int, int]] = {}

    def count_applied(part: JsonValue, above: int) -> tuple[int, int]:
        """Return how many schemas a part applies, itself included, and how deep they are nested."""
        count, height = known.get(id(part), (1, 1))
        if id(part) not in known:
            # no deeper than the limit: a schema that refers to itself in place would never end
            for each in _schemas_in_place(schema, named, part) if above < _MAX_DEPTH else ():
                applied, inside = count_applied(each, above + 1)
                count, height = count + applied, max(height, inside + 1)
            known[id(part)] = count, height
        if above + height > _MAX_DEPTH or count > _MAX_APPLIED:
            raise OverflowError
        return count, height

    try:
        for part in schema_parts(schema):
            count_applied(part, 0)
    except OverflowError:
        return False
    return True


def _schemas_in_place(
    schema: JsonValue, named: Mapping[str, JsonValue], part: JsonValue
) -> Iterator[JsonValue]:
    """Yield the schemas that a part applies to the same value; all references have targets."""
    if not isinstance(part, dict):
        return
    for reference in text_values(part, *REFERENCE_KEYWORDS):
        yield resolve_reference(schema, named, reference)
    for key in _LIST_KEYWORDS:
        each = part.get(key)
        yield from each if isinstance(each, list) else ()
    yield from (part[key] for key in _SCHEMA_KEYWORDS if key in part)
    for key in _MAP_KEYWORDS:
        each = part.get(key)
        yield from each.values() if isinstance(each, dict) else ()


def _child_of(value: JsonValue, key: str) -> JsonValue:
    if isinstance(value, dict):
        return value[key]
    if isinstance(value, list) and key.isdecimal() and len(key) < 6:
        return value[int(key)]
    raise LookupError(key)


# Objects, arrays and booleans in a schema. Checking one takes up to 0.2 ms, other values take a
# few hundredths of that.
_MAX_PARTS = 1_000


class InvalidSchema(Exception):
    """A schema that is refused; the message says why."""


def check_schema(schema: JsonValue, /, *, of: str | None = "object") -> JsonObject:
    """Check a schema and return it, with its type set. Takes up to 0.2 s: not on the event loop.

    Args:
        schema: nested no deeper than a parser allows.
        of: the type that it must have; None for any.

    Raises:
        Unfit: it cannot be used to check values.
    """
    if not isinstance(schema, dict):
        raise InvalidSchema("its schema is not an object")
    if of is not None and schema.setdefault("type", of) != of:
        raise InvalidSchema(f"its schema is not of type {of!r}")
    if count_parts(schema) > _MAX_PARTS:
        raise InvalidSchema(f"its schema has more than {_MAX_PARTS} parts")
    fitting = metaschema_of(schema)
    if fitting is None:
        raise InvalidSchema("its $schema is none of draft 2020-12, 2019-09 and draft-07")
    problem = next(fitting.iter_errors(schema), None)
    if problem is not None:
        raise InvalidSchema(f"its schema is not a valid JSON Schema at {problem.json_path[:200]}")
    _check_references(schema)
    return schema


def count_parts(schema: JsonObject, /) -> int:
    """Return how many parts of a schema take time to check."""
    return sum(1 for _ in schema_parts(dict(schema)))


def _check_references(schema: dict[str, JsonValue]) -> None:
    """Check that references stay within the schema, and that it has no names below its top.

    Raises:
        Unfit: a reference refers to another document or to nothing, or applies too many schemas.
    """
    named = schema_anchors(schema)
    for part in schema_parts(schema):
        if not isinstance(part, dict):
            continue
        # an $id below the top would change what references in it refer to
        if part is not schema and text_values(part, "$id", "$schema"):
            raise InvalidSchema("its schema has an $id or a $schema below its top")
        for reference in text_values(part, *REFERENCE_KEYWORDS):
            if not reference.startswith("#"):
                raise InvalidSchema("its schema has a reference to another document")
            try:
                resolve_reference(schema, named, reference)
            except LookupError:
                raise InvalidSchema("its schema has a reference that leads nowhere") from None
    if not is_bounded(schema, named):
        raise InvalidSchema("its schema applies too many schemas to one value, or one to itself")
