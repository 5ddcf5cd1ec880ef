"""The measurements: each asks one server once, by a client process, and checks its answers."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.history import HistoryCost
from benchmarks.load import load_arguments
from benchmarks.open_streams import IdleStreams, SlowStreams
from benchmarks.processes import BenchmarkError, Cores, run_client
from benchmarks.servers import (
    PASSBACK_CHAT,
    PASSBACK_REDIS,
    PASSBACK_TWO_WORKERS,
    Server,
    Testbed,
    start_server,
)
from benchmarks.workloads import WARM_UP, WARM_UP_BOTH, HistoryLength, Workload

MODEL_ALONE = "the model alone"
CLIENT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one server under one workload in one round.

    Attributes:
        cpu_ms: for 1,000 text deltas of the model, of all workers that had a part in it.
        store_cpu_ms: the store's, likewise.
        waited: for each second on its core, the seconds that the server waited for it; high if
            others disturbed. None of workers that share a core and wait for each other, and without
            a server.
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

    @property
    def median_first_ms(self) -> float:
        return median(self.first_ms)


@dataclass(frozen=True, slots=True)
class HistorySample:
    """The cost of posts to conversations of one length, in one round; see `HistoryCost`."""

    workload: str
    round: int
    length: HistoryLength
    request_ms: float
    streaming_ms: float
    weighed: int
    waited: float


def read_client(module: str, arguments: Sequence[str], cores: Cores) -> Any:
    """Run a client process to its end; return the JSON that it printed.

    Raises:
        BenchmarkError: it failed, or took too long.
    """
    with run_client(module, arguments, cores) as process:
        try:
            printed, complaint = process.communicate(timeout=CLIENT_SECONDS)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"{module}: not done after {CLIENT_SECONDS} s") from None
    if process.returncode:
        raise BenchmarkError(f"{module}: {complaint.strip()[-300:]}")
    return json.loads(printed)


def put_load(
    url: str,
    work: Workload,
    cores: Cores,
    *,
    dialect: str,
    pids: Mapping[str, int],
    second_reader: str | None = None,
) -> Any:
    """Put a workload on a server; return `load.Measured` as a mapping.

    Raises:
        BenchmarkError: an answer was not what the model said, or the client failed.
    """
    arguments = ["--url", url, "--dialect", dialect, "--requests", str(work.requests)]
    arguments += load_arguments(work)
    if second_reader is not None:
        arguments += ["--second-reader", second_reader]
    for name, pid in pids.items():
        arguments += ["--pid", f"{name}={pid}"]
    measured = read_client("load", arguments, cores)
    if measured["wrong"]:
        wrong, answers = measured["wrong"], measured["answers"]
        raise BenchmarkError(f"{wrong} of {answers} answers are wrong: {measured['example']!r}")
    return measured


def measure_load(target: Server, work: Workload, number: int, cores: Cores) -> Sample:
    roles = {"server": target.pid, "second": target.second_pid, "store": target.store_pid}
    pids = {role: pid for role, pid in roles.items() if pid is not None}
    measured = put_load(
        target.url,
        work,
        cores,
        dialect=target.dialect,
        pids=pids,
        second_reader=target.second_reader,
    )
    cpu = {name: seconds * 1e6 / work.deltas for name, seconds in measured["cpu_seconds"].items()}
    workers = [name for name in ("server", "second") if name in cpu]
    seconds = sum(measured["cpu_seconds"][name] for name in workers)
    waited = sum(measured["waited_seconds"][name] for name in workers)
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


def measure_model(testbed: Testbed, work: Workload, number: int) -> Sample:
    """Measure the same streams without a server between."""
    url = testbed.model_url.removesuffix("/v1")
    measured = put_load(url, work, testbed.cores, dialect="model", pids={})
    return Sample(
        workload=work.name,
        server=MODEL_ALONE,
        round=number,
        first_ms=tuple(measured["first_ms"]),
        cpu_ms=0.0,
        store_cpu_ms=0.0,
        waited=None,
        per_second=measured["per_second"],
    )


def warm_up(target: Server, cores: Cores) -> None:
    """Make a server load what it loads late; also shows that its answers are right."""
    work = WARM_UP_BOTH if target.name == PASSBACK_TWO_WORKERS else WARM_UP
    reader = target.second_reader
    put_load(target.url, work, cores, dialect=target.dialect, pids={}, second_reader=reader)


def measure_history(
    target: Server, testbed: Testbed, work: Workload, length: HistoryLength, number: int
) -> HistorySample:
    """Weigh posts to conversations in Redis that have a history.

    Raises:
        BenchmarkError: an answer was not what the model said, or the client failed.
    """
    arguments = ["--url", target.url, "--store", testbed.redis_url, "--pid", str(target.pid)]
    arguments += ["--messages", str(length.messages), "--behind", str(length.behind)]
    arguments += load_arguments(work)
    cost = HistoryCost(**read_client("history", arguments, testbed.cores))
    if cost.wrong:
        raise BenchmarkError(f"{cost.wrong} of {work.streams} answers are wrong")
    return HistorySample(
        workload=work.name,
        round=number,
        length=length,
        request_ms=cost.request_ms,
        streaming_ms=cost.streaming_ms,
        weighed=cost.weighed,
        waited=cost.waited,
    )


def measure_tools(target: Server, requests: int, cores: Cores) -> float:
    """Return the longest time that ten tools took together, in milliseconds.

    Raises:
        BenchmarkError: an answer had not all the results, or the client failed.
    """
    arguments = ["--url", target.url, "--requests", str(requests)]
    return float(max(read_client("ten_tools", arguments, cores)))


def _read_open_streams(kind: str, name: str, testbed: Testbed, streams: int) -> Any:
    is_chat = name == PASSBACK_CHAT
    with start_server(PASSBACK_REDIS if is_chat else name, testbed) as target:
        warm_up(replace(target, dialect="chat") if is_chat else target, testbed.cores)
        arguments = ["--url", target.url, "--streams", str(streams), "--pid", str(target.pid)]
        client = "chat_sockets" if is_chat else "open_streams"
        return read_client(client, [kind, *arguments], testbed.cores)


def measure_idle(name: str, testbed: Testbed, streams: int) -> IdleStreams:
    """Weigh open, silent streams on a fresh server."""
    return IdleStreams(**_read_open_streams("idle", name, testbed, streams))


def measure_slow(name: str, testbed: Testbed, streams: int) -> SlowStreams:
    """Measure how late very many slow streams are on a fresh server.

    Of the chat socket, a fifth as many clients follow one chat.
    """
    streams = streams // 5 if name == PASSBACK_CHAT else streams
    measured = _read_open_streams("slow", name, testbed, streams)
    return SlowStreams(**measured | {"late_ms": tuple(measured["late_ms"])})
