"""A run of the benchmarks: rounds of A B C A B C, so that the machine's noise meets all alike."""

import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.figures import Results
from benchmarks.measurements import (
    HistorySample,
    Sample,
    measure_history,
    measure_idle,
    measure_load,
    measure_model,
    measure_slow,
    measure_tools,
    warm_up,
)
from benchmarks.plans import Plan
from benchmarks.processes import BenchmarkError
from benchmarks.servers import (
    PASSBACK_REDIS,
    PASSBACK_TOOLS,
    Server,
    Testbed,
    is_measured,
    start_or_reuse,
    start_server,
)
from benchmarks.workloads import Workload

T = TypeVar("T")


@dataclass(slots=True)
class Session:
    """A run of the benchmarks.

    Attributes:
        left_out: what could not be measured, and why.
    """

    testbed: Testbed
    plan: Plan
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    began: float = field(default_factory=time.monotonic)

    def measure(self) -> Results:
        with ExitStack() as stack:
            started = self.start_servers(stack)
            samples = self.measure_loads(started.values())
            history = self.measure_histories(started.get(PASSBACK_REDIS))
        plan = self.plan
        idle_servers = [name for name in plan.idle_servers if name in started]
        slow_servers = [name for name in plan.slow_servers if name in started]
        return Results(
            samples=samples,
            history=history,
            idle=self.measure_afresh("idle", measure_idle, idle_servers, plan.idle_streams),
            slow=self.measure_afresh("slow", measure_slow, slow_servers, plan.slow_streams),
            tools=self.measure_ten_tools(),
            left_out=self.left_out,
            has_spare_core=bool(self.testbed.cores.spare),
        )

    def start_servers(self, stack: ExitStack) -> dict[str, Server]:
        """Start the plan's servers, without those that do not start or answer wrongly."""
        started: dict[str, Server] = {}
        for name in self.plan.servers:
            self.print_progress(f"start {name}")
            with self.leaving_out(name):
                target = stack.enter_context(start_or_reuse(name, self.testbed, started))
                warm_up(target, self.testbed.cores)
                started[name] = target
        return started

    def measure_loads(self, started: Collection[Server]) -> list[Sample]:
        samples: list[Sample] = []
        for work in self.plan.works:
            targets = [target for target in started if is_measured(target.name, work)]
            for number in self.count_rounds(work):
                samples.append(measure_model(self.testbed, work, number))
                for target in round_order(targets, number):
                    with self.leaving_out(f"{target.name} ({work.name}, round {number})"):
                        samples.append(measure_load(target, work, number, self.testbed.cores))
        return samples

    def measure_histories(self, target: Server | None) -> list[HistorySample]:
        """Post to long conversations and to short ones of the same server."""
        samples: list[HistorySample] = []
        for work, lengths in self.plan.histories if target is not None else ():
            for number in self.count_rounds(work):
                for length in round_order(lengths, number):
                    with self.leaving_out(f"{work.name} of {length.messages}, round {number}"):
                        assert target is not None
                        samples.append(measure_history(target, self.testbed, work, length, number))
        return samples

    def measure_afresh(
        self,
        kind: str,
        measure: Callable[[str, Testbed, int], T],
        servers: Sequence[str],
        streams: int,
    ) -> dict[str, T]:
        """Measure each server by itself, started afresh, with this number of streams."""
        found: dict[str, T] = {}
        for name in servers if streams else ():
            self.print_progress(f"{kind}, {name}")
            with self.leaving_out(f"{name} ({kind})"):
                found[name] = measure(name, self.testbed, streams)
        return found

    def measure_ten_tools(self) -> list[float]:
        """Return the longest time of each round, on a server of its own."""
        found: list[float] = []
        rounds, requests = self.plan.tool_rounds, self.plan.tool_requests
        if not requests:
            return found
        cores = self.testbed.cores
        with self.leaving_out(PASSBACK_TOOLS), start_server(PASSBACK_TOOLS, self.testbed) as target:
            measure_tools(target, 1, cores)  # loads what is loaded late
            for number in range(1, rounds + 1):
                self.print_progress(f"ten tools, round {number} of {rounds}")
                found.append(measure_tools(target, requests, cores))
        return found

    def count_rounds(self, work: Workload) -> Iterator[int]:
        rounds = self.plan.rounds[work.name]
        for number in range(1, rounds + 1):
            self.print_progress(f"{work.name}, round {number} of {rounds}")
            yield number

    @contextmanager
    def leaving_out(self, name: str) -> Generator[None]:
        """Note what could not be measured, with its error, and go on."""
        try:
            yield
        except BenchmarkError as error:
            self.left_out[name] = str(error)
            self.print_progress(f"left out: {name}: {error}")

    def print_progress(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.1f} s] {text}", file=sys.stderr, flush=True)


def round_order(items: Sequence[T], number: int, /) -> list[T]:
    """Return the order of a round, so that no place in it is an advantage.

    Another item begins in turn, and every second round goes backwards.
    """
    first = number % len(items) if items else 0
    order = [*items[first:], *items[:first]]
    is_pair = len(items) == 2  # turning it is going backwards
    return order if number % 2 or is_pair else order[::-1]
