"""From samples to tables, goals and a JSON file."""

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.idle import Idle
from benchmarks.rounds import MODEL_ALONE, Sample
from benchmarks.servers import NAMES, PASSBACK_REDIS, PROXY, PROXY_REDIS
from benchmarks.workloads import PACED, Workload


@dataclass(frozen=True, slots=True)
class Row:
    """A server under a workload; medians over the rounds, ratios between figures of the same round."""

    workload: str
    server: str
    cpu_ms: float
    of_proxy: float | None
    of_proxy_redis: float | None
    store_cpu_ms: float
    waited: float
    first_ms: float
    first_ms_p99: float
    first_after_model_ms: float | None
    first_after_proxy_ms: float | None


@dataclass(frozen=True, slots=True)
class Goal:
    """At most `limit`; `measured` is None if what it speaks of was not measured."""

    words: str
    limit: float
    unit: str
    measured: float | None

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        return "met" if self.measured <= self.limit else "MISSED"


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that a run of the benchmarks found."""

    samples: Sequence[Sample]
    idle: dict[str, Idle]
    left_out: dict[str, str]  # server -> why

    def rows(self, work: Workload) -> list[Row]:
        of_work = [sample for sample in self.samples if sample.workload == work.name]
        measured = {sample.server for sample in of_work}
        return [_row(of_work, name) for name in (MODEL_ALONE, *NAMES) if name in measured]

    def goals(self) -> list[Goal]:
        paced = next((row for row in self.rows(PACED) if row.server == PASSBACK_REDIS), None)
        idle = self.idle.get(PASSBACK_REDIS)
        cpu = paced.of_proxy if paced else None
        first = paced.first_after_proxy_ms if paced else None
        memory = idle.kib_per_stream if idle else None
        return [
            Goal("paced, on Redis: CPU, beside the minimal proxy", 2.0, "times", cpu),
            Goal("paced, on Redis: first event, after the proxy's", 2.0, "ms", first),
            Goal("idle open stream, on Redis: memory", 64.0, "KiB", memory),
        ]


def _of(samples: Sequence[Sample], server: str) -> list[Sample]:
    return [sample for sample in samples if sample.server == server]


def _firsts(samples: Sequence[Sample]) -> list[float]:
    return sorted(first for sample in samples for first in sample.first_ms)


def _ratio(samples: Sequence[Sample], server: str, reference: str) -> float | None:
    other = {sample.round: sample.cpu_ms for sample in _of(samples, reference)}
    ratios = [s.cpu_ms / other[s.round] for s in _of(samples, server) if s.round in other]
    return median(ratios) if ratios else None


def _later(samples: Sequence[Sample], server: str, reference: str) -> float | None:
    """By how much the median first event comes later than the reference's, in the same round."""
    other = {sample.round: median(sample.first_ms) for sample in _of(samples, reference)}
    times = [median(s.first_ms) - other[s.round] for s in _of(samples, server) if s.round in other]
    return median(times) if times else None


def _row(samples: Sequence[Sample], server: str) -> Row:
    own = _of(samples, server)
    firsts = _firsts(own)
    return Row(
        workload=own[0].workload,
        server=server,
        cpu_ms=median(sample.cpu_ms for sample in own),
        of_proxy=_ratio(samples, server, PROXY),
        of_proxy_redis=_ratio(samples, server, PROXY_REDIS),
        store_cpu_ms=median(sample.store_cpu_ms for sample in own),
        waited=median(sample.waited for sample in own),
        first_ms=median(firsts),
        first_ms_p99=firsts[int(0.99 * (len(firsts) - 1))],
        first_after_model_ms=_later(samples, server, MODEL_ALONE),
        first_after_proxy_ms=_later(samples, server, PROXY),
    )


def machine() -> dict[str, str]:
    """What it was measured on, and how busy that was: figures of a busy machine deserve less trust."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": str(os.cpu_count()),
        "load average": f"{os.getloadavg()[0]:.2f}",
    }


# ------------------------------------------------------------------ for people
def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("server", lambda row: row.server),
    ("CPU ms/1000", lambda row: _cell(row.cpu_ms or None, 2)),
    ("x proxy", lambda row: _cell(row.of_proxy if row.cpu_ms else None, 2)),
    ("x proxy+Redis", lambda row: _cell(row.of_proxy_redis if row.cpu_ms else None, 2)),
    ("redis ms/1000", lambda row: _cell(row.store_cpu_ms or None, 2)),
    ("waited", lambda row: f"{row.waited:.0%}" if row.cpu_ms else ""),
    ("first ms", lambda row: _cell(row.first_ms, 2)),
    ("p99", lambda row: _cell(row.first_ms_p99, 2)),
    ("after model", lambda row: _cell(row.first_after_model_ms, 2)),
    ("after proxy", lambda row: _cell(row.first_after_proxy_ms, 2)),
)


def _table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table that reads well as it is; the first line is the heading."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = [f"{'-' * widths[0]}", *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    padded = [
        [cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]
        for cells in (lines[0], rule, *lines[1:])
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)


def _work_table(results: Results, work: Workload) -> str:
    rows = results.rows(work)
    heading = [title for title, _ in _COLUMNS]
    return _table([heading, *([cell(row) for _, cell in _COLUMNS] for row in rows)])


def _idle_table(idle: dict[str, Idle]) -> str:
    heading = ["server", "empty MiB", "with streams", "KiB per stream", "idle CPU ms/s"]
    lines = [
        [
            name,
            f"{found.empty_kib / 1024:.1f}",
            f"{found.open_kib / 1024:.1f}",
            f"{found.kib_per_stream:.1f}",
            f"{found.cpu_ms:.2f}",
        ]
        for name, found in idle.items()
    ]
    return _table([heading, *lines])


def _goal_table(goals: Sequence[Goal]) -> str:
    lines = [
        [goal.words, f"{_cell(goal.measured, 2)}", f"{goal.limit:g} {goal.unit}", goal.verdict]
        for goal in goals
    ]
    return _table([["goal", "measured", "at most", "verdict"], *lines])


def text(results: Results, works: Sequence[Workload]) -> str:
    parts = [", ".join(f"{name} {value}" for name, value in machine().items())]
    for work in works:
        parts += [work.title, _work_table(results, work)]
    if results.idle:
        streams = next(iter(results.idle.values())).streams
        parts += [f"idle: {streams} open streams, silent", _idle_table(results.idle)]
    parts.append(_goal_table(results.goals()))
    parts += [f"left out: {name}: {why}" for name, why in results.left_out.items()]
    return "\n\n".join(parts)


# ------------------------------------------------------------------ for programs
def save(results: Results, works: Sequence[Workload], path: Path) -> None:
    """Write all that was measured, with what machine it was, as JSON."""
    document = {
        "machine": machine(),
        "workloads": [asdict(work) for work in works],
        "rows": [asdict(row) for work in works for row in results.rows(work)],
        "idle": {
            name: asdict(found) | {"kib_per_stream": found.kib_per_stream}
            for name, found in results.idle.items()
        },
        "goals": [asdict(goal) | {"verdict": goal.verdict} for goal in results.goals()],
        "left_out": results.left_out,
        "samples": [asdict(sample) for sample in results.samples],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
