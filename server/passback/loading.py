"""Loading of agents by their targets, `MODULE:AGENT`, as a user types them."""

import importlib
import logging
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from passback.agent import Agent
from passback.core.errors import ConfigurationError

logger = logging.getLogger(__name__)

_MAX_ERROR_CHARACTERS = 500  # of an error of the user's module, in our error text
_PACKAGE = Path(__file__).parent


def leave_current_folder(python_path: str, /) -> None:
    """Take the current folder off `sys.path`, where nobody has named it.

    Python itself puts it there, for `python -m` and for an empty entry of PYTHONPATH. An installed
    package (a `.pth` file) that names the folder keeps it.

    Args:
        python_path: the variable PYTHONPATH; where it names the folder, its own entry stays.
    """
    here = Path.cwd()
    named = any(each and Path(each).resolve() == here for each in python_path.split(os.pathsep))
    if not named:
        before = _count_user_folders()
        sys.path[:before] = [each for each in sys.path[:before] if Path(each).resolve() != here]
    elif not sys.flags.safe_path and Path(sys.path[0]).resolve() == here:
        del sys.path[0]


def _count_user_folders() -> int:
    """Return how many entries of `sys.path` come before the standard library."""
    library = sysconfig.get_path("stdlib")
    return sys.path.index(library) if library in sys.path else len(sys.path)


def load_agents(targets: Sequence[str], /, *, searches_folder: bool = True) -> Sequence[Agent]:
    """Return the agents of several targets.

    Args:
        targets: as the user types them.
        searches_folder: their modules may be in the current folder, which is searched first.

    Raises:
        ConfigurationError: a target is not one, there is no such module or agent, a module raised
            an error, or two agents have the same name.
    """
    named: dict[str, str] = {}
    agents: list[Agent] = []
    if searches_folder:
        sys.path.insert(0, str(Path.cwd()))
    for target in targets:
        agent = _load_agent(target, searches_folder=searches_folder)
        first = named.setdefault(agent.name or "", target)
        # each agent before this one has added a name: if this one has not, its name was there
        if len(named) == len(agents):
            raise ConfigurationError(
                f"{first!r} and {target!r} are both named {agent.name!r}: "
                f"give one of them another name, as in Agent(name='other')"
            )
        agents.append(agent)
    return agents


def _load_agent(target: str, *, searches_folder: bool) -> Agent:
    """Import a module and return its agent. One without a name is named after its variable.

    Raises:
        ConfigurationError: there is no such module or agent, or the module raised an error.
    """
    module, colon, name = target.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")):
        raise ConfigurationError(f"{target!r} is not MODULE:AGENT, such as my_agent:agent")
    loaded = _import_module(target, module, searches_folder=searches_folder)
    found = getattr(loaded, name, None)
    if not isinstance(found, Agent):
        there = [each for each, value in vars(loaded).items() if isinstance(value, Agent)]
        raise ConfigurationError(
            f"{target!r}: {module} has no Agent called {name!r}; "
            f"it has {', '.join(there) or 'none'}"
        )
    return found if found.name else replace(found, name=name)


def _import_module(target: str, module: str, *, searches_folder: bool) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything on import
        logger.debug("the module failed", exc_info=True)
        # if a module that the user's module imports is missing, the error names that one
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            if module.endswith(".py"):
                problem = f"leave .py out, as in {target.replace('.py:', ':')}"
            elif searches_folder:
                problem = f"there is no module {module!r}, neither in {Path.cwd()} nor installed"
            else:
                problem = (
                    f"there is no module {module!r}: set PYTHONPATH to the folder that has it "
                    "(the current folder, which may be anyone's project, is not searched)"
                )
            raise ConfigurationError(f"{target!r}: {problem}") from error
        raise ConfigurationError(
            f"{target!r} cannot be loaded: {_describe_failure(error)}"
        ) from error


def _describe_failure(error: BaseException) -> str:
    """Return an error as one line of text, with the user's file and line where it happened."""
    # the texts of these say enough without the name of their type
    plain = isinstance(error, ConfigurationError | ImportError | SyntaxError)
    kind = "" if plain else f"{type(error).__name__}: "
    words = " ".join(f"{kind}{error}".split())[:_MAX_ERROR_CHARACTERS]
    files = [(Path(one.filename), one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    # the user's: below the current folder or PYTHONPATH, and of no installed package
    folders = [Path(each) for each in (str(Path.cwd()), *sys.path[: _count_user_folders()])]
    own = [
        f"{file.name}, line {line}"
        for file, line in files
        if any(file.is_relative_to(each) for each in folders)
        and "site-packages" not in file.parts
        and not file.is_relative_to(_PACKAGE)
    ]
    return f"{words} ({own[-1]})" if own else words
