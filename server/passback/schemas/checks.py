"""Checks of the JSON Schemas that clients and authors declare, in time bounded by their size.

A schema is data: references are never fetched, and its patterns are not run here. It is checked
against the metaschema of its dialect with some keywords replaced, because jsonschema's own may
compare each item of a list with every other, collect all errors of all alternatives, and search all
levels of the schema for the metaschema: 64 KiB kept them busy for ten seconds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast
from urllib.parse import unquote

# pyright: reportMissingTypeStubs=false
import jsonschema_specifications  # type: ignore[import-untyped]
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType]
from pydantic import JsonValue
from referencing import Registry, Specification
from referencing.jsonschema import DRAFT7, DRAFT201909, DRAFT202012, EMPTY_REGISTRY, Schema

from passback.core.messages import JsonObject

DRAFT_2020_12: Final = "https://json-schema.org/draft/2020-12/schema"
DRAFT_2019_09: Final = "https://json-schema.org/draft/2019-09/schema"
DRAFT_7: Final = "http://json-schema.org/draft-07/schema"

# keywords whose value is a reference
REFERENCE_KEYWORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")

Errors: TypeAlias = Iterable[ValidationError]
extend_validator = cast("Callable[..., type[Validator]]", extend)


def fits(validator: Any, value: JsonValue, schema: Schema, /) -> bool:
    """Return True if a value fits a part of the validator's schema; the first error decides."""
    return next(validator.descend(value, schema), None) is None


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
    if isinstance(schema, dict) and "draft-07" in str(schema.get("$schema")):
        return {}
    return {
        f"#{name}": part
        for part in schema_parts(schema)
        if isinstance(part, dict)
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
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict):
            schema = schema[key]
        elif isinstance(schema, list) and key.isdecimal() and len(key) < 6:
            schema = schema[int(key)]
        else:
            raise LookupError(reference)
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
        InvalidSchema: it cannot be used to check values.
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
        InvalidSchema: a reference leads out of it or nowhere, or applies too many schemas.
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


_DOCUMENTS = cast("Registry[Mapping[str, Any]]", jsonschema_specifications.REGISTRY)


def dialect_of(schema: Mapping[str, JsonValue], /) -> str | None:
    """Return the draft of a schema, one of the above; None if its `$schema` is another one."""
    named = schema.get("$schema", DRAFT_2020_12)
    known = named.removesuffix("#") if isinstance(named, str) else ""
    return known if known in _METASCHEMAS else None


def metaschema_of(schema: Mapping[str, JsonValue], /) -> Validator | None:
    """Return the validator of schemas in a schema's dialect; None if its `$schema` is unknown.

    It has no format checker, so that patterns in the schema are not even compiled.
    """
    known = dialect_of(schema)
    return _METASCHEMAS[known] if known else None


def _bounded_metaschema(official: type[Validator], draft: Specification[Schema]) -> Validator:
    def check_any_of(
        validator: Any, alternatives: Sequence[Schema], value: JsonValue, _schema: Schema
    ) -> Errors:
        if not any(fits(validator, value, each) for each in alternatives):
            yield ValidationError("fits none of the alternatives")

    def check_unique_items(
        _validator: Any, _yes: bool, value: JsonValue, _schema: Schema
    ) -> Errors:
        # in the metaschemas only texts have to be unique
        found = value if isinstance(value, list) else []
        if len({each for each in found if isinstance(each, str)}) < len(found):
            yield ValidationError("has items that are repeated, or no texts")

    def check_whole(_validator: Any, _to: str, value: JsonValue, _schema: Schema) -> Errors:
        """Check against the whole metaschema: both kinds of reference always refer to it."""
        return bounded.iter_errors(value)

    keywords = {
        "anyOf": check_any_of,
        "uniqueItems": check_unique_items,
        "$dynamicRef": check_whole,
        "$recursiveRef": check_whole,
    }
    # jsonschema would check a document that names its dialect with its own keywords
    documents = EMPTY_REGISTRY.with_resources(
        (uri, draft.create_resource(_without_dialect(_DOCUMENTS.contents(uri))))
        for uri in _DOCUMENTS
    )
    bounded = extend_validator(official, keywords)(
        _without_dialect(official.META_SCHEMA), registry=documents
    )
    return bounded


def _without_dialect(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in document.items() if key != "$schema"}


_METASCHEMAS: Mapping[str, Validator] = {
    DRAFT_2020_12: _bounded_metaschema(Draft202012Validator, DRAFT202012),
    DRAFT_2019_09: _bounded_metaschema(Draft201909Validator, DRAFT201909),
    DRAFT_7: _bounded_metaschema(Draft7Validator, DRAFT7),
}
