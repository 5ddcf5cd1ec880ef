"""Small requests beside many large answers: their delay, and the memory of a large answer.

    python -m benchmarks.large                              # 20 rounds of each store and answer
    python -m benchmarks.large --beside ../old --rounds 10  # in turn with another checkout's server

Of each round: the longest of the small requests that were asked one after the other while 20
clients took 4 MB each, from the request's write to `[DONE]`; and by how much the server's resident
memory was at its peak above that of the same server, warm and empty, for each large answer. Every
answer is compared with what the model said.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from statistics import median
from subprocess import Popen

import uvloop

from benchmarks.client import WIRE, Connection, new_conversation_id
from benchmarks.load import load_arguments
from benchmarks.measurements import warm_up
from benchmarks.processes import (
    BenchmarkError,
    cpu_seconds,
    peak_kib,
    reset_peak,
    resident_kib,
    run_client,
    split_cores,
)
from benchmarks.report import format_table
from benchmarks.servers import (
    PASSBACK_REDIS,
    PASSBACK_SQLITE,
    Server,
    Testbed,
    start_server,
    start_testbed,
)
from benchmarks.workloads import LARGE_PIECES, LARGE_WHOLE, Answer, Workload

SMALL = Answer(1, 0)
ROUND_SECONDS = 120
TITLES = (
    "answers",
    "server",
    "checkout",
    "small: longest ms",
    "worst",
    "server's work, ms",
    "small: median ms",
    "memory, times the answer",
    "CPU s",
)
WORKS = (LARGE_PIECES, LARGE_WHOLE)
SERVERS = (PASSBACK_SQLITE, PASSBACK_REDIS)
OURS, OTHER = "this checkout", "the other one"


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of one round.

    Attributes:
        checkout: the one whose server it was.
        longest_ms: of the small requests.
        work_ms: the most that the server worked while one of them waited: on a busy machine this
            says more.
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


async def ask_small(target: Server, until: Popen[str]) -> list[tuple[float, float]]:
    """Ask small requests until the load client has ended; return the time and work of each, in ms.

    Raises:
        BenchmarkError: an answer was wrong, or the load client took too long.
    """
    connection = await Connection.open(target.url)
    took: list[tuple[float, float]] = []
    deadline = time.perf_counter() + ROUND_SECONDS
    while until.poll() is None:
        asked = time.perf_counter()
        if asked > deadline:
            raise BenchmarkError(f"not done after {ROUND_SECONDS} s")
        worked = cpu_seconds(target.pid)
        reply = await connection.ask(SMALL.prompt, new_conversation_id())
        waited = time.perf_counter() - asked
        took.append((waited * 1000, (cpu_seconds(target.pid) - worked) * 1000))
        if not WIRE.has_answer(reply.body, SMALL.text):
            raise BenchmarkError(f"a small answer is wrong: {reply.body[-300:]!r}")
    connection.close()
    return took


def measure(target: Server, work: Workload, testbed: Testbed, checkout: str, empty: int) -> Round:
    """Measure one round of a server that took `empty` KiB before its first.

    Raises:
        BenchmarkError: an answer was wrong, or did not come.
    """
    reset_peak(target.pid)
    arguments = ["--url", target.url, "--requests", "1", *load_arguments(work)]
    arguments += ["--words", str(work.answer.words)]
    cpu, began = -cpu_seconds(target.pid), time.perf_counter()
    with run_client("load", arguments, testbed.cores) as process:
        took = uvloop.run(ask_small(target, process))
        printed, complaint = process.communicate()
    if process.returncode or json.loads(printed)["wrong"]:
        raise BenchmarkError(f"large answers: {complaint.strip()[-300:] or printed[:300]}")
    seconds = time.perf_counter() - began
    grown = (peak_kib(target.pid) - empty) * 1024
    waits, works = zip(*took, strict=True)
    return Round(
        work=work.name,
        server=target.name,
        checkout=checkout,
        longest_ms=max(waits),
        work_ms=max(works),
        median_ms=median(waits),
        seconds=seconds,
        peak=grown / (work.streams * len(work.answer.text.encode())),
        cpu=cpu + cpu_seconds(target.pid),
    )


def measure_rounds(
    name: str, work: Workload, count: int, checkouts: dict[str, Path], testbed: Testbed
) -> Generator[Round]:
    """Measure fresh servers in turn."""
    with ExitStack() as stack:
        targets: dict[str, tuple[Server, int]] = {}
        for checkout, folder in checkouts.items():
            target = stack.enter_context(start_server(name, testbed, checkout=folder))
            warm_up(target, testbed.cores)
            targets[checkout] = target, resident_kib(target.pid)
        for number in range(count):
            for checkout in sorted(targets, reverse=bool(number % 2)):
                target, empty = targets[checkout]
                yield measure(target, work, testbed, checkout, empty)


def summarize(rounds: Sequence[Round], /) -> tuple[str, ...]:
    """Return the cells of a line of the table, from the rounds of one server."""
    first = rounds[0]
    return (
        *(first.work, first.server, first.checkout),
        f"{median(each.longest_ms for each in rounds):.0f}",
        f"{max(each.longest_ms for each in rounds):.0f}",
        f"{median(each.work_ms for each in rounds):.0f}",
        f"{median(each.median_ms for each in rounds):.0f}",
        f"{max(each.peak for each in rounds):.2f}",
        f"{median(each.cpu for each in rounds):.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="small requests beside large answers")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT")
    parser.add_argument("--servers", nargs="+", default=SERVERS, choices=SERVERS)
    parser.add_argument("--works", nargs="+", default=[work.name for work in WORKS])
    parser.add_argument("--redis-server", default="redis-server", metavar="PROGRAM")
    parser.add_argument("--json", type=Path, help="where the figures of each round go")
    options = parser.parse_args()
    checkouts = {OURS: Path(__file__).resolve().parent.parent}
    if options.beside is not None:
        checkouts[OTHER] = options.beside.resolve()
    found: list[Round] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="passback-bench-"))
        testbed = stack.enter_context(
            start_testbed(Path(folder), split_cores(), options.redis_server)
        )
        works = [each for each in WORKS if each.name in options.works]
        for work, name in itertools.product(works, options.servers):
            for each in measure_rounds(name, work, options.rounds, checkouts, testbed):
                print(each, file=sys.stderr, flush=True)
                found.append(each)
    lines: dict[tuple[str, ...], list[Round]] = {}
    for each in found:
        lines.setdefault((each.work, each.server, each.checkout), []).append(each)
    columns = [(title, itemgetter(index)) for index, title in enumerate(TITLES)]
    print(format_table(columns, map(summarize, lines.values())))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
