"""From figures to tables for people and a JSON file for programs."""

import json
import os
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from benchmarks.committed import Committed
from benchmarks.figures import Results, Row
from benchmarks.goals import Goal
from benchmarks.idle import Idle
from benchmarks.rounds import MODEL_ALONE, HistorySample, Sample
from benchmarks.servers import PASSBACK_REDIS
from benchmarks.stalls import Stalls
from benchmarks.workloads import BOUNDARY, HISTORY, SCALING, Workload

_DISTURBED = 0.1
_NUMBERS = re.compile(r"\[[\s\d.,eE+-]+\]")


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


Columns = tuple[tuple[str, Callable[[Row], str]], ...]
_COLUMNS: Columns = (
    ("server", lambda row: row.server),
    ("CPU ms/1000", lambda row: _cell(row.cpu_ms or None, 2)),
    ("x proxy", lambda row: _cell(row.of_proxy, 2)),
    ("x proxy+Redis", lambda row: _cell(row.of_proxy_redis, 2)),
    ("x passback", lambda row: _cell(row.of_passback, 2)),
    ("redis ms/1000", lambda row: _cell(row.store_cpu_ms or None, 2)),
    ("waited", lambda row: "" if row.waited is None else f"{row.waited:.0%}"),
    ("first ms", lambda row: _cell(row.first_ms, 2)),
    ("p99", lambda row: _cell(row.first_ms_p99, 2)),
    ("after model", lambda row: _cell(row.first_after_model_ms, 2)),
    ("after proxy", lambda row: _cell(row.first_after_proxy_ms, 2)),
)
_PER_SECOND = ("answers/s", lambda row: _cell(row.per_second, 0))
_OF_SCALING = {"server", "CPU ms/1000", "x passback", "redis ms/1000", "waited", "first ms", "p99"}


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
    columns = _COLUMNS if work.name != SCALING.name else _scaling_columns(results)
    rows = results.rows(work)
    heading = [title for title, _ in columns]
    return _table([heading, *([cell(row) for _, cell in columns] for row in rows)])


def _scaling_columns(results: Results) -> Columns:
    """Answers per second only where the workers had the cores for it."""
    columns = tuple(column for column in _COLUMNS if column[0] in _OF_SCALING)
    return (*columns, _PER_SECOND) if results.has_spare_core else columns


def _title(results: Results, work: Workload) -> str:
    if work.name != SCALING.name:
        return work.title
    if results.has_spare_core:
        return f"{work.title}; judged by answers per second: two workers have two cores"
    return f"{work.title}; judged by CPU: too few cores for the second worker to have its own"


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


def _goal_table(goals: Sequence[Goal], before: Committed) -> str:
    """`before` is a column of its own, if there is anything in it."""
    heading = ["goal", "before", "median", "middle half", "all rounds", "limit", "verdict"]
    lines = [
        [
            goal.words,
            _cell(before.medians.get(goal.words), 2),
            _cell(goal.measured, 2),
            _range(goal.quartiles),
            _range(goal.rounds if len(goal.rounds) > 1 else None),
            f"{'>=' if goal.at_least else '<='} {goal.limit:g} {goal.unit}",
            goal.verdict,
        ]
        for goal in goals
    ]
    table = [heading, *lines]
    return _table(table if before.medians else [[line[0], *line[2:]] for line in table])


def _disturbance(samples: Sequence[Sample | HistorySample]) -> list[str]:
    """That the machine was busy with other things, if it was."""
    waited = sum((sample.waited or 0) > _DISTURBED for sample in samples)
    if not waited:
        return []
    return [f"disturbed: {waited} of {len(samples)} samples waited more than {_DISTURBED:.0%}"]


def text(results: Results, works: Sequence[Workload], before: Committed) -> str:
    parts = [", ".join(f"{name} {value}" for name, value in machine().items())]
    for work in works:
        parts += [_title(results, work), _work_table(results, work)]
    for work in (HISTORY, BOUNDARY):
        if samples := results.of_history(work):
            parts += [f"{work.title}; {PASSBACK_REDIS}", _history_table(samples)]
    if results.idle:
        streams = next(iter(results.idle.values())).streams
        parts += [f"idle: {streams} open streams, silent", _idle_table(results.idle)]
    if results.stalls:
        parts += ["slow: many streams, a word each second", _stalls_table(results.stalls)]
    parts += [_goal_table(results.goals(), before), before.words]
    of_servers = [sample for sample in results.samples if sample.server != MODEL_ALONE]
    parts += _disturbance([*of_servers, *results.history])
    parts += [f"left out: {name}: {why}" for name, why in results.left_out.items()]
    return "\n\n".join(parts)


def checked(results: Results) -> str:
    """What can be said where nothing was to be measured."""
    samples = [*results.samples, *results.history, *results.tools]
    parts = [f"left out: {name}: {why}" for name, why in results.left_out.items()]
    return "\n".join([*parts, f"{len(samples)} rounds had the right answers, {len(parts)} not"])


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
    lines = json.dumps(document, indent=1) + "\n"
    path.write_text(_NUMBERS.sub(lambda found: " ".join(found[0].split()), lines))
