"""Every promise has tests, every mark names a promise, and the design tells of each."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.requirements import PROMISES, Promise

ROOT = Path(__file__).parents[2]
BY_ID = {promise.id: promise for promise in PROMISES}


@cache
def marks() -> frozenset[tuple[str, str]]:
    """The file and the id of each mark in the tests."""
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
def test_the_design_tells_of_a_promise_and_of_what_is_still_missing(promise: Promise) -> None:
    text = " ".join((ROOT / "docs" / "explanation" / "design.md").read_text("utf-8").split())
    assert f"**{promise.id}** {promise.text}" in text
    assert promise.later in text
