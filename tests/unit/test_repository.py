"""The repository's own pages, tables and budgets agree with the code."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from benchmarks.picture import PAGE, PICTURE, draw
from tests.requirements import PROMISES, Promise

import passback
from budgets import Budget, Module, check, own_classes
from passback import Agent, MCPServer, ToolContext, tool
from passback.core.permissions import ALLOWED

BUDGET = Budget(
    file_lines=600,
    function_lines=60,
    positional_arguments=2,
    nesting=3,
    broad_except=[],
    late_import=[],
    sleep_in_tests=[],
    banned_words=["bury"],
)
CLASSES = """
class Point:
    x: int
    y: int
    z: int
"""


def found(text: str, name: str = "server/passback/module.py") -> list[str]:
    module = Module(name, text, ast.parse(text))
    return [problem for _, problem in check(module, BUDGET, own_classes([CLASSES, text]))]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Point(1, 2, 3)", "Point"),
        ("classes.Point(1, *more, 3)", "Point"),
        (
            "class A:\n    @classmethod\n    def make(cls) -> 'A':\n        return cls(1, 2, 3)",
            "cls",
        ),
    ],
)
def test_a_value_made_from_many_arguments_by_position_is_found(text: str, name: str) -> None:
    message = f"{name} is made from 3 arguments by position; at most 2, name the rest"
    assert found(text) == [message]


@pytest.mark.parametrize("text", ["Point(1, 2, z=3)", "print(1, 2, 3)", "Point(1, *more)"])
def test_other_calls_are_not_found(text: str) -> None:
    assert found(text) == []


def test_tests_are_excepted() -> None:
    assert found("Point(1, 2, 3)", "tests/unit/test_module.py") == []


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    text = 'def look():\n    """What is to be buried."""'
    assert found(text, "server/passback/module.py") == [
        "a docstring begins with What; begin with a verb or a noun"
    ]


def test_words_that_are_not_the_fields_are_found_in_names_and_docstrings() -> None:
    text = 'def bury_run():\n    """Bury it."""'
    problem = "the word 'bury' is not the field's; see Words in CONTRIBUTING.md"
    assert found(text, "server/passback/module.py") == [problem]


# ---------------------------------------------------------------- promises
ROOT = Path(__file__).parents[2]
BY_ID = {promise.id: promise for promise in PROMISES}


@cache
def marks() -> frozenset[tuple[str, str]]:
    """Return the file and the id of each mark in the tests."""
    return frozenset(found for path in (ROOT / "tests").rglob("test_*.py") for found in _in(path))


def _in(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.promise"):
            yield from ((path.name, ast.literal_eval(argument)) for argument in node.args)


def test_the_promises_are_numbered_through() -> None:
    assert [promise.id for promise in PROMISES] == [f"P{n}" for n in range(1, len(PROMISES) + 1)]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.id)
def test_a_promise_has_a_test(promise: Promise) -> None:
    assert promise.id in {name for _, name in marks()}


def test_every_mark_names_a_promise() -> None:
    assert [mark for mark in marks() if mark[1] not in BY_ID] == []


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.id)
def test_the_design_has_each_promise_and_its_open_points(promise: Promise) -> None:
    text = " ".join((ROOT / "docs" / "explanation" / "design.md").read_text("utf-8").split())
    assert f"**{promise.id}** {promise.text}" in text
    assert promise.later in text


# ---------------------------------------------------------------- the page of the Python API
API_PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "python-api.md").read_text()


def _first_cells(heading: str) -> list[str]:
    section = API_PAGE.partition(f"# {heading}\n")[2].partition("\n#")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_every_public_name_is_listed() -> None:
    table = API_PAGE.partition("## Agents: ")[2].partition("\n\nA wrong")[0]
    rows = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| ["))
    assert sorted(re.findall(r"`(\w+)`", rows)) == sorted(passback.__all__)


def test_every_argument_of_an_agent_is_listed() -> None:
    assert _first_cells("Agent") == [each.name for each in fields(Agent)]


def test_every_attribute_of_a_context_is_listed() -> None:
    assert _first_cells("ToolContext") == [each.name for each in fields(ToolContext)]


def test_every_argument_of_tool_is_listed_with_its_default() -> None:
    section = API_PAGE.partition("# tool\n")[2].partition("\n#")[0]
    _function, *arguments = inspect.signature(tool).parameters.values()
    assert re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section, re.MULTILINE) == [
        (each.name, _default_of(each)) for each in arguments
    ]


def _default_of(argument: inspect.Parameter) -> str:
    """Return a default as the pages show it."""
    if argument.default is ALLOWED:
        return "allow"
    return repr(argument.default).replace("'", '"')


@pytest.mark.parametrize("method", [MCPServer.stdio, MCPServer.http])
def test_the_kinds_of_mcp_server_are_shown(method: Callable[..., object]) -> None:
    [shown] = re.findall(rf"`MCPServer\.{method.__name__}\(([^`]*)\)`", API_PAGE)
    names = [one.split("=")[0] for one in shown.split(", ")]
    signature = inspect.signature(method)
    required = [one.name for one in signature.parameters.values() if one.default is one.empty]
    assert names == required


# ---------------------------------------------------------------- the tool reference
TOOLS_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "agents.md"


def test_the_page_has_every_argument_with_its_default() -> None:
    table = TOOLS_PAGE.read_text().partition("| `@tool(...)` |")[2].partition("\n\n")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S", table, re.MULTILINE))
    _function, *arguments = inspect.signature(tool).parameters.values()
    assert documented == {each.name: _default_of(each) for each in arguments}


# ---------------------------------------------------------------- the picture of the performance
def test_the_picture_is_drawn_from_the_page() -> None:
    assert PICTURE.read_text() == draw(PAGE.read_text())


def test_the_page_shows_the_picture() -> None:
    target = Path("..") / "images" / PICTURE.name
    assert f"]({target.as_posix()})" in PAGE.read_text()


def test_the_figures_of_the_page_are_those_of_its_tables() -> None:
    page = PAGE.read_text()
    lines = page.partition("## The method")[0]
    passback = _row(page, "passback, redis")
    plain = _row(page, "plain server, Redis history")
    assert f"{float(passback[1]):.1f} times" in lines  # times the proxy
    assert f"{float(plain[3]):.1f} times" in lines  # times passback
    assert f"{float(passback[6]):.1f} ms" in lines  # to the first event


def _row(page: str, server: str) -> list[str]:
    table = page.partition("### paced\n")[2].partition("\n###")[0]
    [line] = [line for line in table.splitlines() if line.startswith(f"| {server} ")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]
