"""OpenAPI document of the protocol's routes, and the forms of what they answer."""

from collections.abc import Mapping
from typing import Literal, NotRequired, TypeAlias

from pydantic import JsonValue
from typing_extensions import TypedDict

from passback.core.messages import JsonObject
from passback.core.titles import MAX_TITLE
from passback.native.openapi import (
    BODY_ERRORS,
    POST_ERRORS,
    POST_HEADERS,
    STORE_ERRORS,
    answer_headers,
    describe_operation,
    describe_parameter,
    json_body,
    json_response,
    schema_reference,
)


class CreatedSession(TypedDict):
    session_id: str


class DeletedSession(TypedDict):
    deleted: Literal[True]


class SessionView(TypedDict):
    """A session, which is a conversation. `intent` is its title.

    `waiting_for_input`: the client has to answer the calls `pending_tool_call_ids`. A session whose
    last chat failed is `completed`. The other fields are those of the protocol, with the values
    that this server has for all sessions.
    """

    id: str
    intent: str
    status: Literal["created", "running", "completed", "interrupted", "waiting_for_input"]
    created_at: str
    updated_at: str
    model: None
    shared: bool
    is_pinned: bool
    memory_enabled: bool
    is_persistent: bool
    replay_state: None
    pending_tool_call_ids: list[str]


class SessionPage(TypedDict):
    """Sessions, the one first that a client changed last.

    `content_match_truncated`: there may be more than the `total` that were looked at.
    """

    items: list[SessionView]
    total: int
    limit: int
    offset: int
    content_match_truncated: bool


class TurnBlock(TypedDict):
    type: Literal["text", "thinking"]
    content: str


class QuestionReference(TypedDict):
    """A question of a sub-agent that works on the call, or below it."""

    child_loop_name: str
    child_tool_call_id: str
    description: str


class TurnCall(TypedDict):
    """A call of a tool. `arguments` is a JSON text.

    `awaiting_result`: the client has to execute it. `awaiting_answer`: a person has to answer.
    """

    id: str
    tool_name: str
    display_name: str
    arguments: str
    status: Literal["pending", "awaiting_answer", "awaiting_result", "done", "error", "cancelled"]
    result: NotRequired[str]
    duration_ms: NotRequired[int]
    pending_question_ref: NotRequired[QuestionReference]


class TurnUsage(TypedDict):
    input_tokens: int
    output_tokens: int


class TurnView(TypedDict):
    """A turn (TurnProjection): a message of the user, or one model call with its tool calls.

    `sequence` is its place among the turns of its loop; it may skip numbers. The last five fields
    but two tell what is known of the model call: in a stream some of it is not known yet.
    """

    id: str
    sequence: int
    turn_id: str
    loop_id: str
    kind: Literal["message"]
    role: Literal["user", "assistant", "system"]
    status: Literal["streaming", "completed", "paused", "interrupted"]
    blocks: list[TurnBlock]
    tool_calls: list[TurnCall]
    model: str | None
    usage: TurnUsage | None
    duration_ms: int
    started_at: str | None
    context_window: int
    memory_refs: None
    parent_fork_tool_call_id: str | None


class ChatError(TypedDict):
    """The failure of a chat. `code` is one of the server's error codes."""

    code: str
    message: str


class ChatEnd(TypedDict):
    """The end of a chat.

    `result` has `output`, and the `schema` if there was one; if the chat failed, `err_msg`. In the
    format `raw` it has `output` and `result`, or the fields of the value.
    """

    session_id: str
    status: Literal["completed", "interrupted", "failed"]
    result: dict[str, JsonValue] | None
    finish_reason: Literal["completed", "max_turns", "tool_error", "awaiting_answer"]
    pending_tool_call_ids: list[str]
    chat_run_id: NotRequired[str]
    error: NotRequired[ChatError]


class ModelView(TypedDict):
    id: str
    name: str


class ModelsView(TypedDict):
    """The models that `chat:send` may name."""

    default: str
    models: list[ModelView]


class VersionView(TypedDict):
    """The version of the server, and the lowest of the protocol's client that it serves."""

    version: str
    min_sdk: str


class ApiHealth(TypedDict):
    status: Literal["ok"]


_Part: TypeAlias = dict[str, JsonValue]

