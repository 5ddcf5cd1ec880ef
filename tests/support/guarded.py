"""The puppet with tools that a person has to allow. Served by `passback serve tests.support.guarded:agent`."""

from tests.support.puppet import Puppet

from passback import Agent, Permission, tool


@tool(permission=Permission("ask", "It cannot be undone."))
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is deleted"


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"the text of {path}"


agent = Agent(model=Puppet(), tools=[delete_file, read_file])
