"""The report: tables for people and a JSON file for programs."""

import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from benchmarks.figures import Committed, Goal, HistoryRow, Results, Row
from benchmarks.measurements import MODEL_ALONE
from benchmarks.open_streams import IdleStreams, SlowStreams
from benchmarks.servers import PASSBACK_REDIS
from benchmarks.workloads import BOUNDARY, HISTORY, SCALING, Workload

DISTURBED = 0.1  # seconds of waiting for each second on the core
NUMBER_LIST = re.compile(r"\[[\s\d.,eE+-]+\]")

T = TypeVar("T")
Column = tuple[str, Callable[[T], str]]


def describe_machine() -> dict[str, str]:
    """Return the machine's names and load: figures of a busy one deserve less trust."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": str(os.cpu_count()),
        "load average": f"{os.getloadavg()[0]:.2f}",
    }


# ------------------------------------------------------------------ for people
def format_number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def format_share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def format_range(values: Sequence[float] | None) -> str:
    return f"{min(values):.2f} to {max(values):.2f}" if values else ""


LOAD_COLUMNS: Sequence[Column[Row]] = (
    ("server", lambda row: row.server),
    ("CPU ms/1000", lambda row: format_number(row.cpu_ms or None)),
    ("x proxy", lambda row: format_number(row.of_proxy)),
    ("x proxy+Redis", lambda row: format_number(row.of_proxy_redis)),
    ("x passback", lambda row: format_number(row.of_passback)),
    ("redis ms/1000", lambda row: format_number(row.store_cpu_ms or None)),
    ("waited", lambda row: format_share(row.waited)),
    ("first ms", lambda row: format_number(row.first_ms)),
    ("p99", lambda row: format_number(row.first_ms_p99)),
    ("after model", lambda row: format_number(row.first_after_model_ms)),
    ("after proxy", lambda row: format_number(row.first_after_proxy_ms)),
)
PER_SECOND_COLUMN: Column[Row] = ("answers/s", lambda row: format_number(row.per_second, 0))
OF_SCALING = {"server", "CPU ms/1000", "x passback", "redis ms/1000", "waited", "first ms", "p99"}
IDLE_COLUMNS: Sequence[Column[tuple[str, IdleStreams]]] = (
    ("server", lambda row: row[0]),
    ("empty MiB", lambda row: f"{row[1].empty_kib / 1024:.1f}"),
    ("with streams", lambda row: f"{row[1].open_kib / 1024:.1f}"),
    ("KiB per stream", lambda row: f"{row[1].kib_per_stream:.1f}"),
    ("idle CPU ms/s", lambda row: f"{row[1].cpu_ms:.2f}"),
)
SLOW_COLUMNS: Sequence[Column[tuple[str, SlowStreams]]] = (
    ("server", lambda row: row[0]),
    ("streams", lambda row: str(row[1].streams)),
    ("late ms, median", lambda row: f"{row[1].late_ms[0]:.1f}"),
    ("p99", lambda row: f"{row[1].late_ms[1]:.1f}"),
    ("most", lambda row: f"{row[1].late_ms[2]:.1f}"),
    ("CPU s/s", lambda row: f"{row[1].cpu:.2f}"),
    ("waited", lambda row: format_share(row[1].waited)),
)
HISTORY_COLUMNS: Sequence[Column[HistoryRow]] = (
    ("messages before", lambda row: str(row.length.messages)),
    ("read", lambda row: str(row.length.behind)),
    ("CPU ms/request", lambda row: format_number(row.request_ms)),
    ("while streaming, ms/1000", lambda row: format_number(row.streaming_ms)),
    ("waited", lambda row: format_share(row.waited)),
)
GOAL_COLUMNS: Sequence[Column[Goal]] = (
    ("goal", lambda goal: goal.words),
    ("median", lambda goal: format_number(goal.measured)),
    ("middle half", lambda goal: format_range(goal.quartiles)),
    ("all rounds", lambda goal: format_range(goal.rounds if len(goal.rounds) > 1 else None)),
    ("limit", lambda goal: f"{'>=' if goal.at_least else '<='} {goal.limit:g} {goal.unit}"),
    ("verdict", lambda goal: goal.verdict),
)


def format_table(columns: Sequence[Column[T]], rows: Iterable[T]) -> str:
    """Return a Markdown table that reads well as it is."""
    heading = [title for title, _ in columns]
    lines = [heading, *([cell(row) for _, cell in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    padded = [
        [cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]
        for cells in (heading, rule, *lines[1:])
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)


def format_load(results: Results, work: Workload) -> list[str]:
    """Return the title and the table of a workload.

    Scaling is judged by answers per second only where the workers had the cores for it.
    """
    if work.name != SCALING.name:
        return [work.title, format_table(LOAD_COLUMNS, results.rows(work))]
    columns = [column for column in LOAD_COLUMNS if column[0] in OF_SCALING]
    judged = "judged by CPU: too few cores for the second worker to have its own"
    if results.has_spare_core:
        columns.append(PER_SECOND_COLUMN)
        judged = "judged by answers per second: two workers have two cores"
    return [f"{work.title}; {judged}", format_table(columns, results.rows(work))]


def format_report(results: Results, works: Sequence[Workload], before: Committed) -> str:
    """Return all tables; the goals have a column `before` if there is anything in it."""
    parts = [", ".join(f"{name} {value}" for name, value in describe_machine().items())]
    for work in works:
        parts += format_load(results, work)
    for work in (HISTORY, BOUNDARY):
        if rows := results.history_rows(work):
            parts += [f"{work.title}; {PASSBACK_REDIS}", format_table(HISTORY_COLUMNS, rows)]
    if results.idle:
        streams = next(iter(results.idle.values())).streams
        table = format_table(IDLE_COLUMNS, results.idle.items())
        parts += [f"idle: {streams} open streams, silent", table]
    if results.slow:
        table = format_table(SLOW_COLUMNS, results.slow.items())
        parts += ["slow: many streams, a word each second", table]
    columns = list(GOAL_COLUMNS)
    if before.medians:
        columns.insert(1, ("before", lambda goal: format_number(before.medians.get(goal.words))))
    parts += [format_table(columns, results.goals()), before.words]
    waits = [sample.waited or 0 for sample in results.samples if sample.server != MODEL_ALONE]
    waits += [sample.waited for sample in results.history]
    if disturbed := sum(waited > DISTURBED for waited in waits):
        parts.append(
            f"disturbed: {disturbed} of {len(waits)} samples waited more than {DISTURBED:.0%}"
        )
    parts += [f"left out: {name}: {why}" for name, why in results.left_out.items()]
    return "\n\n".join(parts)


def format_check(results: Results, /) -> str:
    """Return the report of a run in which nothing was to be measured."""
    samples = [*results.samples, *results.history, *results.tools]
    parts = [f"left out: {name}: {why}" for name, why in results.left_out.items()]
    return "\n".join([*parts, f"{len(samples)} rounds had the right answers, {len(parts)} not"])


# ------------------------------------------------------------------ for programs
def save_json(results: Results, works: Sequence[Workload], path: Path) -> None:
    """Write all that was measured, and on what machine, as JSON."""
    document = {
        "machine": describe_machine(),
        "workloads": [asdict(work) for work in (*works, HISTORY, BOUNDARY)],
        "rows": [asdict(row) for work in works for row in results.rows(work)],
        "idle": {
            name: asdict(found) | {"kib_per_stream": found.kib_per_stream}
            for name, found in results.idle.items()
        },
        "slow": {name: asdict(found) for name, found in results.slow.items()},
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
    path.write_text(NUMBER_LIST.sub(lambda found: " ".join(found[0].split()), lines))
