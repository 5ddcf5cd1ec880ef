"""An agent is checked when it is made: a mistake is told where it was made, and not in the first run."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from pydantic import BaseModel

from passback import Agent, Fork, tool
from passback.agent import AGENT_ARGUMENTS, FORK_ARGUMENTS
from passback.app import Application
from passback.core.errors import ConfigurationError
from passback.models.scripted import ScriptedModel
from passback.settings import load_settings
from passback.toolsets.plan import PlanTools

NAMES = "at most 32 of a-z, 0-9, _ and -, a letter first"
COMMANDS = (
    f"a dict of functions of two arguments, the text and a CommandContext, by their names: {NAMES}"
)
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"model": 5}, "a model's name, such as 'openai:gpt-5', or a client, not 5"),
    ({"model": ScriptedModel}, "a client, not the class ScriptedModel"),
    (
        {"models": "openai:a"},
        "a list of models' names, such as 'openai:gpt-5', and clients, not str",
    ),
    ({"models": ["openai:a,openai:b"]}, "and clients, not [str]"),
    ({"models": [5]}, "and clients, not [5]"),
    ({"prompt": None}, "a text in Unicode, not None"),
    ({"prompt": "\ud800"}, "a text in Unicode, not str"),
    ({"tools": 5}, "a list of functions, not 5"),
    ({"tools": [5]}, "a list of functions, not [5]"),
    ({"toolsets": [PlanTools]}, "such as an MCPServer, not [the class PlanTools]"),
    ({"agents": [5]}, "a list of Agents and Forks, not [5]"),
    ({"concurrent": 0}, "True or False, not 0"),
    ({"conduct": None}, "a text in Unicode, not None"),
    ({"name": 5}, "a text, not 5"),
    ({"description": b""}, "a text in Unicode, not bytes"),
    ({"max_turns": 0}, "a whole number from 1 on, not 0"),
    ({"max_turns": "x"}, "a whole number from 1 on, not str"),
    ({"options": 5}, "a dict of JSON, not 5"),
    ({"options": {"key": object()}}, "a dict of JSON, not {'key': object}"),
    ({"permissions": 5}, "the call and the run, not 5"),
    ({"permissions": {5: "ask"}}, "the call and the run, not {5: str}"),
    ({"ask_user": 1}, "True or False, not 1"),
    ({"window": True}, "0, or from 1000 to 100000000 tokens, not True"),
    ({"plan": "x"}, "True or False, not str"),
    ({"budget": 5}, "a Budget, not 5"),
    ({"context": 5}, "a function of one argument, the run, not 5"),
    ({"context": lambda: ""}, "a function of one argument, the run, not function"),
    ({"tell_time": None}, "True or False, not None"),
    ({"data_tools": "no"}, "True or False, not str"),
    (
        {"output_schema": int},
        "a JSON Schema of type object, or a pydantic model, not the class int",
    ),
    ({"commands": [1]}, f"{COMMANDS}, not [1]"),
    ({"commands": {"x": lambda: ""}}, f"{COMMANDS}, not {{'x': function}}"),
]


@pytest.mark.parametrize(("given", "told"), MISTAKES)
def test_an_argument_that_cannot_work_is_named_when_the_agent_is_made(
    given: Mapping[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Agent(**given)
    [name] = given
    assert raised.value.message.startswith(f"Agent: {name} takes ")
    assert raised.value.message.endswith(told)


def test_every_argument_but_the_tools_own_is_checked() -> None:
    assert set(AGENT_ARGUMENTS) == {one.name for one in fields(Agent)} - {"deps"}
    assert {name for given, _ in MISTAKES for name in given} == set(AGENT_ARGUMENTS)


def test_a_model_without_a_json_schema_is_told_at_start() -> None:
    class Odd(BaseModel):
        model_config = {"arbitrary_types_allowed": True}

        thing: Agent

    with pytest.raises(ConfigurationError, match="output_schema has no JSON Schema"):
        Application(load_settings({"PASSBACK_STORE": "memory:"}), Agent(output_schema=Odd))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": None}, "Fork: name takes a text, not None"),
        ({"description": 5}, "Fork: description takes a text in Unicode, not 5"),
        ({"concurrent": "no"}, "Fork: concurrent takes True or False, not str"),
    ],
)
def test_so_is_a_fork(given: Mapping[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Fork(**given)
    assert raised.value.message == told
    assert set(FORK_ARGUMENTS) == {one.name for one in fields(Fork)}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": 5}, "tool: name takes a text, not 5"),
        ({"seconds": "60"}, "tool: seconds takes a number above 0, not str"),
        ({"retries": -1}, "tool: retries takes a whole number from 0 on, not -1"),
        (
            {"read_only": None},
            "tool: read_only takes True, False, or a function of the tool's arguments, not None",
        ),
    ],
)
def test_so_is_a_tool(given: Mapping[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        tool(**given)
    assert raised.value.message == told
