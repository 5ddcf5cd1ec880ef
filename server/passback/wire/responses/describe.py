"""OpenAPI document of the protocol."""

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import ConfigDict, JsonValue, with_config
from typing_extensions import TypedDict

from passback.core.events import (
    Completed,
    Logged,
    Position,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    TurnEnded,
    TurnStarted,
)
from passback.core.messages import JsonObject, MessageId, RunId
from passback.native.openapi import (
    GATE_ERRORS,
    POST_ERRORS,
    POST_HEADERS,
    RUN_ERRORS,
    STORE_ERRORS,
    answer_headers,
    describe_operation,
    describe_parameter,
    error_responses,
    json_body,
    json_response,
    schema_reference,
)
from passback.streams.frames import SseFramer
from passback.wire.responses.encoder import DONE, ResponseEncoder, frame_event
from passback.wire.responses.errors import status_of_error
from passback.wire.responses.posted import CreateResponse
from passback.wire.responses.request_note import note_of


@with_config(ConfigDict(extra="allow"))
class ResponseView(TypedDict):
    """A response. It has all fields of the Open Responses specification."""

    id: str
    object: Literal["response"]
    status: Literal["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]
    output: list[dict[str, JsonValue]]


class DeletedResponse(TypedDict):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ItemList(TypedDict):
    """A page of items."""

    object: Literal["list"]
    data: list[dict[str, JsonValue]]
    first_id: str | None
    last_id: str | None
    has_more: bool


@with_config(ConfigDict(extra="allow"))
class ResponseEvent(TypedDict):
    """An event of a response."""

    type: str
    sequence_number: int


class ListedModel(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(TypedDict):
    """The names that `model` may have."""

    object: Literal["list"]
    data: list[ListedModel]


class ResponsesErrorBody(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class ResponsesError(TypedDict):
    """An error in the protocol's form."""

    error: ResponsesErrorBody


_RUN_ID: Final = RunId("run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O")
_TEXT: dict[str, JsonValue] = {"type": "string"}
_ID = describe_parameter("response_id", "path", "The response's id.")
_EXAMPLE_POST: Mapping[str, JsonValue] = {"model": "demo", "input": "Hello!", "stream": True}


def describe_paths(base: str) -> dict[str, JsonValue]:
    """Return the OpenAPI paths of the routes below `base`."""
    one = f"{base}/responses/{{response_id}}"
    return {
        f"{base}/responses": {"post": _describe_create()},
        one: {
            "parameters": [_ID],
            "get": _describe_retrieve(),
            "delete": _describe(
                "deleteResponse",
                "Delete a response; what it has said stays in what continues it.",
                {"200": json_response("It is deleted.", schema_reference("DeletedResponse"))},
                "run_not_found",
                "conversation_busy",
            ),
        },
        f"{one}/cancel": {
            "parameters": [_ID],
            "post": _describe(
                "cancelResponse",
                "Cancel a response that goes on.",
                {"200": _RESPONSE},
                "run_not_found",
                "conflict",
            ),
        },
        f"{one}/input_items": {
            "parameters": [_ID],
            "get": _describe(
                "listInputItems",
                "List what the request of a response has posted.",
                {"200": json_response("A page.", schema_reference("ItemList"))},
                "run_not_found",
                parameters=[
                    _query("limit", "How many to give at most.", _number(20, 1, 100)),
                    _query("order", "The order of time.", {"enum": ["asc", "desc"]}),
                    _query("after", "The last item of the page before."),
                ],
            ),
        },
        f"{base}/models": {
            "get": _describe(
                "listModelNames",
                "List the names that `model` may have.",
                {"200": json_response("The names.", schema_reference("ModelList"))},
            )
        },
    }


_RESPONSE: Final = json_response("The response.", schema_reference("ResponseView"))


def _describe_create() -> JsonValue:
    return _describe(
        "createResponse",
        "Ask for a response, or give the outputs of its calls.",
        {"200": _describe_stream("The response, or with `stream` its events.")},
        *POST_ERRORS,
        "conversation_not_found",
        "conflict",
        parameters=[describe_parameter("Idempotency-Key", "header", "As in `/send-message`.")],
        requestBody=json_body(schema_reference("CreateResponse"), example=dict(_EXAMPLE_POST)),
    )


def _describe_retrieve() -> JsonValue:
    return _describe(
        "getResponse",
        "Get a response as far as it has got, or its events.",
        {"200": _describe_stream("The response, or with `stream=true` its events, then live.")},
        "run_not_found",
        "cursor_expired",
        *RUN_ERRORS,
        parameters=[
            _query("stream", "`true`: the events.", {"type": "boolean"}),
            _query("starting_after", "The number of the last event that was seen.", _number(0, 0)),
        ],
    )


def _describe(
    operation_id: str, summary: str, responses: JsonObject, *codes: str, **more: JsonValue
) -> dict[str, JsonValue]:
    described = describe_operation(operation_id, summary, responses, **more)
    errors = error_responses(
        *codes, *GATE_ERRORS, *STORE_ERRORS, status_of=status_of_error, schema="ResponsesError"
    )
    return {**described, "responses": {**responses, **errors}}


def _query(name: str, description: str, schema: JsonObject = _TEXT) -> JsonValue:
    return describe_parameter(name, "query", description, schema)


def _number(default: int, least: int, most: int | None = None) -> JsonObject:
    bound: dict[str, JsonValue] = {} if most is None else {"maximum": most}
    return {"type": "integer", "minimum": least, "default": default, **bound}


def _describe_stream(description: str) -> dict[str, JsonValue]:
    events: tuple[RunEvent, ...] = (
        RunStarted(_RUN_ID),
        TurnStarted(MessageId("msg_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O")),
        TextDelta("On it."),
        TurnEnded(MessageId("msg_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O")),
        RunFinished(Completed()),
    )
    encoder = ResponseEncoder(
        _RUN_ID, note_of(CreateResponse.model_validate({}), "demo", None, 1_780_000_000)
    )
    framer = SseFramer(encoder, _RUN_ID, frame=frame_event)
    batch = [Logged(Position(1, number), event) for number, event in enumerate(events, 1)]
    return {
        "description": description,
        "headers": dict(answer_headers(POST_HEADERS)),
        "content": {
            "application/json": {"schema": schema_reference("ResponseView")},
            "text/event-stream": {
                "schema": _TEXT,
                "example": framer.frame_batch(batch) + framer.end_frames(),
                "x-event-schema": {
                    "anyOf": [schema_reference("ResponseEvent"), {"const": DONE}],
                },
            },
        },
    }
