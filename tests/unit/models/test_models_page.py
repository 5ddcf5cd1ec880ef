"""The examples of docs/reference/models.md run."""

import re
from pathlib import Path

import pytest

from passback import Agent

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "models.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


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
