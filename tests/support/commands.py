"""The command line in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path


def passback(
    *arguments: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith("PASSBACK_")
    }
    # what a developer keeps in the repository's .env is for containers
    reads_settings = arguments[0] in {"serve", "check"}
    env_file = ("--no-env-file",) if cwd is None and reads_settings else ()
    return subprocess.run(
        [sys.executable, "-m", "passback", *arguments, *env_file],
        env={**inherited, **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
