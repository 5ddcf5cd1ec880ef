"""Checks of arguments: a table says of each argument what it takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from passback_client.errors import BadSetup

Fits: TypeAlias = Callable[[object], bool]


@dataclass(frozen=True, slots=True)
class Takes:
    """One argument: what to give, as words, and whether a value is that."""

    words: str
    fits: Fits


def refuse_misfits(
    given: Mapping[str, object], table: Mapping[str, Takes], place: str = ""
) -> None:
    """Refuse the first argument that is not what the table says; no text that it holds is shown.

    Raises:
        BadSetup: names it, with the `place` before its name.
    """
    for name, takes in table.items():
        if not takes.fits(given[name]):
            raise BadSetup(f"{place}{name} is {shown(given[name])}: give {takes.words}")


def shown(value: object) -> str:
    """A number as it is, of everything else the kind: it may hold a secret."""
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    kind = type(value).__name__
    return f"an {kind}" if kind[0] in "aeioAEIO" else f"a {kind}"


# ---------------------------------------------------------------- what may be asked of a value
def a(*kinds: type) -> Fits:
    return lambda value: isinstance(value, kinds)


def maybe(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def whole(least: int, most: int | None = None) -> Fits:
    return lambda value: (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value >= least
        and (most is None or value <= most)
    )


def seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
