"""The results as they are shown and stored, and the reports of the nightly tests."""

import json
from pathlib import Path

import pytest
from tests.faults import results
from tests.faults.nightly_tests import NIGHTLY_TESTS, read_junit_report
from tests.faults.results import Result, Row
from tests.faults.scenarios import SCENARIOS

KILLED = Result(3, 2, 20, 19, disconnects=5, recovery_times=[0.5, None, 2.25])
ROWS = [
    Row("kill", "kills", 7, 12.3, KILLED),
    Row("nginx", "a proxy", 7, 100, Result(1, violations=["a gap"])),
]


def test_the_table_has_a_line_for_each_scenario() -> None:
    head, kill, nginx = results.format_table(ROWS).splitlines()
    assert head.split("  ")[0] == "scenario"
    assert kill.split() == ["kill", "3", "2", "20", "19", "5", "2.2", "s", "12", "0"]
    assert nginx.split() == ["nginx", "1", "100", "1"]


def test_the_json_has_all_counts_and_every_violation() -> None:
    written = json.loads(results.to_json(ROWS, "a machine"))
    assert written["machine"] == "a machine"
    assert written["scenarios"][0]["result"]["recovery_times"] == [0.5, None, 2.25]
    assert written["scenarios"][1]["result"]["violations"] == ["a gap"]


def test_the_json_is_read_back_as_it_was_written() -> None:
    assert results.from_json(results.to_json(ROWS, "a machine")) == ROWS


def test_the_figures_replace_those_of_the_run_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n")
    results.write_report(page, ROWS, "a machine")
    text = page.read_text()
    assert text.startswith(f"before\n{results.BEGIN}\na machine\n\n| scenario | points |")
    assert text.endswith(f"| 1 |\n{results.END}\nafter\n")
    assert "old" not in text


def test_a_page_without_a_place_for_figures_is_left_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n")
    with pytest.raises(ValueError, match="no place for figures"):
        results.write_report(page, ROWS, "a machine")
    assert page.read_text() == "text\n"


# ---------------------------------------------------------------- nightly tests
JUNIT_REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="passes" />
<testcase classname="tests.a" name="fails"><failure message="1 is not 2">...</failure></testcase>
<testcase classname="tests.b" name="breaks"><error message="no server" /></testcase>
<testcase classname="tests.b" name="is_left_out"><skipped message="Valkey is missing" /></testcase>
</testsuite></testsuites>
"""


def test_failed_and_skipped_nightly_tests_are_violations(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    report.write_text(JUNIT_REPORT)
    result = read_junit_report(report)
    assert (result.points, result.violations) == (
        4,
        [
            "failure: tests.a::fails: 1 is not 2",
            "error: tests.b::breaks: no server",
            "skipped: tests.b::is_left_out: Valkey is missing",
        ],
    )


def test_nightly_tests_and_scenarios_have_different_names() -> None:
    assert NIGHTLY_TESTS.keys().isdisjoint(SCENARIOS)
