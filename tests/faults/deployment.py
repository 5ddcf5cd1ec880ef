"""The deployment under test: a store, workers on it, a mock model, and proxies to the store."""

import os
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

from tests.faults.mock_model import MockModel, mock_model
from tests.faults.retrying_client import ClientOptions, RetryingClient, retrying_client
from tests.faults.workers import FOLDER_VARIABLE, WorkerConfig, Workers, running_workers, tool_log
from tests.support.postgres_server import StoppablePostgres, stoppable_postgres
from tests.support.proxies import LossyProxy, lossy_proxy
from tests.support.redis_server import StoppableRedis, stoppable_redis

StoreKind: TypeAlias = Literal["sqlite", "redis", "postgres"]
StoreServer: TypeAlias = StoppableRedis | StoppablePostgres

LEASE = 2.0  # seconds
RECOVERY_SLACK = 2.0  # seconds
LOG_LINES = 200  # of each worker's log


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """The parts of a deployment.

    Attributes:
        store: where conversations are kept.
        workers: how many serve.
        lease: seconds, the setting of the workers.
        proxied: whether each worker has a proxy to the store's server, which can lose replies and cut it off.
        recovery_slack: seconds beyond the lease within which a conversation has to accept a post.
        client_timeout: seconds that a client gives one post, its answer included.
        settings: further flags of `passback serve`.
        module: the program of a worker.
    """

    store: StoreKind = "sqlite"
    workers: int = 1
    lease: float = LEASE
    proxied: bool = False
    recovery_slack: float = RECOVERY_SLACK
    client_timeout: float = 30
    settings: tuple[str, ...] = ()
    module: str = "passback"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A running deployment: use `running_deployment`."""

    plan: DeploymentPlan
    workers: Workers
    model: MockModel
    random: Random
    folder: Path
    store: StoreServer | None
    proxies: tuple[LossyProxy, ...]
    _clients: AsyncExitStack
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def new_token(self, prefix: str = "t") -> str:
        """Return a word that no message or conversation had before."""
        return f"{prefix}{next(self._numbers)}"

    @property
    def recovery_limit(self) -> float:
        """Seconds after a fault within which a conversation has to accept a post again."""
        return self.plan.lease + self.plan.recovery_slack

    async def client(self, options: ClientOptions) -> RetryingClient:
        """Open a client with at least the plan's timeout; every other one accepts rewinds."""
        options = replace(
            options,
            timeout=max(options.timeout, self.plan.client_timeout),
            accepts_rewinds=self.random.random() < 0.5,
        )
        client = retrying_client(self.workers, Random(self.random.random()), options)
        return await self._clients.enter_async_context(client)

    def read_tool_starts(self) -> list[str]:
        """Return the server tools that were started: tool, run and call."""
        log = tool_log(self.folder)
        return log.read_text().splitlines() if log.exists() else []

    def read_worker_logs(self) -> list[str]:
        """Return the last lines of each worker's log."""
        return [
            f"{log.name}: {line}"
            for log in sorted(self.folder.glob("worker-*.log"))
            for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        ]


@asynccontextmanager
async def running_deployment(plan: DeploymentPlan, seed: int) -> AsyncGenerator[Deployment]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        model = await stack.enter_async_context(mock_model())
        store, proxies = await _start_store(plan.store, folder, stack), list[LossyProxy]()
        stores = [f"sqlite:///{folder}/passback.db"]
        if store is not None:
            for _ in range(plan.workers if plan.proxied else 0):
                proxies.append(await stack.enter_async_context(lossy_proxy(store.port)))
            ports = [proxy.port for proxy in proxies] or [store.port]
            stores = [store.url_at(port) for port in ports]
        config = WorkerConfig(
            arguments=[
                *("--timing", f"lease={plan.lease:g}", "--timing", "ping=1"),
                *("--model", "openai:mock", "--model-base-url", model.base_url),
                *plan.settings,
            ],
            environment=_worker_environment(folder),
            folder=folder,
            stores=stores,
            module=plan.module,
        )
        workers = await stack.enter_async_context(running_workers(plan.workers, config))
        clients = await stack.enter_async_context(AsyncExitStack())
        random = Random(seed)
        yield Deployment(plan, workers, model, random, folder, store, tuple(proxies), clients)


async def _start_store(kind: StoreKind, folder: Path, stack: AsyncExitStack) -> StoreServer | None:
    match kind:
        case "redis":
            (folder / "redis").mkdir()
            return await stack.enter_async_context(stoppable_redis(folder / "redis"))
        case "postgres":
            return await stack.enter_async_context(stoppable_postgres())
        case _:
            return None


def _worker_environment(folder: Path) -> dict[str, str]:
    # workers find the tests' modules, but after a server that PYTHONPATH names
    paths = [os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2])]
    return {
        "PASSBACK_MODEL_API_KEY": "sk-faults",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        FOLDER_VARIABLE: str(folder),
    }
