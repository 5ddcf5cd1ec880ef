"""The agents of a server, with the models and the commands of each."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from passback_client.events import FromJson, JsonObject
from passback_client.parsing import read


@dataclass(frozen=True, slots=True)
class AgentModel(FromJson):
    """A model by its full name, for the `model` of `Client.send`.

    Attributes:
        id: its full name.
        media: the kinds of attachments that it takes: `audio`, `file`, `image`, or what a newer
            server names.
    """

    id: str
    media: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AgentCommand(FromJson):
    """A slash command; `name` is without the slash."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class AgentView(FromJson):
    """An agent of the server.

    Attributes:
        id: the `agent_id` of `Client.send`; empty if the only agent has no name.
        models: its own first; where others follow, a message may choose one.
        commands: that its users may send.
    """

    id: str
    models: tuple[AgentModel, ...]
    commands: tuple[AgentCommand, ...]


@dataclass(frozen=True, slots=True)
class PostLimits(FromJson):
    """Bytes of a post, and of the inline media of a message together."""

    body_bytes: int
    attachment_bytes: int


@dataclass(frozen=True, slots=True)
class ServerAgents(FromJson):
    """The agents, the one first that is asked by default, and the limits of a post."""

    agents: tuple[AgentView, ...]
    limits: PostLimits


_AGENTS = TypeAdapter(ServerAgents)


def read_agents(fields: JsonObject) -> ServerAgents:
    """Raises BadAnswer."""
    return read(_AGENTS, fields)
