"""A puppet that can be made to say every kind of event. Served by `passback serve tests.support.talkative:agent`."""

import anyio.lowlevel
from tests.support.guarded import delete_file
from tests.support.puppet import Puppet

from passback import Agent, ToolContext, tool


@tool
async def index(context: ToolContext) -> str:
    """Index all files."""
    context.progress("half of the files are read")
    await anyio.lowlevel.checkpoint()
    return "read"


helper = Agent(model=Puppet(), name="helper", description="Does as it is told.")
agent = Agent(model=Puppet(), tools=[delete_file, index], agents=[helper], plan=True, window=4000)
