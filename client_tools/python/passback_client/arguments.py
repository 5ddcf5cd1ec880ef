"""Checks of arguments, by a table of rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from passback_client.errors import BadSetup

Fits: TypeAlias = Callable[[object], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of one argument: the expected value in words, and the check of it."""

    words: str
    fits: Fits


def check_fields(given: Mapping[str, object], table: Mapping[str, Rule], place: str = "") -> None:
    """Check arguments by the rules of a table.

    Raises:
        BadSetup: names the first bad one, after `place`, without its text.
    """
    for name, rule in table.items():
        if not rule.fits(given[name]):
            raise BadSetup(f"{place}{name} is {describe(given[name])}: give {rule.words}")


def describe(value: object) -> str:
    """Return a number as text, else only the type: a value may be secret."""
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    kind = type(value).__name__
    return f"an {kind}" if kind[0] in "aeioAEIO" else f"a {kind}"


# ---------------------------------------------------------------- checks of values
def is_a(*kinds: type) -> Fits:
    return lambda value: isinstance(value, kinds)


def optional(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def is_whole(least: int, most: int | None = None) -> Fits:
    return lambda value: (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value >= least
        and (most is None or value <= most)
    )


def is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
