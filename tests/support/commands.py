"""The command line in a process of its own."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.forked import fork

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
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = fork(
            "passback",
            (*arguments, *env_file),
            env={**inherited, **environment},
            cwd=None if cwd is None else str(cwd),
            stdout=stdout,
            stderr=stderr,
        )
        code = process.join(SECONDS)
        return Ended(code, *(_read(each) for each in (stdout, stderr)))


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
