"""`benchmarks/run`: measure the servers beside a minimal proxy and print the ratios. See docs/explanation/performance.md."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TypeVar

from benchmarks.committed import last_committed
from benchmarks.figures import Results
from benchmarks.idle import raise_file_limit
from benchmarks.plans import LONG_HISTORY, WORKLOADS, Plan, plan
from benchmarks.processes import BenchmarkError, split_cores
from benchmarks.report import checked, save, text
from benchmarks.rounds import (
    HistorySample,
    Record,
    Sample,
    history,
    idle,
    model_alone,
    sample,
    stalls,
    ten_tools,
    warm_up,
)
from benchmarks.servers import (
    PASSBACK_REDIS,
    PASSBACK_TOOLS,
    Server,
    Site,
    contestant,
    server,
    site,
    takes_part,
)
from benchmarks.workloads import Workload

RESULTS = Path(__file__).with_name("results.json")
QUICK_RESULTS = RESULTS.with_name("results-quick.json")
NOT_POSSIBLE = 2  # the exit code where something that it needs is missing

T = TypeVar("T")


@dataclass(slots=True)
class Session:
    """A run of the benchmarks: what has been found so far."""

    place: Site
    plan: Plan
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    started: float = field(default_factory=time.monotonic)

    def say(self, words: str) -> None:
        print(f"[{time.monotonic() - self.started:5.1f} s] {words}", file=sys.stderr, flush=True)

    def measure(self) -> Results:
        samples: list[Sample] = []
        with ExitStack() as stack:
            started: dict[str, Server] = {}
            for name in self.plan.servers:
                self._start(name, started, stack)
            for work in self.plan.works:
                targets = [one for name, one in started.items() if takes_part(name, work)]
                for number in self._rounds(work):
                    samples.append(model_alone(self.place, work, number))
                    samples += self._round(targets, work, number)
            lengths = self._history(started)
        weighed = self._each(started, "idle", idle, self.plan.idle_servers, self.plan.idle_streams)
        late = self._each(started, "stalls", stalls, self.plan.slow_servers, self.plan.slow_streams)
        tools, has_spare = self._tools(), bool(self.place.cores.spare)
        return Results(
            samples=samples,
            history=lengths,
            idle=weighed,
            stalls=late,
            tools=tools,
            left_out=self.left_out,
            has_spare_core=has_spare,
        )

    def _rounds(self, work: Workload) -> Iterator[int]:
        rounds = self.plan.rounds[work.name]
        for number in range(1, rounds + 1):
            self.say(f"{work.name}, round {number} of {rounds}")
            yield number

    def _round(self, targets: Sequence[Server], work: Workload, number: int) -> list[Sample]:
        """Each server once, in an order of this round's own."""
        samples: list[Sample] = []
        for target in in_turn(targets, number):
            try:
                samples.append(sample(target, work, number, self.place.cores))
            except BenchmarkError as error:
                self._leave_out(f"{target.name} ({work.name}, round {number})", error)
        return samples

    def _leave_out(self, what: str, error: BenchmarkError) -> None:
        self.left_out[what] = str(error)
        self.say(f"left out: {what}: {error}")

    def _start(self, name: str, started: dict[str, Server], stack: ExitStack) -> None:
        """Leaves it out if it does not start or answers wrongly."""
        self.say(f"start {name}")
        try:
            target = stack.enter_context(contestant(name, self.place, started))
            warm_up(target, self.place.cores)
        except BenchmarkError as error:
            self._leave_out(name, error)
        else:
            started[name] = target

    def _history(self, started: Mapping[str, Server]) -> list[HistorySample]:
        """Posts to a long conversation beside posts to a short one, of the same server."""
        if PASSBACK_REDIS not in started:
            return []
        target = started[PASSBACK_REDIS]
        return [
            found
            for work, records in self.plan.lengths
            for found in self._lengths(target, work, records)
        ]

    def _lengths(
        self, target: Server, work: Workload, records: Sequence[Record]
    ) -> Iterator[HistorySample]:
        for number in self._rounds(work):
            for record in in_turn(records, number):
                try:
                    yield history(target, self.place, work, record, number)
                except BenchmarkError as error:
                    what = f"{work.name} of {record.messages} messages, round {number}"
                    self._leave_out(what, error)

    def _each(
        self,
        started: Collection[str],
        what: str,
        measure: Callable[[str, Site, int], T],
        servers: Sequence[str],
        streams: int,
    ) -> dict[str, T]:
        """Each server by itself, started afresh, with so many streams."""
        found: dict[str, T] = {}
        for name in servers if streams else ():
            if name not in started:
                continue
            self.say(f"{what}, {name}")
            try:
                found[name] = measure(name, self.place, streams)
            except BenchmarkError as error:
                self._leave_out(f"{name} ({what})", error)
        return found

    def _tools(self) -> list[float]:
        """The longest of each round, on a server of their own."""
        found: list[float] = []
        if not self.plan.tool_requests:
            return found
        try:
            with server(PASSBACK_TOOLS, self.place) as target:
                ten_tools(target, 1, self.place.cores)  # loads what is loaded late
                for number in range(1, self.plan.tool_rounds + 1):
                    self.say(f"ten tools, round {number} of {self.plan.tool_rounds}")
                    found.append(ten_tools(target, self.plan.tool_requests, self.place.cores))
        except BenchmarkError as error:
            self._leave_out(PASSBACK_TOOLS, error)
        return found


