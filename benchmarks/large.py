"""Small requests beside many large answers: how long one is held up, and what memory a large answer takes.

    python -m benchmarks.large                              # 20 rounds of each store and of each form of the answer
    python -m benchmarks.large --beside ../old --rounds 10  # in turn with the server of another checkout

Of each round: the longest of the small requests that were asked one after the other while 20 clients took 4 MB each, from
the request's write to `[DONE]`; and by how much the server's resident memory was at its peak above that of the same server,
warm and empty, for each large answer. Every answer is compared with what the model said.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import uvloop

from benchmarks.client import WIRE, Connection, connect, new_conversation, request_bytes, says
from benchmarks.processes import (
    BenchmarkError,
    cpu_seconds,
    forget_peak,
    peak_kib,
    resident_kib,
    split_cores,
)
from benchmarks.rounds import warm_up
from benchmarks.servers import PASSBACK_REDIS, PASSBACK_SQLITE, Server, Site, server, site
from benchmarks.workloads import LARGE_PIECES, LARGE_WHOLE, Answer, Workload

_SMALL = Answer(1, 0)
_ROUND_SECONDS = 120
_WORKS = (LARGE_PIECES, LARGE_WHOLE)
_SERVERS = (PASSBACK_SQLITE, PASSBACK_REDIS)
_OURS, _OTHER = "this checkout", "the other one"


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found.

    Attributes:
        checkout: whose server it was.
        longest_ms: of the small requests.
        work_ms: the most that the server worked while one of them waited: on a busy machine this says more.
        median_ms: of the small requests.
        seconds: until all large answers were there.
        peak: bytes of memory for each byte of a large answer.
        cpu: seconds of the server.
    """

    work: str
    server: str
    checkout: str
    longest_ms: float
    work_ms: float
    median_ms: float
    seconds: float
    peak: float
    cpu: float


@contextmanager
def _large(target: Server, work: Workload, place: Site) -> "Generator[subprocess.Popen[str]]":
    """The load client, which asks for the large answers."""
    answer = work.answer
    command = [sys.executable, "-m", "benchmarks.load", "--url", target.url, "--requests", "1"]
    command += ["--streams", str(work.streams), "--deltas", str(answer.deltas)]
    command += ["--gap-ms", str(answer.gap_ms), "--words", str(answer.words)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        os.sched_setaffinity(process.pid, place.cores.others)
        try:
            yield process
        finally:
            process.kill()


async def _ask_small(target: Server, until: "subprocess.Popen[str]") -> list[tuple[float, float]]:
    """Small requests, one after the other, until the load client has ended; the time and the work of each, in ms."""
    url = target.url
    connection = await connect(url, partial(Connection, WIRE))
    took: list[tuple[float, float]] = []
    deadline = time.perf_counter() + _ROUND_SECONDS
    while until.poll() is None:
        asked = time.perf_counter()
        if asked > deadline:
            raise BenchmarkError(f"not done after {_ROUND_SECONDS} s")
        netloc = urlsplit(url).netloc
        request = request_bytes(WIRE, netloc, _SMALL.prompt, new_conversation())
        worked = cpu_seconds(target.pid)
        reply = await connection.ask(request)
        waited = time.perf_counter() - asked
        took.append((waited * 1000, (cpu_seconds(target.pid) - worked) * 1000))
        if not says(WIRE, reply.body, _SMALL.text):
            raise BenchmarkError(f"a small answer is wrong: {reply.body[-300:]!r}")
    connection.close()
    return took


def measure(target: Server, work: Workload, place: Site, checkout: str, empty: int) -> Round:
    """One round; `empty`: KiB of the server before its first.

    Raises:
        BenchmarkError: an answer was wrong, or did not come.
    """
    forget_peak(target.pid)
    cpu, began = -cpu_seconds(target.pid), time.perf_counter()
    with _large(target, work, place) as process:
        took = uvloop.run(_ask_small(target, process))
        printed, complaint = process.communicate()
    if process.returncode or json.loads(printed)["wrong"]:
        raise BenchmarkError(f"large answers: {complaint.strip()[-300:] or printed[:300]}")
    seconds = time.perf_counter() - began
    grown = (peak_kib(target.pid) - empty) * 1024
    size = work.streams * len(work.answer.text.encode())
    cpu += cpu_seconds(target.pid)
    waits, works = zip(*took, strict=True)
    longest = max(waits), max(works)
    return Round(
        *(work.name, target.name, checkout, *longest, median(waits)), seconds, grown / size, cpu
    )


def rounds(
    name: str, work: Workload, count: int, checkouts: dict[str, Path], place: Site
) -> Generator[Round]:
    """Rounds of fresh servers in turn."""
    with ExitStack() as stack:
        targets: dict[str, tuple[Server, int]] = {}
        for checkout, folder in checkouts.items():
            target = stack.enter_context(server(name, place, checkout=folder))
            warm_up(target, place.cores)
            targets[checkout] = target, resident_kib(target.pid)
        for number in range(count):
            for checkout in sorted(targets, reverse=bool(number % 2)):
                target, empty = targets[checkout]
                yield measure(target, work, place, checkout, empty)


def _table(found: Sequence[Round]) -> str:
    heading = "| answers | server | checkout | small: longest ms | worst | server's work, ms | small: median ms | memory, times the answer | CPU s |"
    lines = [heading, "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for key in dict.fromkeys((each.work, each.server, each.checkout) for each in found):
        own = [each for each in found if (each.work, each.server, each.checkout) == key]
        longest = [each.longest_ms for each in own]
        small, cpu = median(each.median_ms for each in own), median(each.cpu for each in own)
        peak = max(each.peak for each in own)
        worked = median(each.work_ms for each in own)
        figures = f"{median(longest):.0f} | {max(longest):.0f} | {worked:.0f} | {small:.0f} | {peak:.2f} | {cpu:.2f}"
        lines.append(f"| {' | '.join(key)} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="small requests beside large answers")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT")
    parser.add_argument("--servers", nargs="+", default=_SERVERS, choices=_SERVERS)
    parser.add_argument("--works", nargs="+", default=[work.name for work in _WORKS])
    parser.add_argument("--redis-server", default="redis-server", metavar="PROGRAM")
    parser.add_argument("--json", type=Path, help="where the figures of each round go")
    options = parser.parse_args()
    checkouts = {_OURS: Path(__file__).resolve().parent.parent}
    if options.beside is not None:
        checkouts[_OTHER] = options.beside.resolve()
    found: list[Round] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="passback-bench-"))
        place = stack.enter_context(site(Path(folder), split_cores(), options.redis_server))
        works = [each for each in _WORKS if each.name in options.works]
        for work, name in itertools.product(works, options.servers):
            for each in rounds(name, work, options.rounds, checkouts, place):
                print(each, file=sys.stderr, flush=True)
                found.append(each)
    print(_table(found))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
