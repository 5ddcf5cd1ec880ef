"""An agent whose tools leave a trace. Served by `passback serve tests.attacks.agent:agent`."""

import os
from pathlib import Path

from passback import Agent, tool

TRACE = "TEST_TRACE"
"""Variable: the file that gets a line for each call of `wipe`."""
PIPE = "TEST_PIPE"
"""Variable: the pipe from which `hold` reads its result."""


@tool(permission="ask")
def wipe(path: str) -> str:
    """Wipe it."""
    with Path(os.environ[TRACE]).open("a") as file:
        file.write(f"{path}\n")
    return f"{path} is wiped"


@tool
def hold() -> str:
    """Wait until something comes."""
    return Path(os.environ[PIPE]).read_text()


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"the text of {path}"


@tool
def burn() -> str:
    """Burn it."""
    raise AssertionError("it must never be called")


agent = Agent(
    prompt="You are careful.", tools=[wipe, hold, read_file, burn], permissions={"burn": "deny"}
)
