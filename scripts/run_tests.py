"""Run pytest with the programs that the tests need. Called by scripts/test.

Usage: scripts/test [--quick | --coverage] [pytest's arguments]

With --quick, the unit tests and the contract of the stores in memory are run, which need no program
but Python: within some 75 seconds on two cores.

The others find the programs in TEST_REDIS_SERVER, TEST_POSTGRES, TEST_CHROMIUM, TEST_NODE,
TEST_NGINX, TEST_JQ, TEST_OPENAPI_CLIENT, TEST_AGENTSCOPE and TEST_BLADE_CLIENT; with
TEST_LANE=nightly also in TEST_GO, TEST_NEWEST_REDIS, TEST_PGBOUNCER and TEST_PLAIN_SERVER. A
missing one is said aloud, and its tests skip; where CI is set it is a failure.

With --coverage, the unit tests are run on a newer Python, too, if it is on the PATH, and the last
lines are the tests that failed and why, and `N passed, N failed, N skipped`.
"""

import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import tools

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
NPM_FOLDER = ROOT / "tests" / "js"
_CORES = os.cpu_count() or 1
_BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
"""The tests of one file share servers. tests/conftest.py says which files are begun first; by
itself, xdist begins with those of the most tests."""
SPREAD = ("-n", str(min(4, _CORES + 1)), *_BY_FILE)
"""Over the cores, and one more: many tests wait."""
QUICK_FOLDERS = ("tests/unit", "tests/contract")
NEWER_PYTHON = "python3.13"
REASON_CHARACTERS = 400
COMPILED = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(CACHE / "pycache")}
"""Of the tests and the servers that they start, hundreds: each would compile what it imports where
the environment keeps Python from writing bytecode, as many containers do."""

PROGRAMS = {
    "TEST_REDIS_SERVER": "redis-server",
    "TEST_POSTGRES": "PostgreSQL",
    "TEST_CHROMIUM": "Chromium",
    "TEST_NODE": "Node.js and its npm packages",
    "TEST_NGINX": "nginx",
    "TEST_JQ": "jq",
    "TEST_OPENAPI_CLIENT": "openapi-python-client",
    "TEST_AGENTSCOPE": "agentscope-runtime",
    "TEST_BLADE_CLIENT": "blade-agent-kit and Python 3.12",
}
NIGHTLY_PROGRAMS = {
    "TEST_GO": "Go",
    "TEST_NEWEST_REDIS": "the newest Valkey",
    "TEST_PGBOUNCER": "PgBouncer",
    "TEST_PLAIN_SERVER": "the packages of the benchmarks' plain server",
}


def main() -> int:
    arguments = sys.argv[1:]
    os.environ.update(COMPILED)
    if "--quick" in arguments:
        arguments.remove("--quick")
        return _quick(arguments)
    is_measured = "--coverage" in arguments
    with ThreadPoolExecutor(1) as beside:
        newer = beside.submit(tools.find_python, NEWER_PYTHON) if is_measured else None
        environment = prepare(nightly=os.environ.get("TEST_LANE") == "nightly")
    if environment is None:
        return 1
    if newer is not None:
        arguments.remove("--coverage")
        return _measured(arguments, environment, newer.result())
    return _call("pytest", *SPREAD, *arguments, env=environment)


def prepare(*, nightly: bool) -> dict[str, str] | None:
    """Return the environment of the tests, with the programs that were found. None: one is missing
    in CI.
    """
    expected = PROGRAMS | (NIGHTLY_PROGRAMS if nightly else {})
    found = tools.find_all(nightly=nightly)
    node = found.get("TEST_NODE")
    if node and not tools.npm_ci(node, NPM_FOLDER):
        del found["TEST_NODE"]
    missing = [name for name in expected if name not in found]
    for name in missing:
        print(f"MISSING: {expected[name]}: its tests are skipped (or set {name})", file=sys.stderr)
    if missing and tools.IN_CI:
        print("MISSING programs are a failure in CI", file=sys.stderr)
        return None
    return {k: v for k, v in os.environ.items() if k not in expected} | found


def _quick(arguments: list[str]) -> int:
    folders = () if any(Path(each).exists() for each in arguments) else QUICK_FOLDERS
    environment = os.environ | {"TEST_LANE": "quick"}
    return _call("pytest", *SPREAD, *folders, *arguments, env=environment)


def _measured(arguments: list[str], environment: dict[str, str], newer_python: str | None) -> int:
    data = CACHE / "coverage"
    data.mkdir(parents=True, exist_ok=True)
    for old in data.iterdir():
        old.unlink()
    report = data / "tests.xml"
    environment = environment | {"COVERAGE_FILE": str(data / ".coverage")}
    run = ("coverage", "run", "-m", "pytest", *SPREAD, f"--junitxml={report}")
    tests = _call(*run, *arguments, env=environment)
    with _unit_tests_on(newer_python) as newer_run:  # one core reports the coverage meanwhile
        _call("coverage", "combine", "--quiet", env=environment)
        enough = _is_enough(environment)
        newer = newer_run()
    _print_counts(report)
    return tests or newer or (0 if enough else 1)


@contextmanager
def _unit_tests_on(python: str | None) -> Generator[Callable[[], int]]:
    """Run the unit tests on a newer Python while the context is open.

    Yields a function that waits for their end, prints their output and returns their exit code; 0
    where there is no such Python.
    """
    if python is None:
        print(f"\n{NEWER_PYTHON} is not on the PATH: the unit tests were not run on it", flush=True)
        yield lambda: 0
        return
    environment = os.environ | {"TEST_LANE": "quick"}
    command = [python, "-m", "pytest", *SPREAD, "-p", "no:cacheprovider", QUICK_FOLDERS[0]]
    with (
        TemporaryFile("w+") as output,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        ) as running,
    ):

        def finish() -> int:
            code = running.wait()
            output.seek(0)
            print(f"\nThe unit tests on {NEWER_PYTHON}:\n{output.read()}", flush=True)
            return code

        yield finish


def _is_enough(environment: dict[str, str]) -> bool:
    """Return True if each folder reaches its floor in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    enough = True
    for folder, floor in settings["tool"]["passback"]["coverage"].items():
        print(f"\nCoverage of {folder}, at least {floor} %:", flush=True)
        limits = [f"--include={folder}/*", f"--fail-under={floor}"]
        enough &= _call("coverage", "report", *limits, env=environment) == 0
    return enough


def _print_counts(report: Path) -> None:
    suites = ET.parse(report).getroot().iter("testsuite") if report.exists() else ()
    names = ("tests", "failures", "errors", "skipped")
    totals = dict.fromkeys(names, 0)
    for suite in suites:
        for name in names:
            totals[name] += int(suite.get(name, 0))
        for test in suite.iter("testcase"):
            for fault in (*test.findall("failure"), *test.findall("error")):
                reason = (fault.get("message") or "").partition("\n")[0]
                print(f"{test.get('classname')}.{test.get('name')}: {reason[:REASON_CHARACTERS]}")
    failed = totals["failures"] + totals["errors"]
    passed = totals["tests"] - failed - totals["skipped"]
    print(f"\n{passed} passed, {failed} failed, {totals['skipped']} skipped", flush=True)


def _call(module: str, *arguments: str, env: dict[str, str]) -> int:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
