"""The command line in a process of its own, forked from one that has everything imported.

Importing takes longer than most commands do. As a program, this module is the process that is
forked: for each line of JSON that it reads it runs a command, and it answers with a line.
"""

import atexit
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

from passback.cli import main
from passback.workers import EXIT_FAILED

SECONDS = 30


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def passback(*arguments: str, cwd: Path | None = None, **environment: str) -> Ended:
    """Run `passback` with these arguments, and these variables beside those of this process."""
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith("PASSBACK_")
    }
    # what a developer keeps in the repository's .env is for containers
    reads_settings = arguments[0] in {"serve", "check"}
    env_file = ("--no-env-file",) if cwd is None and reads_settings else ()
    with tempfile.TemporaryDirectory() as folder:
        stdout, stderr = Path(folder) / "stdout", Path(folder) / "stderr"
        order = {
            "arguments": [*arguments, *env_file],
            "cwd": str(cwd or Path.cwd()),
            "environment": {**inherited, **environment},
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        process = _process()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(order)}\n")
        process.stdin.flush()
        code = int(process.stdout.readline())
        return Ended(code, stdout.read_text(), stderr.read_text())


@cache
def _process() -> "subprocess.Popen[str]":
    environment = os.environ.copy()
    environment.pop("COVERAGE_PROCESS_CONFIG", None)  # what ends by itself would not write it down
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.commands"],
        env=environment,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.communicate)
    return process


# ---------------------------------------------------------------- the process that is forked
def _serve(orders: IO[str], answers: IO[str]) -> None:
    for line in orders:
        order = json.loads(line)
        if (child := os.fork()) == 0:
            _run_order(order)
        answers.write(f"{_code_of(child)}\n")
        answers.flush()


def _run_order(order: Mapping[str, Any]) -> NoReturn:
    for descriptor, name in ((0, os.devnull), (1, order["stdout"]), (2, order["stderr"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), descriptor)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    signal.alarm(SECONDS)  # ends one that hangs
    code = EXIT_FAILED
    try:
        code = main(order["arguments"])
    finally:
        failure = sys.exception()
        if isinstance(failure, SystemExit):
            code = int(str(failure.code))
        elif failure is not None:
            traceback.print_exception(failure)
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        # taking apart what this process began with costs more than the command
        os._exit(code)


def _code_of(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
