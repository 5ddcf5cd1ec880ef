"""Loading of agents by their targets, `MODULE:AGENT`, as a user types them."""

import importlib
import logging
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from passback.agent import Agent
from passback.core.errors import ConfigurationError

logger = logging.getLogger(__name__)

_MAX_ERROR_CHARACTERS = 500  # of an error of the user's module, in our error text


def load_agents(targets: Sequence[str], /) -> Sequence[Agent]:
    """Return the agents of several targets.

    Raises:
        ConfigurationError: as `load_agent` does, or two agents have the same name.
    """
    named: dict[str, str] = {}
    agents: list[Agent] = []
    for target in targets:
        agent = load_agent(target)
        first = named.setdefault(agent.name or "", target)
        # each agent before this one has added a name: if this one has not, its name was there
        if len(named) == len(agents):
            raise ConfigurationError(
                f"{first!r} and {target!r} are both named {agent.name!r}: "
                f"give one of them another name, as in Agent(name='other')"
            )
        agents.append(agent)
    return agents


def load_agent(target: str) -> Agent:
    """Import a module and return its agent.

    The module is looked up in the current folder, then among the installed ones. An agent without
    a name is named after its variable.

    Raises:
        ConfigurationError: there is no such module or agent, or the module raised an error.
    """
    module, colon, name = target.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")):
        raise ConfigurationError(f"{target!r} is not MODULE:AGENT, such as my_agent:agent")
    sys.path.insert(0, str(Path.cwd()))
    loaded = _import_module(target, module)
    found = getattr(loaded, name, None)
    if not isinstance(found, Agent):
        there = [each for each, value in vars(loaded).items() if isinstance(value, Agent)]
        raise ConfigurationError(
            f"{target!r}: {module} has no Agent called {name!r}; "
            f"it has {', '.join(there) or 'none'}"
        )
    return found if found.name else replace(found, name=name)


def _import_module(target: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything on import
        logger.debug("the module failed", exc_info=True)
        # if a module that the user's module imports is missing, the error names that one
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            if module.endswith(".py"):
                problem = f"leave .py out, as in {target.replace('.py:', ':')}"
            else:
                problem = f"there is no module {module!r}, neither in {Path.cwd()} nor installed"
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
    # the user's: below the current folder, and of no installed package
    here = Path.cwd()
    own = [
        f"{file.name}, line {line}"
        for file, line in files
        if file.is_relative_to(here) and "site-packages" not in file.parts
    ]
    return f"{words} ({own[-1]})" if own else words
