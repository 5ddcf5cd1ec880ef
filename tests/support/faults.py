"""A store that fails where a test wants it to."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import anyio

from passback.core.errors import StoreUnavailable
from passback.core.ports import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Fault: TypeAlias = Literal["refuse", "lose reply", "none"]
"""`refuse`: nothing is done. `lose reply`: it is done, and the caller is told that it failed."""


class Faults:
    """What goes wrong in the calls of `store`, by the name of the method, one entry for each call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._called = anyio.Event()
        self.plan: dict[str, list[Fault]] = defaultdict(list)
        self.first: dict[str, Callable[[], Awaitable[object]]] = {}
        self.calls: dict[str, int] = defaultdict(int)

    @property
    def store(self) -> Store:
        """The store that fails."""
        return cast("Store", self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in {"location", "watch"}:
            return found

        async def call(*arguments: Any, **named: Any) -> Any:
            if name in self.first:
                await self.first.pop(name)()
            fault = self.plan[name].pop(0) if self.plan[name] else "none"
            try:
                if fault == "refuse":
                    raise StoreUnavailable("refused by the test")
                answer = await found(*arguments, **named)
                if fault == "lose reply":
                    raise StoreUnavailable("reply lost by the test")
                return answer
            finally:
                self.calls[name] += 1
                event, self._called = self._called, anyio.Event()
                event.set()

        return call

    async def until(self, name: str, calls: int) -> None:
        """Wait until a method was called so many times."""
        while self.calls[name] < calls:
            await self._called.wait()
