"""Run pytest with the programs that the tests need. Called by scripts/test.

Usage: scripts/test [--benchmarks] [--coverage] [pytest's arguments]

The tests find the programs in TEST_REDIS_SERVER, TEST_NEWEST_REDIS, TEST_CHROMIUM, TEST_NODE,
TEST_NGINX, TEST_JQ, TEST_OPENAPI_CLIENT, TEST_AGENTSCOPE and TEST_PLAIN_SERVER. A missing one is
said aloud, and its tests skip; where CI is set it is a failure. With --benchmarks, the servers of
the benchmarks are asked first, only for whether they answer rightly; likewise. With --coverage the
last line is `N passed, N failed, N skipped`; before it stand the tests that failed beside the
others and passed alone.
"""

import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import tools

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
NPM_FOLDER = ROOT / "tests" / "js"
_PROCESSES = str(min(4, (os.cpu_count() or 1) + 1))
SPREAD = ("-n", _PROCESSES, "--dist", "loadfile", "--no-loadscope-reorder")
"""Files are spread over the cores, and one more: many tests wait. The tests of one file share
servers. tests/conftest.py says which are begun first; by itself, xdist begins with those of the
most tests."""

AGAIN = 3
"""So many failed tests are run once more, alone. One that passes then is told, and is a fault of
its own, to be mended.
"""

NOT_POSSIBLE = 2
"""The exit code of the benchmarks where something that they need is missing."""
PROGRAMS = {
    "TEST_REDIS_SERVER": "redis-server",
    "TEST_NEWEST_REDIS": "the newest Valkey",
    "TEST_CHROMIUM": "Chromium",
    "TEST_NODE": "Node.js and its npm packages",
    "TEST_NGINX": "nginx",
    "TEST_JQ": "jq",
    "TEST_OPENAPI_CLIENT": "openapi-python-client",
    "TEST_AGENTSCOPE": "agentscope-runtime",
    "TEST_PLAIN_SERVER": "the packages of the benchmarks' plain server",
}


def main() -> int:
    arguments = sys.argv[1:]
    programs = _programs()
    environment = {k: v for k, v in os.environ.items() if k not in PROGRAMS} | programs
    missing = [name for name in PROGRAMS if name not in programs]
    for name in missing:
        print(f"MISSING: {PROGRAMS[name]}: its tests are skipped (or set {name})", file=sys.stderr)
    if missing and tools.IN_CI:
        print("MISSING programs are a failure in CI", file=sys.stderr)
        return 1
    wrong = 0
    if "--benchmarks" in arguments:
        arguments.remove("--benchmarks")
        wrong = _benchmarks(programs, environment)
    if "--coverage" in arguments:
        arguments.remove("--coverage")
        return _measured(arguments, environment) or wrong
    return _call("pytest", *SPREAD, *arguments, env=environment) or wrong


def _benchmarks(programs: dict[str, str], environment: dict[str, str]) -> int:
    """Their exit code; 0 where they cannot run, which they say, on a machine that is no CI's."""
    redis = programs.get("TEST_REDIS_SERVER", "redis-server")
    code = _call("benchmarks", "--check", "--redis-server", redis, env=environment)
    if code == NOT_POSSIBLE and not tools.IN_CI:
        print("MISSING: the benchmarks' servers were not asked", file=sys.stderr)
        return 0
    return code


def _programs() -> dict[str, str]:
    found = tools.find_all()
    node = found.get("TEST_NODE")
    if node and not tools.npm_ci(node, NPM_FOLDER):
        del found["TEST_NODE"]
    return found


def _measured(arguments: list[str], environment: dict[str, str]) -> int:
    data = CACHE / "coverage"
    data.mkdir(parents=True, exist_ok=True)
    for old in data.iterdir():
        old.unlink()
    report = data / "tests.xml"
    environment = environment | {"COVERAGE_FILE": str(data / ".coverage")}
    run = ("coverage", "run", "-m", "pytest")
    tests = _call(*run, *SPREAD, f"--junitxml={report}", *arguments, env=environment)
    failed = _failed(report)
    if tests == 1 and 0 < len(failed) <= AGAIN:  # not where pytest itself broke off
        print(f"\nOnce more, alone: {len(failed)} of the tests", flush=True)
        tests = _call(*run, "--last-failed", "--last-failed-no-failures=none", env=environment)
    passed_alone = [] if tests else failed
    _call("coverage", "combine", "--quiet", env=environment)
    enough = _is_enough(environment)
    for name in passed_alone:
        print(f"\nUNSTEADY: {name} failed beside the others and passed alone", flush=True)
    _print_counts(report, len(passed_alone))
    return tests or (0 if enough else 1)


def _failed(report: Path) -> list[str]:
    cases = ET.parse(report).getroot().iter("testcase") if report.exists() else ()
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]


def _is_enough(environment: dict[str, str]) -> bool:
    """Return True if each folder reaches its floor in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    enough = True
    for folder, floor in settings["tool"]["passback"]["coverage"].items():
        print(f"\nCoverage of {folder}, at least {floor} %:", flush=True)
        limits = [f"--include={folder}/*", f"--fail-under={floor}"]
        enough &= _call("coverage", "report", *limits, env=environment) == 0
    return enough


def _print_counts(report: Path, passed_alone: int) -> None:
    suites = ET.parse(report).getroot().iter("testsuite") if report.exists() else ()
    names = ("tests", "failures", "errors", "skipped")
    totals = dict.fromkeys(names, 0)
    for suite in suites:
        for name in names:
            totals[name] += int(suite.get(name, 0))
    failed = totals["failures"] + totals["errors"] - passed_alone
    passed = totals["tests"] - failed - totals["skipped"]
    print(f"\n{passed} passed, {failed} failed, {totals['skipped']} skipped", flush=True)


def _call(module: str, *arguments: str, env: dict[str, str]) -> int:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
