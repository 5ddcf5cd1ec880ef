"""Open many chat sockets and weigh the server while they are open.

    python -m benchmarks.chat_sockets idle --url http://127.0.0.1:9200 --streams 500 --pid PID
    python -m benchmarks.chat_sockets slow --url http://127.0.0.1:9200 --streams 1000 --pid PID

Idle sockets each follow a session of their own in which nothing happens. The others all follow one
chat, whose model says a word each second. Prints one JSON object, see `IdleStreams` and
`SlowStreams` in `benchmarks.open_streams`; how late an event is counts from its first client.
"""

import asyncio
import time
from collections import defaultdict

from benchmarks.chat_client import ChatConnection
from benchmarks.open_streams import (
    IDLE_SECONDS,
    OPENED_AT_ONCE,
    SETTLE_SECONDS,
    SLOW_SECONDS,
    IdleStreams,
    SlowStreams,
    percentiles,
    require_open,
    run_command,
)
from benchmarks.processes import cpu_seconds, resident_kib, waited_seconds
from benchmarks.workloads import SLOW


async def open_sockets(url: str, count: int, session_id: str | None = None) -> list[ChatConnection]:
    """Open sockets that follow a session, or each one of its own."""
    gate = asyncio.Semaphore(OPENED_AT_ONCE)

    async def open_one() -> ChatConnection:
        async with gate:
            return await ChatConnection.open(url, session_id)

    return await asyncio.gather(*(open_one() for _ in range(count)))


async def measure_idle(url: str, streams: int, pid: int) -> IdleStreams:
    empty = resident_kib(pid)
    connections = await open_sockets(url, streams)
    await asyncio.sleep(SETTLE_SECONDS)
    before = cpu_seconds(pid)
    await asyncio.sleep(IDLE_SECONDS)
    cpu = cpu_seconds(pid) - before
    idle = IdleStreams(streams, empty, resident_kib(pid), cpu * 1000 / IDLE_SECONDS)
    require_open(connections)
    return idle


async def measure_slow(url: str, streams: int, pid: int) -> SlowStreams:
    first = await ChatConnection.open(url)
    connections = [first, *await open_sockets(url, streams - 1, first.session_id)]
    times: dict[int, list[float]] = defaultdict(list)

    async def listen(connection: ChatConnection) -> None:
        while True:
            number = await connection.next_number()
            times[number].append(time.perf_counter())

    tasks = [asyncio.create_task(listen(each)) for each in connections]
    await first.send(SLOW.prompt)
    await asyncio.sleep(SETTLE_SECONDS)
    since, cpu, waited = time.perf_counter(), -cpu_seconds(pid), -waited_seconds(pid)
    await asyncio.sleep(SLOW_SECONDS)
    cpu, waited = cpu + cpu_seconds(pid), waited + waited_seconds(pid)
    require_open(connections)
    for task in tasks:
        task.cancel()
    heard = [moments for moments in times.values() if min(moments) >= since]
    late = [1000 * (each - min(moments)) for moments in heard for each in moments]
    if len(late) < streams:
        raise SystemExit(f"{len(late)} reads of {streams} sockets in {SLOW_SECONDS} s")
    cpu_share = cpu / SLOW_SECONDS
    return SlowStreams(streams, len(late), percentiles(late), cpu_share, waited / cpu)


if __name__ == "__main__":
    run_command("hold many chat sockets open", measure_idle, measure_slow)
