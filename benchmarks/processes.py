"""Processes of a measurement: started on chosen cores, weighed by the kernel's clocks. Linux only.

Each is ended by its id.
"""

import ctypes
import itertools
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 30
STOP_SECONDS = 3
POLL_SECONDS = 0.05

_libc = ctypes.CDLL(None, use_errno=True)


class BenchmarkError(Exception):
    """A measurement could not be made; the message says why."""


@dataclass(frozen=True, slots=True)
class Cores:
    """The core of the server, and those that load client, mock model and store share.

    Attributes:
        spare: one more for a server of two workers; empty if none would be left for the others.
    """

    server: frozenset[int]
    others: frozenset[int]
    spare: frozenset[int] = frozenset()

    @property
    def are_apart(self) -> bool:
        return not self.server & self.others


def split_cores() -> Cores:
    """Assign the cores that this process may use."""
    usable = os.sched_getaffinity(0)
    physical_cores: set[frozenset[int]] = set()
    for core in usable:
        siblings = {core}  # what the kernel calls a core may be half of one
        topology = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        with suppress(OSError):
            for part in topology.read_text().strip().split(","):
                low, _, high = part.partition("-")
                siblings.update(range(int(low), int(high or low) + 1))
        physical_cores.add(frozenset(siblings & usable))
    return assign_cores(physical_cores)


def assign_cores(physical_cores: Iterable[frozenset[int]], /) -> Cores:
    """Assign physical cores to server and others: two workers on halves of one disturb each other.

    Args:
        physical_cores: the numbers that the kernel gives to each.
    """
    first, *more = sorted(map(sorted, physical_cores))
    rest = frozenset(itertools.chain(*more[1:]))
    if len(rest) >= 2:
        return Cores(frozenset(first[:1]), rest, frozenset(more[0][:1]))
    others = [*first[1:], *itertools.chain(*more)]
    return Cores(frozenset(first[:1]), frozenset(others or first))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def raise_file_limit() -> None:
    """Allow as many open files as possible: a stream takes one here, and two in the server."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# ------------------------------------------------------------------ weighing
def _process_tree(pid: int) -> list[int]:
    """Return the ids of a process and of all that descend from it."""
    members = [pid]
    for member in members:
        for task in Path(f"/proc/{member}/task").glob("*/children"):
            members.extend(map(int, task.read_text().split()))
    return members


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children, by the kernel's nanosecond clock."""
    total = 0.0
    for member in _process_tree(pid):
        clock = ctypes.c_int()
        if code := _libc.clock_getcpuclockid(member, ctypes.byref(clock)):
            raise BenchmarkError(f"no CPU clock of process {member}: {os.strerror(code)}")
        total += time.clock_gettime(clock.value)
    return total


def waited_seconds(pid: int) -> float:
    """Return the time for which the main thread was ready to run while others had its core."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def resident_kib(pid: int) -> int:
    """Return the resident memory of a process and its children, in KiB."""
    return sum(_status_kib(member, "VmRSS:") for member in _process_tree(pid))


def peak_kib(pid: int) -> int:
    """Return the most memory that a process had since `reset_peak`, in KiB."""
    return _status_kib(pid, "VmHWM:")


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise BenchmarkError(f"process {pid} has ended")


# ------------------------------------------------------------------ starting and ending
@contextmanager
def run_server(
    argv: Sequence[str],
    *,
    port: int,
    log: Path,
    cores: frozenset[int],
    env: Mapping[str, str] | None = None,
    user: int | None = None,
) -> Generator[int]:
    """Run a server until the block ends; yield its process id once it listens on the port.

    The user with the id `user` runs it, if there is one.

    Raises:
        BenchmarkError: it ended, or did not listen in time; the message has the end of its log.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            user=user,
        )
    try:
        os.sched_setaffinity(process.pid, cores)
        _wait_for_port(process, port, log)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


def _wait_for_port(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    problem = f"not listening after {START_SECONDS} s"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            problem = f"exit code {process.returncode}"
            break
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(POLL_SECONDS)
    last_lines = " | ".join(log.read_text(errors="replace").splitlines()[-5:])
    raise BenchmarkError(f"{problem}: {last_lines or 'its log is empty'}")


def wait_for_workers(parent: int, port: int, count: int) -> list[int]:
    """Return the ids of a server's worker processes, once each has taken a connection.

    Raises:
        BenchmarkError: they did not in time.
    """
    deadline = time.monotonic() + START_SECONDS
    with ExitStack() as connections:
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            with suppress(OSError):  # one has ended, or closed a file while it was looked at
                connections.enter_context(socket.create_connection(("127.0.0.1", port)))
                workers = _process_tree(parent)[1:]
                if len(workers) == count and all(_has_connection(each, port) for each in workers):
                    return workers
    raise BenchmarkError(f"not {count} workers after {START_SECONDS} s")


def _has_connection(pid: int, port: int) -> bool:
    """Return True if a process has a connection that came to this port."""
    lines = map(str.split, Path("/proc/net/tcp").read_text().splitlines())
    here = {line[9] for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "01"}
    files = [str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return not here.isdisjoint(file.removeprefix("socket:[").rstrip("]") for file in files)


@contextmanager
def run_client(
    module: str, arguments: Sequence[str], cores: Cores
) -> "Generator[subprocess.Popen[str]]":
    """Run a client process until the block ends, on the cores that are not the server's."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        os.sched_setaffinity(process.pid, cores.others)
        try:
            yield process
        finally:
            process.kill()  # does nothing to one that has ended
