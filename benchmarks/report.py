"""From samples to tables, goals and a JSON file."""

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.goals import Goal
from benchmarks.idle import Idle
from benchmarks.rounds import MODEL_ALONE, HistorySample, Sample
from benchmarks.servers import (
    NAMES,
    PASSBACK_AGENT_API,
    PASSBACK_REDIS,
    PASSBACK_TWO_READERS,
    PASSBACK_UNLOGGED,
    PASSBACK_UNLOOPED,
    PLAIN,
    PROXY,
    PROXY_REDIS,
)
from benchmarks.stalls import Stalls
from benchmarks.workloads import BOUNDARY, BURST, CROWD, HISTORY, PACED, SHORT, Workload

_DISTURBED = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """A server under a workload; medians over the rounds, ratios between figures of the same round."""

    workload: str
    server: str
    cpu_ms: float
    of_proxy: float | None
    of_proxy_redis: float | None
    of_passback: float | None
    store_cpu_ms: float
    waited: float
    first_ms: float
    first_ms_p99: float
    first_after_model_ms: float | None
    first_after_proxy_ms: float | None


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that a run of the benchmarks found."""

    samples: Sequence[Sample]
    history: Sequence[HistorySample]
    idle: dict[str, Idle]
    stalls: dict[str, Stalls]
    tools: Sequence[float]  # milliseconds: the longest of each round
    left_out: dict[str, str]  # server -> why

    def of_work(self, work: Workload) -> list[Sample]:
        return [sample for sample in self.samples if sample.workload == work.name]

    def of_history(self, work: Workload) -> list[HistorySample]:
        return [sample for sample in self.history if sample.workload == work.name]

    def rows(self, work: Workload) -> list[Row]:
        of_work = self.of_work(work)
        measured = {sample.server for sample in of_work}
        return [_row(of_work, name) for name in (MODEL_ALONE, *NAMES) if name in measured]

    def goals(self) -> list[Goal]:
        return [*self._beside_others(), *self._beside_itself()]

    def _beside_others(self) -> list[Goal]:
        paced, burst, short = self.of_work(PACED), self.of_work(BURST), self.of_work(SHORT)
        own = PASSBACK_REDIS
        return [
            *(
                _goal(f"{work.name}: CPU, beside the minimal proxy", (limit, "times"), ratios)
                for work, limit, ratios in (
                    (PACED, 1.5, _ratios(paced, own, PROXY)),
                    (BURST, 1.5, _ratios(burst, own, PROXY)),
                    (SHORT, 6.0, _ratios(short, own, PROXY)),
                )
            ),
            _goal(
                "short: CPU, beside the proxy with a Redis history",
                (2.0, "times"),
                _ratios(short, own, PROXY_REDIS),
            ),
            _goal("paced: CPU, beside a plain server", (0.25, "times"), _ratios(paced, own, PLAIN)),
            _goal("burst: CPU, beside a plain server", (0.05, "times"), _ratios(burst, own, PLAIN)),
            _goal("paced: first event, after the proxy's", (2.0, "ms"), _delays(paced, own, PROXY)),
            _goal(
                "short: first event, one stream, after the proxy's",
                (1.0, "ms"),
                _delays(short, own, PROXY),
            ),
            _goal(
                "crowd: first event, 200 streams, beside the proxy's",
                (1.5, "times"),
                _slowness(self.of_work(CROWD), own, PROXY),
            ),
        ]

    def _beside_itself(self) -> list[Goal]:
        paced, burst, own = self.of_work(PACED), self.of_work(BURST), PASSBACK_REDIS
        weighed, late = self.idle.get(own), self.stalls.get(own)
        return [
            _goal(
                "idle open stream: memory",
                (32.0, "KiB"),
                [weighed.kib_per_stream] if weighed else (),
            ),
            _goal(
                "slow streams: how late an event is, p99",
                (250.0, "ms"),
                [late.late_ms[1]] if late else (),
            ),
            _goal(
                "paced: CPU, beside the log off",
                (1.5, "times"),
                _ratios(paced, own, PASSBACK_UNLOGGED),
            ),
            _goal(
                "burst: CPU, beside the log off",
                (1.5, "times"),
                _ratios(burst, own, PASSBACK_UNLOGGED),
            ),
            _goal(
                "paced: CPU of the Agent API, beside `/send-message`",
                (1.3, "times"),
                _ratios(paced, PASSBACK_AGENT_API, own),
            ),
            _goal(
                "burst: CPU of the Agent API, beside `/send-message`",
                (1.3, "times"),
                _ratios(burst, PASSBACK_AGENT_API, own),
            ),
            _goal(
                "paced: CPU, beside the loop off",
                (1.05, "times"),
                _ratios(paced, own, PASSBACK_UNLOOPED),
            ),
            _goal(
                "ten read-only tools of 100 ms at once: the longest of a round",
                (150.0, "ms"),
                self.tools,
            ),
            _goal(
                "paced: CPU that a second reader adds, beside the first's",
                (0.25, "times"),
                [both - 1 for both in _ratios(paced, PASSBACK_TWO_READERS, own)],
            ),
            _goal(
                "history: CPU while streaming, long beside short",
                (1.1, "times"),
                _lengthened(self.of_history(HISTORY), lambda sample: sample.streaming_ms),
            ),
            _goal(
                "boundary: CPU per request, 10,000 messages beside 50, 50 behind it",
                (1.1, "times"),
                _lengthened(self.of_history(BOUNDARY), lambda sample: sample.request_ms),
            ),
        ]


def _goal(words: str, limit: tuple[float, str], rounds: Sequence[float]) -> Goal:
    return Goal(words, *limit, tuple(rounds))


def _of(samples: Sequence[Sample], server: str) -> list[Sample]:
    return [sample for sample in samples if sample.server == server]


def _firsts(samples: Sequence[Sample]) -> list[float]:
    return sorted(first for sample in samples for first in sample.first_ms)


def _median(rounds: Sequence[float]) -> float | None:
    return median(rounds) if rounds else None


def _ratios(samples: Sequence[Sample], server: str, reference: str) -> list[float]:
    """The CPU beside the reference's, round by round."""
    if MODEL_ALONE in {server, reference}:
        return []
    other = {sample.round: sample.cpu_ms for sample in _of(samples, reference)}
    return [s.cpu_ms / other[s.round] for s in _of(samples, server) if s.round in other]


