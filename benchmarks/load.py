"""The load client, a process of its own: many streams, every answer compared with what the model said.

    python -m benchmarks.load --url http://127.0.0.1:9200 --streams 20 --requests 1 --deltas 200 --gap-ms 20 --pid server=PID

Prints one JSON object, see `Measured`. The CPU of the named processes is read right before the first request and
a moment after the last answer, so that what a server still writes then is counted too.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

import uvloop

from benchmarks.client import DIALECTS, Dialect, Reply, connect, request_bytes, says
from benchmarks.processes import cpu_seconds, waited_seconds
from benchmarks.workloads import Answer, Workload

_AFTER_SECONDS = 0.15
_SECONDS_PER_ANSWER = 30


@dataclass(frozen=True, slots=True)
class Measured:
    """What one load found.

    Attributes:
        example: the end of a wrong answer.
        first_ms: each answer's first text after its request.
        cpu_seconds: by the name given with --pid.
        waited_seconds: likewise; much of it means that other work disturbed the measurement.
    """

    answers: int
    wrong: int
    example: str
    first_ms: list[float]
    cpu_seconds: dict[str, float]
    waited_seconds: dict[str, float]


async def _stream(url: str, dialect: Dialect, work: Workload, index: int) -> list[Reply]:
    await asyncio.sleep(index * work.stagger_ms / 1000)
    connection = await connect(url, dialect)
    netloc = urlsplit(url).netloc
    replies: list[Reply] = []
    for _ in range(work.requests):
        request = request_bytes(dialect, netloc, work.answer.prompt)
        async with asyncio.timeout(_SECONDS_PER_ANSWER):
            replies.append(await connection.ask(request))
    connection.close()
    return replies


async def measure(url: str, dialect: Dialect, work: Workload, pids: dict[str, int]) -> Measured:
    cpu = {name: -cpu_seconds(pid) for name, pid in pids.items()}
    waited = {name: -waited_seconds(pid) for name, pid in pids.items()}
    streams = [_stream(url, dialect, work, index) for index in range(work.streams)]
    replies = [reply for done in await asyncio.gather(*streams) for reply in done]
    await asyncio.sleep(_AFTER_SECONDS)
    for name, pid in pids.items():
        cpu[name] += cpu_seconds(pid)
        waited[name] += waited_seconds(pid)
    wrong = _wrong(dialect, replies, work.answer.text)
    return Measured(
        answers=len(replies),
        wrong=len(wrong),
        example=wrong[0].body[-300:].decode(errors="replace") if wrong else "",
        first_ms=[round(reply.first_ms, 3) for reply in replies],
        cpu_seconds=cpu,
        waited_seconds=waited,
    )


def _wrong(dialect: Dialect, replies: Sequence[Reply], text: str) -> list[Reply]:
    return [
        reply for reply in replies if reply.status != 200 or not says(dialect, reply.body, text)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="load client")
    parser.add_argument("--url", required=True)
    parser.add_argument("--dialect", choices=sorted(DIALECTS), default="wire")
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--deltas", type=int, required=True)
    parser.add_argument("--gap-ms", type=int, required=True)
    parser.add_argument("--stagger-ms", type=int, default=0)
    parser.add_argument("--pid", action="append", default=[], help="NAME=PID: weigh this process")
    options = parser.parse_args()
    answer = Answer(options.deltas, options.gap_ms)
    work = Workload("load", options.streams, options.requests, answer, options.stagger_ms)
    pids = {name: int(pid) for name, pid in (item.split("=") for item in options.pid)}
    measured = uvloop.run(measure(options.url, DIALECTS[options.dialect], work, pids))
    print(json.dumps(asdict(measured)))


if __name__ == "__main__":
    main()
