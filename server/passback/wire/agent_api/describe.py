"""OpenAPI document of the protocol."""

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field, JsonValue
from typing_extensions import TypedDict

from passback.builders import ResponseBuilder, encode
from passback.core.messages import JsonObject
from passback.native.openapi import (
    POST_ERRORS,
    POST_HEADERS,
    RUN_ERRORS,
    STORE_ERRORS,
    answer_headers,
    describe_operation,
    describe_parameter,
    json_body,
    json_response,
    schema_reference,
)
from passback.native.responses import FOLLOW_PARAMETERS


class AgentError(TypedDict):
    """An error. `code` is one of the server's error codes."""

    code: str
    message: str
    retryable: bool
    retry_after: NotRequired[float]


class AgentUsage(TypedDict):
    """Tokens of all model calls.

    `estimated`: an answer was cut before the provider reported its tokens.
    """

    input_tokens: int
    output_tokens: int
    total_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    estimated: NotRequired[bool]


class AgentContent(TypedDict):
    """A part. `delta` true: append it; false: replace the part; `completed`: the whole part."""

    object: Literal["content"]
    status: Literal["in_progress", "completed"]
    type: Literal["text", "data"]
    index: int
    delta: bool
    msg_id: str
    text: NotRequired[str]
    data: NotRequired[dict[str, JsonValue]]
    sequence_number: int


class AgentMessageMetadata(TypedDict):
    """The call of the sub-agent that sends this message."""

    parent_call_id: str


class AgentMessage(TypedDict):
    """A message. The event of its end has all its parts.

    `incomplete`: it was cut. `rejected`: a call that was not valid.
    """

    object: Literal["message"]
    status: Literal["in_progress", "completed", "incomplete", "rejected"]
    id: str
    type: str
    role: Literal["assistant", "tool"]
    metadata: NotRequired[AgentMessageMetadata]
    content: NotRequired[list[AgentContent]]
    usage: NotRequired[AgentUsage]
    sequence_number: int


class AgentResponseMetadata(TypedDict):
    """Metadata of a response.

    `requires_action`: the calls that the client has to answer. `reason`: the reason of an
    incomplete answer.
    """

    requires_action: NotRequired[list[str]]
    reason: NotRequired[str]


class AgentResponse(TypedDict):
    """A response. Its last event has the whole `output`, and the name of the last `model`."""

    object: Literal["response"]
    status: Literal[
        "created",
        "queued",
        "in_progress",
        "completed",
        "incomplete",
        "canceled",
        "rejected",
        "failed",
    ]
    id: str
    created_at: int
    completed_at: NotRequired[int]
    session_id: str
    model: NotRequired[str]
    output: NotRequired[list[AgentMessage]]
    usage: NotRequired[AgentUsage]
    metadata: NotRequired[AgentResponseMetadata]
    error: NotRequired[AgentError]
    sequence_number: int


AgentEvent: TypeAlias = Annotated[
    AgentResponse | AgentMessage | AgentContent, Field(discriminator="object")
]


_SESSION_PARAMETER = describe_parameter("session_id", "path", "The session's id, percent-encoded.")
_EXAMPLE_POST: Mapping[str, JsonValue] = {
    "input": [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "text", "text": "Change background color to blue"}],
        }
    ],
    "session_id": "6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51",
}
_EVENT_SCHEMA: JsonObject = {
    "oneOf": [schema_reference(name) for name in ("AgentResponse", "AgentMessage", "AgentContent")]
}


def _example_builder() -> ResponseBuilder:
    session, response = "6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51", "response_5f0c2a9be1d84f6a7c3e9b10"
    return ResponseBuilder(session, response, clock=lambda: 1767225600)


def describe_paths(path: str) -> dict[str, JsonValue]:
    """Return the OpenAPI paths of the routes below `path`."""
    return {
        path: {
            "post": describe_operation(
                "process",
                "Post an AgentRequest of the Agent API; get its events.",
                _describe_responses(),
                *POST_ERRORS,
                parameters=[
                    describe_parameter("Idempotency-Key", "header", "As in `/send-message`."),
                    describe_parameter("Last-Event-ID", "header", "As in `/send-message`."),
                ],
                requestBody=json_body(
                    schema_reference("AgentRequest"), example=dict(_EXAMPLE_POST)
                ),
            )
        },
        f"{path}/{{session_id}}/stream": {
            "parameters": [_SESSION_PARAMETER],
            "get": describe_operation(
                "followResponse",
                "Follow a run of a session as events of the Agent API: the newest or another one "
                "from its start, or any from the last event that was seen.",
                _describe_responses(),
                "invalid_request",
                "bad_request",
                "conversation_not_found",
                "run_not_found",
                "invalid_cursor",
                "cursor_expired",
                *RUN_ERRORS,
                *STORE_ERRORS,
                parameters=[
                    *FOLLOW_PARAMETERS,
                    describe_parameter(
                        "id", "query", "The response's id, if the request chose it."
                    ),
                    describe_parameter(
                        "stream",
                        "query",
                        "`false`: one JSON response at the end.",
                        {"type": "boolean"},
                    ),
                ],
            ),
        },
    }


def _describe_responses() -> dict[str, JsonValue]:
    headers = answer_headers(POST_HEADERS)
    *_, last = _example_builder().generate_streaming_response(["On it."])
    place = "id: run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O.1-4"
    events = _example_builder().generate_streaming_response(["On ", "it."])
    whole: dict[str, JsonValue] = {
        "application/json": {"schema": schema_reference("AgentResponse"), "example": last},
        "text/event-stream": {
            "schema": {"type": "string"},
            "x-event-schema": dict(_EVENT_SCHEMA),
            "example": "".join(f"{place}\ndata: {encode(event)}\n\n" for event in events),
        },
    }
    return {
        "200": {
            "description": "The response, to its end: its events, of which the last is a response "
            "that has ended; with `stream: false` that one alone.",
            "headers": dict(headers),
            "content": whole,
        },
        "202": json_response(
            "The wait timed out, and the run continues.",
            schema_reference("RunGoesOn"),
            headers={**headers, "Location": {"schema": {"type": "string"}}},
        ),
    }
