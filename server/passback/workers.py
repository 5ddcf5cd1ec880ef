"""`passback serve --workers N`: several processes that serve one address, and the one that keeps them.

The keeper holds the listening socket, passes signals on, and starts anew what ended by itself. It loads no agent: each worker
reads the settings and loads the agents by itself. With each it has a *line*, a pair of sockets: what the command line says goes to
the worker by it, since everybody can read a process's arguments; `ready` comes back; its end tells the worker that the keeper is gone.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace

import anyio
import anyio.abc

from passback.core.errors import ConfigurationError
from passback.settings import Settings

EXIT_FAILED = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
WORKER = (
    sys.executable,
    "-c",
    "import sys; *at, sys.path[:] = *map(int, sys.argv[1:3]), sys.argv[3:]; from passback.cli import work; sys.exit(work(*at))",
)
"""Takes the numbers of two open files, the listening socket and the line, and what is to be its `sys.path`."""
_READY_LINE = b"ready\n"
_STOPPED_CODES = (0, -signal.SIGTERM)
"""How a worker ends that was asked to: by itself, or, while it was starting, by the signal."""

_log = logging.getLogger(__name__)


def require_common_ground(settings: Settings) -> None:
    """Raises ConfigurationError where so many workers cannot serve together."""
    if settings.workers == 1:
        return
    if sys.platform == "win32":
        raise ConfigurationError(
            "PASSBACK_WORKERS: on Windows one process serves an address; start several on ports of their own"
        )
    if settings.store.partition(":")[0].lower() == "memory":
        raise ConfigurationError(
            "PASSBACK_WORKERS: with memory: each worker would have conversations of its own; "
            "several need a store that they share, sqlite: or redis:"
        )


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker is told at its start.

    Args:
        argv: the command line, for agents that look at it.
        flags: its settings, by their variables.
        agents: each as `MODULE:AGENT`.
        patience: seconds that it may take to end when the keeper is gone.
        announces: whether it is the one that says where it listens.
    """

    argv: Sequence[str]
    flags: Mapping[str, str]
    agents: Sequence[str]
    patience: float
    announces: bool = False


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Seconds, and how often.

    Args:
        pause: before a worker that ended is started anew; each one that lived shorter than `steady` doubles it.
        longest_pause: what it grows to.
        steady: the life of a worker after which its end counts as the first.
        failed_starts: of one place in a row, after which the keeper gives up.
    """

    pause: float = 0.25
    longest_pause: float = 30
    steady: float = 60
    failed_starts: int = 5


# ---------------------------------------------------------------- the worker's side
@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """A worker's place; use `taken_slot`.

    Args:
        listening: the socket on which all workers listen.
        line: its end of the line.
        order: what it was told.
    """

    listening: socket.socket
    line: socket.socket
    order: WorkerConfig

    def end_with_pool(self) -> None:
        """See to it that this process ends as by SIGTERM when the keeper is gone, and within `WorkerConfig.patience` in any case."""
        threading.Thread(target=self._watch_pool, daemon=True).start()

    def ready(self) -> None:
        """Say that requests are answered."""
        with suppress(OSError):  # a keeper that is gone is noticed elsewhere
            self.line.sendall(_READY_LINE)

    def _watch_pool(self) -> None:
        with suppress(OSError):
            self.line.recv(1)
        if self.line.fileno() == -1:  # it is this process that has closed it
            return
        _log.warning("the process that keeps the workers is gone: stopping")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self.order.patience)
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def taken_slot(listening: int, line: int) -> Generator[WorkerSlot]:
    """The place of this process, by the numbers of its open files. Ends the process when there is no keeper any more."""
    with _take_socket(listening) as common, _take_socket(line) as own:
        with own.makefile("rb") as told:
            order = told.readline()
        if not order:
            raise SystemExit(EXIT_FAILED)
        yield WorkerSlot(common, own, WorkerConfig(**json.loads(order)))


def _take_socket(number: int) -> socket.socket:
    """An open file that was passed on; programs that tools start do not get it."""
    os.set_inheritable(number, False)
    return socket.socket(fileno=number)


# ---------------------------------------------------------------- the keeper's side
@dataclass(eq=False, slots=True)
class _Worker:
    """Args:
    process: none where it could not be started.
    line: the keeper's end, which is open while the process lives.
    """

    process: anyio.abc.Process | None = None
    line: asyncio.StreamWriter | None = None
    ready: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it has ended, which is about to be noticed
            if self.process:
                self.process.send_signal(number)

    async def wait_ended(self) -> int:
        """Wait for it; its exit code, or minus the number of the signal."""
        code = await self.process.wait() if self.process else EXIT_FAILED
        if self.line:
            self.line.close()
        return code


class WorkerPool:
    """Keeps workers until SIGTERM or Ctrl-C, which it passes on; a second one means to them what it means to a server alone.

    Args:
        listening: closed when the workers are to stop, so that nobody connects any more.
        command: starts a worker, as `WORKER`.
    """

    def __init__(
        self,
        listening: socket.socket,
        order: WorkerConfig,
        *,
        command: Sequence[str] = WORKER,
        pace: RestartPolicy | None = None,
    ) -> None:
        self._listening = listening
        self._config = order
        self._command = command
        self._policy = pace or RestartPolicy()
        self._workers: set[_Worker] = set()
        self._stop = anyio.Event()
        self._first_signal: signal.Signals | None = None
        self._exit_code = 0

    async def run(self, count: int) -> int:
        """Give the exit code.

        The first worker starts alone: what keeps it from starting is said once, by itself, and its exit code is ours.
        """
        async with anyio.create_task_group() as tasks:
            with self._handle_signals():
                tasks.start_soon(self._kill_late_workers)
                first = await self._start_worker(replace(self._config, announces=True))
                if first.ready:
                    await self._run_slots(first, count)
                else:
                    await self._fail_start(first)
            tasks.cancel_scope.cancel()
        return self._exit_code

    async def _run_slots(self, first: _Worker, count: int) -> None:
        async with anyio.create_task_group() as places:
            places.start_soon(self._run_slot, first)
            for _ in range(count - 1):
                places.start_soon(self._run_slot, None)

    async def _run_slot(self, worker: _Worker | None) -> None:
        """One place: a worker, the one after it, and so on."""
        short_lives = failed_starts = 0
        while worker or not self._stop.is_set():
            worker = worker or await self._start_worker(self._config)
            code = await self._wait_for_end(worker)
            if self._stop.is_set():
                failed = worker.process is not None and code not in _STOPPED_CODES
                self._exit_code |= EXIT_FAILED if failed else 0
                return
            failed_starts = 0 if worker.ready else failed_starts + 1
            if failed_starts == self._policy.failed_starts:
                self._give_up(code)
                return
            short_lives = 0 if worker.seconds >= self._policy.steady else short_lives
            pause = min(
                self._policy.longest_pause, self._policy.pause * 2.0 ** min(short_lives, 32)
            )
            _log.warning(
                "worker ended by itself (%s), another one starts in %g s",
                _describe_exit(code),
                pause,
                extra={"action": "worker_ended", "pid": worker.pid},
            )
            short_lives += 1
            worker = None
            with anyio.move_on_after(pause):
                await self._stop.wait()

    async def _start_worker(self, order: WorkerConfig) -> _Worker:
        """Give a worker that is ready, or ended before it was."""
        worker = _Worker()
        self._workers.add(worker)
        try:
            await self._open_worker(worker, order)
        except OSError as error:
            _log.error("a worker cannot be started: %s", error.strerror)
        if worker.ready:
            _log.info("worker ready", extra={"action": "worker_ready", "pid": worker.pid})
        return worker

    async def _open_worker(self, worker: _Worker, order: WorkerConfig) -> None:
        ours, theirs = socket.socketpair()
        said, worker.line = await asyncio.open_unix_connection(sock=ours)
        with theirs:
            if self._stop.is_set():  # nobody listens any more
                return
            numbers = (self._listening.fileno(), theirs.fileno())
            worker.process = await anyio.open_process(
                [*self._command, *map(str, numbers), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=None,
                stderr=None,
                pass_fds=numbers,
                start_new_session=True,  # Ctrl-C goes to all of a terminal's group, and would come twice
            )
        if self._stop.is_set():
            worker.send_signal(signal.SIGTERM)
        worker.line.write(json.dumps(asdict(order)).encode() + b"\n")
        with suppress(OSError):  # it ended without a look at its order
            worker.ready = await said.readline() == _READY_LINE

    async def _wait_for_end(self, worker: _Worker) -> int:
        code = await worker.wait_ended()
        self._workers.discard(worker)
        return code

    async def _fail_start(self, first: _Worker) -> None:
        code = await self._wait_for_end(first)
        if self._first_signal:
            self._exit_code = 128 + self._first_signal
            return
        if code < 0:
            _log.error("the first worker ended before it was ready (%s)", _describe_exit(code))
        self._exit_code = code if code >= 0 else 128 - code

    def _give_up(self, code: int) -> None:
        _log.error(
            "workers end again and again before they are ready, the last one by %s: stopping",
            _describe_exit(code),
        )
        self._exit_code = EXIT_FAILED
        self._pass_on_signal(signal.SIGTERM)

    async def _kill_late_workers(self) -> None:
        await self._stop.wait()
        await anyio.sleep(self._config.patience)
        for worker in self._workers:
            _log.warning("worker killed: it does not end", extra={"pid": worker.pid})
            worker.send_signal(signal.SIGKILL)

    @contextmanager
    def _handle_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        for one in STOP_SIGNALS:
            loop.add_signal_handler(one, self._pass_on_signal, one)
        try:
            yield
        finally:
            for one in STOP_SIGNALS:
                loop.remove_signal_handler(one)

    def _pass_on_signal(self, number: signal.Signals) -> None:
        self._stop.set()
        self._listening.close()
        self._first_signal = self._first_signal or number
        for worker in self._workers:
            # Python that is just starting would make a traceback of SIGINT
            worker.send_signal(number if worker.ready else signal.SIGTERM)


def _describe_exit(code: int) -> str:
    """How a process ended."""
    names = {one.value: one.name for one in signal.Signals}
    return f"exit code {code}" if code >= 0 else names.get(-code, f"signal {-code}")
