"""What a run spends, and whether it may go on."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic

import anyio

from passback.core.changes import Lease
from passback.core.errors import StoreError
from passback.core.events import RunEvent, UsageReported
from passback.core.limits import (
    Budget,
    Left,
    Price,
    RunSpent,
    Spending,
    Spent,
    tightest,
)
from passback.core.messages import RunRef, Usage, together
from passback.core.ports import Store
from passback.core.state import State

logger = logging.getLogger(__name__)

_PATIENCE = 1.0
"""Seconds that a commit waits for the owner's count: what it says there is said again before the next model call."""


_NOTHING = Spent()
_ALL = Left()


class BudgetSpent(Exception):
    """No model may be called any more; all that was said before is committed."""


class Meter:
    """Counts what a run and its sub-agents spend under one lease.

    Args:
        budget: its limits.
        state: of its conversation, as it was when the lease began.
        lease: the run's.
        store: has the count of the owner, which is only touched where the owner has limits.
        owner: what that one's runs had spent on this day, if it was just asked for.
    """

    def __init__(
        self, budget: Budget, state: State, lease: Lease, store: Store, owner: Spent | None = None
    ) -> None:
        self._budget = budget
        self._is_set = budget.is_set
        self._counts_owner = budget.owner.is_set
        self._lease = lease
        self._store = store
        self._before = Spent(state.tokens, state.seconds, state.cost)
        known = state.run if state.run and state.run.run_id == lease.run.run_id else None
        self._run_before = known.spent if known else _NOTHING
        self._used = _NOTHING
        self._untold: Usage | None = None
        self._noted = _NOTHING
        self._began = monotonic()
        self._owner = owner
        self._fresh = owner is not None
        self._told = _NOTHING
        self._stop: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # ---------------------------------------------------------------- spending
    def add(self, usage: Usage | None, price: Price) -> None:
        """Count a model call, also one that was cut. None: its provider tells nothing."""
        if usage is None or usage.is_nothing:
            return
        tokens = usage.input_tokens + usage.output_tokens
        self._used += Spent(tokens, cost=price.of(usage))
        self._untold = together(self._untold, usage)

    def untold(self) -> tuple[UsageReported, ...]:
        """What was counted and no event has told of: calls that were cut, here or in sub-agents, or came to nothing."""
        return () if self._untold is None else (UsageReported(self._untold),)

    @property
    def is_unused(self) -> bool:
        """Whether no model call was counted under this lease."""
        return self._used == _NOTHING

    def note(self, state: State, stored: State, usage: Usage) -> State:
        """The state with the usage of its transcript, and with what was spent.

        That is noted where the state is written anyway or there is something to note; else the state stays as it is.
        """
        changed = usage != state.usage or state != stored
        if not (changed or self._used != self._noted or self._is_set):
            return state
        self._noted = self._used
        spent = _rounded(self._before + self._spent)
        run = None
        if self._budget.run.is_set:
            run = RunSpent(self._lease.run.run_id, _rounded(self._run_before + self._spent))
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
        """Under this lease."""
        used = self._used
        return Spent(used.tokens, monotonic() - self._began, used.cost)

    # ---------------------------------------------------------------- what is left
    async def allow(self) -> None:
        """Ask whether a model may be called.

        Raises:
            BudgetSpent: it may not.
            StoreError: what the owner has spent could not be found out.
        """
        if not self._is_set:
            return
        if self._counts_owner and not self._fresh:
            await self._count()
        self._fresh = False
        if self.left().is_used_up:
            raise BudgetSpent

    async def tell(self, *, ends: bool = False) -> None:
        """Count for the owner what is about to be committed, so that no death of a worker takes it back.

        If the store fails, the run goes on: it is counted before the next model call, or not at all.
        """
        if not self._counts_owner or not (ends or self._used != replace(self._told, seconds=0.0)):
            return
        with anyio.move_on_after(_PATIENCE, shield=True) as waiting:
            try:
                await self._count()
            except StoreError as error:
                self._warn(error.code)
        if waiting.cancelled_caught:
            self._warn("timeout")

    def left(self) -> Left:
        """Of all limits; the turns are not known here."""
        if not self._is_set:
            return _ALL
        return tightest((self._budget.run.left(self._run_before + self._spent), self.left_beyond()))

    def with_left(self, events: Sequence[RunEvent], turns: int) -> tuple[RunEvent, ...]:
        """The same events, about to be told; those of a model call say what is left now, and so many turns."""
        told = [event.usage for event in events if isinstance(event, UsageReported)]
        if not told:
            return tuple(events)
        for usage in told:
            self._untold = _without(self._untold, usage)
        left = self.left()
        left = Left(turns, left.tokens, left.seconds, left.cost)
        return tuple(
            UsageReported(event.usage, left) if isinstance(event, UsageReported) else event
            for event in events
        )

    def left_beyond(self) -> Left:
        """Of the limits that are not the run's own."""
        if not self._is_set:
            return _ALL
        spent = self._spent
        conversation = self._budget.conversation.left(self._before + spent)
        if self._owner is None:
            return conversation
        owner = self._budget.owner.left(self._owner + spent - self._told)
        return tightest((conversation, owner))

    async def _count(self) -> None:
        spent = self._spent
        day = datetime.now(UTC).date().isoformat()
        lease = self._lease
        self._owner = await self._store.spend(Spending(lease.run, lease.epoch, day, spent))
        self._told = spent
        self._look()

    def _warn(self, code: str) -> None:
        logger.warning(
            "the owner's count was not written: %s",
            code,
            extra={"action": "not_counted", "run_id": self._lease.run.run_id},
        )

    # ---------------------------------------------------------------- time
    def start(self, stop: Callable[[], None]) -> None:
        """Have `stop` called when the seconds are used up, also in the middle of a model call or a tool."""
        self._stop = stop
        self._look()

    def end(self) -> None:
        """Of the run: nothing is called any more."""
        self._stop = None
        self._look()

    def _look(self) -> None:
        """Set the timer anew: what is left of the owner's seconds depends on other runs, too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = self.left().seconds
        if self._stop is None or seconds is None:
            return
        if seconds > 0:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)
        else:
            self._stop()


async def owner_spent(store: Store, budget: Budget, run: RunRef, /) -> Spent | None:
    """What a run's owner has spent today; None: there is no need to know. Raises StoreError."""
    if not budget.owner.is_set:
        return None
    day = datetime.now(UTC).date().isoformat()
    return await store.spend(Spending(run, 0, day, Spent()))


def _without(untold: Usage | None, told: Usage) -> Usage | None:
    """What no event has told of after one more; None: nothing. Nothing is told before it is counted."""
    if untold is None:
        return None
    rest = untold - told
    return None if rest.is_nothing else rest


def _rounded(spent: Spent) -> Spent:
    """To milliseconds, and a billionth of the currency."""
    return Spent(spent.tokens, round(spent.seconds, 3), round(spent.cost, 9))
