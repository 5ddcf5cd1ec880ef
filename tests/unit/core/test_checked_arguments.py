"""Arguments of the public Python API are checked when they are given."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

import pytest
from pydantic import JsonValue

from passback.core.budgets import Budget, BudgetLimits
from passback.core.errors import ConfigurationError
from passback.core.values import Takes, accepts, check_arguments, is_instance


def two(_one: object, _other: object) -> None: ...


def thing(
    *,
    text: str,
    flag: bool,
    count: int,
    ratio: float,
    names: Sequence[str],
    options: Mapping[str, JsonValue],
    call: Annotated[Callable[[int, int], None] | None, Takes("a pair", accepts(2))],
    part: Annotated[object, Takes("an instance", is_instance)],
    anything: object,
) -> None:
    """Take one argument of each kind."""


FITTING: list[dict[str, object]] = [
    {"text": "\U0001f600"},
    {"text": ""},
    {"flag": False},
    {"count": 10**30},
    {"ratio": 1},
    {"ratio": 0.5},
    {"names": ["a", "b"]},
    {"names": ()},
    {"options": {"a": [1, {"b": None}]}},
    {"options": MappingProxyType({"a": 1})},
    {"call": two},
    {"call": print},
    {"call": type},  # does not tell its arguments
    {"part": 5},
    {"anything": int, "count": 5},
]
MISFITTING: list[tuple[dict[str, object], str]] = [
    ({"text": None}, "text: Input should be a valid string (given: None)"),
    ({"text": b"x"}, "text: Input should be a valid string (given: bytes)"),
    (
        {"text": "\ud800"},
        (
            "text: Input should be a valid string, unable to parse raw data as a unicode string "
            "(given: str)"
        ),
    ),
    ({"flag": 0}, "flag: Input should be a valid boolean (given: 0)"),
    ({"flag": "yes"}, "flag: Input should be a valid boolean (given: str)"),
    ({"count": True}, "count: Input should be a valid integer (given: True)"),
    ({"count": 1.0}, "count: Input should be a valid integer (given: 1.0)"),
    ({"count": "5"}, "count: Input should be a valid integer (given: str)"),
    ({"count": int}, "count: Input should be a valid integer (given: the class int)"),
    ({"ratio": True}, "ratio: Input should be a valid number (given: True)"),
    ({"ratio": math.inf}, "ratio: Input should be a finite number (given: inf)"),
    ({"ratio": math.nan}, "ratio: Input should be a finite number (given: nan)"),
    ({"names": "text"}, "names: 'str' instances are not allowed as a Sequence value (given: str)"),
    ({"names": {"a"}}, "names: Input should be an instance of Sequence (given: set)"),
    ({"names": ["a", 10**9]}, "names.1: Input should be a valid string (given: int)"),
    ({"options": []}, "options: Input should be a valid dictionary (given: list)"),
    ({"options": {1: 2}}, "options.1.[key]: Input should be a valid string (given: 1)"),
    (
        {"options": {"a\n": object()}},
        r"options.a\n: input was not a valid JSON value (given: object)",
    ),
    ({"options": {"a": math.nan}}, "options.a.float: Input should be a finite number (given: nan)"),
    (
        {"options": {"k" * 500: object()}},
        f"options.{'k' * 72}: input was not a valid JSON value (given: object)",
    ),
    ({"call": 5}, "call: Input should be a pair (given: 5)"),
    ({"call": lambda: None}, "call: Input should be a pair (given: function)"),
    ({"part": int}, "part: Input should be an instance (given: the class int)"),
    ({"flag": True, "count": "5", "text": 5}, "text: Input should be a valid string (given: 5)"),
]


@pytest.mark.parametrize("given", FITTING)
def test_arguments_that_fit_are_accepted(given: Mapping[str, object]) -> None:
    check_arguments(thing, **given)


@pytest.mark.parametrize(("given", "message"), MISFITTING)
def test_arguments_that_do_not_fit_are_named_without_their_texts(
    given: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_arguments(thing, **given)
    assert raised.value.message == f"thing: {message}"


def test_an_error_has_no_value_in_its_causes() -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_arguments(thing, count="a secret")
    assert "a secret" not in str(raised.value.__cause__)
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokens": "x"}, "tokens: Input should be a valid integer (given: str)"),
        ({"seconds": 0}, "seconds: Input should be greater than 0 (given: 0)"),
        ({"cost": True}, "cost: Input should be a valid number (given: True)"),
        ({"cost": math.inf}, "cost: Input should be a finite number (given: inf)"),
    ],
)
def test_a_limit_is_a_number(given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        BudgetLimits(**given)
    assert raised.value.message == f"BudgetLimits: {message}"


def test_a_budget_has_limits() -> None:
    message = r"Budget: owner: Input should be an instance of BudgetLimits \(given: 5\)"
    with pytest.raises(ConfigurationError, match=message):
        Budget(owner=5)  # type: ignore[arg-type]  # that is the point
