"""The agent that a target such as `my_agent:agent` names, and plain words on why there is none."""

import importlib
import os
import sys
import sysconfig
import traceback
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final

from passback.agent import Agent
from passback.core.errors import ConfigurationError

_PATHS: Final = ("stdlib", "platstdlib", "purelib", "platlib")
_FOLDERS: Final = (str(Path(__file__).parent), *map(sysconfig.get_path, _PATHS))
_NOT_THEIRS: Final = ("<", *(f"{folder}{os.sep}" for folder in _FOLDERS))
"""What the files begin with that the person did not write."""


def load_agent(target: str, /) -> Agent:
    """Import `MODULE:AGENT`, from the working directory too.

    Raises:
        ConfigurationError: there is no such thing, or the module cannot be imported: names what was raised, and where.
    """
    module, colon, name = target.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")):
        raise ConfigurationError(f"{target!r} is not MODULE:AGENT, such as my_agent:agent")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name, None)
    except (
        Exception,
        SystemExit,
    ) as error:  # what a module does when it is imported, its author decides
        raise ConfigurationError(f"{target!r} cannot be loaded: {_told(error)}") from error
    if not isinstance(found, Agent):
        raise ConfigurationError(f"{target!r}: {module} has no Agent called {name!r}")
    return found if found.name else replace(found, name=name)


def _told(error: BaseException) -> str:
    """What was raised, in one line, and the place in the person's own file."""
    words = " ".join(str(error).split())
    if isinstance(
        error, ConfigurationError | ImportError | SyntaxError
    ):  # they speak for themselves
        told = words
    else:
        told = f"{type(error).__name__}: {words}" if words else type(error).__name__
    place = None if isinstance(error, SyntaxError) else _place(error.__traceback__)
    return told if place is None else f"{told} ({place})"


def _place(trace: TracebackType | None) -> str | None:
    theirs = [
        frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith(_NOT_THEIRS)
    ]
    return f"{theirs[-1].filename}, line {theirs[-1].lineno}" if theirs else None