_SESSION = describe_parameter(
    "id",
    "path",
    "The session's id, percent-encoded.",
    {"type": "string", "minLength": 1, "maxLength": 256},
)
_SESSION_ERRORS = ("invalid_request", "conversation_not_found", "bad_request", *STORE_ERRORS)
_EXAMPLE_ID = "conv_5f0c2a9be1d84f6a7c3e9b10"
_EXAMPLE_SESSION: Mapping[str, JsonValue] = {
    "id": _EXAMPLE_ID,
    "intent": "Capitals",
    "status": "completed",
    "created_at": "2026-01-31T11:58:00.000Z",
    "updated_at": "2026-01-31T12:00:00.000Z",
    "model": None,
    "shared": False,
    "is_pinned": False,
    "memory_enabled": False,
    "is_persistent": True,
    "replay_state": None,
    "pending_tool_call_ids": [],
}
_EXAMPLE_TURN: Mapping[str, JsonValue] = {
    "id": "run_693FyNLtTkEYVaTmsgaHHi2MRhLoW6zcdf.1",
    "sequence": 2,
    "turn_id": "run_693FyNLtTkEYVaTmsgaHHi2MRhLoW6zcdf.1",
    "loop_id": "root",
    "kind": "message",
    "role": "assistant",
    "status": "completed",
    "blocks": [{"type": "text", "content": "Paris."}],
    "tool_calls": [],
    "model": "openai:gpt-5",
    "usage": {"input_tokens": 21, "output_tokens": 3},
    "duration_ms": 640,
    "started_at": "2026-01-31T11:59:59.000Z",
    "context_window": 0,
    "memory_refs": None,
    "parent_fork_tool_call_id": None,
}


class ApiError(TypedDict):
    """An error. `detail` is for people; `code` is one of the server's error codes."""

    detail: str
    code: str
    details: NotRequired[dict[str, JsonValue]]
    request_id: str


def describe_paths() -> _Part:
    """Return the OpenAPI paths of the routes below `/api`."""
    return {path: _with_own_errors(item) for path, item in _describe_routes().items()}


