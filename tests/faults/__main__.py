"""Play the scenarios, and with --nightly also run the nightly tests. Called by scripts/faults.

Usage: scripts/faults [--quick | --nightly] [--only NAME] [--points N] [--seed N] [--jobs N]
       [--json FILE] [--report PAGE]

It prints its progress and, at the end, a table. A JSON file has the same figures with every
violation, and logs and histories that help to find the cause. The exit code is 1 if there was a
violation. Set PYTHONPATH to test another server than that of this checkout.
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
from tests.faults import results
from tests.faults.nightly_tests import NIGHTLY_TESTS
from tests.faults.results import Result, Row
from tests.faults.scenarios import SCENARIOS, Scenario

ROOT = Path(__file__).parents[2]
PRINTED_VIOLATIONS = 10  # of each scenario
PROGRESS_INTERVAL = 10.0  # seconds


def main() -> int:
    options = parse_arguments()
    all_tests = options.nightly and not options.only
    scenarios = [name for name in SCENARIOS if not options.only or is_chosen(name, options.only)]
    tests = [name for name in NIGHTLY_TESTS if all_tests or is_chosen(name, options.only or [])]
    if not scenarios and not tests:
        print_line(f"no such scenario; there are: {', '.join([*SCENARIOS, *NIGHTLY_TESTS])}")
        return 2
    options.json.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for row in chain(play_scenarios(scenarios, options), map(run_tests, tests)):
        rows.append(row)
        options.json.write_text(results.to_json(rows, describe_machine()), "utf-8")
    print_line(f"\n{results.format_table(rows)}\n\n{options.json}")
    if options.report:
        results.write_report(options.report, rows, describe_machine())
    return 1 if any(row.result.violations for row in rows) else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/faults", description="Play the fault scenarios.")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="some points each (the default)")
    length.add_argument("--nightly", action="store_true", help="the full test: hours")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only names that begin so; may be repeated"
    )
    parser.add_argument("--points", type=int, metavar="N", help="points in each scenario")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), metavar="N")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="scenarios to play at once; mostly they wait",
    )
    parser.add_argument(
        "--json", type=Path, default=ROOT / ".cache" / "faults.json", metavar="FILE"
    )
    parser.add_argument("--report", type=Path, metavar="PAGE", help="write the figures into it")
    return parser.parse_args()


def is_chosen(name: str, starts: Sequence[str]) -> bool:
    return name.startswith(tuple(starts))


def play_scenarios(names: Sequence[str], options: argparse.Namespace) -> Iterable[Row]:
    """Play the scenarios, and give their rows in the order of the names."""
    if options.jobs > 1:
        with ThreadPoolExecutor(options.jobs) as jobs:
            yield from jobs.map(partial(play_in_process, options), names)
        return
    for name in names:
        scenario = SCENARIOS[name]
        points = options.points or (scenario.nightly if options.nightly else scenario.quick)
        yield play_scenario(name, scenario, points, options.seed)


def play_in_process(options: argparse.Namespace, name: str) -> Row:
    """Play a scenario in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, "-m", "tests.faults", "--only", name, "--json", str(file)]
        command += ["--seed", str(options.seed), "--nightly" if options.nightly else "--quick"]
        command += ["--points", str(options.points)] if options.points else []
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if file.exists():
            rows = results.from_json(file.read_text("utf-8"))
            return next(row for row in rows if row.name == name)
    failed = Result(violations=[f"the scenario's process ended with {code}"])
    return Row(name, SCENARIOS[name].about, options.seed, 0, failed)


def play_scenario(name: str, scenario: Scenario, points: int, seed: int) -> Row:
    print_line(f"{name}: {scenario.about}, {points} points, seed {seed}")
    began_at = printed_at = time.monotonic()

    def print_progress(so_far: Result) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at > PROGRESS_INTERVAL:
            printed_at = time.monotonic()
            counts = f"{so_far.points} points, {so_far.posts} posts"
            found = f", {len(so_far.violations)} violations" if so_far.violations else ""
            print_line(f"  {name}: {counts}, {so_far.disconnects} disconnects{found}")

    try:
        result = anyio.run(scenario.run, points, seed, print_progress)
    except (OSError, AssertionError, TimeoutError, httpx.HTTPError, ExceptionGroup) as error:
        traceback.print_exception(error)  # its text does not say what was waited for
        result = Result(violations=[f"the scenario failed: {error!r}"])
    row = Row(name, scenario.about, seed, time.monotonic() - began_at, result)
    print_violations(row)
    return row


def run_tests(name: str) -> Row:
    tests = NIGHTLY_TESTS[name]
    print_line(f"{name}: {tests.about}")
    began_at = time.monotonic()
    result = tests.run()
    row = Row(name, tests.about, 0, time.monotonic() - began_at, result)
    print_violations(row)
    return row


def print_violations(row: Row) -> None:
    violations = row.result.violations
    print_line(f"  {row.name}: {len(violations)} violations in {row.seconds:.0f} s")
    for violation in violations[:PRINTED_VIOLATIONS]:
        print_line(f"  {row.name}: VIOLATION {violation[:400]}")


def describe_machine() -> str:
    """Return the date and the machine, for the report."""
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    python = f"Python {platform.python_version()}"
    return f"{date}, {os.cpu_count()} cores, {platform.system()}, {python}"


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
