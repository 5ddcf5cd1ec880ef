"""The results of scenarios: as a table for people, as JSON for programs, and in the documents."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.faults.evidence import Operation

BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
COLUMNS = (
    "scenario",
    "points",
    "hits",
    "posts",
    "acknowledged",
    "disconnects",
    "failed runs",
    "worst recovery time",
    "seconds",
    "violations",
)


@dataclass(slots=True)
class Result:
    """The counts of a scenario, and the violations that were found.

    Attributes:
        points: faults that were injected, or cases that were tried.
        hits: runs that were active when a fault came.
        posts: operations of clients.
        acknowledged: those that were acknowledged.
        refusals: how often each refusal was the last word.
        failed: runs that failed, and said so.
        disconnects: streams that broke off.
        void_frames: frames that became void.
        recovery_times: seconds from each fault until a post was accepted again; None: never.
        violations: what was wrong.
        diagnostics: logs and histories, if something was.
    """

    points: int = 0
    hits: int = 0
    posts: int = 0
    acknowledged: int = 0
    refusals: dict[str, int] = field(default_factory=dict[str, int])
    failed: int = 0
    disconnects: int = 0
    void_frames: int = 0
    recovery_times: list[float | None] = field(default_factory=list[float | None])
    violations: list[str] = field(default_factory=list[str])
    diagnostics: list[str] = field(default_factory=list[str])

    def count_operations(self, operations: Iterable[Operation]) -> None:
        for each in operations:
            self.posts += 1
            self.acknowledged += each.completion == "ok"
            if each.refusal:
                self.refusals[each.refusal] = self.refusals.get(each.refusal, 0) + 1
            self.failed += each.outcome.startswith("failed")
            self.disconnects += each.disconnects
            self.void_frames += each.void_frames

    @property
    def worst_recovery_time(self) -> float | None:
        return max((each for each in self.recovery_times if each is not None), default=None)


Progress: TypeAlias = Callable[[Result], None]
"""Called now and then with the result so far."""


@dataclass(frozen=True, slots=True)
class Row:
    """A scenario that was played, as a row of the table."""

    name: str
    about: str
    seed: int
    seconds: float
    result: Result

    @property
    def cells(self) -> tuple[str, ...]:
        result = self.result
        worst = result.worst_recovery_time
        return (
            self.name,
            str(result.points),
            str(result.hits or ""),
            str(result.posts or ""),
            str(result.acknowledged or ""),
            str(result.disconnects or ""),
            str(result.failed or ""),
            f"{worst:.1f} s" if worst is not None else "",
            f"{self.seconds:.0f}",
            str(len(result.violations)),
        )


def format_table(rows: Iterable[Row]) -> str:
    """Return the rows as columns of text."""
    lines = [COLUMNS, *(row.cells for row in rows)]
    name_width, *widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            [
                name.ljust(name_width),
                *(cell.rjust(width) for cell, width in zip(numbers, widths, strict=True)),
            ]
        ).rstrip()
        for name, *numbers in lines
    )


def to_json(rows: Sequence[Row], machine: str) -> str:
    scenarios = [
        {**asdict(row), "worst": row.result.worst_recovery_time, "cells": row.cells} for row in rows
    ]
    return json.dumps({"machine": machine, "scenarios": scenarios}, indent=1) + "\n"


def from_json(text: str) -> list[Row]:
    """Return the rows that `to_json` wrote."""
    return [
        Row(each["name"], each["about"], each["seed"], each["seconds"], Result(**each["result"]))
        for each in json.loads(text)["scenarios"]
    ]


def write_report(page: Path, rows: Iterable[Row], machine: str) -> None:
    """Replace the figures between the two marks of a page.

    Raises:
        ValueError: the page has no marks.
    """
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no place for figures: {BEGIN} ... {END}")
    lines = ["| " + " | ".join(cells) + " |" for cells in (COLUMNS, *(row.cells for row in rows))]
    lines.insert(1, "|---" * len(COLUMNS) + "|")
    figures = "\n".join(lines)
    page.write_text(f"{before}{BEGIN}\n{machine}\n\n{figures}\n{END}{after}", "utf-8")
