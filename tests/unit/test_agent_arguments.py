"""An agent is checked when it is made: a mistake is told where it was made, and not in the first run."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from pydantic import BaseModel

from passback import Agent, Fork, tool
from passback.app import Application
from passback.core.errors import ConfigurationError
from passback.models.scripted import ScriptedModel
from passback.settings import load_settings
from passback.toolsets.plan import PlanTools

NAMES = "at most 32 of a-z, 0-9, _ and -, a letter first"
MODEL = "Input should be a model's name, such as 'openai:gpt-5', or a client"
TEXT = "Input should be a valid string"
UNICODE = f"{TEXT}, unable to parse raw data as a unicode string"
FLAG = "Input should be a valid boolean"
RULE = "a function of two arguments, the call and the run"


def two(_text: str, _context: object) -> str:
    return ""


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"model": 5}, f"{MODEL} (given: 5)"),
    ({"model": ScriptedModel}, f"{MODEL} (given: the class ScriptedModel)"),
    (
        {"models": "openai:a"},
        "'str' instances are not allowed as a Sequence value (given: str)",
    ),
    ({"models": ["openai:a,openai:b"]}, f"{MODEL} (given: str)"),
    ({"models": [5]}, f"{MODEL} (given: 5)"),
    ({"prompt": None}, f"{TEXT} (given: None)"),
    ({"prompt": "\ud800"}, f"{UNICODE} (given: str)"),
    ({"tools": 5}, "Input should be an instance of Sequence (given: 5)"),
    ({"tools": [5]}, "Input should be a function (given: 5)"),
    (
        {"toolsets": [PlanTools]},
        "Input should be a toolset, such as an MCPServer (given: the class PlanTools)",
    ),
    ({"agents": [5]}, "Input should be an Agent or a Fork (given: 5)"),
    ({"concurrent": 0}, f"{FLAG} (given: 0)"),
    ({"conduct": None}, f"{TEXT} (given: None)"),
    ({"name": 5}, f"{TEXT} (given: 5)"),
    ({"description": b""}, f"{TEXT} (given: bytes)"),
    ({"max_turns": 0}, "Input should be greater than or equal to 1 (given: 0)"),
    ({"max_turns": "x"}, "Input should be a valid integer (given: str)"),
    ({"options": 5}, "Input should be a valid dictionary (given: 5)"),
    ({"options": {"key": object()}}, ".key: input was not a valid JSON value (given: object)"),
    (
        {"permissions": 5},
        f"Input should be a dict of decisions by tool name, or {RULE} (given: 5)",
    ),
    ({"permissions": {5: "ask"}}, f".5.[key]: {TEXT} (given: 5)"),
    ({"permissions": {"pay": "no"}}, ".pay: Input should be 'allow', 'deny' or 'ask' (given: str)"),
    ({"permissions": lambda _call: "ask"}, f"Input should be {RULE} (given: function)"),
    ({"ask_user": 1}, f"{FLAG} (given: 1)"),
    ({"window": True}, "Input should be 0, or from 1000 to 100000000 tokens (given: True)"),
    ({"window": 999}, "Input should be 0, or from 1000 to 100000000 tokens (given: 999)"),
    ({"plan": "x"}, f"{FLAG} (given: str)"),
    ({"budget": 5}, "Input should be an instance of Budget (given: 5)"),
    ({"context": 5}, "Input should be a function of one argument, the run (given: 5)"),
    (
        {"context": lambda: ""},
        "Input should be a function of one argument, the run (given: function)",
    ),
    ({"tell_time": None}, f"{FLAG} (given: None)"),
    ({"data_tools": "no"}, f"{FLAG} (given: str)"),
    (
        {"output_schema": int},
        "a JSON Schema of type object, or a pydantic model (given: the class int)",
    ),
    ({"commands": [1]}, "Input should be a valid dictionary (given: list)"),
    ({"commands": {"X": two}}, f"Input should be a name, {NAMES} (given: str)"),
    (
        {"commands": {"x": lambda: ""}},
        (
            ".x: Input should be a function of two arguments, the text and a CommandContext "
            "(given: function)"
        ),
    ),
]


@pytest.mark.parametrize(("given", "told"), MISTAKES)
def test_an_argument_that_cannot_work_is_named_when_the_agent_is_made(
    given: Mapping[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Agent(**given)
    [name] = given
    assert raised.value.message.startswith((f"Agent: {name}: ", f"Agent: {name}."))
    assert raised.value.message.endswith(told)


def test_every_argument_but_the_tools_own_is_checked() -> None:
    checked = {name for given, _ in MISTAKES for name in given}
    assert checked == {one.name for one in fields(Agent)} - {"deps"}


def test_a_model_without_a_json_schema_is_told_at_start() -> None:
    class Odd(BaseModel):
        model_config = {"arbitrary_types_allowed": True}

        thing: Agent

    with pytest.raises(ConfigurationError, match="output_schema has no JSON Schema"):
        Application(load_settings({"PASSBACK_STORE": "memory:"}), Agent(output_schema=Odd))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": None}, f"name: {TEXT} (given: None)"),
        ({"description": 5}, f"description: {TEXT} (given: 5)"),
        ({"concurrent": "no"}, f"concurrent: {FLAG} (given: str)"),
    ],
)
def test_so_is_a_fork(given: Mapping[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Fork(**given)
    assert raised.value.message == f"Fork: {told}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": 5}, f"name: {TEXT} (given: 5)"),
        ({"description": "\ud800"}, f"description: {UNICODE} (given: str)"),
        ({"seconds": "60"}, "seconds: Input should be a valid number (given: str)"),
        ({"seconds": 0}, "seconds: Input should be greater than 0 (given: 0)"),
        ({"retries": -1}, "retries: Input should be greater than or equal to 0 (given: -1)"),
        ({"repeatable": 1}, f"repeatable: {FLAG} (given: 1)"),
        (
            {"read_only": None},
            (
                "read_only: Input should be True, False, or a function of the tool's arguments "
                "(given: None)"
            ),
        ),
    ],
)
def test_so_is_a_tool(given: Mapping[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        tool(**given)
    assert raised.value.message == f"tool: {told}"
