"""Run every check that does not run the product. Called by scripts/check.

Usage: scripts/check [--fast]

All of them run, as many at once as there are cores, also after one has failed, so that one look
shows all there is to mend. `--fast` leaves out pyright, TypeScript's check of the JavaScript, and
the site of the documents.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import tools
from repository import ROOT, files

SCRIPTS = ROOT / "scripts"
NPM_FOLDER = ROOT / "tests" / "js"
SHOWN_LINES = 60
PYTHON = [sys.executable, "-m"]

Check = tuple[str, list[str]]


def main() -> int:
    if unknown := set(sys.argv[1:]) - {"--fast"}:
        print(f"Unknown: {' '.join(unknown)}. Usage: scripts/check [--fast]")
        return 2
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    checks = list(fast_checks())
    if "--fast" not in sys.argv:
        node = os.environ.get("TEST_NODE") or tools.find_node()
        if node is None:
            print("Node.js is needed for pyright and the JavaScript checks, and cannot be had")
            return 1
        environment["PATH"] = f"{Path(node).parent}{os.pathsep}{environment['PATH']}"
        checks = [*slow_checks(node), *checks]  # the longest first
    with ThreadPoolExecutor(os.cpu_count()) as at_once:
        names, commands = zip(*checks, strict=True)
        passed = at_once.map(partial(run_check, environment), names, commands)
    failed = [name for (name, _), fine in zip(checks, passed, strict=True) if not fine]
    print(f"\nchecks failed: {', '.join(failed)}" if failed else "\nall checks passed", flush=True)
    return 1 if failed else 0


def fast_checks() -> Iterator[Check]:
    yield "types (mypy)", [*PYTHON, "mypy"]
    yield "lock files", [sys.executable, str(SCRIPTS / "lock.py"), "--check"]
    yield "format", [*PYTHON, "ruff", "format", "--check", "--quiet", "."]
    yield "lint", [*PYTHON, "ruff", "check", "--quiet", "."]
    yield "budgets", [sys.executable, str(SCRIPTS / "budgets.py")]
    yield "hygiene", [sys.executable, str(SCRIPTS / "hygiene.py")]
    yield "documents", [sys.executable, str(SCRIPTS / "documents.py")]
    yield "spelling", [*PYTHON, "codespell_lib", *map(str, files())]
    yield "import contracts", [str(Path(sys.executable).parent / "lint-imports"), "--no-logo"]
    yield "reference pages", [sys.executable, str(SCRIPTS / "settings_reference.py")]
    yield "tables of the design", [sys.executable, str(SCRIPTS / "conversation_tables.py")]
    yield "licences", [sys.executable, str(SCRIPTS / "licences.py")]


def slow_checks(node: str) -> Iterator[Check]:
    yield "types (pyright)", [*PYTHON, "pyright"]
    yield "site", [sys.executable, str(SCRIPTS / "build_site.py")]
    if tools.npm_ci(node, NPM_FOLDER):
        compiler = NPM_FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
        yield "types (JavaScript)", [node, str(compiler), "--project", str(NPM_FOLDER)]
    else:
        yield "npm packages of the checks", ["false"]


def run_check(environment: dict[str, str], name: str, command: list[str]) -> bool:
    start = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    word = "ok    " if done.returncode == 0 else "FAILED"
    told = [f"{word} {name} ({time.monotonic() - start:.1f} s)"]
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        told += lines[:SHOWN_LINES]
        if len(lines) > SHOWN_LINES:
            told.append(f"... and {len(lines) - SHOWN_LINES} more lines")
    print("\n".join(told), flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
