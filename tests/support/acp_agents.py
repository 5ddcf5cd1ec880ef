"""Agents for `passback acp tests.support.acp_agents:NAME`, whose model the test plays."""

import subprocess
import sys

import anyio

from passback import Agent, Permission, tool

print("PRINTED BY A MODULE")  # noqa: T201 - as users' modules may


@tool(read_only=True, title="Weigh a parcel", kind="read")
def weigh(parcel: str) -> str:
    """Weigh a parcel."""
    return f"{parcel} weighs 2 kg"


@tool(permission=Permission("ask", "It cannot be undone."), title="Burn a parcel", kind="delete")
def burn(parcel: str) -> str:
    """Burn a parcel."""
    return f"{parcel} is burnt"


@tool
async def wait_forever() -> str:
    """Wait until it is cancelled."""
    await anyio.sleep_forever()
    return ""


@tool(read_only=True)
def print_much() -> str:
    """Print to the standard output, which belongs to the protocol."""
    print("PRINTED BY A TOOL")  # noqa: T201
    sys.stdout.write("WRITTEN BY A TOOL")
    sys.stdout.flush()
    subprocess.run(["echo", "SAID BY A CHILD"], check=True)
    return "printed"


TOOLS = (weigh, burn, wait_forever, print_much)

agent = Agent(prompt="You run a post office.", tools=list(TOOLS), plan=True, ask_user=True)
"""Has a plan, questions, a tool that asks for permission, and tools that take their time."""

_clerk = Agent(
    name="clerk", description="Weighs parcels.", prompt="You weigh parcels.", tools=[weigh]
)
chief = Agent(prompt="You have a clerk.", agents=[_clerk])
"""Has a sub-agent."""

thinker = Agent(prompt="You think.", options={"reasoning_effort": "medium"})
"""Its editor may choose the effort of reasoning."""
