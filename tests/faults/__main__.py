"""Plays the scenarios, one after the other or some at once, and nightly the proofs after them. Called by scripts/faults.

Usage: scripts/faults [--quick | --nightly] [--only NAME] [--points N] [--seed N] [--jobs N] [--json FILE] [--report PAGE]

It prints how far it is and, at the end, a table; the same goes to a JSON file, with every fault and what helps to find its
reason. The exit code is 1 if there was a fault. Another server than that of this checkout is tried by PYTHONPATH.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from random import SystemRandom

import anyio
import httpx
from tests.faults import report
from tests.faults.proofs import PROOFS
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
    proofs = [name for name in PROOFS if _is_meant(name, options.only or []) or _is_whole(options)]
    if not names and not proofs:
        _say(f"no such scenario; there are: {', '.join([*SCENARIOS, *PROOFS])}")
        return 2
    options.json.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for row in chain(_played(names, options), map(_prove, proofs)):
        rows.append(row)
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
        "--jobs", type=int, default=1, metavar="N", help="play so many at once: mostly they wait"
    )
    parser.add_argument(
        "--json", type=Path, default=ROOT / ".cache" / "faults.json", metavar="FILE"
    )
    parser.add_argument("--report", type=Path, metavar="PAGE", help="write the figures into it")
    return parser.parse_args()


def _is_meant(name: str, only: list[str]) -> bool:
    return any(name.startswith(each) for each in only)


def _is_whole(options: argparse.Namespace) -> bool:
    return options.nightly and not options.only


def _played(names: Sequence[str], options: argparse.Namespace) -> Iterable[Row]:
    """Each scenario's row, in the order of the names."""
    if options.jobs > 1:
        with ThreadPoolExecutor(options.jobs) as jobs:
            yield from jobs.map(partial(_play_apart, options), names)
        return
    for name in names:
        scenario = SCENARIOS[name]
        points = options.points or (scenario.nightly if options.nightly else scenario.quick)
        yield _play(name, scenario, points, options.seed)


def _play_apart(options: argparse.Namespace, name: str) -> Row:
    """Play a scenario in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "tests.faults", "--only", name, "--json", str(result)]
        command += ["--seed", str(options.seed), "--nightly" if options.nightly else "--quick"]
        command += ["--points", str(options.points)] if options.points else []
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if result.exists():
            rows = report.from_json(result.read_text("utf-8"))
            return next(row for row in rows if row.name == name)
    broken = Tally(faults=[f"the scenario's process ended with {code}"])
    return Row(name, SCENARIOS[name].about, options.seed, 0, broken)


def _play(name: str, scenario: Scenario, points: int, seed: int) -> Row:
    _say(f"{name}: {scenario.about}, {points} points, seed {seed}")
    began = told = time.monotonic()

    def progress(tally: Tally) -> None:
        nonlocal told
        if time.monotonic() - told > TELL_EACH:
            told = time.monotonic()
            found = f", {len(tally.faults)} faults" if tally.faults else ""
            _say(f"  {name}: {tally.points} points, {tally.posts} posts, {tally.cuts} cuts{found}")

    try:
        tally = anyio.run(scenario.run, points, seed, progress)
    except (OSError, AssertionError, TimeoutError, httpx.HTTPError, ExceptionGroup) as error:
        traceback.print_exception(error)  # its text does not say what was waited for
        tally = Tally(faults=[f"the scenario broke off: {error!r}"])
    return _told(Row(name, scenario.about, seed, time.monotonic() - began, tally))


def _told(row: Row) -> Row:
    faults = row.tally.faults
    _say(f"  {row.name}: {len(faults)} faults in {row.seconds:.0f} s")
    for fault in faults[:SHOWN_FAULTS]:
        _say(f"  {row.name}: FAULT {fault[:400]}")
    return row


def _prove(name: str) -> Row:
    proof = PROOFS[name]
    _say(f"{name}: {proof.about}")
    began = time.monotonic()
    tally = proof.run()
    return _told(Row(name, proof.about, 0, time.monotonic() - began, tally))


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
