"""The load client, a process of its own: many streams, every answer compared with the model's.

    python -m benchmarks.load --url http://127.0.0.1:9200 --streams 20 --requests 1 \
        --deltas 200 --gap-ms 20 --pid server=PID

Each run gets a second reader with `--second-reader URL`: of the same server, or of another worker.

Prints one JSON object, see `Measured`. The CPU of the named processes is read right before the
first request and a moment after the last answer, so that what a server still writes then is counted
too, and connections are not; nor are the sessions of a chat socket and of ACP.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

import uvloop

from benchmarks.acp_client import AcpConnection
from benchmarks.chat_client import ChatConnection
from benchmarks.client import (
    ACP,
    CHAT,
    DIALECTS,
    Connection,
    Dialect,
    Reply,
    new_conversation_id,
)
from benchmarks.processes import cpu_seconds, waited_seconds
from benchmarks.workloads import Answer, Workload

AnyConnection: TypeAlias = Connection | ChatConnection | AcpConnection

SECONDS_PER_ANSWER = 30
SETTLE_SECONDS = 0.15  # after the last answer


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one load.

    Attributes:
        answers: those of the second readers, too.
        example: the end of a wrong answer.
        first_ms: each answer's first text after its request; without the second readers'.
        per_second: answers, from when the last stream has begun until the first has ended. None:
            there is no such time.
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
    """The server to ask, its dialect, and where each run's second reader goes, if there is one."""

    url: str
    dialect: Dialect
    second_reader: str | None = None


@dataclass(frozen=True, slots=True)
class StreamReplies:
    """The replies of one stream, and when it began and had each."""

    began: float
    first: list[Reply] = field(default_factory=list[Reply])
    second: list[Reply] = field(default_factory=list[Reply])
    completed: list[float] = field(default_factory=list[float])


async def open_connection(target: Target, work: Workload, index: int) -> AnyConnection:
    """Connect a stream. Connections come one by one, which is fair to two workers."""
    await asyncio.sleep(index * work.stagger_ms / 1000)
    if target.dialect is CHAT:
        return await ChatConnection.open(target.url)
    if target.dialect is ACP:
        return await AcpConnection.open(target.url)
    return await Connection.open(target.url, target.dialect)


async def run_stream(
    target: Target, work: Workload, index: int, connection: AnyConnection
) -> StreamReplies:
    """Ask one request after the other; a second reader comes when the first has the first text."""
    await asyncio.sleep(index * work.stagger_ms / 1000)
    replies = StreamReplies(time.perf_counter())
    for _ in range(work.requests):
        async with asyncio.timeout(SECONDS_PER_ANSWER):
            conversation = new_conversation_id()
            reply = asyncio.ensure_future(connection.ask(work.answer.prompt, conversation))
            if target.second_reader is not None:
                await connection.text_came.wait()
                reader = await Connection.open(target.second_reader, target.dialect)
                replies.second.append(await reader.follow(conversation))
                reader.close()
            replies.first.append(await reply)
        replies.completed.append(time.perf_counter())
    connection.close()
    return replies


def answers_per_second(streams: Sequence[StreamReplies], /) -> float | None:
    since = max(stream.began for stream in streams)
    until = min(stream.completed[-1] for stream in streams)
    if until <= since:
        return None
    completed = [moment for stream in streams for moment in stream.completed]
    return sum(since < moment <= until for moment in completed) / (until - since)


async def measure(target: Target, work: Workload, pids: dict[str, int]) -> Measured:
    connections = await asyncio.gather(
        *(open_connection(target, work, index) for index in range(work.streams))
    )
    cpu = {name: -cpu_seconds(pid) for name, pid in pids.items()}
    waited = {name: -waited_seconds(pid) for name, pid in pids.items()}
    streams = await asyncio.gather(
        *(run_stream(target, work, index, each) for index, each in enumerate(connections))
    )
    await asyncio.sleep(SETTLE_SECONDS)
    for name, pid in pids.items():
        cpu[name] += cpu_seconds(pid)
        waited[name] += waited_seconds(pid)
    text = work.answer.text
    answers = [reply for stream in streams for reply in (*stream.first, *stream.second)]
    wrong = [
        reply
        for reply in answers
        if reply.status != 200 or not target.dialect.has_answer(reply.body, text)
    ]
    return Measured(
        answers=len(answers),
        wrong=len(wrong),
        example=wrong[0].body[-300:].decode(errors="replace") if wrong else "",
        first_ms=[round(reply.first_ms, 3) for stream in streams for reply in stream.first],
        per_second=answers_per_second(streams),
        cpu_seconds=cpu,
        waited_seconds=waited,
    )


def load_arguments(work: Workload, /) -> list[str]:
    """Return the options of the command line that ask for a workload's streams."""
    arguments = ["--streams", str(work.streams), "--stagger-ms", str(work.stagger_ms)]
    return [*arguments, "--deltas", str(work.answer.deltas), "--gap-ms", str(work.answer.gap_ms)]


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
