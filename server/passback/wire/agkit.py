"""The `/send-message` protocol (AG-Kit style): a post brings what is new, the answer is a stream of events.

The client executes its own tools: their calls end the stream, and the next post brings the results.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, assert_never

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from passback.core.errors import InvalidRequest, NotFound
from passback.core.events import (
    HandedBack,
    Logged,
    Position,
    RunEvent,
    RunFinished,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from passback.core.ids import new_conversation_id, new_message_id
from passback.core.messages import (
    TOOL_NAME,
    CallId,
    ConversationKey,
    Owed,
    OwnerId,
    PostedMessage,
    RunId,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from passback.core.ports import Parked, StartRun
from passback.transport.body import read_object
from passback.transport.declarations import parse_tools
from passback.transport.frames import Framer
from passback.transport.http import owner_of
from passback.transport.native import DONE, INCLUDABLE, NativeEncoder, native_data, owed_event
from passback.transport.openapi import (
    BODY_ERRORS,
    GATE_ERRORS,
    STORE_ERRORS,
    error_responses,
    reference,
    schemas_of,
    stream_response,
)
from passback.transport.parts import MAX_ITEMS, Posted, PostedContent, read_content, read_result
from passback.transport.requests import conversation_id, validated
from passback.transport.routing import Endpoint
from passback.transport.sse import EventStream, last_event_id, stream_headers
from passback.transport.wires import Services, Wire

_PATHS = ("/send-message", "/v1/aibot/bots/{agentId}/send-message")


# ---------------------------------------------------------------- what is posted
class PostedUserMessage(Posted):
    role: Literal["user"]
    content: PostedContent


class PostedSystemMessage(Posted):
    """Only where the server's settings allow this role."""

    role: Literal["system"]
    content: PostedContent


class PostedToolMessage(Posted):
    """The result of a client tool's call: a text, a list of parts, or any other JSON."""

    role: Literal["tool"]
    content: JsonValue
    tool_call_id: Annotated[str, Field(min_length=1, max_length=256)]
    is_error: bool = False


_PostedMessage: TypeAlias = Annotated[
    PostedUserMessage | PostedSystemMessage | PostedToolMessage, Field(discriminator="role")
]


class PostedTool(Posted):  # for the OpenAPI document; `parse_tools` reads the declarations
    """A tool that the client executes."""

    name: Annotated[str, Field(pattern=f"^{TOOL_NAME.pattern}$")]
    description: Annotated[str, Field(max_length=16_384)] | None = None
    parameters: dict[str, JsonValue] | str | None = Field(
        None,
        description="A JSON Schema of type object, or its text; null for a tool without parameters.",
    )


class PostedResume(Posted):
    interrupt_id: str
    payload: JsonValue = None


class SendMessage(Posted):
    """The new messages only: the server keeps the conversation. Unknown keys are ignored."""

    conversation_id: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        None, description="Missing: a new conversation, named in the header `X-Conversation-Id`."
    )
    messages: Annotated[list[_PostedMessage], Field(fail_fast=True, max_length=MAX_ITEMS)] = []
    tools: Annotated[
        list[JsonValue] | None, Field(json_schema_extra={"items": reference("PostedTool")})
    ] = Field(
        None,
        description="The client's tools. They replace the conversation's; without the key those stay; `[]` clears.",
    )
    resume: PostedResume | None = Field(None, description="The answer to an interrupt.")
    include: list[str] = Field(
        [],
        fail_fast=True,
        max_length=100,
        description="More kinds of events: "
        + ", ".join(sorted(INCLUDABLE))
        + "; others are ignored.",
    )


# ---------------------------------------------------------------- the route
def build(services: Services, /) -> Wire:
    wire = _SendMessage(services)
    return Wire(
        routes=[Endpoint(path, wire.send_message, methods=["POST"]) for path in _PATHS],
        paths=_describe(),
        schemas=schemas_of(SendMessage, PostedTool),
    )


