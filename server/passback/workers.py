"""`passback serve --workers N`: a pool of worker processes that serve one address.

The pool's process holds the listening socket, passes signals on and restarts workers that end by
themselves. It loads no agent: each worker is sent the settings and loads the agents. The pool and
each worker share a *line*, a pair of sockets:

* the worker's `WorkerConfig` goes over the line, because every user of the machine can read a
  process's arguments;
* `ready` comes back;
* the end of the line tells the worker that the pool is gone.
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
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace

import anyio
import anyio.abc

from passback.core.errors import ConfigurationError
from passback.settings import Settings

EXIT_FAILED = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
WORKER_COMMAND = (
    sys.executable,
    "-c",
    (
        "import sys; *at, sys.path[:] = *map(int, sys.argv[1:3]), sys.argv[3:]; "
        "from passback.cli import work; sys.exit(work(*at))"
    ),
)
"""The command of a worker. Its arguments: the file numbers of the listening socket and of the
line, then the entries of its `sys.path`."""
_READY_LINE = b"ready\n"
# exit codes of a worker that was asked to stop: its own, or the signal's while it was starting
_STOPPED_CODES = (0, -signal.SIGTERM)

_log = logging.getLogger(__name__)


def refuse_unshared_settings(settings: Settings) -> None:
    """Raise ConfigurationError if several workers cannot serve with these settings."""
    if settings.workers == 1:
        return
    if sys.platform == "win32":
        raise ConfigurationError(
            "PASSBACK_WORKERS: on Windows one process serves an address; "
            "start several on ports of their own"
        )
    if settings.store.partition(":")[0].lower() == "memory":
        raise ConfigurationError(
            "PASSBACK_WORKERS: several workers cannot share the store memory:; "
            "use sqlite: or redis:"
        )


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Configuration that the pool sends to a worker at its start.

    Args:
        argv: the command line, for agents that look at it.
        variables: the settings, as variables: the environment, flags and files, read once.
        agents: targets, each `MODULE:AGENT`.
        stop_timeout: seconds that the worker may take to stop once the pool is gone.
        announces: True for the one worker that prints the address.
    """

    argv: Sequence[str]
    variables: Mapping[str, str]
    agents: Sequence[str]
    stop_timeout: float
    announces: bool = False


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Exponential backoff of restarts.

    Args:
        pause: seconds before a worker that ended is restarted. Each worker that lived shorter
            than `steady` doubles the pause.
        longest_pause: upper limit of the pause, in seconds.
        steady: seconds. The end of a worker that lived at least as long counts as the first.
        failed_starts: failed starts of one slot in a row after which the pool stops.
    """

    pause: float = 0.25
    longest_pause: float = 30
    steady: float = 60
    failed_starts: int = 5


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """A worker's sockets and configuration. Use `take_slot` to get it.

    Args:
        listening: the socket on which all workers listen.
        line: the worker's end of the line to the pool.
        order: the configuration that the pool sent.
    """

    listening: socket.socket
    line: socket.socket
    order: WorkerConfig

    def end_with_pool(self) -> None:
        """Stop this process when the pool is gone: by SIGTERM, and by SIGKILL after
        `WorkerConfig.stop_timeout` seconds.
        """
        threading.Thread(target=self._watch_pool, daemon=True).start()

    def ready(self) -> None:
        """Tell the pool that this worker answers requests."""
        with suppress(OSError):  # `_watch_pool` notices that the pool is gone
            self.line.sendall(_READY_LINE)

    def _watch_pool(self) -> None:
        with suppress(OSError):
            self.line.recv(1)
        if self.line.fileno() == -1:  # closed by this process: an ordinary stop, not a lost pool
            return
        _log.warning("the process that keeps the workers is gone: stopping")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self.order.stop_timeout)
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def take_slot(listening: int, line: int) -> Generator[WorkerSlot]:
    """Take over the open files that the pool passed on, and read the configuration.

    Args:
        listening: file number of the listening socket.
        line: file number of the worker's end of the line.

    Raises:
        SystemExit: the pool is gone.
    """
    with _take_socket(listening) as common, _take_socket(line) as own:
        with own.makefile("rb") as received:
            order = received.readline()
        if not order:  # end of the line: the pool is gone before it has sent anything
            raise SystemExit(EXIT_FAILED)
        yield WorkerSlot(common, own, WorkerConfig(**json.loads(order)))


def _take_socket(number: int) -> socket.socket:
    """Return the socket with this file number, not inherited by programs that tools start."""
    os.set_inheritable(number, False)
    return socket.socket(fileno=number)


@dataclass(eq=False, slots=True)
class _Worker:
    """One worker process, seen from the pool.

    Args:
        process: None if it could not be started.
        line: the pool's end of the line, open while the process lives.
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
        with suppress(ProcessLookupError):  # it has ended: `wait_ended` is about to return
            if self.process:
                self.process.send_signal(number)

    async def wait_ended(self) -> int:
        """Wait for the process; return its exit code, or minus the number of its signal."""
        code = await self.process.wait() if self.process else EXIT_FAILED
        if self.line:
            self.line.close()
        return code


