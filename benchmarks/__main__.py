"""Measure the servers beside a minimal proxy and print the ratios: `benchmarks/run`.

See docs/explanation/performance.md.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import last_committed
from benchmarks.plans import LONG_HISTORY, WORKLOADS, make_plan
from benchmarks.processes import raise_file_limit, split_cores
from benchmarks.report import format_check, format_report, save_json
from benchmarks.servers import start_testbed
from benchmarks.session import Session

RESULTS = Path(__file__).with_name("results.json")
QUICK_RESULTS = RESULTS.with_name("results-quick.json")
NOT_POSSIBLE = 2  # the exit code where something that it needs is missing


def make_parser() -> argparse.ArgumentParser:
    names = [work.name for work in WORKLOADS]
    parser = argparse.ArgumentParser(prog="benchmarks/run", description=__doc__)
    add = parser.add_argument
    quick = "one short round of what matters most, in less than a minute"
    add("--quick", action="store_true", help=quick)
    add("--check", action="store_true", help="check that answers are right; no figures")
    add("--rounds", type=int, default=5)
    add("--workloads", nargs="+", choices=names, default=names)
    words = "only those with one of these words in their names"
    add("--servers", nargs="+", default=[""], help=words)
    add("--idle-streams", type=int, default=500, help="0: leave the memory out")
    add("--slow-streams", type=int, default=5000, help="0: leave them out")
    long = "messages of the long conversations; 0: leave the history out"
    add("--long-history", type=int, default=LONG_HISTORY, help=long)
    add("--tool-requests", type=int, default=20, help="of ten tools each; 0: leave them out")
    files = f"where the figures go; benchmarks/{RESULTS.name}, of --quick {QUICK_RESULTS.name}"
    add("--json", type=Path, help=files)
    add("--strict", action="store_true", help="exit with 1 if a goal is missed")
    program = "on the PATH, or where"
    add("--redis-server", default="redis-server", metavar="PROGRAM", help=program)
    return parser


def main() -> int:
    options = make_parser().parse_args()
    if sys.platform != "linux" or shutil.which(options.redis_server) is None:
        print(f"benchmarks/run needs Linux and {options.redis_server}", file=sys.stderr)
        return NOT_POSSIBLE
    # leave by the context managers, so that all servers are ended
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    raise_file_limit()
    cores = split_cores()
    if not cores.are_apart:
        print("only one core: server and load disturb each other, trust no figure", file=sys.stderr)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="passback-bench-"))
        testbed = stack.enter_context(start_testbed(Path(folder), cores, options.redis_server))
        session = Session(testbed, make_plan(options))
        results = session.measure()
    if options.check:
        print(format_check(results))
        return 1 if results.left_out else 0
    works = session.plan.works
    path = options.json or (QUICK_RESULTS if options.quick else RESULTS)
    print(format_report(results, works, last_committed(RESULTS)))
    save_json(results, works, path)
    print(f"\nall figures: {path}")
    missed = any(goal.verdict != "met" for goal in results.goals())
    return 1 if results.left_out or (options.strict and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
