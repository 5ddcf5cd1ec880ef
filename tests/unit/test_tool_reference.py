"""The reference of `@tool` in the documentation is that of the function."""

import inspect
import re
from pathlib import Path

from passback import tool
from passback.core.permissions import ALLOWED

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "agents.md"


def test_the_page_has_every_argument_with_its_default() -> None:
    table = PAGE.read_text().partition("| `@tool(...)` |")[2].partition("\n\n")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S", table, re.MULTILINE))
    _function, *arguments = inspect.signature(tool).parameters.values()
    assert told == {
        each.name: "allow" if each.default is ALLOWED else repr(each.default) for each in arguments
    }
