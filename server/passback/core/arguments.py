"""Checks of arguments that users give in Python, by a table of the values each one takes. Pure."""

import inspect
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias, cast

from pydantic import JsonValue, TypeAdapter, ValidationError

from passback.core.errors import ConfigurationError

Fits: TypeAlias = Callable[[object], bool]

_MAX_SHOWN = 5  # items of a collection that an error lists

_JSON_OBJECT: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """One argument: the values that it takes, in words that follow "takes", and their check."""

    words: str
    fits: Fits


def check_arguments(
    owner: str, given: Mapping[str, object], table: Mapping[str, ArgumentRule], /
) -> None:
    """Check arguments by a table.

    Raises:
        ConfigurationError: names the first argument that does not fit; shows its type, and no text
            in it.
    """
    for name, takes in table.items():
        if not takes.fits(given[name]):
            raise ConfigurationError(
                f"{owner}: {name} takes {takes.words}, not {_describe_value(given[name])}"
            )


def check_fields(given: object, table: Mapping[str, ArgumentRule], /) -> None:
    """Check the fields of a value, as `check_arguments`."""
    values = {name: getattr(given, name) for name in table}
    check_arguments(type(given).__name__, values, table)


def is_none(value: object, /) -> bool:
    return value is None


def is_flag(value: object, /) -> bool:
    return isinstance(value, bool)


def is_text(value: object, /) -> bool:
    """Return whether a value is a string without lone surrogates.

    Those can be neither sent nor stored.
    """
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_of(*fits: Fits) -> Fits:
    return lambda value: any(one(value) for one in fits)


def instance_of(*kinds: type) -> Fits:
    """Fit instances of these classes or protocols, but not classes themselves."""
    return lambda value: isinstance(value, kinds) and not isinstance(value, type)


def integer_within(least: int, most: float = math.inf) -> Fits:
    # bool is a subclass of int
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    )


def is_above_zero(value: object, /) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def function_taking(arguments: int, /) -> Fits:
    """Fit callables that accept so many positional arguments, if their signature is known."""

    def fits(value: object, /) -> bool:
        if not callable(value):
            return False
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):  # some functions written in C have no signature
            return True
        try:
            signature.bind(*[None] * arguments)
        except TypeError:
            return False
        return True

    return fits


def collection_of(fits: Fits, /) -> Fits:
    def all_fit(value: object, /) -> bool:
        # these are collections, too, but never the list that was meant
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection):
            return False
        return all(fits(one) for one in cast("Collection[object]", value))

    return all_fit


def mapping_of(keys: Fits, values: Fits, /) -> Fits:
    def all_fit(value: object, /) -> bool:
        if not isinstance(value, Mapping):
            return False
        items = cast("Mapping[object, object]", value).items()
        return all(keys(key) and values(one) for key, one in items)

    return all_fit


def is_json_object(value: object, /) -> bool:
    if not isinstance(value, Mapping):
        return False
    try:
        given = _JSON_OBJECT.validate_python(
            dict(cast("Mapping[object, object]", value)), strict=True
        )
        json.dumps(given, allow_nan=False, ensure_ascii=False).encode()
    except (ValidationError, ValueError):
        return False
    return True


def _describe_value(value: object) -> str:
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        pairs = (f"{_describe_key(key)}: {_describe_kind(one)}" for key, one in items)
        return f"{{{_join_some(pairs)}}}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{_join_some(map(_describe_kind, cast('Collection[object]', value)))}]"
    return _describe_kind(value)


def _join_some(words: Iterator[str]) -> str:
    first = list(islice(words, _MAX_SHOWN + 1))
    return ", ".join([*first[:_MAX_SHOWN], *(["..."] if len(first) > _MAX_SHOWN else [])])


def _describe_key(key: object) -> str:
    return ascii(key[:40]) if isinstance(key, str) else _describe_kind(key)


def _describe_kind(value: object) -> str:
    """Return a number itself, and the type of anything else: a text may be a secret."""
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**9):
        return repr(value)
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
