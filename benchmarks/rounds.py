"""Makes the measurements: rounds of A B C A B C, so that the noise of a machine meets all servers alike."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.history import History
from benchmarks.idle import Idle
from benchmarks.processes import BenchmarkError, Cores
from benchmarks.servers import PASSBACK_TWO_WORKERS, Server, Site, server
from benchmarks.stalls import Stalls
from benchmarks.workloads import WARM_UP, WARM_UP_BOTH, Workload

MODEL_ALONE = "the model alone"
_CLIENT_SECONDS = 120

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """One server under one workload in one round. CPU is in milliseconds per 1,000 text deltas of the model.

    Attributes:
        cpu_ms: of all workers that had a part in it.
        waited: for each second on its core, the seconds that the server waited for it; high if others disturbed.
            None of workers that share a core and wait for each other, and without a server.
        per_second: answers, while all streams asked; None: they never did so all at once.
    """

    workload: str
    server: str
    round: int
    first_ms: tuple[float, ...]
    cpu_ms: float
    store_cpu_ms: float
    waited: float | None
    per_second: float | None


def _client(module: str, arguments: Sequence[str], cores: Cores) -> Any:
    """Run a client process to its end; gives the JSON that it printed."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        os.sched_setaffinity(process.pid, cores.others)
        try:
            printed, complaint = process.communicate(timeout=_CLIENT_SECONDS)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"{module}: not done after {_CLIENT_SECONDS} s") from None
        finally:
            process.kill()  # does nothing to one that has ended
    if process.returncode:
        raise BenchmarkError(f"{module}: {complaint.strip()[-300:]}")
    return json.loads(printed)


class Record(NamedTuple):
    """How many messages a conversation has, and how many of them are behind its boundary."""

    messages: int
    behind: int


@dataclass(frozen=True, slots=True)
class HistorySample:
    """Posts to conversations that have a record, in one round; see `History`."""

    workload: str
    round: int
    record: Record
    request_ms: float
    streaming_ms: float
    weighed: int
    waited: float


def load(
    url: str,
    work: Workload,
    cores: Cores,
    *,
    dialect: str,
    pids: Mapping[str, int],
    second_reader: str | None = None,
) -> Any:
    """Put a workload on a server; gives `load.Measured` as a mapping.

    Raises:
        BenchmarkError: an answer was not what the model said, or the client failed.
    """
    arguments = ["--url", url, "--dialect", dialect, "--requests", str(work.requests)]
    arguments += _pace(work)
    if second_reader is not None:
        arguments += ["--second-reader", second_reader]
    for name, pid in pids.items():
        arguments += ["--pid", f"{name}={pid}"]
    measured = _client("load", arguments, cores)
    if measured["wrong"]:
        wrong, answers = measured["wrong"], measured["answers"]
        raise BenchmarkError(f"{wrong} of {answers} answers are wrong: {measured['example']!r}")
    return measured


def _pace(work: Workload) -> list[str]:
    arguments = ["--streams", str(work.streams), "--stagger-ms", str(work.stagger_ms)]
    return [*arguments, "--deltas", str(work.answer.deltas), "--gap-ms", str(work.answer.gap_ms)]


def sample(target: Server, work: Workload, number: int, cores: Cores) -> Sample:
    asked = {"server": target.pid, "second": target.second_pid, "store": target.store_pid}
    pids = {role: pid for role, pid in asked.items() if pid is not None}
    reader = target.second_reader
    dialect = target.dialect
    measured = load(target.url, work, cores, dialect=dialect, pids=pids, second_reader=reader)
    cpu = {name: seconds * 1e6 / work.deltas for name, seconds in measured["cpu_seconds"].items()}
    workers = [name for name in ("server", "second") if name in cpu]
    seconds, waited = (
        sum(measured[what][name] for name in workers) for what in ("cpu_seconds", "waited_seconds")
    )
    return Sample(
        workload=work.name,
        server=target.name,
        round=number,
        first_ms=tuple(measured["first_ms"]),
        cpu_ms=sum(cpu[name] for name in workers),
        store_cpu_ms=cpu.get("store", 0.0),
        waited=None if target.shares_core else waited / seconds,
        per_second=measured["per_second"],
    )


def model_alone(place: Site, work: Workload, number: int) -> Sample:
    """The same streams without a server between."""
    url = place.model_url.removesuffix("/v1")
    measured = load(url, work, place.cores, dialect="model", pids={})
    first, rate = tuple(measured["first_ms"]), measured["per_second"]
    return Sample(
        workload=work.name,
        server=MODEL_ALONE,
        round=number,
        first_ms=first,
        cpu_ms=0.0,
        store_cpu_ms=0.0,
        waited=None,
        per_second=rate,
    )


def warm_up(target: Server, cores: Cores) -> None:
    """Load what is loaded late; also shows that the server's answers are right."""
    work = WARM_UP_BOTH if target.name == PASSBACK_TWO_WORKERS else WARM_UP
    reader = target.second_reader
    load(target.url, work, cores, dialect=target.dialect, pids={}, second_reader=reader)


def history(
    target: Server, place: Site, work: Workload, record: Record, number: int
) -> HistorySample:
    """Weigh posts to conversations in Redis that have a history.

    Raises:
        BenchmarkError: an answer was not what the model said, or the client failed.
    """
    arguments = ["--url", target.url, "--store", place.redis_url, "--pid", str(target.pid)]
    arguments += ["--messages", str(record.messages), "--behind", str(record.behind), *_pace(work)]
    found = History(**_client("history", arguments, place.cores))
    if found.wrong:
        raise BenchmarkError(f"{found.wrong} of {work.streams} answers are wrong")
    return HistorySample(
        workload=work.name,
        round=number,
        record=record,
        request_ms=found.request_ms,
        streaming_ms=found.streaming_ms,
        weighed=found.weighed,
        waited=found.waited,
    )


def ten_tools(target: Server, requests: int, cores: Cores) -> float:
    """The longest that ten tools took together, in milliseconds, of so many times.

    Raises:
        BenchmarkError: an answer had not all the results, or the client failed.
    """
    taken: list[float] = _client("tools", ["--url", target.url, "--requests", str(requests)], cores)
    return max(taken)


def idle(name: str, place: Site, streams: int) -> Idle:
    """Weigh open, silent streams on a fresh server."""
    with server(name, place) as target:
        warm_up(target, place.cores)
        arguments = ["--url", target.url, "--streams", str(streams), "--pid", str(target.pid)]
        return Idle(**_client("idle", arguments, place.cores))


def stalls(name: str, place: Site, streams: int) -> Stalls:
    """Hear how late very many slow streams are on a fresh server."""
    with server(name, place) as target:
        warm_up(target, place.cores)
        arguments = ["--url", target.url, "--streams", str(streams), "--pid", str(target.pid)]
        found = _client("stalls", arguments, place.cores)
        return Stalls(**found | {"late_ms": tuple(found["late_ms"])})
