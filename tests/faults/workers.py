"""Worker processes on one store, which can be killed, frozen, stopped and replaced."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import httpx
from tests.support.server import START_SECONDS, Server, running_server
from tests.support.waiting import pause

# what `worker_process` and the harness agree on; the harness itself imports nothing of the server
AGENT = "tests.faults.worker_process:agent"
"""An agent whose server tools log each start."""
COUNTING_TASKS = "tests.faults.worker_process"
"""A program that serves and reports the number of its tasks after SIGUSR1."""
FOLDER_VARIABLE = "FAULTS_FOLDER"
"""The environment variable with the folder of the files below."""
TOOL_RESULT = "(done)"
"""The result of each server tool of `AGENT`."""


def tool_log(folder: Path) -> Path:
    """Return the file with one line for each start of a server tool: tool, run and call."""
    return folder / "tool-starts"


def task_count_file(folder: Path, pid: int) -> Path:
    """Return the file to which a worker writes the number of its tasks."""
    return folder / f"tasks-{pid}"


# ---------------------------------------------------------------- workers
@dataclass(eq=False, slots=True)
class Worker:
    """A worker process.

    Attributes:
        number: counts the workers of a deployment, from 0.
        log: the file with its standard error.
        serving: False as soon as it is stopped or killed.
        unreachable: whether it is frozen or cut off. As a load balancer would, clients choose only
            workers that are serving and reachable.
        ended: set when it was killed, or has stopped.
    """

    number: int
    server: Server
    log: Path
    serving: bool = True
    unreachable: bool = False
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def pid(self) -> int:
        return self.server.process.pid

    def kill(self) -> None:
        """End it as a crash would."""
        self.serving = False
        with suppress(ProcessLookupError):
            self.server.kill()
        self.ended.set()

    def freeze(self) -> None:
        """Suspend it: it keeps its connections and its memory, and does nothing."""
        self.unreachable = True
        with suppress(ProcessLookupError):
            self.server.freeze()

    def thaw(self) -> None:
        self.unreachable = False
        with suppress(ProcessLookupError):
            self.server.thaw()

    async def stop(self) -> int:
        """Ask it to stop, as an operator does; return its exit code."""
        self.serving = False
        with suppress(ProcessLookupError):
            self.server.terminate()
        code = await self.server.exit_code()
        self.ended.set()
        return code


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The way to start each worker.

    Attributes:
        arguments: flags of `passback serve`.
        environment: variables beside those of this process.
        folder: where their logs are written.
        stores: URLs of the store; each next worker gets the next one.
        module: the program that serves.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    stores: Sequence[str]
    module: str = "passback"


class Workers:
    """The workers of a deployment: use `running_workers`.

    Attributes:
        running: those that run.
        unexpected_exits: a text for each worker that ended by itself.
    """

    def __init__(self, tasks: anyio.abc.TaskGroup, config: WorkerConfig) -> None:
        self.running: list[Worker] = []
        self.unexpected_exits: list[str] = []
        self._tasks = tasks
        self._config = config
        self._started = 0

    def urls(self) -> Sequence[str]:
        """Return the URLs at which clients may ask."""
        return [one.server.url for one in self.running if one.serving and not one.unreachable]

    async def start(self) -> Worker:
        """Start one more; return when it is ready to serve."""
        worker: Worker = await self._tasks.start(self._run_worker)
        self.running.append(worker)
        return worker

    async def _run_worker(self, *, task_status: anyio.abc.TaskStatus[Worker]) -> None:
        config = self._config
        number, self._started = self._started, self._started + 1
        log = config.folder / f"worker-{number}.log"
        with log.open("wb") as stderr:
            async with running_server(
                *config.arguments,
                *("--store", config.stores[number % len(config.stores)]),
                environment=config.environment,
                stderr=stderr,
                module=config.module,
            ) as server:
                worker = Worker(number, server, log)
                task_status.started(worker)
                try:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._report_unexpected_exit, worker)
                        await worker.ended.wait()
                        tasks.cancel_scope.cancel()
                finally:
                    self._remove(worker)

    async def _report_unexpected_exit(self, worker: Worker) -> None:
        code = await worker.server.process.wait()
        if worker.serving:
            last = (await anyio.Path(worker.log).read_text(errors="replace")).splitlines()[-30:]
            self.unexpected_exits.append(f"a worker ended by itself with {code}: {last}")
            worker.ended.set()

    def _remove(self, worker: Worker) -> None:
        worker.serving = False
        if worker.unreachable and worker.server.process.returncode is None:
            worker.thaw()
        if worker in self.running:
            self.running.remove(worker)

    async def wait_until_ready(self) -> None:
        """Wait until every worker can reach the store."""
        async with httpx.AsyncClient(timeout=5, trust_env=False) as http:
            with anyio.fail_after(START_SECONDS):
                for url in self.urls():
                    while not await _is_ready(http, url):
                        await pause(0.05)


async def _is_ready(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/readyz")).status_code == 200
    except httpx.TransportError:
        return False


@asynccontextmanager
async def running_workers(count: int, config: WorkerConfig) -> AsyncGenerator[Workers]:
    """Start so many workers, each with a log of its own; kill those that run on leaving."""
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, config)
        try:
            for _ in range(count):
                await workers.start()
            yield workers
        finally:
            for worker in list(workers.running):
                worker.kill()
