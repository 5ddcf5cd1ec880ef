"""Programs that tests drive: found, or their absence said aloud."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import anyio
import pytest


def program(name: str, *, variable: str = "") -> str:
    """Return a program's path, from `variable` or the PATH. Missing: a skip, or a failure in CI."""
    found = os.environ.get(variable) or shutil.which(name)
    return found or missing(name)


def missing(name: str) -> NoReturn:
    """End this test: it needs what is not here."""
    if os.environ.get("CI"):
        pytest.fail(f"{name} is missing")
    pytest.skip(f"{name} is missing")


async def shell(script: str, folder: Path) -> str:
    """Run a script of bash that may use `curl` and `jq`; what it prints."""
    jq, curl = Path(program("jq", variable="TEST_JQ")), Path(program("curl"))
    path = os.pathsep.join([str(jq.parent), str(curl.parent), os.environ["PATH"]])
    with anyio.fail_after(100):
        done = await anyio.run_process(
            [program("bash"), "-c", script], cwd=folder, env={**os.environ, "PATH": path}
        )
    return done.stdout.decode()
