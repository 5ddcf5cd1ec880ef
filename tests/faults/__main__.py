"""Plays the scenarios one after the other. Called by scripts/faults.

Usage: scripts/faults [--quick | --nightly] [--only NAME] [--points N] [--seed N] [--json FILE] [--report PAGE]

It prints how far it is and, at the end, a table; the same goes to a JSON file, with every fault and what helps to find its
reason. The exit code is 1 if there was a fault. Another server than that of this checkout is tried by PYTHONPATH.
"""

import argparse
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom

import anyio
import httpx
from tests.faults import report
from tests.faults.report import Row
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.tally import Tally

ROOT = Path(__file__).parents[2]
SHOWN_FAULTS = 10
TELL_EACH = 10.0
"""Seconds between two words about how far it is."""


def main() -> int:
    options = _options()
    names = [name for name in SCENARIOS if not options.only or _is_meant(name, options.only)]
    if not names:
        _say(f"no such scenario; there are: {', '.join(SCENARIOS)}")
        return 2
    rows: list[Row] = []
    for name in names:
        scenario = SCENARIOS[name]
        points = options.points or (scenario.nightly if options.nightly else scenario.quick)
        rows.append(_play(name, scenario, points, options.seed))
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(report.as_json(rows, _machine()), "utf-8")
    _say(f"\n{report.table(rows)}\n\n{options.json}")
    if options.report:
        report.write_into(options.report, rows, _machine())
    return 1 if any(row.tally.faults for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/faults", description="Play the fault scenarios.")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="some points each (the default)")
    length.add_argument("--nightly", action="store_true", help="as many as the proof needs: hours")
    parser.add_argument("--only", action="append", metavar="NAME", help="or the start of a name")
    parser.add_argument("--points", type=int, metavar="N", help="so many in each scenario")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), metavar="N")
    parser.add_argument(
        "--json", type=Path, default=ROOT / ".cache" / "faults.json", metavar="FILE"
    )
    parser.add_argument("--report", type=Path, metavar="PAGE", help="write the figures into it")
    return parser.parse_args()


def _is_meant(name: str, only: list[str]) -> bool:
    return any(name.startswith(each) for each in only)


def _play(name: str, scenario: Scenario, points: int, seed: int) -> Row:
    _say(f"{name}: {scenario.about}, {points} points, seed {seed}")
    began = told = time.monotonic()

    def progress(tally: Tally) -> None:
        nonlocal told
        if time.monotonic() - told > TELL_EACH:
            told = time.monotonic()
            found = f", {len(tally.faults)} faults" if tally.faults else ""
            _say(f"  {tally.points} points, {tally.posts} posts, {tally.cuts} cuts{found}")

    try:
        tally = anyio.run(scenario.run, points, seed, progress)
    except (OSError, AssertionError, TimeoutError, httpx.HTTPError, ExceptionGroup) as error:
        tally = Tally(faults=[f"the scenario broke off: {error!r}"])
    row = Row(name, scenario.about, seed, time.monotonic() - began, tally)
    _say(f"  {len(tally.faults)} faults in {row.seconds:.0f} s")
    for fault in tally.faults[:SHOWN_FAULTS]:
        _say(f"  FAULT {fault[:400]}")
    return row


def _machine() -> str:
    """Where and when."""
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    return (
        f"{when}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
