"""A fair limit on expensive work: owners take turns, so that none can block the others."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.lowlevel import RunVar

from passback.core.messages import ConversationKey, OwnerId


def limiter_of(variable: RunVar["FairLimiter"], number: int, seconds: float, /) -> "FairLimiter":
    """Return the limiter of this event loop. If there is none, make one.

    Args:
        variable: holds it.
        number: of places, for a new one.
        seconds: longest wait, for a new one.
    """
    found = variable.get(None)
    if found is None:
        found = FairLimiter(number, seconds)
        variable.set(found)
    return found


@dataclass(eq=False, slots=True)
class _Waiter:
    key: ConversationKey
    given: anyio.Event = field(default_factory=anyio.Event)


class FairLimiter:
    """Limiter of concurrent work. One owner never has all places, if there are several.

    A free place goes to the owner with the fewest places, and of these to the one that got a place
    longest ago. An owner's conversations take turns in the same way.

    Args:
        number: of places.
        seconds: longest wait for a place.
        most_waiting: waiting tasks of one owner, at most. Each holds its input in memory.
    """

    def __init__(self, number: int, seconds: float, *, most_waiting: int = 64) -> None:
        self.seconds = seconds
        self._most_waiting = most_waiting
        self._number = number
        self._most = max(1, number - 1)
        self._taken = Counter[OwnerId]()
        self._waiting: list[_Waiter] = []
        self._last_turn = 0
        self._turns: dict[OwnerId | ConversationKey, int] = {}

    @asynccontextmanager
    async def acquire(self, key: ConversationKey, /) -> AsyncGenerator[None]:
        """Hold a place for work on a conversation.

        Raises:
            TimeoutError: no place became free in time, or too many tasks of the owner wait.
        """
        # waiting tasks hold their input in memory: one owner must not fill it
        if sum(each.key.owner == key.owner for each in self._waiting) >= self._most_waiting:
            raise TimeoutError
        waiter = _Waiter(key)
        self._waiting.append(waiter)
        self._give_places()
        try:
            if not waiter.given.is_set():  # a free place is given without a switch of tasks
                with anyio.fail_after(self.seconds):
                    await waiter.given.wait()
            yield
        finally:
            self._leave_place(waiter)

    def _leave_place(self, waiter: _Waiter) -> None:
        if waiter.given.is_set():
            self._taken[waiter.key.owner] -= 1
            self._give_places()
        else:
            self._waiting.remove(waiter)
        # forget owners and conversations that neither wait nor work: the maps stay small
        known = {part for each in self._waiting for part in (each.key, each.key.owner)}
        known |= {owner for owner, places in self._taken.items() if places}
        self._taken = Counter(
            {owner: self._taken[owner] for owner in self._taken if owner in known}
        )
        self._turns = {part: turn for part, turn in self._turns.items() if part in known}

    def _give_places(self) -> None:
        while self._taken.total() < self._number:
            # the last place is kept for another owner
            admitted = (each for each in self._waiting if self._taken[each.key.owner] < self._most)
            waiter = min(admitted, key=self._waiter_rank, default=None)
            if waiter is None:
                return
            self._waiting.remove(waiter)
            self._last_turn += 1
            self._turns[waiter.key] = self._turns[waiter.key.owner] = self._last_turn
            self._taken[waiter.key.owner] += 1
            waiter.given.set()

    def _waiter_rank(self, waiter: _Waiter) -> tuple[int, int, int]:
        key, turns = waiter.key, self._turns
        return self._taken[key.owner], turns.get(key.owner, 0), turns.get(key, 0)
