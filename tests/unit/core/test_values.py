"""Values compare by what they are, and only the type checkers keep them as they are."""

from dataclasses import replace

import pytest

from passback.core.values import value


@value
class Point:
    x: int
    y: int = 0


def test_values_of_the_same_fields_are_one() -> None:
    assert Point(1) == Point(1, 0)
    assert {Point(1), Point(1, 0)} == {replace(Point(2), x=1)}
    assert Point(1) != Point(2)


def test_a_value_has_its_fields_and_nothing_else() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 2  # type: ignore[attr-defined]


def _changed(point: Point) -> None:
    """Never called: a comment that mypy did not need would be an error of its own."""
    point.x = 2  # type: ignore[misc]
