"""Processes of a measurement: started on chosen cores, weighed by the kernel's own clocks, ended by id. Linux only."""

import ctypes
import os
import socket
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
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
    """The server has a core of its own; load client, mock model and store share the others."""

    server: frozenset[int]
    others: frozenset[int]

    @property
    def are_apart(self) -> bool:
        return not self.server & self.others


def split_cores() -> Cores:
    usable = sorted(os.sched_getaffinity(0))
    return Cores(frozenset(usable[:1]), frozenset(usable[1:] or usable))


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
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
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


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
