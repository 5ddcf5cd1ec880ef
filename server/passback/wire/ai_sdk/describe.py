"""OpenAPI document of the protocol."""

from collections.abc import Mapping
from typing import Final, cast

from pydantic import ConfigDict, JsonValue, with_config
from typing_extensions import TypedDict

from passback.core.events import (
    Completed,
    Logged,
    Position,
    RunEvent,
    RunFinished,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import (
    ConversationId,
    ConversationKey,
    JsonObject,
    MessageId,
    OwnerId,
    RunId,
    RunRef,
)
from passback.native.openapi import (
    POST_ERRORS,
    POST_HEADERS,
    REQUEST_ID_HEADER,
    RUN_ERRORS,
    STORE_ERRORS,
    answer_headers,
    describe_operation,
    describe_parameter,
    json_body,
    json_response,
    schema_reference,
)
from passback.streams.frames import SseFramer
from passback.wire.ai_sdk.encoder import DONE, UiEncoder


@with_config(ConfigDict(extra="allow"))
class UiChunk(TypedDict):
    """A chunk of the stream. The other fields depend on its `type`, as the AI SDK defines them.

    Types that begin with `data-` are this server's own: `data-plan`, `data-progress` and
    `data-output` are parts, `data-agent-text`, `data-context` and `data-rewind` are transient.
    """

    type: str


class ChatMessagesView(TypedDict):
    """Stored messages of a chat as `UIMessage`s, oldest first.

    `before` is that of the page before them, null if they are the first.
    """

    messages: list[dict[str, JsonValue]]
    before: int | None


DEFAULT_LIMIT: Final = 100  # messages of a page
MOST_LIMIT: Final = 1000

_TEXT: dict[str, JsonValue] = {"type": "string"}
_ID = describe_parameter("id", "path", "The chat's id, percent-encoded.")
_RUN = RunRef(
    ConversationKey(OwnerId(""), ConversationId("6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51")),
    RunId("run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O"),
)
_EXAMPLE_POST: Mapping[str, JsonValue] = {
    "id": _RUN.key.id,
    "trigger": "submit-message",
    "messages": [
        {
            "id": "5y6J0eWzQbqL2mXt",
            "role": "user",
            "parts": [{"type": "text", "text": "Change background color to blue"}],
        }
    ],
}


def describe_paths(path: str) -> dict[str, JsonValue]:
    """Return the OpenAPI paths of the routes below `path`. Their errors are texts."""
    return {address: _with_texts(item) for address, item in _describe_routes(path).items()}


def _with_texts(part: JsonValue) -> JsonValue:
    """Return a part of the document in which errors have the protocol's form."""
    if not isinstance(part, dict):
        return part
    if "x-codes" in part:
        headers = dict(cast("JsonObject", part["headers"]))
        headers["X-Error-Code"] = {"schema": _TEXT}
        return {**part, "headers": headers, "content": {"text/plain": {"schema": _TEXT}}}
    return {name: _with_texts(value) for name, value in part.items()}


def _describe_routes(path: str) -> dict[str, JsonValue]:
    return {
        path: {
            "post": describe_operation(
                "postChat",
                "Post the messages of a chat of the AI SDK; get the chunks of the answer.",
                {"200": _describe_stream("The message, to the end of its run.")},
                *POST_ERRORS,
                "conversation_not_found",
                "conflict",
                parameters=[
                    describe_parameter("Idempotency-Key", "header", "As in `/send-message`.")
                ],
                requestBody=json_body(
                    schema_reference("AiSdkRequest"), example=dict(_EXAMPLE_POST)
                ),
            )
        },
        f"{path}/{{id}}/messages": _describe_messages(),
        f"{path}/{{id}}/stream": {
            "parameters": [_ID],
            "get": describe_operation(
                "resumeChat",
                "Get the message that is being written, or that a run has written, from its start "
                "and then live.",
                {
                    "200": _describe_stream("The whole message."),
                    "204": _describe_empty("Nothing is being written."),
                },
                "conversation_not_found",
                "run_not_found",
                "cursor_expired",
                *RUN_ERRORS,
                *STORE_ERRORS,
                parameters=[
                    describe_parameter("runId", "query", "Which run, also one that has ended.")
                ],
            ),
        },
        f"{path}/{{id}}/stop": {
            "parameters": [_ID],
            "post": describe_operation(
                "stopChat",
                "Cancel the run that goes on, or else the first one that waits.",
                {"204": _describe_empty("Nothing goes on, or it will end soon.")},
                "conversation_not_found",
                *STORE_ERRORS,
            ),
        },
    }


def _describe_messages() -> JsonValue:
    return {
        "parameters": [_ID],
        "get": describe_operation(
            "getChatMessages",
            "Get the stored messages of a chat; none if there is no such chat.",
            {"200": json_response("A page.", schema_reference("ChatMessagesView"))},
            "invalid_request",
            "bad_request",
            *STORE_ERRORS,
            parameters=[
                _describe_number("before", "The `before` of the page behind this one."),
                _describe_number("limit", "How many to give at most.", MOST_LIMIT),
            ],
        ),
    }


def _describe_number(name: str, description: str, most: int | None = None) -> JsonValue:
    schema: dict[str, JsonValue] = {"type": "integer", "minimum": 1}
    if most is not None:
        schema |= {"maximum": most, "default": DEFAULT_LIMIT}
    return describe_parameter(name, "query", description, schema)


def _describe_empty(description: str) -> dict[str, JsonValue]:
    return {"description": description, "headers": dict(REQUEST_ID_HEADER)}


def _describe_stream(description: str) -> dict[str, JsonValue]:
    events: tuple[RunEvent, ...] = (
        TurnStarted(MessageId("msg_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O")),
        TextDelta("On "),
        TextDelta("it."),
        RunFinished(Completed()),
    )
    framer = SseFramer(UiEncoder(_RUN, _RUN.run_id), _RUN.run_id)
    batch = [Logged(Position(1, number), event) for number, event in enumerate(events, 1)]
    return {
        "description": description,
        "headers": dict(answer_headers(POST_HEADERS)),
        "content": {
            "text/event-stream": {
                "schema": _TEXT,
                "x-event-schema": {"anyOf": [schema_reference("UiChunk"), {"const": DONE}]},
                "example": framer.frame_batch(batch) + framer.end_frames(),
            }
        },
    }
