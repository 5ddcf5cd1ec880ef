"""What a person writes in Python is checked when it is given."""

import math
from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from passback.core.arguments import (
    Fits,
    Takes,
    a,
    above_zero,
    either,
    flag,
    function_of,
    json_object,
    mapping,
    nothing,
    refuse_misfits,
    several,
    text,
    whole,
)
from passback.core.budgets import Budget, BudgetLimits
from passback.core.errors import ConfigurationError


def two(_one: object, _other: object) -> None: ...


FITTING: list[tuple[Fits, object]] = [
    (nothing, None),
    (flag, False),
    (text, "\U0001f600"),
    (either(nothing, flag), None),
    (a(int, str), "x"),
    (whole(1), 1),
    (whole(0, 0), 0),
    (above_zero, 0.5),
    (function_of(2), two),
    (function_of(1), print),
    (function_of(1), type),  # does not tell its arguments
    (several(flag), ()),
    (several(flag), {True}),
    (mapping(text, flag), {"a": True}),
    (json_object, {"a": [1, {"b": None}]}),
]
MISFITTING: list[tuple[Fits, object]] = [
    (nothing, 0),
    (flag, 0),
    (text, "\ud800"),
    (text, b"x"),
    (either(nothing, flag), 1),
    (a(int, str), int),
    (whole(1), 0),
    (whole(1), True),
    (whole(1), 1.0),
    (whole(0, 0), 1),
    (above_zero, 0),
    (above_zero, math.inf),
    (above_zero, math.nan),
    (above_zero, True),
    (above_zero, "1"),
    (function_of(2), 5),
    (function_of(1), two),
    (several(text), "text"),
    (several(flag), 5),
    (several(flag), [True, 1]),
    (mapping(text, flag), [("a", True)]),
    (mapping(text, flag), {1: True}),
    (mapping(text, flag), {"a": 1}),
    (json_object, []),
    (json_object, {1: 2}),
    (json_object, {"a": object()}),
    (json_object, {"a": math.nan}),
    (json_object, {"a": "\ud800"}),
]


@pytest.mark.parametrize(("fits", "value"), FITTING)
def test_what_fits(fits: Fits, value: object) -> None:
    assert fits(value)


@pytest.mark.parametrize(("fits", "value"), MISFITTING)
def test_what_does_not_fit(fits: Fits, value: object) -> None:
    assert not fits(value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, "5"),
        (10**9, "int"),
        (None, "None"),
        ("a secret", "str"),
        (int, "the class int"),
        ([1, "a secret", [2]], "[1, str, list]"),
        (range(9), "range"),
        (list(range(9)), "[0, 1, 2, 3, 4, ...]"),
        ({"a\n": "a secret", 5: int}, r"{'a\n': str, 5: the class int}"),
    ],
)
def test_what_was_given_is_told_without_its_texts(value: object, shown: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        refuse_misfits("Thing", {"part": value}, {"part": Takes("another", lambda _: False)})
    assert raised.value.message == f"Thing: part takes another, not {shown}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tokens": "x"}, "BudgetLimits: tokens takes a number that is more than 0, not str"),
        ({"seconds": 0}, "BudgetLimits: seconds takes a number that is more than 0, not 0"),
        ({"cost": True}, "BudgetLimits: cost takes a number that is more than 0, not True"),
    ],
)
def test_a_limit_is_a_number(given: Mapping[str, JsonValue], told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        BudgetLimits(**given)  # type: ignore[arg-type]  # that is the point
    assert raised.value.message == told


def test_a_budget_has_limits() -> None:
    with pytest.raises(ConfigurationError, match="Budget: owner takes Limits, not 5"):
        Budget(owner=5)  # type: ignore[arg-type]  # that is the point
