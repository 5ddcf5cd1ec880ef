"""Keywords of jsonschema for untrusted schemas and values: each looks at the clock.

Those that jsonschema would run without a limit are replaced: patterns, which may backtrack for
ever; comparisons of each item with every other; and references, which are followed without a look
at the clock.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from time import thread_time
from typing import Any, TypeAlias, cast

from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from pydantic import JsonValue

from passback.schemas.checks import (
    DRAFT_7,
    DRAFT_2019_09,
    DRAFT_2020_12,
    REFERENCE_KEYWORDS,
    Errors,
    extend_validator,
    fits,
)
from passback.schemas.patterns import pattern_occurs

_Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Errors | None]
_Schema: TypeAlias = Mapping[str, Any] | bool

_MAX_NAMES = 5  # names of properties in an error

# CPU time of this thread, in seconds, after which the check is given up.
check_deadline: ContextVar[float] = ContextVar("until")


class CheckTimeout(Exception):
    """The check takes too long."""


class Reference(str):
    """A reference, linked to the schema that it refers to."""

    __slots__ = ("target",)
    target: _Schema


def _check_time() -> None:
    if thread_time() > check_deadline.get():
        raise CheckTimeout


def _check_reference(
    validator: Any, reference: str, instance: JsonValue, _schema: _Schema
) -> Errors:
    if isinstance(reference, Reference):
        return cast("Errors", validator.descend(instance, reference.target))
    raise LookupError(reference)


def _check_pattern(_validator: Any, pattern: str, instance: JsonValue, _schema: _Schema) -> Errors:
    if isinstance(instance, str) and pattern_occurs(pattern, instance) is False:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _check_pattern_properties(
    validator: Any, patterns: Mapping[str, _Schema], instance: JsonValue, _schema: _Schema
) -> Errors:
    if not isinstance(instance, dict):
        return
    for pattern, schema in patterns.items():
        for name, value in instance.items():
            _check_time()
            # None, a pattern that is not run, covers nothing here
            if pattern_occurs(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _check_additional_properties(
    validator: Any, others: _Schema, instance: JsonValue, schema: Mapping[str, Any]
) -> Errors:
    if isinstance(instance, dict):
        declared = _declared_names(schema, instance)
        rest = {name: value for name, value in instance.items() if name not in declared}
        yield from _check_rest(validator, others, rest, "properties that are not declared")


def _check_rest(
    validator: Any, schema: _Schema, rest: Mapping[str, JsonValue], kind: str
) -> Errors:
    """Yield the errors of properties that no other keyword has checked."""
    if schema is False and rest:
        shown = ", ".join(repr(name) for name in list(rest)[:_MAX_NAMES])
        more = len(rest) - _MAX_NAMES
        yield ValidationError(f"there are {kind}: {shown}{f' and {more} more' if more > 0 else ''}")
    elif schema is not False:
        for name, value in rest.items():
            yield from validator.descend(value, schema, path=name)


def _declared_names(schema: Mapping[str, Any], instance: Mapping[str, JsonValue]) -> set[str]:
    """Return the properties that `properties` and `patternProperties` of a schema cover.

    A pattern that is not run may cover all.
    """
    names = {name for name in instance if name in schema.get("properties", {})}
    for pattern in schema.get("patternProperties", {}):
        _check_time()
        names |= {name for name in instance if pattern_occurs(pattern, name) is not False}
    return names


def _check_unique_items(
    _validator: Any, wanted: bool, instance: JsonValue, _schema: _Schema
) -> Errors:
    if (
        wanted
        and isinstance(instance, list)
        and len({_identity_of(item) for item in instance}) < len(instance)
    ):
        yield ValidationError(f"{instance!r} has items that are repeated")


def _identity_of(value: JsonValue) -> Hashable:
    """Return a key that is equal for equal values only: 1 and 1.0 are equal, 1 and true are not.

    A number is represented by its text, because integers that are equal modulo 2^61-1 have the same
    hash, and a list of them would make a set slow.
    """
    if isinstance(value, dict):
        return "object", frozenset((name, _identity_of(each)) for name, each in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_identity_of, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number", repr(int(value) if value == int(value) else value)
    return isinstance(value, bool), value


def _fitting_schemas(
    validator: Any, instance: JsonValue, schema: _Schema
) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all that it applies to the same value and that the value fits."""
    _check_time()
    if isinstance(schema, dict):
        yield schema
        for each in _schemas_in_place(validator, instance, schema):
            if fits(validator, instance, each):
                yield from _fitting_schemas(validator, instance, each)


