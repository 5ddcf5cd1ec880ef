"""`benchmarks/run`: measure the servers beside a minimal proxy and print the ratios. See docs/performance.md."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from benchmarks.idle import Idle, raise_file_limit
from benchmarks.processes import BenchmarkError, split_cores
from benchmarks.report import Results, save, text
from benchmarks.rounds import Sample, idle, model_alone, sample, warm_up
from benchmarks.servers import (
    NAMES,
    PASSBACK_MEMORY,
    PASSBACK_REDIS,
    PROXY,
    Server,
    Site,
    server,
    site,
)
from benchmarks.workloads import BURST, BUSY, PACED, RUSH, SHORT, Workload

WORKLOADS = (PACED, BUSY, BURST, SHORT, RUSH)
RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    rounds: int
    works: Sequence[Workload]
    servers: Sequence[str]
    idle_servers: Sequence[str]
    idle_streams: int


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
            targets = [target for name in self.plan.servers for target in self._start(name, stack)]
            for work in self.plan.works:
                for number in range(1, self.plan.rounds + 1):
                    self.say(f"{work.name}, round {number} of {self.plan.rounds}")
                    samples.append(model_alone(self.place, work, number))
                    samples += self._round(targets, work, number)
        started = [target.name for target in targets]
        return Results(samples, self._idle(started), self.left_out)

    def _round(self, targets: Sequence[Server], work: Workload, number: int) -> list[Sample]:
        """Each server once; another one goes first each time, so that no place in the row is an advantage."""
        samples: list[Sample] = []
        turn = number % len(targets) if targets else 0
        for target in [*targets[turn:], *targets[:turn]]:
            try:
                samples.append(sample(target, work, number, self.place.cores))
            except BenchmarkError as error:
                self._leave_out(f"{target.name} ({work.name}, round {number})", error)
        return samples

    def _leave_out(self, what: str, error: BenchmarkError) -> None:
        self.left_out[what] = str(error)
        self.say(f"left out: {what}: {error}")

    def _start(self, name: str, stack: ExitStack) -> list[Server]:
        """The server, or nothing if it does not start or answers wrongly."""
        self.say(f"start {name}")
        try:
            target = stack.enter_context(server(name, self.place))
            warm_up(target, self.place.cores)
        except BenchmarkError as error:
            self._leave_out(name, error)
            return []
        return [target]

    def _idle(self, started: Sequence[str]) -> dict[str, Idle]:
        found: dict[str, Idle] = {}
        for name in self.plan.idle_servers if self.plan.idle_streams else ():
            if name not in started:
                continue
            self.say(f"idle, {name}")
            try:
                found[name] = idle(name, self.place, self.plan.idle_streams)
            except BenchmarkError as error:
                self._leave_out(f"{name} (idle)", error)
        return found


def _plan(options: argparse.Namespace) -> Plan:
    works = [work for work in WORKLOADS if work.name in options.workloads]
    servers = [name for name in NAMES if any(word in name for word in options.servers)]
    if not options.quick:
        return Plan(options.rounds, works, servers, servers, options.idle_streams)
    works = [replace(work, requests=max(1, work.requests // 2)) for work in works if work != BUSY]
    servers = [name for name in servers if name != PASSBACK_MEMORY]
    idle_servers = [name for name in servers if name in (PROXY, PASSBACK_REDIS)]
    return Plan(1, works, servers, idle_servers, min(options.idle_streams, 200))


def _options() -> argparse.Namespace:
    names = [work.name for work in WORKLOADS]
    parser = argparse.ArgumentParser(prog="benchmarks/run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of each, within a minute")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--servers",
        nargs="+",
        default=[""],
        help="only those with one of these words in their names",
    )
    parser.add_argument("--idle-streams", type=int, default=500, help="0: leave the memory out")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a goal is missed")
    return parser.parse_args()


def _leave(number: int, _frame: FrameType | None) -> None:
    """Leave by the context managers, so that all servers are ended."""
    sys.exit(128 + number)


def main() -> int:
    options = _options()
    for program in ("redis-server", "taskset"):
        if shutil.which(program) is None:
            print(f"benchmarks/run needs {program} on the PATH (and Linux)", file=sys.stderr)
            return 2
    signal.signal(signal.SIGTERM, _leave)
    raise_file_limit()
    cores = split_cores()
    if not cores.are_apart:
        print("only one core: server and load disturb each other, trust no figure", file=sys.stderr)
    plan = _plan(options)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="passback-bench-"))
        place = stack.enter_context(site(Path(folder), cores))
        results = Session(place, plan).measure()
    print(text(results, plan.works))
    save(results, plan.works, options.json)
    print(f"\nall figures: {options.json}")
    missed = any(goal.verdict != "met" for goal in results.goals())
    return 1 if results.left_out or (options.strict and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
