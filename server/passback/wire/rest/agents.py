"""The routes of what a message may be sent to: the agents, their models and their commands."""

from collections.abc import Mapping

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from passback.http.answers import json_answer
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire
from passback.native.agents import AgentView, CommandView, agent_views, command_views
from passback.native.openapi import (
    describe_operation,
    describe_parameter,
    json_response,
    schema_reference,
)


class PostLimitsView(TypedDict):
    """The largest post: bytes of a body, and of the inline media of a message together."""

    bodyBytes: int
    attachmentBytes: int


class AgentsView(TypedDict):
    agents: list[AgentView]
    limits: PostLimitsView


class CommandsView(TypedDict):
    commands: list[CommandView]


def build(services: Services, /) -> Wire:
    async def get_agents(request: Request) -> Response:
        limits = services.limits
        shown: AgentsView = {
            "agents": agent_views(services.runs),
            "limits": {
                "bodyBytes": limits.body_bytes,
                "attachmentBytes": limits.attachment_bytes,
            },
        }
        return json_answer(request.scope, shown)

    async def get_commands(request: Request) -> Response:
        agent = request.query_params.get("agentId", "")
        shown: CommandsView = {"commands": command_views(services.runs, agent)}
        return json_answer(request.scope, shown)

    return Wire(
        routes=[
            Endpoint("/agents", get_agents, methods=["GET"]),
            Endpoint("/commands", get_commands, methods=["GET"], query={"GET": ["agentId"]}),
        ],
        paths=_PATHS,
        types=(AgentsView, CommandsView),
    )


_EXAMPLE: JsonValue = {
    "agents": [
        {
            "id": "clerk",
            "models": [
                {"id": "openai:gpt-5", "media": ["audio", "file", "image"]},
                {"id": "openai:gpt-5-mini", "media": ["audio", "file", "image"]},
            ],
            "commands": [{"name": "help", "description": "Lists the commands."}],
        }
    ],
    "limits": {"bodyBytes": 6291456, "attachmentBytes": 3145728},
}
_PATHS: Mapping[str, JsonValue] = {
    "/agents": {
        "get": describe_operation(
            "listAgents",
            "The agents, the models that may answer, and the limits of a post.",
            {
                "200": json_response(
                    "The agent first that is asked by default.",
                    schema_reference("AgentsView"),
                    example=_EXAMPLE,
                )
            },
        )
    },
    "/commands": {
        "get": describe_operation(
            "listCommands",
            "The slash commands of an agent.",
            {
                "200": json_response(
                    "In the order of their names.", schema_reference("CommandsView")
                )
            },
            "agent_not_found",
            parameters=[
                describe_parameter(
                    "agentId", "query", "Whose; without it, the agent's that is asked by default."
                )
            ],
        )
    },
}
