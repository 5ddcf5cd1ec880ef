"""An agent with a tool of the server's own. Serve it: passback serve my_agent:agent"""

from typing import Literal

from passback import Agent, tool


@tool(read_only=True)
def price(drink: Literal["tea", "coffee", "cocoa"]) -> str:
    """What a drink costs."""
    return {"tea": "3 euros", "coffee": "4 euros", "cocoa": "5 euros"}[drink]


agent = Agent(prompt="You run a café and know what things cost.", tools=[price])
