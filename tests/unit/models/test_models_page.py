"""The examples of docs/models.md and docs/testing.md run."""

import re
from pathlib import Path

import pytest

from passback import Agent

DOCS = Path(__file__).parents[3] / "docs"


def examples_of(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


EXAMPLES = examples_of("models.md")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_makes_an_agent(example: str) -> None:
    names: dict[str, object] = {}
    exec(example, names)
    agent = names["agent"]
    assert isinstance(agent, Agent)
    assert agent.model is names["model"]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 3


def test_the_test_of_a_client_passes() -> None:
    [example] = examples_of("testing.md")
    exec(example, {})