class _SendMessage:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def send_message(self, request: Request) -> ASGIApp:
        """Admit the post, then answer with the log of the run that it began or joined."""
        post = validated(SendMessage, await read_object(request, self._services.limits))
        seen = last_event_id(request)
        started = await self._services.runs.start(await self._command(owner_of(request), post))
        include = frozenset(post.include)
        if isinstance(started, Parked):
            return _still_owed(request.scope, started, include)
        since = seen if seen and seen.cursor.run_id == started.run_id else None
        return EventStream(self._services, started, NativeEncoder(include), since)

    async def _command(self, owner: OwnerId, post: SendMessage) -> StartRun:
        given = post.conversation_id
        conversation = new_conversation_id() if given is None else conversation_id(given)
        if post.resume is not None:
            raise NotFound("no interrupt with this id waits in this conversation")
        messages = tuple(self._read(position, each) for position, each in enumerate(post.messages))
        tools = None if post.tools is None else await parse_tools(post.tools, self._services.limits)
        return StartRun(ConversationKey(owner, conversation), messages, tools)

    def _read(self, position: int, posted: _PostedMessage) -> PostedMessage:
        if posted.role not in self._services.allow_roles:
            raise InvalidRequest(f"messages.{position}: the role {posted.role!r} is not allowed")
        match posted:
            case PostedUserMessage(content=content):
                return UserMessage(new_message_id(), read_content(content))
            case PostedSystemMessage(content=content):
                return SystemMessage(new_message_id(), read_content(content))
            case PostedToolMessage(content=content, tool_call_id=call_id, is_error=is_error):
                result = read_result(content)
                return ToolMessage(new_message_id(), CallId(call_id), result, is_error)
            case _:
                assert_never(posted)


def _still_owed(scope: Scope, parked: Parked, include: frozenset[str]) -> Response:
    """The stream of a post whose results are stored, while others are still owed: no run, no events."""
    ids = [owed.id for owed in parked.owed]
    data = [native_data(owed_event(parked.owed))] if "owed" in include else []
    frames = [f": still owed: {' '.join(ids)}\n\n"]
    frames += [f"data: {each}\n\n" for each in (*data, DONE)]
    headers = stream_headers(scope, parked.key.id) | {"x-owed-tool-calls": ",".join(ids)}
    return Response("".join(frames), headers=headers)


# ---------------------------------------------------------------- its description
_EXAMPLE_POST: Mapping[str, JsonValue] = {
    "conversationId": "6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51",
    "messages": [{"role": "user", "content": "Change background color to blue"}],
    "tools": [
        {
            "name": "change-background-color",
            "description": "Change the background color of the page.",
            "parameters": {
                "type": "object",
                "properties": {"color": {"type": "string", "enum": ["blue", "green"]}},
                "required": ["color"],
            },
        }
    ],
}


def _example_stream() -> str:
    run_id, call_id = RunId("run_5f0c2a9be1d84f6a7c3e9b10"), CallId("call_0b6f4c1d2e3a495867f8a9b0")
    arguments = '{"color":"blue"}'
    events: tuple[RunEvent, ...] = (
        TextDelta("On it."),
        ToolCallStarted(call_id, "change-background-color", client=True),
        ToolCallArguments(call_id, arguments),
        ToolCallEnded(call_id),
        RunFinished(HandedBack((Owed(call_id, "change-background-color", arguments),))),
    )
    framer = Framer(NativeEncoder(), run_id)
    batch = [Logged(Position(1, number), event) for number, event in enumerate(events, 3)]
    return framer.batch(batch) + framer.end()


_HEADERS: Mapping[str, JsonValue] = {
    "X-Conversation-Id": {
        "description": "The conversation; what is not visible ASCII is percent-encoded.",
        "schema": {"type": "string"},
    },
    "X-Run-Id": {
        "description": "The run whose events follow; missing when calls are still owed.",
        "schema": {"type": "string"},
    },
    "X-Owed-Tool-Calls": {
        "description": "The results are stored, no run began: these calls have to be answered first.",
        "schema": {"type": "string"},
    },
}


def _describe() -> dict[str, JsonValue]:
    return {path: {"post": _operation(path)} for path in _PATHS}


def _operation(path: str) -> dict[str, JsonValue]:
    has_agent = "{agentId}" in path
    last_event: JsonValue = {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "When a post is repeated: the `id` that was seen last; what came after it is sent.",
        "schema": {"type": "string"},
    }
    agent: JsonValue = {
        "name": "agentId",
        "in": "path",
        "required": True,
        "description": "Any; the server has one agent.",
        "schema": {"type": "string"},
    }
    codes = (
        "invalid_request",
        "invalid_tool",
        "tool_name_clash",
        "nothing_to_do",
        "invalid_cursor",
    )
    conflicts = ("conversation_busy", "tool_result_conflict", "tool_call_not_found", "not_found")
    return {
        "operationId": "sendMessageToAgent" if has_agent else "sendMessage",
        "summary": "Post new messages, or the results of client tools; stream the answer.",
        "parameters": [agent, last_event] if has_agent else [last_event],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": reference("SendMessage"),
                    "example": dict(_EXAMPLE_POST),
                }
            },
        },
        "responses": {
            "200": stream_response(
                "The run's events, to its end; `[DONE]` is last.",
                headers=_HEADERS,
                example=_example_stream(),
            ),
            **error_responses(
                *BODY_ERRORS, *codes, *conflicts, *STORE_ERRORS, "shutting_down", *GATE_ERRORS
            ),
        },
    }
