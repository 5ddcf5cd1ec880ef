"""An agent for tests, some of whose tools are not called before a person has allowed it."""

from passback import Agent, Permission, tool


@tool(permission=Permission("ask", "It cannot be undone."))
def wipe() -> str:
    """Wipe it."""
    return "wiped"


@tool(permission="ask")
def send() -> str:
    """Send it."""
    return "sent"


@tool
def price(drink: str) -> str:
    """What a drink costs."""
    return "3 euros" if drink else "nothing"


@tool
def burn() -> str:
    """Burn it."""
    raise AssertionError("it must never be called")


agent = Agent(
    prompt="You are careful.", tools=[wipe, send, price, burn], permissions={"burn": "deny"}
)
