"""The views of the agents of a server, with the models and the commands of each."""

from typing_extensions import TypedDict

from passback.core.messages import Medium
from passback.core.runs import Runs


class AgentModelView(TypedDict):
    """A model by its full name; `media` are the kinds of attachments that it takes.

    It may refuse some forms all the same, such as an address or a rare file type.
    """

    id: str
    media: list[Medium]


class CommandView(TypedDict):
    """A slash command; `name` is without the slash."""

    name: str
    description: str


class AgentView(TypedDict):
    """An agent by its name, which is empty for the only one of a server if it has none.

    The first of `models` is its own, which answers where a message names no model. There is no
    choice where it is the only one.
    """

    id: str
    models: list[AgentModelView]
    commands: list[CommandView]


def agent_views(runs: Runs, /) -> list[AgentView]:
    """Return the views of all agents, that of the default agent first."""
    return [
        {"id": name, "models": model_views(runs, name), "commands": command_views(runs, name)}
        for name in runs.agents()
    ]


def model_views(runs: Runs, agent: str, /) -> list[AgentModelView]:
    """Return the models that answer a post to an agent, its own first. Raises UnknownAgent."""
    return [
        {"id": name, "media": sorted(runs.media(agent, model=name))} for name in runs.models(agent)
    ]


def command_views(runs: Runs, agent: str, /) -> list[CommandView]:
    """Return the slash commands of an agent. Raises UnknownAgent."""
    return [{"name": each.name, "description": each.description} for each in runs.commands(agent)]