def _schemas_in_place(
    validator: Any, instance: JsonValue, schema: Mapping[str, Any]
) -> Iterator[_Schema]:
    for key in REFERENCE_KEYWORDS:
        if key in validator.VALIDATORS and isinstance(reference := schema.get(key), Reference):
            yield reference.target
    for key in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(key, ())
    if "if" in schema:
        yield schema["if"]
        yield schema.get("then" if fits(validator, instance, schema["if"]) else "else", True)
    if isinstance(instance, dict):
        dependent: Mapping[str, _Schema] = schema.get("dependentSchemas", {})
        yield from (each for name, each in dependent.items() if name in instance)


def _check_unevaluated_properties(
    validator: Any, others: _Schema, instance: JsonValue, schema: _Schema
) -> Errors:
    if not isinstance(instance, dict):
        return
    rest: dict[str, JsonValue] = dict(instance)
    for each in _fitting_schemas(validator, instance, schema):
        if "additionalProperties" in each or (
            each is not schema and "unevaluatedProperties" in each
        ):
            return  # it has checked all properties
        for name in _declared_names(each, instance):
            rest.pop(name, None)
    yield from _check_rest(
        validator, others, rest, "properties that no part of the schema declares"
    )


def _check_unevaluated_items(
    validator: Any, others: _Schema, instance: JsonValue, schema: _Schema
) -> Errors:
    if not isinstance(instance, list):
        return
    seen: set[int] = set()
    for each in _fitting_schemas(validator, instance, schema):
        seen |= _evaluated_items(validator, each, instance)
        if each is not schema and "unevaluatedItems" in each:
            return
    for index, value in enumerate(instance):
        if index not in seen:
            yield from validator.descend(value, others, path=index)


def _evaluated_items(
    validator: Any, schema: Mapping[str, Any], instance: list[JsonValue]
) -> set[int]:
    """Return the indices of the items that a schema itself covers."""
    whole = set(range(len(instance)))
    items: list[_Schema] | _Schema | None = schema.get("items")
    if isinstance(items, list):
        return whole if "additionalItems" in schema else set(range(len(items)))
    if items is not None:
        return whole
    if "prefixItems" not in validator.VALIDATORS:  # before 2020-12
        return set()
    seen = set(range(len(schema.get("prefixItems", ()))))
    if "contains" in schema:
        contained: _Schema = schema["contains"]
        seen |= {at for at in whole if fits(validator, instance[at], contained)}
    return seen


_REPLACED: Mapping[str, _Keyword] = {
    **dict.fromkeys(REFERENCE_KEYWORDS, _check_reference),
    "pattern": _check_pattern,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional_properties,
    "uniqueItems": _check_unique_items,
    "unevaluatedProperties": _check_unevaluated_properties,
    "unevaluatedItems": _check_unevaluated_items,
}


def _bounded_validator(official: type[Validator]) -> type[Validator]:
    def with_time_check(keyword: _Keyword) -> _Keyword:
        def applied(validator: Any, value: Any, instance: Any, schema: Any) -> Errors | None:
            _check_time()
            return keyword(validator, value, instance, schema)

        return applied

    known = cast("Mapping[str, _Keyword]", official.VALIDATORS)
    bounded = {name: with_time_check(_REPLACED.get(name, known[name])) for name in known}
    return extend_validator(official, bounded)


# By dialect. Their schemas have linked references, and neither `$id` nor `$schema`.
VALIDATORS: Mapping[str, type[Validator]] = {
    DRAFT_2020_12: _bounded_validator(Draft202012Validator),
    DRAFT_2019_09: _bounded_validator(Draft201909Validator),
    DRAFT_7: _bounded_validator(Draft7Validator),
}
