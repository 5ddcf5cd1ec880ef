"""What a person writes in Python, checked when it is given: a table says of each argument what it takes. Pure."""

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

_SHOWN = 5
"""Values of a collection that are told of."""

_JSON: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class Takes:
    """One argument: what it takes, as words that follow "takes", and whether a value is that."""

    words: str
    fits: Fits


def refuse_misfits(owner: str, given: Mapping[str, object], table: Mapping[str, Takes], /) -> None:
    """Raise ConfigurationError for the first argument that is not what the table says; no text that it holds is shown."""
    for name, takes in table.items():
        if not takes.fits(given[name]):
            raise ConfigurationError(
                f"{owner}: {name} takes {takes.words}, not {_shown(given[name])}"
            )


def refuse_misfit_fields(given: object, table: Mapping[str, Takes], /) -> None:
    """As `refuse_misfits`, of the fields of a value."""
    values = {name: getattr(given, name) for name in table}
    refuse_misfits(type(given).__name__, values, table)


# ---------------------------------------------------------------- what may be asked of a value
def nothing(value: object, /) -> bool:
    return value is None


def flag(value: object, /) -> bool:
    return isinstance(value, bool)


def text(value: object, /) -> bool:
    """A lone surrogate could neither be sent nor stored."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def either(*fits: Fits) -> Fits:
    return lambda value: any(one(value) for one in fits)


def a(*kinds: type) -> Fits:
    """An object of one of these classes or protocols, not a class itself."""
    return lambda value: isinstance(value, kinds) and not isinstance(value, type)


def whole(least: int, most: float = math.inf) -> Fits:
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    )


def above_zero(value: object, /) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def function_of(arguments: int, /) -> Fits:
    """Something that can be called with so many arguments, as far as can be known."""

    def fits(value: object, /) -> bool:
        if not callable(value):
            return False
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):  # some that are not written in Python do not tell
            return True
        try:
            signature.bind(*[None] * arguments)
        except TypeError:
            return False
        return True

    return fits


def several(fits: Fits, /) -> Fits:
    def all_fit(value: object, /) -> bool:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection):
            return False
        return all(fits(one) for one in cast("Collection[object]", value))

    return all_fit


def mapping(keys: Fits, values: Fits, /) -> Fits:
    def all_fit(value: object, /) -> bool:
        if not isinstance(value, Mapping):
            return False
        items = cast("Mapping[object, object]", value).items()
        return all(keys(key) and values(one) for key, one in items)

    return all_fit


def json_object(value: object, /) -> bool:
    if not isinstance(value, Mapping):
        return False
    try:
        given = _JSON.validate_python(dict(cast("Mapping[object, object]", value)), strict=True)
        json.dumps(given, allow_nan=False, ensure_ascii=False).encode()
    except (ValidationError, ValueError):
        return False
    return True


# ---------------------------------------------------------------- what is told of it
def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return f"{{{_listed(f'{_name(key)}: {_kind(one)}' for key, one in items)}}}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{_listed(map(_kind, cast('Collection[object]', value)))}]"
    return _kind(value)


def _listed(words: Iterator[str]) -> str:
    first = list(islice(words, _SHOWN + 1))
    return ", ".join([*first[:_SHOWN], *(["..."] if len(first) > _SHOWN else [])])


def _name(key: object) -> str:
    return ascii(key[:40]) if isinstance(key, str) else _kind(key)


def _kind(value: object) -> str:
    """A number itself, of everything else its type: a text may be a secret."""
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**9):
        return repr(value)
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
