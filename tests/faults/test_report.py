"""The figures of a run, as they are shown and kept."""

import json
from pathlib import Path

import pytest
from tests.faults import report
from tests.faults.report import Row
from tests.faults.tally import Tally

ROWS = [
    Row("kill", "kills", 7, 12.3, Tally(3, 2, 20, 19, cuts=5, usable=[0.5, None, 2.25])),
    Row("nginx", "a proxy", 7, 100, Tally(1, faults=["torn"])),
]


def test_the_table_has_a_line_for_each_scenario() -> None:
    head, kill, nginx = report.table(ROWS).splitlines()
    assert head.split("  ")[0] == "scenario"
    assert kill.split() == ["kill", "3", "2", "20", "19", "5", "2.2", "s", "12", "0"]
    assert nginx.split() == ["nginx", "1", "100", "1"]


def test_the_json_has_all_that_was_counted_and_every_fault() -> None:
    told = json.loads(report.as_json(ROWS, "a machine"))
    assert told["machine"] == "a machine"
    assert told["scenarios"][0]["tally"]["usable"] == [0.5, None, 2.25]
    assert told["scenarios"][1]["tally"]["faults"] == ["torn"]


def test_the_json_is_read_back_as_it_was_written() -> None:
    assert report.from_json(report.as_json(ROWS, "a machine")) == ROWS


def test_the_figures_replace_those_of_the_run_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_into(page, ROWS, "a machine")
    text = page.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\na machine\n\n| scenario | points |")
    assert text.endswith(f"| 1 |\n{report.END}\nafter\n")
    assert "old" not in text


def test_a_page_without_a_place_for_figures_is_left_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n")
    with pytest.raises(ValueError, match="no place for figures"):
        report.write_into(page, ROWS, "a machine")
    assert page.read_text() == "text\n"
