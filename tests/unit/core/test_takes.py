"""What a person writes in Python is checked when it is given."""

import math
from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from passback.core.arguments import (
    ArgumentRule,
    Fits,
    check_arguments,
    collection_of,
    function_taking,
    instance_of,
    integer_within,
    is_above_zero,
    is_flag,
    is_json_object,
    is_none,
    is_text,
    mapping_of,
    one_of,
)
from passback.core.budgets import Budget, BudgetLimits
from passback.core.errors import ConfigurationError


def two(_one: object, _other: object) -> None: ...


FITTING: list[tuple[Fits, object]] = [
    (is_none, None),
    (is_flag, False),
    (is_text, "\U0001f600"),
    (one_of(is_none, is_flag), None),
    (instance_of(int, str), "x"),
    (integer_within(1), 1),
    (integer_within(0, 0), 0),
    (is_above_zero, 0.5),
    (function_taking(2), two),
    (function_taking(1), print),
    (function_taking(1), type),  # does not tell its arguments
    (collection_of(is_flag), ()),
    (collection_of(is_flag), {True}),
    (mapping_of(is_text, is_flag), {"a": True}),
    (is_json_object, {"a": [1, {"b": None}]}),
]
MISFITTING: list[tuple[Fits, object]] = [
    (is_none, 0),
    (is_flag, 0),
    (is_text, "\ud800"),
    (is_text, b"x"),
    (one_of(is_none, is_flag), 1),
    (instance_of(int, str), int),
    (integer_within(1), 0),
    (integer_within(1), True),
    (integer_within(1), 1.0),
    (integer_within(0, 0), 1),
    (is_above_zero, 0),
    (is_above_zero, math.inf),
    (is_above_zero, math.nan),
    (is_above_zero, True),
    (is_above_zero, "1"),
    (function_taking(2), 5),
    (function_taking(1), two),
    (collection_of(is_text), "text"),
    (collection_of(is_flag), 5),
    (collection_of(is_flag), [True, 1]),
    (mapping_of(is_text, is_flag), [("a", True)]),
    (mapping_of(is_text, is_flag), {1: True}),
    (mapping_of(is_text, is_flag), {"a": 1}),
    (is_json_object, []),
    (is_json_object, {1: 2}),
    (is_json_object, {"a": object()}),
    (is_json_object, {"a": math.nan}),
    (is_json_object, {"a": "\ud800"}),
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
        check_arguments(
            "Thing", {"part": value}, {"part": ArgumentRule("another", lambda _: False)}
        )
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
