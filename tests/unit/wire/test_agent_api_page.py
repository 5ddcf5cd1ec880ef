"""The examples of docs/reference/agent-api.md are true."""

import json
import re
from pathlib import Path

import pytest
from tests.support.agent_api import check_legal

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "agent-api.md").read_text(
    encoding="utf-8"
)


def test_the_builders_examples_are_legal_responses(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[list[str]] = []
    for example in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(example, {})
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        contents = check_legal(events)["output"][0]["content"]
        said.append([part.get("text", part["type"]) for part in contents])
    assert said == [["Look: ", "image"], ["Hello"]]


@pytest.mark.parametrize(
    "block", re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
)
def test_every_example_of_json_is_json(block: str) -> None:
    assert json.loads(block)
