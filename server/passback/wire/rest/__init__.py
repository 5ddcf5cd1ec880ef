"""Routes for the conversations of every wire, and for slash commands, in our own vocabulary."""

from collections.abc import Mapping

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from passback.http.answers import json_answer
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire, WireType
from passback.native.openapi import (
    describe_operation,
    describe_parameter,
    json_response,
    schema_reference,
)
from passback.wire.rest import branches, calls, conversations, documents, listing, runs


class CommandView(TypedDict):
    """A slash command; `name` is without the slash."""

    name: str
    description: str


class CommandsView(TypedDict):
    commands: list[CommandView]


def build(services: Services, /) -> Wire:
    async def get_commands(request: Request) -> Response:
        agent = request.query_params.get("agentId", "")
        shown: CommandsView = {
            "commands": [
                {"name": each.name, "description": each.description}
                for each in services.runs.commands(agent)
            ]
        }
        return json_answer(request.scope, shown)

    commands = Wire(
        routes=[Endpoint("/commands", get_commands, methods=["GET"], query={"GET": ["agentId"]})],
        paths=_PATHS,
        types=(CommandsView,),
    )
    parts = (
        listing.build(services),
        documents.build(services),  # before ids, of which `import` may be one
        conversations.build(services),
        branches.build(services),
        calls.build(services),
        runs.build(services),
        commands,
    )
    return Wire(
        routes=[route for part in parts for route in part.routes],
        paths={path: item for part in parts for path, item in part.paths.items()},
        types=[each for part in parts for each in part.types],
        public=frozenset(path for part in parts for path in part.public),
    )


WIRE = WireType(build)

_PATHS: Mapping[str, JsonValue] = {
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
    }
}
