"""Limits, what is left of them, and what tokens cost."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from passback.core.budgets import (
    Budget,
    BudgetLimits,
    Left,
    Price,
    Spent,
    model_price,
    tightest_left,
)
from passback.core.errors import ConfigurationError
from passback.core.messages import Usage

PRICES = {"a": Price(1, 10, 0.5), "b": Price(2, 8, 0.1)}

amounts = st.none() | st.integers(1, 1000)
limits = st.builds(BudgetLimits, amounts, amounts, amounts)
spendings = st.builds(
    Spent, st.integers(0, 2000), st.floats(0, 2000), st.floats(0, 2000, allow_subnormal=False)
)


# ---------------------------------------------------------------- limits
@pytest.mark.parametrize("amount", [0, -1, math.inf, math.nan])
def test_a_limit_leaves_something(amount: float) -> None:
    with pytest.raises(ConfigurationError):
        BudgetLimits(seconds=amount)
    with pytest.raises(ConfigurationError):
        BudgetLimits(cost=amount)


def test_what_is_left_is_never_less_than_nothing_and_only_of_what_is_limited() -> None:
    spent = Spent(30, 2.5, 0.5)
    assert BudgetLimits().left(spent) == Left()
    assert BudgetLimits(100, 3, 1).left(spent) == Left(None, 70, 0.5, 0.5)
    assert BudgetLimits(29, 2, 0.25).left(spent) == Left(None, 0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("left", "used_up"),
    [
        (Left(), False),
        (Left(turns=0), False),
        (Left(1, 1, 0.001, 0.001), False),
        (Left(tokens=0), True),
        (Left(seconds=0.0), True),
        (Left(cost=0.0), True),
    ],
)
def test_a_budget_is_used_up_when_one_kind_of_it_is(left: Left, used_up: bool) -> None:
    assert left.is_used_up is used_up


@given(limits, limits, spendings)
def test_of_two_limits_the_tighter_one_counts(
    one: BudgetLimits, other: BudgetLimits, spent: Spent
) -> None:
    both = tightest_left((one.left(spent), other.left(spent)))
    assert one.within(other).left(spent) == both == other.within(one).left(spent)


def test_a_budget_within_another_has_the_tighter_limits_of_each() -> None:
    assert not Budget().is_set
    one = Budget(BudgetLimits(tokens=5), owner=BudgetLimits(cost=1))
    other = Budget(BudgetLimits(tokens=9, seconds=2), BudgetLimits(seconds=3))
    assert one.within(other) == Budget(
        BudgetLimits(5, 2), BudgetLimits(seconds=3), BudgetLimits(cost=1)
    )
    assert one.is_set
    assert one.limits_cost
    assert not other.limits_cost
    assert (BudgetLimits().is_set, BudgetLimits(cost=1).is_set) == (False, True)


@given(spendings, spendings)
def test_what_is_added_can_be_taken_off(one: Spent, other: Spent) -> None:
    rest = one + other - other
    assert rest.tokens == one.tokens
    assert (rest.seconds, rest.cost) == pytest.approx((one.seconds, one.cost), abs=1e-9)


# ---------------------------------------------------------------- prices
def test_cached_input_has_a_price_of_its_own() -> None:
    usage = Usage(1_000_000, 100_000, cached_tokens=400_000)
    assert Price(1.25, 10, 0.125).of(usage) == pytest.approx(0.6 * 1.25 + 0.4 * 0.125 + 1)


def test_more_cached_tokens_than_tokens_cost_no_less_than_nothing() -> None:
    assert Price(1, 1, 0).of(Usage(1, 0, cached_tokens=5)) == 0


def test_a_model_without_a_price_costs_nothing_and_of_several_the_dearest_counts() -> None:
    assert model_price("c", PRICES) == Price()
    assert model_price("a", PRICES) == PRICES["a"]
    assert model_price("c,a,b", PRICES) == Price(2, 10, 0.5)
