"""Opens streams whose model has said one word and is silent since, and weighs the server with and without them.

    python -m benchmarks.idle --url http://127.0.0.1:9200 --streams 500 --pid PID

Prints one JSON object, see `Idle`. The server should be fresh but warm: what it once allocated, it keeps.
"""

import argparse
import asyncio
import json
import resource
from dataclasses import asdict, dataclass
from functools import partial
from urllib.parse import urlsplit

import uvloop

from benchmarks.client import WIRE, Connection, connect, new_conversation, request_bytes
from benchmarks.processes import cpu_seconds, resident_kib
from benchmarks.workloads import SILENT

_TOGETHER = 25  # so many are being opened at once
_OPEN_SECONDS = 30
_SETTLE_SECONDS = 1.0
_HOLD_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Idle:
    """`cpu_ms`: per second, for all the streams together, while nothing happens on them."""

    streams: int
    empty_kib: int
    open_kib: int
    cpu_ms: float

    @property
    def kib_per_stream(self) -> float:
        return (self.open_kib - self.empty_kib) / self.streams


async def _open(url: str, gate: asyncio.Semaphore) -> Connection:
    async with gate, asyncio.timeout(_OPEN_SECONDS):
        connection = await connect(url, partial(Connection, WIRE))
        netloc = urlsplit(url).netloc
        _ = connection.ask(request_bytes(WIRE, netloc, SILENT.prompt, new_conversation()))
        await connection.text_came.wait()
    return connection


async def hold(url: str, streams: int, pid: int) -> Idle:
    empty = resident_kib(pid)
    gate = asyncio.Semaphore(_TOGETHER)
    connections = await asyncio.gather(*(_open(url, gate) for _ in range(streams)))
    await asyncio.sleep(_SETTLE_SECONDS)
    before = cpu_seconds(pid)
    await asyncio.sleep(_HOLD_SECONDS)
    cpu = cpu_seconds(pid) - before
    idle = Idle(streams, empty, resident_kib(pid), cpu * 1000 / _HOLD_SECONDS)
    if any(connection.is_closed for connection in connections):
        raise SystemExit("the server closed streams that should have stayed open")
    return idle


def raise_file_limit() -> None:
    """A stream takes a file here, and two in the server, which inherits the limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    parser = argparse.ArgumentParser(description="open streams and let them be")
    parser.add_argument("--url", required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True)
    options = parser.parse_args()
    raise_file_limit()
    idle = uvloop.run(hold(options.url, options.streams, options.pid))
    print(json.dumps(asdict(idle)))


if __name__ == "__main__":
    main()
