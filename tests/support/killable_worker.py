"""A store that fails where a test wants it to, and a worker that dies when a test wants it to."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias, cast

import anyio
import anyio.abc
from tests.support.runs import QUICK, worker

from passback.core.changes import Lease
from passback.core.context import ContextPolicy
from passback.core.errors import StoreFull, StoreUnavailable
from passback.core.ports import ModelClient
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.engine.supervisor import Timing
from passback.toolsets.functions import FunctionTool

Fault: TypeAlias = Literal["refuse", "full", "lose reply", "none"]
"""`refuse`, `full`: nothing is done. `lose reply`: it is done, and the caller gets an error."""


class Faults:
    """Errors to come in calls of `store`, by the name of the method, one entry for each call.

    Attributes:
        first: what happens just before the next call of a method.
        dead: everything is refused.
        leases: those that were given out.
    """

    def __init__(self, store: Ledger) -> None:
        self._store = store
        self._called = anyio.Event()
        self.plan: dict[str, list[Fault]] = defaultdict(list)
        self.first: dict[str, Callable[[], Awaitable[object]]] = {}
        self.calls: dict[str, int] = defaultdict(int)
        self.dead = False
        self.leases: list[Lease] = []

    @property
    def store(self) -> Ledger:
        """The store that fails."""
        return cast("Ledger", self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in {"location", "sees_followers", "watch"}:
            return found

        async def call(*arguments: Any, **named: Any) -> Any:
            if name in self.first:
                await self.first.pop(name)()
            fault = self.plan[name].pop(0) if self.plan[name] else "none"
            try:
                if fault == "refuse" or self.dead:
                    raise StoreUnavailable("refused by the test")
                if fault == "full":
                    raise StoreFull("no room in the test")
                answer = await found(*arguments, **named)
                if isinstance(answer, Lease):
                    self.leases.append(answer)
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


class KillableWorker:
    """A worker that dies without a last write; its leases expire at once."""

    def __init__(self, runs: RunService, faults: Faults, scope: anyio.CancelScope) -> None:
        self.runs = runs
        self.faults = faults
        self._scope = scope
        self.dead = anyio.Event()

    async def kill(self) -> None:
        """End it: nothing that it does from here on reaches the store."""
        await self.vanish()
        await self.expire()

    async def vanish(self) -> None:
        """The same, but its leases last as long as they would."""
        self.faults.dead = True
        # within the process it ends as one that stops: a run in which many tasks work is not
        # cancelled from outside
        await self.runs.drain(0)
        self._scope.cancel()
        await self.dead.wait()
        self.faults.dead = False
        # what it was writing is written now: nothing of it is a sign of life for who comes later
        await self.faults.store.renew((), lease=0)

    async def expire(self) -> None:
        """End the leases of a worker that has vanished, as time would."""
        await self.faults.store.renew(self.faults.leases, lease=0)


@asynccontextmanager
async def killable_worker(
    store: Ledger,
    model: ModelClient,
    *tools: FunctionTool,
    timing: Timing = QUICK,
    context: ContextPolicy | None = None,
    seconds: float = 30,
    **spec_fields: Any,
) -> AsyncGenerator[KillableWorker]:
    """A worker in a task of its own, as `worker`. It has to be killed in the context."""
    faults = Faults(store)

    async def live(*, task_status: anyio.abc.TaskStatus[KillableWorker]) -> None:
        with anyio.CancelScope() as scope:
            given = worker(
                faults.store,
                model,
                *tools,
                timing=timing,
                context=context,
                seconds=seconds,
                **spec_fields,
            )
            async with given as runs:
                one = KillableWorker(runs, faults, scope)
                task_status.started(one)
                await anyio.sleep_forever()
        one.dead.set()

    async with anyio.create_task_group() as tasks:
        yield await tasks.start(live)
