"""What a proof's tests told, as it is counted in the report."""

from pathlib import Path

from tests.faults.proofs import PROOFS, counted
from tests.faults.scenarios import SCENARIOS

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="passes" />
<testcase classname="tests.a" name="fails"><failure message="1 is not 2">...</failure></testcase>
<testcase classname="tests.b" name="breaks"><error message="no server" /></testcase>
<testcase classname="tests.b" name="is_left_out"><skipped message="Valkey is missing" /></testcase>
</testsuite></testsuites>
"""


def test_what_failed_and_what_was_skipped_are_faults(tmp_path: Path) -> None:
    result = tmp_path / "tests.xml"
    result.write_text(REPORT)
    tally = counted(result)
    assert (tally.points, tally.faults) == (
        4,
        [
            "failure: tests.a::fails: 1 is not 2",
            "error: tests.b::breaks: no server",
            "skipped: tests.b::is_left_out: Valkey is missing",
        ],
    )


def test_proofs_and_scenarios_are_told_apart_by_their_names() -> None:
    assert PROOFS.keys().isdisjoint(SCENARIOS)
