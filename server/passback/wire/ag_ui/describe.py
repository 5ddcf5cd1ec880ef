"""OpenAPI document of the protocol."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from passback.core.events import (
    Completed,
    Logged,
    Position,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import JsonObject, MessageId, RunId
from passback.native.openapi import (
    POST_ERRORS,
    POST_HEADERS,
    RUN_ERRORS,
    STORE_ERRORS,
    answer_headers,
    describe_operation,
    describe_parameter,
    json_body,
    schema_reference,
)
from passback.native.responses import SINCE_PARAMETERS
from passback.streams.frames import SseFramer
from passback.wire.ag_ui.encoder import AgUiEncoder

_EVENTS: Final = (
    *("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED"),
    *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
    *("REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"),
    *("REASONING_MESSAGE_END", "REASONING_END"),
    *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
    *("SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"),
    *("MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "STATE_DELTA", "CUSTOM"),
)
_EVENT_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": [*_EVENTS]}},
    "additionalProperties": True,
    "externalDocs": {"url": "https://docs.ag-ui.com/concepts/events"},
}
_THREAD: Final = "6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51"
_RUN: Final = "0b7e9c52-1d7c-4f0e-8a65-3c1f6f0a9d11"
_EXAMPLE_POST: Mapping[str, JsonValue] = {
    "threadId": _THREAD,
    "runId": _RUN,
    "state": {},
    "messages": [
        {
            "id": "8e03978e-40d5-43e8-bc93-6894a57f9324",
            "role": "user",
            "content": "Change background color to blue",
        }
    ],
    "tools": [],
    "context": [],
    "forwardedProps": {},
}
_AGENT = describe_parameter(
    "agentId", "path", "The agent's name; `default` is the one that is asked by default."
)


def describe_paths(posts: Sequence[str], stream: str, /) -> dict[str, JsonValue]:
    """Return the OpenAPI paths of the routes: those of posts, and that of a thread's stream."""
    return {
        **{path: {"post": _describe_post(path)} for path in posts},
        stream: {
            "parameters": [describe_parameter("threadId", "path", "The thread's id.")],
            "get": describe_operation(
                "followThread",
                "Follow a thread as AG-UI events: its messages and the run that goes on, a named "
                "run, or what came after the last event.",
                _describe_responses(),
                "bad_request",
                "conversation_not_found",
                "run_not_found",
                "invalid_cursor",
                "cursor_expired",
                *RUN_ERRORS,
                *STORE_ERRORS,
                parameters=[
                    *SINCE_PARAMETERS,
                    describe_parameter(
                        "runId",
                        "query",
                        "The run's id, as the request had chosen it. An id of the server's "
                        "(`X-Run-Id`), without an event id: that run alone, from its start.",
                    ),
                ],
            ),
        },
    }


def _describe_post(path: str) -> dict[str, JsonValue]:
    has_agent = "{agentId}" in path
    return describe_operation(
        "runNamedAgent" if has_agent else "runAgent",
        "Post a RunAgentInput of AG-UI; get the run's events.",
        _describe_responses(),
        *POST_ERRORS,
        "conversation_not_found",
        parameters=[
            *([_AGENT] if has_agent else []),
            describe_parameter(
                "Idempotency-Key", "header", "As in `/send-message`; missing: the `runId` is it."
            ),
            describe_parameter("Last-Event-ID", "header", "As in `/send-message`."),
        ],
        requestBody=json_body(schema_reference("RunAgentInput"), example=dict(_EXAMPLE_POST)),
    )


def _describe_responses() -> dict[str, JsonValue]:
    run_id = RunId("run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O")
    events: tuple[RunEvent, ...] = (
        RunStarted(run_id),
        TurnStarted(MessageId("msg_693FyNLtTkEYVaTmsgaHHiLyEnj8r9oklj")),
        TextDelta("On it."),
        RunFinished(Completed()),
    )
    framer = SseFramer(AgUiEncoder(_THREAD, _RUN), run_id)
    batch = [Logged(Position(1, number), event) for number, event in enumerate(events, 1)]
    return {
        "200": {
            "description": "The events of the run, to its end. Without messages in the request: "
            "those of the thread, and of the run that goes on.",
            "headers": dict(answer_headers(POST_HEADERS)),
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "x-event-schema": dict(_EVENT_SCHEMA),
                    "example": framer.frame_batch(batch),
                }
            },
        },
    }
