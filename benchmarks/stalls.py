"""Opens very many streams that say something every second, and sees how late what they say is.

    python -m benchmarks.stalls --url http://127.0.0.1:9200 --streams 5000 --pid PID

Prints one JSON object, see `Stalls`.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

import uvloop
from typing_extensions import override

from benchmarks.client import WIRE, Connection, connect, new_conversation, request_bytes
from benchmarks.idle import raise_file_limit
from benchmarks.processes import cpu_seconds, waited_seconds
from benchmarks.workloads import SLOW

_TOGETHER = 25  # so many are being opened at once
_OPEN_SECONDS = 30
_HOLD_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Stalls:
    """What came while all streams were open.

    Attributes:
        events: reads with something new.
        late_ms: by how much a read came later than its stream's most punctual one: median, p99, most.
        cpu: seconds on its core in each second.
        waited: for each second on its core, the seconds that the server waited for it.
    """

    streams: int
    events: int
    late_ms: tuple[float, float, float]
    cpu: float
    waited: float


class Listening(Connection):
    """A connection that notes when something came."""

    def __init__(self) -> None:
        super().__init__(WIRE)
        self.times: list[float] = []

    @override
    def data_received(self, data: bytes) -> None:
        self.times.append(time.perf_counter())
        super().data_received(data)


async def _open(url: str, gate: asyncio.Semaphore) -> Listening:
    async with gate, asyncio.timeout(_OPEN_SECONDS):
        connection = await connect(url, Listening)
        netloc = urlsplit(url).netloc
        _ = connection.ask(request_bytes(WIRE, netloc, SLOW.prompt, new_conversation()))
        await connection.text_came.wait()
    return connection


def _late(times: Sequence[float], since: float) -> list[float]:
    """The model speaks each `gap`: how much later than by the best of its reads each read came, in ms."""
    gap = SLOW.gap_ms / 1000
    heard = [moment for moment in times if moment >= since]
    if not heard:
        return []
    steps = [round((moment - heard[0]) / gap) for moment in heard]
    offsets = [moment - step * gap for moment, step in zip(heard, steps, strict=True)]
    return [(offset - min(offsets)) * 1000 for offset in offsets]


async def listen(url: str, streams: int, pid: int) -> Stalls:
    gate = asyncio.Semaphore(_TOGETHER)
    connections = await asyncio.gather(*(_open(url, gate) for _ in range(streams)))
    since, cpu, waited = time.perf_counter(), -cpu_seconds(pid), -waited_seconds(pid)
    await asyncio.sleep(_HOLD_SECONDS)
    cpu, waited = cpu + cpu_seconds(pid), waited + waited_seconds(pid)
    if any(connection.is_closed for connection in connections):
        raise SystemExit("the server closed streams that should have stayed open")
    late = sorted(each for connection in connections for each in _late(connection.times, since))
    if len(late) < streams:
        raise SystemExit(f"{len(late)} reads of {streams} streams in {_HOLD_SECONDS} s")
    spread = (late[len(late) // 2], late[int(0.99 * (len(late) - 1))], late[-1])
    return Stalls(streams, len(late), spread, cpu / _HOLD_SECONDS, waited / cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description="many slow streams")
    parser.add_argument("--url", required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True)
    options = parser.parse_args()
    raise_file_limit()
    print(json.dumps(asdict(uvloop.run(listen(options.url, options.streams, options.pid)))))


if __name__ == "__main__":
    main()
