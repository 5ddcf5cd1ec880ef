"""What the harness and its workers agree on. The harness itself imports nothing of the server that it judges."""

import sys
from pathlib import Path

WATCHED = (sys.executable, "-m", "tests.faults.watched", "serve")
"""Starts a worker that tells of its tasks."""
TASKS = "FAULTS_TASKS"
"""The variable with the start of the name of the file in which it does."""

AGENT = "tests.faults.workshop:agent"
"""Has tools that note when they are begun."""
WORK = "FAULTS_WORK"
"""The variable with the name of the file in which they do."""
DONE_WORK = "(done)"
"""What they give as their result."""


def environment(folder: Path) -> dict[str, str]:
    return {TASKS: str(folder / "tasks"), WORK: str(folder / "work")}


def tasks_file(folder: Path, pid: int) -> str:
    return f"{folder / 'tasks'}{pid}"


def work_done(folder: Path) -> list[str]:
    """What the tools have begun: tool, run and call."""
    file = folder / "work"
    return file.read_text().splitlines() if file.exists() else []
