"""The keywords of jsonschema for schemas and values that nobody vouches for: each is counted, none runs away.

Those that jsonschema itself would run without bounds are written anew: patterns, which may backtrack for ever, comparisons
of each item with each other one, and what follows references without a look at the clock.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from time import thread_time
from typing import Any, TypeAlias, cast

from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType]
from pydantic import JsonValue

from passback.schemas.declared import KEYS
from passback.schemas.metaschemas import DRAFT_7, DRAFT_2019_09, DRAFT_2020_12
from passback.schemas.patterns import occurs

_Errors: TypeAlias = Iterable[ValidationError]
_Keyword: TypeAlias = Callable[[Any, Any, Any, Any], _Errors | None]
_Schema: TypeAlias = Mapping[str, Any] | bool

_extend = cast("Callable[..., type[Validator]]", extend)
_NAMED = 5
"""Names that an error tells at most."""

until: ContextVar[float] = ContextVar("until")
"""The CPU time of this thread, in seconds, at which checking is given up."""


class TooMuch(Exception):
    """The check took longer than it may."""


class Reference(str):
    """A reference together with the schema that it leads to."""

    __slots__ = ("target",)
    target: _Schema


def _look_at_the_clock() -> None:
    if thread_time() > until.get():
        raise TooMuch


def _counted(keyword: _Keyword) -> _Keyword:
    def applied(validator: Any, value: Any, instance: Any, schema: Any) -> _Errors | None:
        _look_at_the_clock()
        return keyword(validator, value, instance, schema)

    return applied


def _fits(validator: Any, instance: JsonValue, schema: _Schema) -> bool:
    return next(validator.descend(instance, schema), None) is None


def _named(names: Collection[str]) -> str:
    shown = ", ".join(repr(name) for name in list(names)[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


# ---------------------------------------------------------------- one keyword each
def _reference(validator: Any, reference: str, instance: JsonValue, _schema: _Schema) -> _Errors:
    if isinstance(reference, Reference):
        return cast("_Errors", validator.descend(instance, reference.target))
    raise LookupError(reference)


def _pattern(_validator: Any, pattern: str, instance: JsonValue, _schema: _Schema) -> _Errors:
    if isinstance(instance, str) and occurs(pattern, instance) is False:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, _Schema], instance: JsonValue, _schema: _Schema
) -> _Errors:
    if not isinstance(instance, dict):
        return
    for pattern, schema in patterns.items():
        for name, value in instance.items():
            _look_at_the_clock()
            if occurs(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, others: _Schema, instance: JsonValue, schema: Mapping[str, Any]
) -> _Errors:
    if isinstance(instance, dict):
        declared = _declared(schema, instance)
        rest = {name: value for name, value in instance.items() if name not in declared}
        yield from _of_rest(validator, others, rest, "properties that are not declared")


def _of_rest(validator: Any, schema: _Schema, rest: Mapping[str, JsonValue], kind: str) -> _Errors:
    """The errors of properties that no other keyword has looked at."""
    if schema is False and rest:
        yield ValidationError(f"there are {kind}: {_named(rest.keys())}")
    elif schema is not False:
        for name, value in rest.items():
            yield from validator.descend(value, schema, path=name)


def _declared(schema: Mapping[str, Any], instance: Mapping[str, JsonValue]) -> set[str]:
    """The properties of a value that a schema's `properties` and `patternProperties` speak of.

    So does a pattern that is not run, perhaps.
    """
    names = {name for name in instance if name in schema.get("properties", {})}
    for pattern in schema.get("patternProperties", {}):
        _look_at_the_clock()
        names |= {name for name in instance if occurs(pattern, name) is not False}
    return names


def _unique_items(_validator: Any, wanted: bool, instance: JsonValue, _schema: _Schema) -> _Errors:
    if (
        wanted
        and isinstance(instance, list)
        and len({_identity(item) for item in instance}) < len(instance)
    ):
        yield ValidationError(f"{instance!r} has items that are repeated")


def _identity(value: JsonValue) -> Hashable:
    """What equal values have in common, and different ones have not: 1 is 1.0, and not true.

    A number is known by its text: numbers that are equal modulo 2^61-1 have one hash, texts have not.
    """
    if isinstance(value, dict):
        return "object", frozenset((name, _identity(each)) for name, each in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_identity, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number", repr(int(value) if value == int(value) else value)
    return isinstance(value, bool), value


# ---------------------------------------------------------------- what no keyword has looked at
def _applied(validator: Any, instance: JsonValue, schema: _Schema) -> Iterator[Mapping[str, Any]]:
    """The schema, and all that it applies to the same value and that the value fits."""
    _look_at_the_clock()
    if isinstance(schema, dict):
        yield schema
        for each in _in_place(validator, instance, schema):
            if _fits(validator, instance, each):
                yield from _applied(validator, instance, each)


def _in_place(validator: Any, instance: JsonValue, schema: Mapping[str, Any]) -> Iterator[_Schema]:
    for key in KEYS:
        if key in validator.VALIDATORS and isinstance(reference := schema.get(key), Reference):
            yield reference.target
    for key in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(key, ())
    if "if" in schema:
        yield schema["if"]
        yield schema.get("then" if _fits(validator, instance, schema["if"]) else "else", True)
    if isinstance(instance, dict):
        dependent: Mapping[str, _Schema] = schema.get("dependentSchemas", {})
        yield from (each for name, each in dependent.items() if name in instance)


def _unevaluated_properties(
    validator: Any, others: _Schema, instance: JsonValue, schema: _Schema
) -> _Errors:
    if not isinstance(instance, dict):
        return
    rest: dict[str, JsonValue] = dict(instance)
    for each in _applied(validator, instance, schema):
        if "additionalProperties" in each or (
            each is not schema and "unevaluatedProperties" in each
        ):
            return
        for name in _declared(each, instance):
            rest.pop(name, None)
    yield from _of_rest(validator, others, rest, "properties that no part of the schema declares")


def _unevaluated_items(
    validator: Any, others: _Schema, instance: JsonValue, schema: _Schema
) -> _Errors:
    if not isinstance(instance, list):
        return
    seen: set[int] = set()
    for each in _applied(validator, instance, schema):
        seen |= _items_seen(validator, each, instance)
        if each is not schema and "unevaluatedItems" in each:
            return
    for index, value in enumerate(instance):
        if index not in seen:
            yield from validator.descend(value, others, path=index)


def _items_seen(validator: Any, schema: Mapping[str, Any], instance: list[JsonValue]) -> set[int]:
    """The items that a schema itself speaks of."""
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
        seen |= {at for at in whole if _fits(validator, instance[at], contained)}
    return seen


# ---------------------------------------------------------------- the drafts
_BOUNDED: Mapping[str, _Keyword] = {
    **dict.fromkeys(KEYS, _reference),
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
}


def _bounded(official: type[Validator]) -> type[Validator]:
    known = cast("Mapping[str, _Keyword]", official.VALIDATORS)
    return _extend(official, {name: _counted(_BOUNDED.get(name, known[name])) for name in known})


VALIDATORS: Mapping[str, type[Validator]] = {
    DRAFT_2020_12: _bounded(Draft202012Validator),
    DRAFT_2019_09: _bounded(Draft201909Validator),
    DRAFT_7: _bounded(Draft7Validator),
}
"""By dialect. They take schemas whose references are `Reference`, and that name neither an id nor a dialect."""
