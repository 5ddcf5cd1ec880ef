"""What runs that are over leave to the collector: next to nothing. With many streams open it looks for that seldom."""

import subprocess
import sys


def test_runs_that_are_over_leave_no_more_than_the_last_of_them() -> None:
    command = [sys.executable, "-m", "tests.unit.engine.leftover_objects"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    (completed, *how), (failed, *why) = (line.split() for line in said.splitlines())
    assert (how, why) == (["completed"], ["failed"])
    # loops that look at all runs still know the last one; twenty leave forty without care
    assert int(completed) < 10
    assert int(failed) < 10