class WorkerPool:
    """Runs workers until SIGTERM or Ctrl-C, and passes both on to them.

    A second signal has the same effect on each worker as on a server without a pool.

    Args:
        listening: the socket on which all workers listen. It is closed when they are to stop, so
            that no client can connect.
        order: the configuration of all workers.
        command: starts a worker, see `WORKER_COMMAND`.
        pace: the backoff of restarts.
    """

    def __init__(
        self,
        listening: socket.socket,
        order: WorkerConfig,
        *,
        command: Sequence[str] = WORKER_COMMAND,
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
        """Run `count` workers until they are stopped, and return the exit code.

        The first worker starts alone. If it fails, its error is printed once, not once per
        worker, and its exit code is returned.
        """
        async with anyio.create_task_group() as tasks:
            with handle_signals(self._pass_on_signal):
                tasks.start_soon(self._kill_late_workers)
                first = await self._start_worker(replace(self._config, announces=True))
                if first.ready:
                    async with anyio.create_task_group() as places:
                        for worker in (first, *[None] * (count - 1)):
                            places.start_soon(self._run_slot, worker)
                else:
                    code = await self._wait_for_end(first)
                    if self._first_signal:  # the shells' convention for a program that it ended
                        code = 128 + self._first_signal
                    elif code < 0:
                        what = "the first worker ended before it was ready (%s)"
                        _log.error(what, _describe_exit(code))
                        code = 128 - code
                    self._exit_code = code
            tasks.cancel_scope.cancel()
        return self._exit_code

    async def _run_slot(self, worker: _Worker | None) -> None:
        """Keep one slot filled: wait for its worker to end, and start the next one."""
        short_lives = failed_starts = 0
        while worker or not self._stop.is_set():
            worker = worker or await self._start_worker(self._config)
            code = await self._wait_for_end(worker)
            if self._stop.is_set():
                # one worker that failed to stop makes the exit code of the whole pool
                failed = worker.process is not None and code not in _STOPPED_CODES
                self._exit_code |= EXIT_FAILED if failed else 0
                return
            failed_starts = 0 if worker.ready else failed_starts + 1
            if failed_starts == self._policy.failed_starts:
                _log.error(
                    "workers end again and again before they are ready, the last one by %s: "
                    "stopping",
                    _describe_exit(code),
                )
                self._exit_code = EXIT_FAILED
                self._pass_on_signal(signal.SIGTERM)
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
            # a stop ends the pause: nothing is left to restart
            with anyio.move_on_after(pause):
                await self._stop.wait()

    async def _start_worker(self, order: WorkerConfig) -> _Worker:
        """Start a worker; return it when it is ready, or has ended before it was."""
        worker = _Worker()
        self._workers.add(worker)
        try:
            ours, theirs = socket.socketpair()
            reader, worker.line = await asyncio.open_unix_connection(sock=ours)
            with theirs:
                if self._stop.is_set():  # the listening socket is closed: it has no number
                    return worker
                numbers = (self._listening.fileno(), theirs.fileno())
                worker.process = await anyio.open_process(
                    [*self._command, *map(str, numbers), *sys.path],
                    stdin=subprocess.DEVNULL,
                    stdout=None,
                    stderr=None,
                    pass_fds=numbers,
                    # a terminal sends Ctrl-C to its whole process group: workers would get it twice
                    start_new_session=True,
                )
        except OSError as error:
            _log.error("a worker cannot be started: %s", error.strerror)
            return worker
        if self._stop.is_set():  # the signal came while the process was starting
            worker.send_signal(signal.SIGTERM)
        worker.line.write(json.dumps(asdict(order)).encode() + b"\n")
        with suppress(OSError):  # the worker ended before it read its configuration
            worker.ready = await reader.readline() == _READY_LINE
        if worker.ready:
            _log.info("worker ready", extra={"action": "worker_ready", "pid": worker.pid})
        return worker

    async def _wait_for_end(self, worker: _Worker) -> int:
        code = await worker.wait_ended()
        self._workers.discard(worker)
        return code

    async def _kill_late_workers(self) -> None:
        await self._stop.wait()
        await anyio.sleep(self._config.stop_timeout)
        for worker in self._workers:
            _log.warning("worker killed: it does not end", extra={"pid": worker.pid})
            worker.send_signal(signal.SIGKILL)

    def _pass_on_signal(self, number: signal.Signals) -> None:
        self._stop.set()
        self._listening.close()
        self._first_signal = self._first_signal or number
        for worker in self._workers:
            # Python that is just starting answers SIGINT with a traceback
            worker.send_signal(number if worker.ready else signal.SIGTERM)


@contextmanager
def handle_signals(handle: Callable[[signal.Signals], object]) -> Generator[None]:
    """Call `handle` with each SIGINT and SIGTERM while the context is open."""
    loop = asyncio.get_running_loop()
    for one in _STOP_SIGNALS:
        loop.add_signal_handler(one, handle, one)
    try:
        yield
    finally:
        for one in _STOP_SIGNALS:
            loop.remove_signal_handler(one)


def _describe_exit(code: int) -> str:
    """Return a text for an exit code, where a negative one is the number of a signal."""
    names = {one.value: one.name for one in signal.Signals}
    return f"exit code {code}" if code >= 0 else names.get(-code, f"signal {-code}")
