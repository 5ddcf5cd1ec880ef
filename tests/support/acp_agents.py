"""Agents for `passback acp tests.support.acp_agents:NAME`, whose model the test plays."""

import os

import anyio
from tests.support.gates import wait_at

from passback import Agent, Permission, tool

GATE = "TEST_ACP_GATE"
"""Variable with the port at which `wait_for_it` waits."""


@tool(read_only=True, title="Weigh a parcel", kind="read")
def weigh(parcel: str) -> str:
    """Weigh a parcel."""
    return f"{parcel} weighs 2 kg"


@tool(permission=Permission("ask", "It cannot be undone."), title="Burn a parcel", kind="delete")
def burn(parcel: str) -> str:
    """Burn a parcel."""
    return f"{parcel} is burnt"


@tool(title="Wait at the gate", kind="other")
async def wait_for_it() -> str:
    """Wait until the test opens its gate."""
    await wait_at(int(os.environ[GATE]))
    return "it has come"


@tool
async def wait_forever() -> str:
    """Wait until it is cancelled."""
    await anyio.sleep_forever()
    return ""


TOOLS = (weigh, burn, wait_for_it, wait_forever)

agent = Agent(prompt="You run a post office.", tools=list(TOOLS), plan=True, ask_user=True)
"""Has a plan, questions, a tool that asks for permission, and tools that take their time."""

plain = Agent(prompt="You talk.")
