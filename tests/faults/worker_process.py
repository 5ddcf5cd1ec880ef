"""Code that runs inside workers; the only module of the harness that imports the server.

`tests.faults.worker_process:agent` is an agent whose server tools log each start. As a program,
`python -m tests.faults.worker_process serve ...` is `passback serve` that writes the number of its
tasks to a file after SIGUSR1.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.faults.workers import FOLDER_VARIABLE, TOOL_RESULT, task_count_file, tool_log
from tests.support.waiting import pause

from passback.agent import Agent
from passback.cli import main
from passback.core.toolsets import ToolContext
from passback.toolsets.functions import tool

TOOL_SECONDS = 0.3


# ---------------------------------------------------------------- the agent
@tool
async def once(what: str, context: ToolContext) -> str:
    """Do what must not be done twice."""
    return await _log_and_work("once", context)


@tool(repeatable=True)
async def again(what: str, context: ToolContext) -> str:
    """Do what may be done twice."""
    return await _log_and_work("again", context)


async def _log_and_work(name: str, context: ToolContext) -> str:
    _append_line(f"{name} {context.run.run_id} {context.call_id}\n")
    await pause(TOOL_SECONDS)
    return TOOL_RESULT


def _append_line(line: str) -> None:
    # one write of a few bytes to the end of a file stays whole, whoever else writes
    with tool_log(_folder()).open("a") as file:
        file.write(line)


def _folder() -> Path:
    return Path(os.environ[FOLDER_VARIABLE])


agent = Agent(tools=[once, again])


# ---------------------------------------------------------------- the number of tasks
def write_task_count(_signal: int, _frame: FrameType | None) -> None:
    path = task_count_file(_folder(), os.getpid())
    written = path.with_suffix(".new")
    written.write_text(str(len(asyncio.all_tasks())))
    written.rename(path)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, write_task_count)
    sys.exit(main())
