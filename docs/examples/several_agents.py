"""Two agents on one server.

passback serve several_agents:support several_agents:sales

/send-message asks the first, /v1/aibot/bots/sales/send-message the other.
"""

from passback import Agent, tool
from passback.testing import ScriptedModel, calls, says


@tool(read_only=True)
def price(machine: str) -> str:
    """What a machine costs."""
    return {"kettle": "30 euros", "toaster": "45 euros"}.get(machine, "it is not sold")


# these play what a real model would say; leave `model` out to use that of your settings
helpful = ScriptedModel([says("Is it plugged in?")], per_message=True)
selling = ScriptedModel(
    [calls(("price", {"machine": "kettle"})), says("A new one is 30 euros.")], per_message=True
)

support = Agent(model=helpful, prompt="You help people whose machine is broken.")
sales = Agent(model=selling, prompt="You sell machines.", tools=[price])
