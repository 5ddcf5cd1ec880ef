"""What may be spent: limits of runs, conversations and owners, prices, and what is left."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from passback.core.arguments import Takes, a, above_zero, either, nothing, refuse_misfit_fields
from passback.core.messages import RunId, RunRef, Usage
from passback.core.values import value

Number = TypeVar("Number", int, float)

_MILLION = 1_000_000


@value
class Spent:
    """What was spent.

    Attributes:
        tokens: of input and output together.
        seconds: of work; the work of sub-agents is within that of their run.
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
    """What is left of the tightest limit of each kind, never below 0; None: there is no such limit."""

    turns: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left of a budget; turns are not of it."""
        return 0 in (self.tokens, self.seconds, self.cost)


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """How much may be spent; None: any amount.

    Args:
        tokens: of input and output together.
        seconds: of work, tools included.
        cost: in the currency of the prices.

    Raises:
        ConfigurationError: a limit that leaves nothing.
    """

    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        refuse_misfit_fields(self, _LIMITS_TAKE)

    @property
    def is_set(self) -> bool:
        return not (self.tokens is None and self.seconds is None and self.cost is None)

    def within(self, other: "BudgetLimits") -> "BudgetLimits":
        """Whatever either of them limits, as tightly as the tighter one does."""
        return BudgetLimits(
            _least((self.tokens, other.tokens)),
            _least((self.seconds, other.seconds)),
            _least((self.cost, other.cost)),
        )

    def left(self, spent: Spent) -> Left:
        return Left(
            tokens=None if self.tokens is None else max(0, self.tokens - spent.tokens),
            seconds=None if self.seconds is None else max(0.0, self.seconds - spent.seconds),
            cost=None if self.cost is None else max(0.0, self.cost - spent.cost),
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits by what they are for.

    Args:
        run: each run, from a client's post until the agent ends or needs the client.
        conversation: all runs of a conversation together.
        owner: all runs of an owner together, on one day in UTC.
    """

    run: BudgetLimits = field(default_factory=BudgetLimits)
    conversation: BudgetLimits = field(default_factory=BudgetLimits)
    owner: BudgetLimits = field(default_factory=BudgetLimits)

    def __post_init__(self) -> None:
        refuse_misfit_fields(self, _BUDGET_TAKES)

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


_ABOVE_ZERO = Takes("a number that is more than 0", either(nothing, above_zero))
_LIMITS_TAKE = {"tokens": _ABOVE_ZERO, "seconds": _ABOVE_ZERO, "cost": _ABOVE_ZERO}
_LIMITS = Takes("Limits", a(BudgetLimits))
_BUDGET_TAKES = {"run": _LIMITS, "conversation": _LIMITS, "owner": _LIMITS}


def tightest(lefts: Iterable[Left], /) -> Left:
    """The least that is left of each kind."""
    each = tuple(lefts)
    return Left(
        _least(left.turns for left in each),
        _least(left.tokens for left in each),
        _least(left.seconds for left in each),
        _least(left.cost for left in each),
    )


def _least(numbers: Iterable[Number | None]) -> Number | None:
    return min((number for number in numbers if number is not None), default=None)


# ---------------------------------------------------------------- prices
@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens cost; `cached` is of input that the provider had in its cache."""

    input: float = 0.0
    output: float = 0.0
    cached: float = 0.0

    def of(self, usage: Usage) -> float:
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        cost = (
            fresh * self.input
            + usage.cached_tokens * self.cached
            + usage.output_tokens * self.output
        )
        return cost / _MILLION


def price_of(models: str, prices: Mapping[str, Price], /) -> Price:
    """What the model of this name costs: nothing, where it has no price.

    Of several with commas, which stand in for each other, it is the dearest's: which one answered is not known here.
    """
    known = [prices[name] for name in models.split(",") if name in prices]
    return Price(
        max((each.input for each in known), default=0.0),
        max((each.output for each in known), default=0.0),
        max((each.cached for each in known), default=0.0),
    )


# ---------------------------------------------------------------- what is kept
@value
class RunSpent:
    """What one run has spent, under all its workers."""

    run_id: RunId
    spent: Spent


@value
class Spending:
    """What a run has spent so far under one lease, to be counted for its owner.

    Attributes:
        run: whose owner it is.
        epoch: of the lease.
        day: the date in UTC, as in 2026-01-31; what was counted earlier stays on the day on which it was.
        spent: all of it since the lease began, with what calls that go on may use: so an amount may fall again.
        seq: numbers what is said under a lease, from 1; 0: nothing is counted, only asked.
    """

    run: RunRef
    epoch: int
    day: str
    spent: Spent
    seq: int = 0
