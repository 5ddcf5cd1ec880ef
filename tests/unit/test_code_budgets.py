"""The budgets of `scripts/budgets.py` find what breaks them."""

import ast

import pytest

from budgets import Budget, Module, check, own_classes

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
def test_other_calls_are_not(text: str) -> None:
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
