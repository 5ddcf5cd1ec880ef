"""The benchmarks compare their figures with goals, and divide the cores of their machine."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from benchmarks.figures import Goal, last_committed
from benchmarks.processes import Cores, assign_cores

MACHINE = {"system": "Linux", "cores": "2"}


def git(folder: Path, *arguments: str) -> None:
    """Run git without the settings of the machine."""
    environment = {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    settings = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    command = ["git", "-C", str(folder), *settings, *arguments]
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=20)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Return the path of the results, in a folder of an empty repository."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "benchmarks").mkdir()
    return tmp_path / "benchmarks" / "results.json"


def commit(results: Path, text: str) -> None:
    results.write_text(text)
    git(results.parent, "add", results.name)
    git(results.parent, "commit", "--quiet", "--message", "results")


def test_the_medians_before_are_the_committed_ones(
    results: Path,
) -> None:
    goals = [{"words": "memory", "measured": 31.5}, {"words": "crowd", "measured": None}]
    commit(results, json.dumps({"machine": MACHINE, "goals": goals}))
    results.write_text("{}")

    before = last_committed(results)

    assert before.medians == {"memory": 31.5}
    assert before.words.endswith("It may be of another machine: system Linux, cores 2")


def test_results_that_were_never_committed_are_not_compared(results: Path) -> None:
    results.write_text(json.dumps({"machine": MACHINE, "goals": []}))

    before = last_committed(results)

    assert before.medians == {}
    assert "no results.json is committed" in before.words


@pytest.mark.parametrize(
    "text", ["<<<<", "[]", "{}", '{"machine": {}, "goals": [{"words": "a", "measured": "b"}]}']
)
def test_unreadable_committed_results_are_not_compared(results: Path, text: str) -> None:
    commit(results, text)

    before = last_committed(results)

    assert before.medians == {}
    assert "cannot be read" in before.words


@pytest.mark.parametrize(
    ("at_least", "measured", "verdict"),
    [(False, 1.8, "met"), (False, 1.9, "MISSED"), (True, 1.8, "met"), (True, 1.7, "MISSED")],
)
def test_a_goal_is_a_maximum_or_a_minimum(at_least: bool, measured: float, verdict: str) -> None:
    assert Goal("scaling", 1.8, "times", (measured,), at_least).verdict == verdict


@pytest.mark.parametrize(
    ("physical_cores", "cores"),
    [
        ([{0}], Cores(frozenset({0}), frozenset({0}))),
        ([{0}, {1}], Cores(frozenset({0}), frozenset({1}))),
        ([{0}, {1}, {2}], Cores(frozenset({0}), frozenset({1, 2}))),
        ([{0}, {1}, {2}, {3}], Cores(frozenset({0}), frozenset({2, 3}), frozenset({1}))),
        ([{0, 1}, {2, 3}], Cores(frozenset({0}), frozenset({1, 2, 3}))),
        ([{0, 3}, {1, 4}, {2, 5}], Cores(frozenset({0}), frozenset({2, 5}), frozenset({1}))),
    ],
)
def test_a_second_worker_gets_a_core_if_two_are_left_for_the_others(
    physical_cores: list[set[int]], cores: Cores
) -> None:
    assert assign_cores(map(frozenset, physical_cores)) == cores
