"""The benchmarks judge what they measured, and divide the cores of their machine."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from benchmarks.figures import Goal, last_committed
from benchmarks.processes import Cores, assign_cores

MACHINE = {"system": "Linux", "cores": "2"}


def git(folder: Path, *arguments: str) -> None:
    """As somebody whose own settings play no part."""
    alone = {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    settings = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    command = ["git", "-C", str(folder), *settings, *arguments]
    subprocess.run(command, check=True, capture_output=True, env=alone, timeout=20)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The place of the results, in a folder of an empty repository."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "benchmarks").mkdir()
    return tmp_path / "benchmarks" / "results.json"


def commit(results: Path, text: str) -> None:
    results.write_text(text)
    git(results.parent, "add", results.name)
    git(results.parent, "commit", "--quiet", "--message", "results")


def test_the_medians_before_are_those_that_were_committed_and_not_those_in_the_file(
    results: Path,
) -> None:
    goals = [{"words": "memory", "measured": 31.5}, {"words": "crowd", "measured": None}]
    commit(results, json.dumps({"machine": MACHINE, "goals": goals}))
    results.write_text("{}")

    before = last_committed(results)

    assert before.medians == {"memory": 31.5}
    assert before.words.endswith("It may be of another machine: system Linux, cores 2")


def test_results_that_were_never_committed_are_nothing_to_compare_with(results: Path) -> None:
    results.write_text(json.dumps({"machine": MACHINE, "goals": []}))

    before = last_committed(results)

    assert before.medians == {}
    assert "no results.json is committed" in before.words


@pytest.mark.parametrize(
    "text", ["<<<<", "[]", "{}", '{"machine": {}, "goals": [{"words": "a", "measured": "b"}]}']
)
def test_committed_results_that_cannot_be_read_end_no_run(results: Path, text: str) -> None:
    commit(results, text)

    before = last_committed(results)

    assert before.medians == {}
    assert "cannot be read" in before.words


@pytest.mark.parametrize(
    ("at_least", "measured", "verdict"),
    [(False, 1.8, "met"), (False, 1.9, "MISSED"), (True, 1.8, "met"), (True, 1.7, "MISSED")],
)
def test_a_limit_is_the_most_or_the_least(at_least: bool, measured: float, verdict: str) -> None:
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
def test_a_second_worker_gets_a_core_where_two_are_left_for_the_others(
    physical_cores: list[set[int]], cores: Cores
) -> None:
    assert assign_cores(map(frozenset, physical_cores)) == cores
