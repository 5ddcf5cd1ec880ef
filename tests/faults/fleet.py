"""Workers on one store, that are killed, frozen, stopped and replaced."""

import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import httpx
from tests.faults.pace import pause
from tests.support.server import SERVE, START_SECONDS, Server, running_server


@dataclass(eq=False, slots=True)
class Worker:
    """A worker; clients are sent to it while it is `open` and not `away`, as a load balancer would do it.

    `number` counts the workers of a fleet from 0.
    """

    number: int
    server: Server
    log: Path
    open: bool = True
    away: bool = False
    gone: anyio.Event = field(default_factory=anyio.Event)

    @property
    def pid(self) -> int:
        return self.server.process.pid

    def kill(self) -> None:
        """End it as a crash would."""
        self.open = False
        with suppress(ProcessLookupError):
            self.server.kill()
        self.gone.set()

    def freeze(self) -> None:
        """It keeps its connections and its memory, and does nothing."""
        self.away = True
        with suppress(ProcessLookupError):
            self.server.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.away = False
        with suppress(ProcessLookupError):
            self.server.process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """Ask it to stop, as an operator does; its exit code."""
        self.open = False
        with suppress(ProcessLookupError):
            self.server.terminate()
        code = await self.server.exit_code()
        self.gone.set()
        return code


class Fleet:
    """Use `fleet`.

    Attributes:
        workers: those that run.
        deaths: of workers that nobody had ended.
    """

    def __init__(
        self,
        tasks: anyio.abc.TaskGroup,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        command: Sequence[str],
        stores: Sequence[str],
    ) -> None:
        self.workers: list[Worker] = []
        self.deaths: list[str] = []
        self._tasks = tasks
        self._arguments = arguments
        self._environment = environment
        self._folder = folder
        self._command = command
        self._stores = stores
        self._started = 0

    def urls(self) -> Sequence[str]:
        return [worker.server.url for worker in self.workers if worker.open and not worker.away]

    async def start(self) -> Worker:
        """One more, ready to serve."""
        worker: Worker = await self._tasks.start(self._serve)
        self.workers.append(worker)
        return worker

    async def _serve(self, *, task_status: anyio.abc.TaskStatus[Worker]) -> None:
        number, self._started = self._started, self._started + 1
        log = self._folder / f"worker-{number}.log"
        with log.open("wb") as stderr:
            async with running_server(
                *self._arguments,
                *("--store", self._stores[number % len(self._stores)]),
                environment=self._environment,
                stderr=stderr,
                command=self._command,
            ) as server:
                worker = Worker(number, server, log)
                task_status.started(worker)
                try:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._notice_end, worker)
                        await worker.gone.wait()
                        tasks.cancel_scope.cancel()
                finally:
                    self._forget(worker)

    async def _notice_end(self, worker: Worker) -> None:
        """A worker that ends and was not asked to is a fault."""
        code = await worker.server.process.wait()
        if worker.open:
            last = (await anyio.Path(worker.log).read_text(errors="replace")).splitlines()[-30:]
            self.deaths.append(f"a worker ended by itself with {code}: {last}")
            worker.gone.set()

    def _forget(self, worker: Worker) -> None:
        worker.open = False
        if worker.away and worker.server.process.returncode is None:
            worker.thaw()
        if worker in self.workers:
            self.workers.remove(worker)

    async def ready(self) -> None:
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
async def fleet(
    count: int,
    *arguments: str,
    environment: Mapping[str, str],
    folder: Path,
    stores: Sequence[str],
    command: Sequence[str] = SERVE,
) -> AsyncGenerator[Fleet]:
    """So many workers, each with a log of its own in `folder`, and with the next one of `stores`; all ended on leaving."""
    async with anyio.create_task_group() as tasks:
        workers = Fleet(tasks, arguments, environment, folder, command=command, stores=stores)
        try:
            for _ in range(count):
                await workers.start()
            yield workers
        finally:
            for worker in list(workers.workers):
                worker.kill()
