"""What a run spends, and whether it may go on."""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
    tightest,
)
from passback.core.changes import Lease
from passback.core.context import Context
from passback.core.errors import StoreError
from passback.core.events import RunEvent, UsageReported
from passback.core.messages import RunRef, Usage, together
from passback.core.ports import Store
from passback.core.state import State

logger = logging.getLogger(__name__)

_PATIENCE = 1.0
"""Seconds that a commit waits for the owner's count: what it says there is said again before the next model call."""

_ANSWER = 500
"""Tokens that an answer is taken to have before it is counted."""

_NOTHING = Spent()
_FREE = nullcontext()
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
        self._untold_model = ""
        self._noted = _NOTHING
        self._began = monotonic()
        self._owner = owner
        self._told = _NOTHING
        self._seq = 0
        self._day = ""
        self._reserved: list[Spent] = []
        self._counting = anyio.Lock(fast_acquire=True)
        self._stop: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # ---------------------------------------------------------------- spending
    def add(self, usage: Usage | None, price: Price, model: str = "") -> None:
        """Count a call of the model of a name, also one that was cut. None: its provider tells nothing."""
        if usage is None or usage.is_nothing:
            return
        alone = self._untold is None or self._untold_model == model
        self._untold_model = model if alone else ""
        tokens = usage.input_tokens + usage.output_tokens
        self._used += Spent(tokens, cost=price.of(usage))
        self._untold = together(self._untold, usage)

    def untold(self) -> tuple[UsageReported, ...]:
        """What was counted and no event has told of: calls that were cut, here or in sub-agents, or came to nothing."""
        if self._untold is None:
            return ()
        return (UsageReported(self._untold, model=self._untold_model),)

    @property
    def is_unused(self) -> bool:
        """Whether no model call was counted under this lease."""
        return self._used == _NOTHING

    def note(self, state: State, stored: State, usage: Usage, *, ends: bool = False) -> State:
        """The state with the usage of its transcript, and with what was spent.

        That is noted where the run ends, the state is written anyway or there is something to note; else the state stays as
        it is.
        """
        changed = ends or usage != state.usage or state != stored
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
    async def reserve(self, context: Context, price: Price) -> AbstractContextManager[None]:
        """Count a model call before it is made, with what it may use, until what is given was entered and left.

        Other calls that go on, here or in the owner's other runs, count with what they may use, too. Where a worker dies in
        a call, that stays counted for its owner.

        Raises:
            BudgetSpent: nothing is left beside them.
            StoreError: what the owner has spent could not be found out.
        """
        if not self._is_set:
            return _FREE
        asked = context.estimate
        call = Spent(asked + _ANSWER, cost=price.of(Usage(asked, _ANSWER)))
        allowed = False
        # one after the other: two that see each other's call would both give up
        async with self._counting:
            self._reserved.append(call)
            try:
                if self._counts_owner:
                    self._day = _today()
                    await self._count()
                allowed = not self._left(self._reserved_now() - call).is_used_up
            finally:
                if not allowed:
                    self._reserved.remove(call)
        if not allowed:
            raise BudgetSpent
        return self._while_going_on(call)

    @contextmanager
    def _while_going_on(self, call: Spent) -> Generator[None]:
        try:
            yield
        finally:
            self._reserved.remove(call)

    def _reserved_now(self) -> Spent:
        return sum(self._reserved, _NOTHING)

    async def tell(self, *, ends: bool = False) -> None:
        """Count for the owner what is about to be committed, so that no death of a worker takes it back.

        If the store fails, the run goes on: it is counted before the next model call, or not at all.
        """
        if not self._counts_owner:
            return
        used = self._used + self._reserved_now()
        if not ends and used == replace(self._told, seconds=0.0):
            return
        with anyio.move_on_after(_PATIENCE, shield=True) as waiting:
            try:
                async with self._counting:
                    await self._count()
            except StoreError as error:
                self._warn(error.code)
        if waiting.cancelled_caught:
            self._warn("timeout")

    def left(self) -> Left:
        """Of all limits; the turns are not known here."""
        return self._left() if self._is_set else _ALL

    def _left(self, reserved: Spent = _NOTHING) -> Left:
        spent = self._spent + reserved
        return tightest((self._budget.run.left(self._run_before + spent), self._left_beyond(spent)))

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
            replace(event, left=left) if isinstance(event, UsageReported) else event
            for event in events
        )

    def left_beyond(self) -> Left:
        """Of the limits that are not the run's own."""
        return self._left_beyond(self._spent) if self._is_set else _ALL

    def _left_beyond(self, spent: Spent) -> Left:
        conversation = self._budget.conversation.left(self._before + spent)
        if self._owner is None:
            return conversation
        owner = self._budget.owner.left(self._owner + spent - self._told)
        return tightest((conversation, owner))

    async def _count(self) -> None:
        """Say what is spent and reserved, on the day on which the last call began: what it gives back is that day's."""
        spent = self._spent + self._reserved_now()
        self._seq += 1
        day = self._day or _today()
        lease = self._lease
        said = Spending(lease.run, lease.epoch, day, spent, self._seq)
        self._owner = await self._store.spend(said)
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
    return await store.spend(Spending(run, 0, _today(), Spent()))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _without(untold: Usage | None, told: Usage) -> Usage | None:
    """What no event has told of after one more; None: nothing. Nothing is told before it is counted."""
    if untold is None:
        return None
    rest = untold - told
    return None if rest.is_nothing else rest


def _rounded(spent: Spent) -> Spent:
    """To milliseconds, and a billionth of the currency."""
    return Spent(spent.tokens, round(spent.seconds, 3), round(spent.cost, 9))
