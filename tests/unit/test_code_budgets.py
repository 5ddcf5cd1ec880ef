"""The budgets of `scripts/budgets.py` find what breaks them."""

import ast

import pytest

from budgets import Budget, Module, check, own_classes

BUDGET = Budget(
    file_lines=600,
    function_lines=60,
    positional_arguments=2,
    nesting=3,
    positional_calls=["server/passback/allowed.py"],
    broad_except=[],
    late_import=[],
    sleep_in_tests=[],
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
def test_other_calls_are_not(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize("name", ["server/passback/allowed.py", "tests/unit/test_module.py"])
def test_a_file_may_be_excepted_and_tests_are(name: str) -> None:
    assert found("Point(1, 2, 3)", name) == []
