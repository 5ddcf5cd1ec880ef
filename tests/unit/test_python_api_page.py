"""docs/reference/python-api.md has the public names, and their arguments with their defaults."""

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

import passback
from passback import Agent, MCPServer, ToolContext, tool
from passback.core.permissions import ALLOWED

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "python-api.md").read_text()


def _first_cells(heading: str) -> list[str]:
    section = PAGE.partition(f"# {heading}\n")[2].partition("\n#")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_every_public_name_is_listed() -> None:
    table = PAGE.partition("## Agents: ")[2].partition("\n\nA wrong")[0]
    rows = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| ["))
    assert sorted(re.findall(r"`(\w+)`", rows)) == sorted(passback.__all__)


def test_every_argument_of_an_agent_is_listed() -> None:
    assert _first_cells("Agent") == [each.name for each in fields(Agent)]


def test_every_attribute_of_a_context_is_listed() -> None:
    assert _first_cells("ToolContext") == [each.name for each in fields(ToolContext)]


def test_every_argument_of_tool_is_listed_with_its_default() -> None:
    section = PAGE.partition("# tool\n")[2].partition("\n#")[0]
    _function, *arguments = inspect.signature(tool).parameters.values()
    assert re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section, re.MULTILINE) == [
        (each.name, "allow" if each.default is ALLOWED else repr(each.default))
        for each in arguments
    ]


@pytest.mark.parametrize("method", [MCPServer.stdio, MCPServer.http])
def test_the_ways_to_an_mcp_server_are_shown_as_they_are_called(
    method: Callable[..., object],
) -> None:
    [shown] = re.findall(rf"`MCPServer\.{method.__name__}\(([^`]*)\)`", PAGE)
    names = [one.split("=")[0] for one in shown.split(", ")]
    signature = inspect.signature(method)
    required = [one.name for one in signature.parameters.values() if one.default is one.empty]
    assert names == required
