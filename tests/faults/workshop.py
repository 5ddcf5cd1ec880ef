"""An agent whose tools take their time and write down each time that they are begun."""

import os
from pathlib import Path

from tests.faults.pace import pause
from tests.faults.places import DONE_WORK, WORK

from passback.agent import Agent
from passback.core.toolsets import ToolContext
from passback.toolsets.functions import tool

SECONDS = 0.3


@tool
async def once(what: str, context: ToolContext) -> str:
    """Do what must not be done twice."""
    return await _work("once", context)


@tool(repeatable=True)
async def again(what: str, context: ToolContext) -> str:
    """Do what may be done twice."""
    return await _work("again", context)


async def _work(name: str, context: ToolContext) -> str:
    _note(f"{name} {context.run.run_id} {context.call_id}\n")
    await pause(SECONDS)
    return DONE_WORK


def _note(line: str) -> None:
    """One write of a few bytes to the end of a file: it stays whole, whoever else writes."""
    with Path(os.environ[WORK]).open("a") as file:
        file.write(line)


agent = Agent(tools=[once, again])