def _firsts_beside(
    samples: Sequence[Sample], server: str, reference: str
) -> list[tuple[float, float]]:
    """The median first event and the reference's, round by round."""
    other = {sample.round: median(sample.first_ms) for sample in _of(samples, reference)}
    return [(median(s.first_ms), other[s.round]) for s in _of(samples, server) if s.round in other]


def _delays(samples: Sequence[Sample], server: str, reference: str) -> list[float]:
    return [own - other for own, other in _firsts_beside(samples, server, reference)]


def _slowness(samples: Sequence[Sample], server: str, reference: str) -> list[float]:
    return [own / other for own, other in _firsts_beside(samples, server, reference)]


def _lengthened(
    samples: Sequence[HistorySample], cpu_ms: Callable[[HistorySample], float]
) -> list[float]:
    """The CPU after the longest history beside that after the shortest, round by round."""
    records = sorted({sample.record for sample in samples})
    short = {s.round: cpu_ms(s) for s in samples if s.record == records[0]}
    long = [s for s in samples if s.record == records[-1]] if len(records) > 1 else []
    return [cpu_ms(s) / short[s.round] for s in long if s.round in short]


def _row(samples: Sequence[Sample], server: str) -> Row:
    own = _of(samples, server)
    firsts = _firsts(own)
    return Row(
        workload=own[0].workload,
        server=server,
        cpu_ms=median(sample.cpu_ms for sample in own),
        of_proxy=_median(_ratios(samples, server, PROXY)),
        of_proxy_redis=_median(_ratios(samples, server, PROXY_REDIS)),
        of_passback=_median(_ratios(samples, server, PASSBACK_REDIS)),
        store_cpu_ms=median(sample.store_cpu_ms for sample in own),
        waited=median(sample.waited for sample in own),
        first_ms=median(firsts),
        first_ms_p99=firsts[int(0.99 * (len(firsts) - 1))],
        first_after_model_ms=_median(_delays(samples, server, MODEL_ALONE)),
        first_after_proxy_ms=_median(_delays(samples, server, PROXY)),
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
    ("x proxy", lambda row: _cell(row.of_proxy, 2)),
    ("x proxy+Redis", lambda row: _cell(row.of_proxy_redis, 2)),
    ("x passback", lambda row: _cell(row.of_passback, 2)),
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


def _stalls_table(stalls: dict[str, Stalls]) -> str:
    heading = ["server", "streams", "late ms, median", "p99", "most", "CPU s/s", "waited"]
    lines = [
        [
            name,
            str(found.streams),
            *(_cell(late, 1) for late in found.late_ms),
            _cell(found.cpu, 2),
            f"{found.waited:.0%}",
        ]
        for name, found in stalls.items()
    ]
    return _table([heading, *lines])


def _history_table(samples: Sequence[HistorySample]) -> str:
    heading = ["messages before", "read", "CPU ms/request", "while streaming, ms/1000", "waited"]
    lines: list[list[str]] = []
    for record in sorted({sample.record for sample in samples}):
        own = [sample for sample in samples if sample.record == record]
        request = median(sample.request_ms for sample in own)
        streaming = median(sample.streaming_ms for sample in own)
        waited = median(sample.waited for sample in own)
        counts = [str(record.messages), str(record.behind)]
        lines.append([*counts, _cell(request, 2), _cell(streaming, 2), f"{waited:.0%}"])
    return _table([heading, *lines])


def _range(values: Sequence[float] | None) -> str:
    return f"{min(values):.2f} to {max(values):.2f}" if values else ""


def _goal_table(goals: Sequence[Goal]) -> str:
    heading = ["goal", "median", "middle half", "all rounds", "at most", "verdict"]
    lines = [
        [
            goal.words,
            _cell(goal.measured, 2),
            _range(goal.quartiles),
            _range(goal.rounds if len(goal.rounds) > 1 else None),
            f"{goal.limit:g} {goal.unit}",
            goal.verdict,
        ]
        for goal in goals
    ]
    return _table([heading, *lines])


def _disturbance(samples: Sequence[Sample | HistorySample]) -> list[str]:
    """That the machine was busy with other things, if it was."""
    waited = sum(sample.waited > _DISTURBED for sample in samples)
    if not waited:
        return []
    return [f"disturbed: {waited} of {len(samples)} samples waited more than {_DISTURBED:.0%}"]


def text(results: Results, works: Sequence[Workload]) -> str:
    parts = [", ".join(f"{name} {value}" for name, value in machine().items())]
    for work in works:
        parts += [work.title, _work_table(results, work)]
    for work in (HISTORY, BOUNDARY):
        if samples := results.of_history(work):
            parts += [f"{work.title}; {PASSBACK_REDIS}", _history_table(samples)]
    if results.idle:
        streams = next(iter(results.idle.values())).streams
        parts += [f"idle: {streams} open streams, silent", _idle_table(results.idle)]
    if results.stalls:
        parts += ["slow: many streams, a word each second", _stalls_table(results.stalls)]
    parts.append(_goal_table(results.goals()))
    of_servers = [sample for sample in results.samples if sample.server != MODEL_ALONE]
    parts += _disturbance([*of_servers, *results.history])
    parts += [f"left out: {name}: {why}" for name, why in results.left_out.items()]
    return "\n\n".join(parts)


# ------------------------------------------------------------------ for programs
def save(results: Results, works: Sequence[Workload], path: Path) -> None:
    """Write all that was measured, with what machine it was, as JSON."""
    document = {
        "machine": machine(),
        "workloads": [asdict(work) for work in (*works, HISTORY, BOUNDARY)],
        "rows": [asdict(row) for work in works for row in results.rows(work)],
        "idle": {
            name: asdict(found) | {"kib_per_stream": found.kib_per_stream}
            for name, found in results.idle.items()
        },
        "stalls": {name: asdict(found) for name, found in results.stalls.items()},
        "goals": [
            asdict(goal) | {"measured": goal.measured, "verdict": goal.verdict}
            for goal in results.goals()
        ],
        "ten_tools_ms": list(results.tools),
        "left_out": results.left_out,
        "samples": [asdict(sample) for sample in results.samples],
        "history": [asdict(sample) for sample in results.history],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
