"""Programs that tests drive: found, or their absence said aloud."""

import os
import shutil
from typing import NoReturn

import pytest


def program(name: str, *, variable: str = "") -> str:
    """The path of a program, from `variable` or the PATH. Missing: a skip on a person's machine, a failure in CI."""
    found = os.environ.get(variable) or shutil.which(name)
    return found or missing(name)


def missing(name: str) -> NoReturn:
    """End this test: it needs what is not here."""
    if os.environ.get("CI"):
        pytest.fail(f"{name} is missing")
    pytest.skip(f"{name} is missing")
