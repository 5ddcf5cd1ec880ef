"""Processes of a measurement: started on chosen cores, weighed by the kernel's own clocks, ended by id. Linux only."""

import ctypes
import itertools
import os
import socket
import subprocess
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 30
STOP_SECONDS = 3
_POLL_SECONDS = 0.05

_libc = ctypes.CDLL(None, use_errno=True)


class BenchmarkError(Exception):
    """A measurement could not be made; the message says why."""


@dataclass(frozen=True, slots=True)
class Cores:
    """The server has a core of its own; load client, mock model and store share the others.

    Attributes:
        spare: one more for a server of two workers; empty where nothing would be left for the others.
    """

    server: frozenset[int]
    others: frozenset[int]
    spare: frozenset[int] = frozenset()

    @property
    def are_apart(self) -> bool:
        return not self.server & self.others


def split_cores() -> Cores:
    """The cores that this process may use, dealt out."""
    usable = os.sched_getaffinity(0)
    return deal({frozenset(_siblings(core) & usable) for core in usable})


def deal(wholes: Iterable[frozenset[int]]) -> Cores:
    """Each of `wholes` is what the kernel numbers of one core: two workers on its halves would disturb each other."""
    first, *more = sorted(map(sorted, wholes))
    rest = frozenset(itertools.chain(*more[1:]))
    if len(rest) >= 2:
        return Cores(frozenset(first[:1]), rest, frozenset(more[0][:1]))
    others = [*first[1:], *itertools.chain(*more)]
    return Cores(frozenset(first[:1]), frozenset(others or first))


def _siblings(core: int) -> set[int]:
    """What the kernel calls a core may be half of one; gives all that are the same."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        parts = [part.partition("-") for part in path.read_text().strip().split(",")]
    except OSError:
        return {core}
    return {core}.union(*(range(int(low), int(high or low) + 1) for low, _, high in parts))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ------------------------------------------------------------------ weighing
def _family(pid: int) -> list[int]:
    """The process and all that descend from it."""
    members = [pid]
    for member in members:
        for task in Path(f"/proc/{member}/task").glob("*/children"):
            members.extend(map(int, task.read_text().split()))
    return members


def _cpu_clock(pid: int) -> int:
    clock = ctypes.c_int()
    code = _libc.clock_getcpuclockid(pid, ctypes.byref(clock))
    if code:
        raise BenchmarkError(f"no CPU clock of process {pid}: {os.strerror(code)}")
    return clock.value


def cpu_seconds(pid: int) -> float:
    """User and system time of the process and its children, all threads, in the kernel's nanoseconds."""
    return sum(time.clock_gettime(_cpu_clock(member)) for member in _family(pid))


def waited_seconds(pid: int) -> float:
    """How long the process's main thread was ready to run while something else had its core."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def resident_kib(pid: int) -> int:
    """Resident memory of the process and its children, in KiB."""
    return sum(_resident_kib(member) for member in _family(pid))


def _resident_kib(pid: int) -> int:
    return _status_kib(pid, "VmRSS:")


def peak_kib(pid: int) -> int:
    """The most that the process had in memory since `forget_peak`, in KiB."""
    return _status_kib(pid, "VmHWM:")


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise BenchmarkError(f"process {pid} has ended")


# ------------------------------------------------------------------ starting and ending
@contextmanager
def running(
    argv: Sequence[str],
    port: int,
    log: Path,
    cores: frozenset[int],
    env: Mapping[str, str] | None = None,
) -> Generator[int]:
    """Run a server until the block ends; gives its process id once it listens on the port.

    Raises:
        BenchmarkError: it ended, or did not listen in time; the message has the end of its log.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env
        )
    try:
        os.sched_setaffinity(process.pid, cores)
        _wait_for_port(process, port, log)
        yield process.pid
    finally:
        _end(process)


def _wait_for_port(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BenchmarkError(f"exit code {process.returncode}: {_last_lines(log)}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(_POLL_SECONDS)
    raise BenchmarkError(f"not listening after {START_SECONDS} s: {_last_lines(log)}")


def _last_lines(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-5:]) or "its log is empty"


def ready_workers(keeper: int, port: int, count: int) -> list[int]:
    """The ids of the processes that a server has started as its workers, once each has taken a connection.

    Raises:
        BenchmarkError: they did not in time.
    """
    deadline = time.monotonic() + START_SECONDS
    with ExitStack() as connections:
        while time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            with suppress(OSError):  # one has ended, or closed a file while it was looked at
                connections.enter_context(socket.create_connection(("127.0.0.1", port)))
                workers = _family(keeper)[1:]
                if len(workers) == count and all(_has_connection(each, port) for each in workers):
                    return workers
    raise BenchmarkError(f"not {count} workers after {START_SECONDS} s")


def _has_connection(pid: int, port: int) -> bool:
    """Whether a process has a connection that came to this port."""
    lines = map(str.split, Path("/proc/net/tcp").read_text().splitlines())
    here = {line[9] for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "01"}
    files = [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return not here.isdisjoint(file.removeprefix("socket:[").rstrip("]") for file in files)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
