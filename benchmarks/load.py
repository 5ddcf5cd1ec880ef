"""The load client, a process of its own: many streams, every answer compared with what the model said.

    python -m benchmarks.load --url http://127.0.0.1:9200 --streams 20 --requests 1 --deltas 200 --gap-ms 20 --pid server=PID

Each run gets a second reader with `--second-reader URL`: of the same server, or of another worker.

Prints one JSON object, see `Measured`. The CPU of the named processes is read right before the first request and
a moment after the last answer, so that what a server still writes then is counted too.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from urllib.parse import urlsplit

import uvloop

from benchmarks.client import (
    DIALECTS,
    Connection,
    Dialect,
    Reply,
    connect,
    follow_bytes,
    new_conversation,
    request_bytes,
    says,
)
from benchmarks.processes import cpu_seconds, waited_seconds
from benchmarks.workloads import Answer, Workload

_AFTER_SECONDS = 0.15
_SECONDS_PER_ANSWER = 30


@dataclass(frozen=True, slots=True)
class Measured:
    """What one load found.

    Attributes:
        answers: those of the second readers, too.
        example: the end of a wrong answer.
        first_ms: each answer's first text after its request; without those of the second readers.
        per_second: answers, from when the last stream has begun until the first has ended. None: there is no such time.
        cpu_seconds: by the name given with --pid.
        waited_seconds: likewise; much of it means that other work disturbed the measurement.
    """

    answers: int
    wrong: int
    example: str
    first_ms: list[float]
    per_second: float | None
    cpu_seconds: dict[str, float]
    waited_seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask, in which dialect, and where the second reader of each run goes, if there is one."""

    url: str
    dialect: Dialect
    second_reader: str | None = None


@dataclass(slots=True)
class _Replies:
    first: list[Reply] = field(default_factory=list[Reply])
    second: list[Reply] = field(default_factory=list[Reply])
    began: list[float] = field(default_factory=list[float])  # of each stream
    ended: list[float] = field(default_factory=list[float])
    moments: list[float] = field(default_factory=list[float])  # of each answer, when it was there

    @property
    def per_second(self) -> float | None:
        since, until = max(self.began), min(self.ended)
        if until <= since:
            return None
        return sum(since < moment <= until for moment in self.moments) / (until - since)


async def _stream(target: Target, work: Workload, index: int, replies: _Replies) -> None:
    await asyncio.sleep(index * work.stagger_ms / 1000)
    connection = await connect(target.url, partial(Connection, target.dialect))
    replies.began.append(time.perf_counter())
    for _ in range(work.requests):
        async with asyncio.timeout(_SECONDS_PER_ANSWER):
            await _answer(target, connection, work.answer.prompt, replies)
        replies.moments.append(time.perf_counter())
    replies.ended.append(replies.moments[-1])
    connection.close()


async def _answer(target: Target, connection: Connection, prompt: str, replies: _Replies) -> None:
    """One answer; its second reader comes when the first one has the first text."""
    conversation = new_conversation()
    netloc = urlsplit(target.url).netloc
    reply = connection.ask(request_bytes(target.dialect, netloc, prompt, conversation))
    if target.second_reader is not None:
        await connection.text_came.wait()
        replies.second.append(await _follow(target.second_reader, target.dialect, conversation))
    replies.first.append(await reply)


async def _follow(url: str, dialect: Dialect, conversation: str) -> Reply:
    connection = await connect(url, partial(Connection, dialect))
    reply = await connection.ask(follow_bytes(urlsplit(url).netloc, conversation))
    connection.close()
    return reply


async def measure(target: Target, work: Workload, pids: dict[str, int]) -> Measured:
    cpu = {name: -cpu_seconds(pid) for name, pid in pids.items()}
    waited = {name: -waited_seconds(pid) for name, pid in pids.items()}
    replies = _Replies()
    await asyncio.gather(*(_stream(target, work, index, replies) for index in range(work.streams)))
    await asyncio.sleep(_AFTER_SECONDS)
    for name, pid in pids.items():
        cpu[name] += cpu_seconds(pid)
        waited[name] += waited_seconds(pid)
    answers = [*replies.first, *replies.second]
    wrong = _wrong(target.dialect, answers, work.answer.text)
    return Measured(
        answers=len(answers),
        wrong=len(wrong),
        example=wrong[0].body[-300:].decode(errors="replace") if wrong else "",
        first_ms=[round(reply.first_ms, 3) for reply in replies.first],
        per_second=replies.per_second,
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
    parser.add_argument("--second-reader", metavar="URL")
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--deltas", type=int, required=True)
    parser.add_argument("--gap-ms", type=int, required=True)
    parser.add_argument("--words", type=int, default=1, help="of each delta")
    parser.add_argument("--stagger-ms", type=int, default=0)
    parser.add_argument("--pid", action="append", default=[], help="NAME=PID: weigh this process")
    options = parser.parse_args()
    answer = Answer(options.deltas, options.gap_ms, options.words)
    work = Workload("load", options.streams, options.requests, answer, options.stagger_ms)
    pids = {name: int(pid) for name, pid in (item.split("=") for item in options.pid)}
    target = Target(options.url, DIALECTS[options.dialect], options.second_reader)
    measured = uvloop.run(measure(target, work, pids))
    print(json.dumps(asdict(measured)))


if __name__ == "__main__":
    main()
