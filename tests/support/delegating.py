"""A puppet with a plan, and another one that works for it. Served by `passback serve tests.support.delegating:agent`."""

import anyio
from tests.support.guarded import delete_file
from tests.support.puppet import Puppet

from passback import Agent, ToolContext, tool


@tool
async def index(context: ToolContext) -> str:
    """Begin to index all files, and never come to an end."""
    context.progress("<b>half</b> of the files are read")
    await anyio.sleep_forever()
    return ""


helper = Agent(
    model=Puppet(), name="helper", description="Does as it is told.", tools=[delete_file, index]
)
agent = Agent(model=Puppet(), agents=[helper], plan=True)
