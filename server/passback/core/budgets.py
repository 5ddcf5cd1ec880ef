"""Budgets: limits of runs, conversations and owners, prices, and the amounts spent and left."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from pydantic import Field

from passback.core.messages import RunId, RunRef, Usage
from passback.core.values import check_fields, value

Number = TypeVar("Number", int, float)

_TOKENS_PER_PRICE = 1_000_000


@value
class Spent:
    """Amounts spent.

    Attributes:
        tokens: input and output together.
        seconds: of work; a run's include those of its sub-agents.
        cost: in the currency of the prices.
    """

    tokens: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.tokens + other.tokens, self.seconds + other.seconds, self.cost + other.cost
        )

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(
            self.tokens - other.tokens, self.seconds - other.seconds, self.cost - other.cost
        )


@dataclass(frozen=True, slots=True)
class Left:
    """The amount left of the tightest limit of each kind, at least 0.

    None: the kind has no limit.
    """

    turns: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None

    @property
    def is_used_up(self) -> bool:
        """True if one kind of a budget is used up; turns are not part of a budget."""
        # None, a kind without a limit, is not 0
        return 0 in (self.tokens, self.seconds, self.cost)


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The largest amounts that may be spent; None for no limit.

    Args:
        tokens: input and output together.
        seconds: of work, tools included.
        cost: in the currency of the prices.

    Raises:
        ConfigurationError: a limit is not above 0.
    """

    tokens: Annotated[int, Field(gt=0)] | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None
    cost: Annotated[float, Field(gt=0)] | None = None

    def __post_init__(self) -> None:
        check_fields(self, BudgetLimits)

    @property
    def is_set(self) -> bool:
        return not (self.tokens is None and self.seconds is None and self.cost is None)

    def within(self, other: "BudgetLimits") -> "BudgetLimits":
        """Return limits of both: of each kind the tighter one."""
        return BudgetLimits(
            _least_set((self.tokens, other.tokens)),
            _least_set((self.seconds, other.seconds)),
            _least_set((self.cost, other.cost)),
        )

    def left(self, spent: Spent) -> Left:
        return Left(
            tokens=None if self.tokens is None else max(0, self.tokens - spent.tokens),
            seconds=None if self.seconds is None else max(0.0, self.seconds - spent.seconds),
            cost=None if self.cost is None else max(0.0, self.cost - spent.cost),
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of runs, conversations and owners.

    Args:
        run: of each run, from a client's post until the agent ends or needs the client.
        conversation: of all runs of a conversation together.
        owner: of all runs of an owner on one day in UTC together.
    """

    run: BudgetLimits = field(default_factory=BudgetLimits)
    conversation: BudgetLimits = field(default_factory=BudgetLimits)
    owner: BudgetLimits = field(default_factory=BudgetLimits)

    def __post_init__(self) -> None:
        check_fields(self, Budget)

    @property
    def is_set(self) -> bool:
        return self.run.is_set or self.conversation.is_set or self.owner.is_set

    @property
    def limits_cost(self) -> bool:
        return any(each.cost is not None for each in (self.run, self.conversation, self.owner))

    def within(self, other: "Budget") -> "Budget":
        return Budget(
            self.run.within(other.run),
            self.conversation.within(other.conversation),
            self.owner.within(other.owner),
        )


def tightest_left(lefts: Iterable[Left], /) -> Left:
    """Return the least amount left of each kind."""
    each = tuple(lefts)
    return Left(
        _least_set(left.turns for left in each),
        _least_set(left.tokens for left in each),
        _least_set(left.seconds for left in each),
        _least_set(left.cost for left in each),
    )


def _least_set(numbers: Iterable[Number | None]) -> Number | None:
    return min((number for number in numbers if number is not None), default=None)


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens; `cached` is for input read from the provider's cache."""

    input: float = 0.0
    output: float = 0.0
    cached: float = 0.0

    def of(self, usage: Usage) -> float:
        # input tokens include the cached ones; a service may report more cached than input
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        cost = (
            fresh * self.input
            + usage.cached_tokens * self.cached
            + usage.output_tokens * self.output
        )
        return cost / _TOKENS_PER_PRICE


def model_price(models: str, prices: Mapping[str, Price], /) -> Price:
    """Return the price of a model by its name; zero if it has none.

    `models` may be several names with commas, each a fallback for those before it. Which one
    answered is not known here, so each rate is that of the dearest.
    """
    known = [prices[name] for name in models.split(",") if name in prices]
    return Price(
        max((each.input for each in known), default=0.0),
        max((each.output for each in known), default=0.0),
        max((each.cached for each in known), default=0.0),
    )


@value
class RunSpent:
    """The amounts that one run has spent, under all its workers."""

    run_id: RunId
    spent: Spent


@value
class Spending:
    """The amounts that a run has spent so far under one lease, to be counted for its owner.

    Attributes:
        run: the run, which names the owner.
        epoch: of the lease.
        day: the date in UTC, such as 2026-01-31. What was counted earlier stays on the day on which
            it was counted.
        spent: everything since the lease began, with a reserve for calls in flight; so an amount
            may fall later.
        seq: numbers the reports of a lease from 1; 0 counts nothing and only reads the total.
    """

    run: RunRef
    epoch: int
    day: str
    spent: Spent
    seq: int = 0
