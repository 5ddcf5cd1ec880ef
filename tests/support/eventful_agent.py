"""An agent of whose work every kind of event can tell. Served by `passback serve tests.support.eventful_agent:agent`."""

from tests.support.asking_agent import price, wipe

from passback import Agent, ToolContext, tool


@tool
def index(context: ToolContext) -> str:
    """Index all files."""
    context.progress("half of the files are read")
    return "indexed"


helper = Agent(name="helper", description="Does as it is told.", prompt="You help.")
agent = Agent(
    prompt="You are busy.", tools=[price, index, wipe], agents=[helper], plan=True, window=8_000
)
