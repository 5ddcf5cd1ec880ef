"""What a run of the harness found: as a table for people, as JSON for programs, and in the documentation."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.tally import Tally

BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
COLUMNS = (
    "scenario",
    "points",
    "hits",
    "posts",
    "acknowledged",
    "cuts",
    "failed runs",
    "worst time to usable",
    "seconds",
    "faults",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario that was played."""

    name: str
    about: str
    seed: int
    seconds: float
    tally: Tally

    @property
    def cells(self) -> tuple[str, ...]:
        tally = self.tally
        return (
            self.name,
            str(tally.points),
            str(tally.hits or ""),
            str(tally.posts or ""),
            str(tally.acknowledged or ""),
            str(tally.cuts or ""),
            str(tally.failed or ""),
            f"{tally.worst:.1f} s" if tally.worst is not None else "",
            f"{self.seconds:.0f}",
            str(len(tally.faults)),
        )


def table(rows: Iterable[Row]) -> str:
    """As columns of text."""
    lines = [COLUMNS, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join(_line(cells, widths) for cells in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, *numbers = cells
    rest = (cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))
    return "  ".join([name.ljust(widths[0]), *rest]).rstrip()


def as_json(rows: Sequence[Row], machine: str) -> str:
    scenarios = [{**asdict(row), "worst": row.tally.worst, "cells": row.cells} for row in rows]
    return json.dumps({"machine": machine, "scenarios": scenarios}, indent=1) + "\n"


def from_json(text: str) -> list[Row]:
    """The rows of `as_json`."""
    return [
        Row(each["name"], each["about"], each["seed"], each["seconds"], Tally(**each["tally"]))
        for each in json.loads(text)["scenarios"]
    ]


def write_into(page: Path, rows: Iterable[Row], machine: str) -> None:
    """Put the figures between the marks of a page.

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
