"""A puppet with a tool that nothing can end. Served by `passback serve tests.support.clinging:agent`."""

import asyncio

from tests.support.puppet import Puppet

from passback import Agent, tool


@tool
async def cling() -> None:
    """Go on whatever comes."""
    never = asyncio.Event()
    while not never.is_set():
        try:
            await never.wait()
        except asyncio.CancelledError:
            continue


agent = Agent(model=Puppet(), tools=[cling])
