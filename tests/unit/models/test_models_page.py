"""The examples of the pages on models and on testing run."""

import re
from pathlib import Path

import pytest

from passback import Agent

DOCS = Path(__file__).parents[3] / "docs"


def examples_of(page: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


EXAMPLES = examples_of("reference/models.md")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_makes_an_agent(example: str) -> None:
    names: dict[str, object] = {}
    exec(example, names)
    agent = names["agent"]
    assert isinstance(agent, Agent)
    assert agent.model is names["model"]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("example", examples_of("how-to/testing.md"))
def test_a_test_on_the_page_on_testing_passes(example: str) -> None:
    exec(example, {})