def in_turn(items: Sequence[T], number: int) -> list[T]:
    """Another one goes first in turn, and every second round goes backwards: no place in the row is an advantage."""
    turn = number % len(items) if items else 0
    order = [*items[turn:], *items[:turn]]
    is_pair = len(items) == 2  # turning it is going backwards
    return order if number % 2 or is_pair else order[::-1]


def _options() -> argparse.Namespace:
    names = [work.name for work in WORKLOADS]
    parser = argparse.ArgumentParser(prog="benchmarks/run", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one short round of what matters most, in less than a minute",
    )
    parser.add_argument(
        "--check", action="store_true", help="only whether answers are right; no figures"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--servers",
        nargs="+",
        default=[""],
        help="only those with one of these words in their names",
    )
    parser.add_argument("--idle-streams", type=int, default=500, help="0: leave the memory out")
    parser.add_argument("--slow-streams", type=int, default=5000, help="0: leave them out")
    parser.add_argument(
        "--long-history",
        type=int,
        default=LONG_HISTORY,
        help="messages of the long conversations; 0: leave the history out",
    )
    parser.add_argument(
        "--tool-requests", type=int, default=20, help="of ten tools each; 0: leave them out"
    )
    parser.add_argument(
        "--json",
        type=Path,
        help=f"where the figures go; benchmarks/{RESULTS.name}, of --quick {QUICK_RESULTS.name}",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument(
        "--redis-server", default="redis-server", metavar="PROGRAM", help="on the PATH, or where"
    )
    return parser.parse_args()


def _leave(number: int, _frame: FrameType | None) -> None:
    """Leave by the context managers, so that all servers are ended."""
    sys.exit(128 + number)


def main() -> int:
    options = _options()
    if sys.platform != "linux" or shutil.which(options.redis_server) is None:
        print(f"benchmarks/run needs Linux and {options.redis_server}", file=sys.stderr)
        return NOT_POSSIBLE
    signal.signal(signal.SIGTERM, _leave)
    raise_file_limit()
    cores = split_cores()
    if not cores.are_apart:
        print("only one core: server and load disturb each other, trust no figure", file=sys.stderr)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="passback-bench-"))
        place = stack.enter_context(site(Path(folder), cores, options.redis_server))
        session = Session(place, plan(options))
        results = session.measure()
    if options.check:
        print(checked(results))
        return 1 if results.left_out else 0
    _tell(results, session.plan.works, options)
    missed = any(goal.verdict != "met" for goal in results.goals())
    return 1 if results.left_out or (options.strict and missed) else 0


def _tell(results: Results, works: Sequence[Workload], options: argparse.Namespace) -> None:
    path = options.json or (QUICK_RESULTS if options.quick else RESULTS)
    print(text(results, works, last_committed(RESULTS)))
    save(results, works, path)
    print(f"\nall figures: {path}")


if __name__ == "__main__":
    sys.exit(main())
