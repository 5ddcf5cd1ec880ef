"""Few places for work that costs much: those who wait for one take turns, so that nobody keeps them from the others."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.lowlevel import RunVar

from passback.core.messages import ConversationKey, OwnerId


def places_of(variable: RunVar["Places"], number: int, seconds: float, /) -> "Places":
    """Return the places of this event loop; where none are set, so many are made."""
    found = variable.get(None)
    if found is None:
        found = Places(number, seconds)
        variable.set(found)
    return found


@dataclass(eq=False, slots=True)
class _Waiter:
    key: ConversationKey
    given: anyio.Event = field(default_factory=anyio.Event)


class Places:
    """So many at once, and of several places never all for one owner.

    The next one is an owner's who has the fewest, and of these the one's who got one longest ago; so it is with an
    owner's conversations.

    Args:
        number: of places.
        seconds: how long one waits at most.
        most_waiting: how many of an owner wait; each of them holds in memory what it is to work on.
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
    async def one(self, key: ConversationKey, /) -> AsyncGenerator[None]:
        """Have a place. Raises TimeoutError when there is none in time, at once where too many of the owner's wait."""
        if sum(each.key.owner == key.owner for each in self._waiting) >= self._most_waiting:
            raise TimeoutError
        waiter = _Waiter(key)
        self._waiting.append(waiter)
        self._give_places()
        try:
            if not waiter.given.is_set():
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
        known = {part for each in self._waiting for part in (each.key, each.key.owner)}
        known |= {owner for owner, places in self._taken.items() if places}
        self._taken = Counter(
            {owner: self._taken[owner] for owner in self._taken if owner in known}
        )
        self._turns = {part: turn for part, turn in self._turns.items() if part in known}

    def _give_places(self) -> None:
        while self._taken.total() < self._number and (waiter := self._next_waiter()) is not None:
            self._waiting.remove(waiter)
            self._last_turn += 1
            self._turns[waiter.key] = self._turns[waiter.key.owner] = self._last_turn
            self._taken[waiter.key.owner] += 1
            waiter.given.set()

    def _next_waiter(self) -> _Waiter | None:
        admitted = (each for each in self._waiting if self._taken[each.key.owner] < self._most)
        return min(admitted, key=self._waiter_rank, default=None)

    def _waiter_rank(self, waiter: _Waiter) -> tuple[int, int, int]:
        key, turns = waiter.key, self._turns
        return self._taken[key.owner], turns.get(key.owner, 0), turns.get(key, 0)