def _with_own_errors(part: JsonValue) -> JsonValue:
    """Return a part of the document in which errors have the protocol's form."""
    if isinstance(part, list):
        return [_with_own_errors(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part == schema_reference("Error"):
        return dict(schema_reference("ApiError"))
    return {name: _with_own_errors(value) for name, value in part.items()}


def _describe_routes() -> _Part:
    return {
        "/api/sessions": {"get": _describe_list(), "post": _describe_creation()},
        "/api/sessions/{id}": {
            "parameters": [_SESSION],
            "get": describe_operation(
                "getSession", "A session.", _session("The session."), *_SESSION_ERRORS
            ),
            "patch": describe_operation(
                "renameSession",
                "Give a session a title.",
                _session("The session with its title."),
                *BODY_ERRORS,
                "invalid_request",
                "conversation_not_found",
                *STORE_ERRORS,
                requestBody=json_body(
                    schema_reference("RenameSession"), example={"intent": "Capitals"}
                ),
            ),
            "delete": describe_operation(
                "deleteSession",
                "Delete a session with its conversation.",
                {"200": json_response("It is gone.", schema_reference("DeletedSession"))},
                *_SESSION_ERRORS,
                parameters=[
                    describe_parameter(
                        "delete_workspace", "query", "Ignored: there are no workspaces."
                    )
                ],
            ),
        },
        "/api/sessions/{id}/messages": {"parameters": [_SESSION], "get": _describe_turns()},
        "/api/sessions/{id}/chat": {"parameters": [_SESSION], "post": _describe_chat()},
        "/api/config/models": {
            "get": describe_operation(
                "listModels",
                "The models that a message may choose.",
                {"200": json_response("The default first.", schema_reference("ModelsView"))},
            )
        },
        "/api/version": {
            "get": describe_operation(
                "getVersion",
                "The version of the server.",
                {"200": json_response("It needs no key.", schema_reference("VersionView"))},
            )
        },
        "/api/health": {
            "get": describe_operation(
                "getApiHealth",
                "As `/healthz`.",
                {"200": json_response("The server runs.", schema_reference("ApiHealth"))},
            )
        },
    }


def _session(description: str) -> _Part:
    return {
        "200": json_response(
            description, schema_reference("SessionView"), example=dict(_EXAMPLE_SESSION)
        )
    }


def _describe_list() -> _Part:
    page: _Part = {
        "items": [dict(_EXAMPLE_SESSION)],
        "total": 1,
        "limit": 20,
        "offset": 0,
        "content_match_truncated": False,
    }
    return describe_operation(
        "listSessions",
        "The sessions of an owner, the one first that a client changed last.",
        {"200": json_response("A page.", schema_reference("SessionPage"), example=page)},
        "invalid_request",
        "keys_needed",
        *STORE_ERRORS,
        parameters=[
            describe_parameter("limit", "query", "At most so many.", _whole(1, 100, 20)),
            describe_parameter(
                "offset", "query", "The number of sessions before the page.", _whole(0, 1000, 0)
            ),
            describe_parameter(
                "q",
                "query",
                "Only those whose title contains this, in upper or lower case.",
                {"type": "string", "maxLength": MAX_TITLE},
            ),
            describe_parameter("template_id_prefix", "query", "Ignored: there are no templates."),
            describe_parameter("chat_group_id", "query", "Ignored: there are no groups."),
        ],
    )


def _whole(least: int, most: int, default: int | None = None) -> JsonObject:
    bounds: _Part = {"type": "integer", "minimum": least, "maximum": most}
    return bounds if default is None else {**bounds, "default": default}


def _describe_creation() -> _Part:
    return describe_operation(
        "createSession",
        "Create a session.",
        {
            "200": json_response(
                "Its id.", schema_reference("CreatedSession"), example={"session_id": _EXAMPLE_ID}
            )
        },
        *BODY_ERRORS,
        "invalid_request",
        *STORE_ERRORS,
        parameters=[
            describe_parameter(
                "Idempotency-Key", "header", "A repeat with the same key is the same session."
            )
        ],
        requestBody=json_body(schema_reference("CreateSession"), example={"intent": "Capitals"}),
    )


def _describe_turns() -> _Part:
    return describe_operation(
        "listTurns",
        "The turns of a session, as clients of the socket were told of them.",
        {
            "200": json_response(
                "The oldest first.",
                {"type": "array", "items": schema_reference("TurnView")},
                example=[dict(_EXAMPLE_TURN)],
            )
        },
        *_SESSION_ERRORS,
        parameters=[
            describe_parameter(
                "after",
                "query",
                "Only those behind the turn with this `sequence` (of the loop `root`).",
                _whole(0, 2**53, 0),
            ),
            describe_parameter(
                "limit",
                "query",
                "At most so many turns of the loop `root`, each with those of its sub-agents. "
                "Without it, all.",
                _whole(1, 1000),
            ),
            describe_parameter(
                "root_only",
                "query",
                "`true`: without turns of sub-agents.",
                {"type": "boolean", "default": False},
            ),
        ],
    )


def _describe_chat() -> _Part:
    headers = answer_headers(POST_HEADERS)
    end: _Part = {
        "session_id": _EXAMPLE_ID,
        "status": "completed",
        "result": {"output": "Paris."},
        "finish_reason": "completed",
        "pending_tool_call_ids": [],
        "chat_run_id": "run_693FyNLtTkEYVaTmsgaHHi2MRhLoW6zcdf",
    }
    return describe_operation(
        "chatHeadless",
        "Run a headless chat, and wait for its end.",
        {
            "200": json_response(
                "The end of the chat, also of one that failed.",
                schema_reference("ChatEnd"),
                example=end,
                headers=headers,
            ),
            "202": json_response(
                "The wait is over, or was not wanted; the chat goes on.",
                schema_reference("RunGoesOn"),
                headers={**headers, "Location": {"schema": {"type": "string"}}},
            ),
        },
        *POST_ERRORS,
        "conversation_not_found",
        parameters=[
            describe_parameter(
                "event_format",
                "query",
                "`raw`: the result in the shape that the protocol's own client reads.",
                {"type": "string", "enum": ["raw"]},
            ),
            describe_parameter(
                "Prefer", "header", "`respond-async`: do not wait. `wait=30`: at most 30 seconds."
            ),
            describe_parameter("Idempotency-Key", "header", "As in `/send-message`."),
        ],
        requestBody=json_body(
            schema_reference("HeadlessChat"), example={"message": "What is the capital of France?"}
        ),
    )
