"""What is wrong with a posted value, told by places in what was posted: a client knows nothing of our classes."""

from collections.abc import Sequence
from typing import Final, TypeAlias

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from passback.core.text import plain_problem
from passback.core.values import value

_SHOWN_CHARACTERS = 200
_TAGS: Final = ("role", "type")
"""The keys by whose values the posted forms are told apart."""

_Place: TypeAlias = tuple[int | str, ...]


@value
class Misfit:
    """`at` joins the keys and positions that lead to it by dots; `is_kind` says that the value is of a wrong kind."""

    place: _Place
    problem: str
    is_kind: bool

    @property
    def at(self) -> str:
        return ".".join(map(str, self.place))


def misfits(error: ValidationError, value: JsonValue, /) -> Sequence[Misfit]:
    """Where a value does not fit a model, and why; never what was there.

    Where there are several forms, the complaints of those that the value was not meant to have are left out.
    """
    details = error.errors(include_url=False, include_input=False)
    found = [_misfit(detail, value) for detail in details]
    return [each for each in found if not any(_says_more(other, each) for other in found)]


def _says_more(other: Misfit, one: Misfit) -> bool:
    """Whether another form fits better than that of which one tells: it got further, or has the right kind."""
    if not one.is_kind or other.place[: len(one.place)] != one.place:
        return False
    return len(other.place) > len(one.place) or not other.is_kind


def _misfit(detail: ErrorDetails, value: JsonValue) -> Misfit:
    kind, context = detail["type"], detail.get("ctx", {})
    place = _place(detail["loc"], value, is_missing=kind == "missing")
    problem = plain_problem(detail)
    if "discriminator" in context:
        place = (*place, context["discriminator"].strip("'"))
        if "expected_tags" in context:
            problem = f"Input should be one of {context['expected_tags']}"
    return Misfit(place, problem[:_SHOWN_CHARACTERS], kind.endswith("_type"))


def _place(location: _Place, value: JsonValue, *, is_missing: bool) -> _Place:
    """A location without the names of forms, which stand between its keys."""
    place: list[int | str] = []
    inside: JsonValue = value
    form_is_known = False
    for number, step in enumerate(location, 1):
        is_last = number == len(location)
        if isinstance(inside, list) and isinstance(step, int):
            inside, form_is_known = inside[step], False
        elif (
            isinstance(inside, dict) and not form_is_known and not is_last and _names(step, inside)
        ):
            form_is_known = True
            continue
        elif isinstance(inside, dict) and isinstance(step, str) and step in inside:
            inside, form_is_known = inside[step], False
        elif not (is_last and is_missing):
            continue
        place.append(step)
    return tuple(place)


def _names(step: int | str, inside: dict[str, JsonValue]) -> bool:
    return any(inside.get(tag) == step for tag in _TAGS)
