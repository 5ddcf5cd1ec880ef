"""Open many streams and weigh the server while they are open.

    python -m benchmarks.open_streams idle --url http://127.0.0.1:9200 --streams 500 --pid PID
    python -m benchmarks.open_streams slow --url http://127.0.0.1:9200 --streams 5000 --pid PID

The model of idle streams has said one word and is silent since; that of slow ones says a word each
second. Prints one JSON object, see `IdleStreams` and `SlowStreams`. The server should be fresh but
warm: what it once allocated, it keeps.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import uvloop
from typing_extensions import override

from benchmarks.client import Connection, Dialect, new_conversation_id
from benchmarks.processes import cpu_seconds, raise_file_limit, resident_kib, waited_seconds
from benchmarks.workloads import SILENT, SLOW, Answer

OPENED_AT_ONCE = 25
OPEN_SECONDS = 30  # until a stream has its first text
SETTLE_SECONDS = 1.0
IDLE_SECONDS = 4.0
SLOW_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class IdleStreams:
    """The cost of silent streams.

    Attributes:
        cpu_ms: per second, for all the streams together.
    """

    streams: int
    empty_kib: int
    open_kib: int
    cpu_ms: float

    @property
    def kib_per_stream(self) -> float:
        return (self.open_kib - self.empty_kib) / self.streams


@dataclass(frozen=True, slots=True)
class SlowStreams:
    """The delays of slow streams while all were open.

    Attributes:
        events: reads with something new.
        late_ms: by how much a read came later than its stream's most punctual one: median, p99,
            most.
        cpu: seconds on its core in each second.
        waited: for each second on its core, the seconds that the server waited for it.
    """

    streams: int
    events: int
    late_ms: tuple[float, float, float]
    cpu: float
    waited: float


class TimedConnection(Connection):
    """A connection that notes the time of each read."""

    def __init__(self, netloc: str, dialect: Dialect) -> None:
        super().__init__(netloc, dialect)
        self.times: list[float] = []

    @override
    def data_received(self, data: bytes) -> None:
        self.times.append(time.perf_counter())
        super().data_received(data)


async def open_streams(url: str, streams: int, answer: Answer) -> list[TimedConnection]:
    """Open streams, some at once, and wait until each has its first text."""
    gate = asyncio.Semaphore(OPENED_AT_ONCE)

    async def open_one() -> TimedConnection:
        async with gate, asyncio.timeout(OPEN_SECONDS):
            connection = await TimedConnection.open(url)
            _ = connection.ask(answer.prompt, new_conversation_id())
            await connection.text_came.wait()
        return connection

    return await asyncio.gather(*(open_one() for _ in range(streams)))


class Closable(Protocol):
    """A connection that the server may have closed."""

    @property
    def is_closed(self) -> bool: ...


def require_open(connections: Sequence[Closable], /) -> None:
    if any(connection.is_closed for connection in connections):
        raise SystemExit("the server closed streams that should have stayed open")


async def measure_idle(url: str, streams: int, pid: int) -> IdleStreams:
    empty = resident_kib(pid)
    connections = await open_streams(url, streams, SILENT)
    await asyncio.sleep(SETTLE_SECONDS)
    before = cpu_seconds(pid)
    await asyncio.sleep(IDLE_SECONDS)
    cpu = cpu_seconds(pid) - before
    idle = IdleStreams(streams, empty, resident_kib(pid), cpu * 1000 / IDLE_SECONDS)
    require_open(connections)
    return idle


def delays_ms(times: Sequence[float], since: float) -> list[float]:
    """Return how much later than by the best of a stream's reads each read came.

    Args:
        times: the moments of the reads, of a model that speaks each `SLOW.gap_ms`.
        since: the moment from which reads count.
    """
    gap = SLOW.gap_ms / 1000
    heard = [moment for moment in times if moment >= since]
    if not heard:
        return []
    steps = [round((moment - heard[0]) / gap) for moment in heard]
    offsets = [moment - step * gap for moment, step in zip(heard, steps, strict=True)]
    return [(offset - min(offsets)) * 1000 for offset in offsets]


async def measure_slow(url: str, streams: int, pid: int) -> SlowStreams:
    connections = await open_streams(url, streams, SLOW)
    since, cpu, waited = time.perf_counter(), -cpu_seconds(pid), -waited_seconds(pid)
    await asyncio.sleep(SLOW_SECONDS)
    cpu, waited = cpu + cpu_seconds(pid), waited + waited_seconds(pid)
    require_open(connections)
    late = [each for connection in connections for each in delays_ms(connection.times, since)]
    if len(late) < streams:
        raise SystemExit(f"{len(late)} reads of {streams} streams in {SLOW_SECONDS} s")
    return SlowStreams(streams, len(late), percentiles(late), cpu / SLOW_SECONDS, waited / cpu)


def percentiles(late: Sequence[float], /) -> tuple[float, float, float]:
    """Return the median, the p99 and the most of some delays."""
    late = sorted(late)
    return late[len(late) // 2], late[int(0.99 * (len(late) - 1))], late[-1]


def run_command(
    description: str,
    idle: Callable[[str, int, int], Coroutine[Any, Any, IdleStreams]],
    slow: Callable[[str, int, int], Coroutine[Any, Any, SlowStreams]],
    /,
) -> None:
    """Run one of two measurements, as the command line says, and print what it gives."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("kind", choices=("idle", "slow"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True)
    options = parser.parse_args()
    raise_file_limit()
    measured: IdleStreams | SlowStreams
    if options.kind == "idle":
        measured = uvloop.run(idle(options.url, options.streams, options.pid))
    else:
        measured = uvloop.run(slow(options.url, options.streams, options.pid))
    print(json.dumps(asdict(measured)))


if __name__ == "__main__":
    run_command("hold many streams open", measure_idle, measure_slow)
