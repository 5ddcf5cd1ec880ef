"""All that a scenario plays in: a store, workers on it, the model behind them, and what to do faults with."""

import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

from tests.faults.caller import Caller, caller
from tests.faults.fleet import Fleet, fleet
from tests.faults.places import environment
from tests.faults.traced_model import TracedModel, traced_model
from tests.support.proxies import LossyProxy, lossy_proxy
from tests.support.redis_server import StoppableRedis, stoppable_redis
from tests.support.server import SERVE

StoreKind: TypeAlias = Literal["sqlite", "redis"]

LEASE = 2.0
SLACK = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a world consists of.

    Args:
        store: where conversations are kept.
        workers: how many serve.
        lease: seconds, the setting of the workers.
        proxied: whether each worker has a proxy to Redis, which can lose replies and cut it off.
        slack: seconds beyond the lease within which a conversation has to be usable again.
        patience: seconds that a client gives one post, its answer included.
        settings: further flags of `passback serve`.
        command: how a worker is started.
    """

    store: StoreKind = "sqlite"
    workers: int = 1
    lease: float = LEASE
    proxied: bool = False
    slack: float = SLACK
    patience: float = 30
    settings: tuple[str, ...] = ()
    command: tuple[str, ...] = SERVE


@dataclass(frozen=True, slots=True)
class World:
    plan: Plan
    fleet: Fleet
    model: TracedModel
    random: Random
    folder: Path
    stack: AsyncExitStack
    redis: StoppableRedis | None = None
    proxies: tuple[LossyProxy, ...] = ()
    _tokens: list[int] = field(default_factory=lambda: [0])

    def token(self, prefix: str = "t") -> str:
        """A word that no message had before."""
        self._tokens[0] += 1
        return f"{prefix}{self._tokens[0]}"

    @property
    def bound(self) -> float:
        """Seconds after a fault in which a conversation has to be usable again."""
        return self.plan.lease + self.plan.slack

    async def caller(self, *, patience: float = 0, forgets: bool = False) -> Caller:
        """A client of its own, with at least the plan's patience; every other one understands rewinds."""
        patience = max(patience, self.plan.patience)
        rewinds = self.random.random() < 0.5
        seeded = Random(self.random.random())
        calling = caller(self.fleet, seeded, patience=patience, rewinds=rewinds, forgets=forgets)
        return await self.stack.enter_async_context(calling)


def _environment(folder: Path) -> dict[str, str]:
    """The workers find the tests' modules, behind a server that is given by PYTHONPATH."""
    paths = [os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2])]
    return {
        "PASSBACK_MODEL_API_KEY": "sk-faults",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        **environment(folder),
    }


@asynccontextmanager
async def world(plan: Plan, seed: int) -> AsyncGenerator[World]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        model = await stack.enter_async_context(traced_model())
        redis, proxies = None, list[LossyProxy]()
        stores = [f"sqlite:///{folder}/passback.db"]
        if plan.store == "redis":
            (folder / "redis").mkdir()
            redis = await stack.enter_async_context(stoppable_redis(folder / "redis"))
            stores = [redis.url]
            for _ in range(plan.workers if plan.proxied else 0):
                proxies.append(await stack.enter_async_context(lossy_proxy(redis.port)))
            stores = [f"redis://127.0.0.1:{proxy.port}/0" for proxy in proxies] or stores
        workers = await stack.enter_async_context(
            fleet(
                plan.workers,
                *("--timing", f"lease={plan.lease:g}", "--timing", "ping=1"),
                *("--model", "openai:parrot", "--model-base-url", model.base_url),
                *plan.settings,
                environment=_environment(folder),
                folder=folder,
                stores=stores,
                command=plan.command,
            )
        )
        callers = await stack.enter_async_context(AsyncExitStack())
        yield World(plan, workers, model, Random(seed), folder, callers, redis, tuple(proxies))
