"""Count what a run spends, and decide whether it may go on."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic

import anyio

from passback.core.budgets import (
    Budget,
    Left,
    Price,
    RunSpent,
    Spending,
    Spent,
    tightest_left,
)
from passback.core.changes import Lease
from passback.core.errors import StoreError
from passback.core.events import RunEvent, UsageReported
from passback.core.messages import RunRef, Usage, add_usages
from passback.core.state import State
from passback.engine.ledger import Ledger

logger = logging.getLogger(__name__)

# seconds that a commit waits for the owner's count; the next model call makes up for a missed one
_COUNT_TIMEOUT = 1.0

_ANSWER_TOKENS = 500  # estimated tokens of an answer that is not counted yet

_NOTHING = Spent()
_FREE = nullcontext()
_ALL = Left()


class BudgetSpent(Exception):
    """No budget is left for another model call; all earlier output is committed."""


class Meter:
    """Counts what a run and its sub-agents spend under one lease.

    Args:
        budget: its limits.
        state: of its conversation when the lease began.
        lease: the run's.
        store: counts for the owner; used only if the owner has limits.
        owner: what the owner's runs had spent on this day, if it was just read.
    """

    def __init__(
        self, budget: Budget, state: State, lease: Lease, ledger: Ledger, owner: Spent | None = None
    ) -> None:
        self._budget = budget
        self._is_set = budget.is_set
        self._counts_owner = budget.owner.is_set
        self._lease = lease
        self._ledger = ledger
        self._before = Spent(state.tokens, state.seconds, state.cost)
        self._title = state.title_call.spent if state.title_call else _NOTHING
        known = state.run if state.run and state.run.run_id == lease.run.run_id else None
        self._run_before = known.spent if known else _NOTHING
        self._used = _NOTHING
        self._unreported: Usage | None = None
        self._unreported_model = ""
        self._noted = _NOTHING
        self._began = monotonic()
        self._owner = owner
        self._counted = _NOTHING
        self._seq = 0
        self._day = ""
        self._reserved: list[Spent] = []
        self._counting = anyio.Lock(fast_acquire=True)
        self._stop: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def count_usage(self, usage: Usage | None, price: Price, model: str = "") -> None:
        """Count a call of the named model, also one that was cut. None: the provider reports no
        usage.
        """
        if usage is None or usage.is_nothing:
            return
        # usage of several models is reported together, then without a name
        alone = self._unreported is None or self._unreported_model == model
        self._unreported_model = model if alone else ""
        tokens = usage.input_tokens + usage.output_tokens
        self._used += Spent(tokens, cost=price.of(usage))
        self._unreported = add_usages(self._unreported, usage)

    def unreported_usage(self) -> tuple[UsageReported, ...]:
        """Return the usage that no event has reported: of calls that were cut, here or in
        sub-agents, or came to nothing.
        """
        if self._unreported is None:
            return ()
        return (UsageReported(self._unreported, model=self._unreported_model),)

    @property
    def is_unused(self) -> bool:
        """No model call was counted under this lease."""
        return self._used == _NOTHING

    def noted_state(
        self, state: State, stored: State, usage: Usage, *, ends: bool = False
    ) -> State:
        """Return the state with the usage of its transcript, and with what was spent.

        Spending is noted if the run ends, if the state is written anyway, or if it changed;
        otherwise the state is returned as it is.
        """
        changed = ends or usage != state.usage or state != stored
        if not (changed or self._used != self._noted or self._is_set):
            return state
        self._noted = self._used
        spent = _rounded_spent(self._before + self._spent)
        run = None
        if self._budget.run.is_set:
            run = RunSpent(self._lease.run.run_id, _rounded_spent(self._run_before + self._spent))
        return replace(
            state,
            usage=usage,
            tokens=spent.tokens,
            seconds=spent.seconds,
            cost=spent.cost,
            run=run,
        )

    @property
    def _spent(self) -> Spent:
        """Spending under this lease."""
        used = self._used
        return Spent(used.tokens, monotonic() - self._began, used.cost)

    async def reserve(self, asked: int, price: Price) -> AbstractContextManager[object]:
        """Reserve what a model call of `asked` estimated tokens may use; the result is a context
        manager that ends the reservation.

        Calls that go on at the same time, here or in the owner's other runs, count with their
        reservations. If a worker dies in a call, its reservation stays counted for the owner.

        Raises:
            BudgetSpent: nothing is left beside the other reservations.
            StoreError: the owner's spending could not be read.
        """
        if not self._is_set:
            return _FREE
        call = Spent(asked + _ANSWER_TOKENS, cost=price.of(Usage(asked, _ANSWER_TOKENS)))
        allowed = False
        # one after the other: two that see each other's call would both give up
        async with self._counting:
            self._reserved.append(call)
            try:
                if self._counts_owner:
                    self._day = _current_day()
                    await self._count_for_owner()
                allowed = not self._left_beside(self._reserved_now() - call).is_used_up
            finally:
                if not allowed:
                    self._reserved.remove(call)
        if not allowed:
            raise BudgetSpent
        reservation = ExitStack()
        reservation.callback(self._reserved.remove, call)
        return reservation

    def _reserved_now(self) -> Spent:
        return sum(self._reserved, _NOTHING)

    async def count_for_owner(self, *, ends: bool = False) -> None:
        """Count for the owner what is about to be committed, so that the death of a worker cannot
        undo it.

        If the store fails, the run goes on: it is counted before the next model call, or not at
        all.
        """
        if not self._counts_owner:
            return
        used = self._used + self._reserved_now()
        # seconds alone are not worth a write: they go with the next change, or with the end
        if not ends and used == replace(self._counted, seconds=0.0):
            return
        with anyio.move_on_after(_COUNT_TIMEOUT, shield=True) as waiting:
            try:
                async with self._counting:
                    await self._count_for_owner()
            except StoreError as error:
                self._warn_not_counted(error.code)
        if waiting.cancelled_caught:
            self._warn_not_counted("timeout")

    def remaining(self) -> Left:
        """Return what is left of all limits but turns, which are not known here."""
        return self._left_beside() if self._is_set else _ALL

    def _left_beside(self, reserved: Spent = _NOTHING) -> Left:
        spent = self._spent + reserved
        return tightest_left(
            (self._budget.run.left(self._run_before + spent), self._left_beyond(spent))
        )

    def with_remaining(self, events: Sequence[RunEvent], turns: int) -> tuple[RunEvent, ...]:
        """Return the events; those that report usage with what is left, and with `turns` left."""
        reported = [event.usage for event in events if isinstance(event, UsageReported)]
        if not reported:
            return tuple(events)
        for usage in reported:
            # nothing is reported before it is counted
            rest = None if self._unreported is None else self._unreported - usage
            self._unreported = None if rest is None or rest.is_nothing else rest
        left = self.remaining()
        left = Left(turns, left.tokens, left.seconds, left.cost)
        return tuple(
            replace(event, left=left) if isinstance(event, UsageReported) else event
            for event in events
        )

    def remaining_beyond_run(self) -> Left:
        """Return what is left of the conversation's and the owner's limits."""
        return self._left_beyond(self._spent) if self._is_set else _ALL

    def _left_beyond(self, spent: Spent) -> Left:
        conversation = self._budget.conversation.left(self._before + self._title + spent)
        if self._owner is None:
            return conversation
        owner = self._budget.owner.left(self._owner + spent - self._counted)
        return tightest_left((conversation, owner))

    async def _count_for_owner(self) -> None:
        """Write what is spent and reserved, on the day on which the last call began: reservations
        end on the same day.
        """
        spent = self._spent + self._reserved_now()
        self._seq += 1
        day = self._day or _current_day()
        lease = self._lease
        said = Spending(lease.run, lease.epoch, day, spent, self._seq)
        self._owner = await self._ledger.spend(said)
        self._counted = spent
        self._reset_timer()

    def _warn_not_counted(self, code: str) -> None:
        logger.warning(
            "the owner's count was not written: %s",
            code,
            extra={"action": "not_counted", "run_id": self._lease.run.run_id},
        )

    def start_timer(self, stop: Callable[[], None]) -> None:
        """Call `stop` when the seconds are used up, also in the middle of a model call
        or a tool.
        """
        self._stop = stop
        self._reset_timer()

    def stop_timer(self) -> None:
        """Stop the timer: the run is over."""
        self._stop = None
        self._reset_timer()

    def _reset_timer(self) -> None:
        """Set the timer anew: what is left of the owner's seconds depends on other runs, too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = self.remaining().seconds
        if self._stop is None or seconds is None:
            return
        # at the end look again: reservations and other runs may have changed what is left
        if seconds > 0:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._reset_timer)
        else:
            self._stop()


async def owner_spent(ledger: Ledger, budget: Budget, run: RunRef, /) -> Spent | None:
    """Return what a run's owner has spent today, or None without limits. Raises StoreError."""
    if not budget.owner.is_set:
        return None
    return await ledger.spend(Spending(run, 0, _current_day(), Spent()))


def _current_day() -> str:
    return datetime.now(UTC).date().isoformat()


def _rounded_spent(spent: Spent) -> Spent:
    """Round to milliseconds, and to a billionth of the currency."""
    return Spent(spent.tokens, round(spent.seconds, 3), round(spent.cost, 9))
