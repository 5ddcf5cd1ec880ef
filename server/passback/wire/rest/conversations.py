"""The routes of conversations: status, messages, stream, cancel, delete; and health checks."""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from passback.core.errors import Conflict, CursorExpired, InvalidRequest
from passback.core.messages import ConversationKey, RunRef
from passback.http.answers import empty_answer, json_answer, owner_of
from passback.http.body import read_object, read_optional_object
from passback.http.requests import (
    check_conversation_id,
    check_run_id,
    number_parameter,
    parse_include,
    validate_model,
)
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire
from passback.native.conversation import (
    ConversationStream,
    DeletedEvent,
    PostedEvent,
    SwitchedEvent,
)
from passback.native.history import ConversationView, MessageView, message_view, read_conversation
from passback.native.openapi import (
    BODY_ERRORS,
    REQUEST_ID_HEADER,
    RUN_ERRORS,
    STORE_ERRORS,
    WAIT,
    describe_operation,
    describe_parameter,
    json_body,
    json_response,
    run_responses,
    schema_reference,
)
from passback.native.parts import Posted
from passback.native.responses import (
    EVENTS_TYPE,
    FOLLOW_PARAMETERS,
    FOLLOW_QUERY,
    INCLUDABLE,
    SINCE_PARAMETERS,
    accepted_type,
    followed_run,
    requested_format,
    run_answer,
    seen_event,
)

ID_PARAMETER = describe_parameter(
    "id",
    "path",
    "The conversation's id, percent-encoded.",
    {"type": "string", "minLength": 1, "maxLength": 256},
)
CONVERSATION_ERRORS = ("invalid_request", "conversation_not_found", "bad_request", *STORE_ERRORS)


def conversation_key(request: Request) -> ConversationKey:
    """Return the conversation of the path. Raise InvalidRequest for an illegal id."""
    return ConversationKey(owner_of(request), check_conversation_id(request.path_params["id"]))


_PERMISSION = "/conversations/{id}/permissions/{name}"
_STRUCTURED_DATA = "structuredData"
_DEFAULT_LIMIT = 100
_MAX_LIMIT = 1000


class MessagesView(TypedDict):
    """A page of messages, oldest first. `next` is the `after` of the next page, null at the end."""

    messages: list[MessageView]
    next: int | None
    total: int


class RenameConversation(Posted):
    """A new title: one line of 1 to 200 characters, once its white space is folded."""

    title: str


class CancelRun(Posted):
    """The run to cancel; without it, the current one, or else the first in the queue."""

    run_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class CancelView(TypedDict):
    """The result of a cancel. `cancelled` is false if no run went on and none waited."""

    cancelled: bool


class HealthView(TypedDict):
    status: Literal["ok", "ready"]


def build(services: Services, /) -> Wire:
    wire = _Rest(services)
    return Wire(
        routes=[
            Endpoint(
                "/conversations/{id}",
                wire.answer_conversation,
                methods=["GET", "PATCH", "DELETE"],
                query={"GET": ["include"]},
            ),
            Endpoint(_PERMISSION, wire.retract_permission, methods=["DELETE"]),
            Endpoint(
                "/conversations/{id}/messages",
                wire.get_messages,
                methods=["GET"],
                query={"GET": ["after", "limit"]},
            ),
            Endpoint(
                "/conversations/{id}/stream",
                wire.follow_run,
                methods=["GET"],
                query={"GET": ["wait", "include", *FOLLOW_QUERY]},
            ),
            Endpoint(
                "/conversations/{id}/events",
                wire.watch,
                methods=["GET"],
                query={"GET": ["absent", "include", "lastEventId"]},
            ),
            Endpoint(
                "/conversations/{id}/cancel",
                wire.cancel_run,
                methods=["POST"],
                query={"POST": ["runId"]},
            ),
            # load balancers ask for these every few seconds: kept out of the log at INFO
            Endpoint("/healthz", wire.report_alive, methods=["GET"], log_level=logging.DEBUG),
            Endpoint("/readyz", wire.report_ready, methods=["GET"], log_level=logging.DEBUG),
        ],
        paths=_PATHS,
        types=(
            ConversationView,
            MessagesView,
            RenameConversation,
            CancelRun,
            CancelView,
            HealthView,
            PostedEvent,
            SwitchedEvent,
            DeletedEvent,
        ),
        public=frozenset({"/healthz", "/readyz"}),
    )


class _Rest:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    async def answer_conversation(self, request: Request) -> Response:
        key, services = conversation_key(request), self._services
        if request.method == "DELETE":
            await self._runs.delete(key)
            return empty_answer(request.scope)
        if request.method == "PATCH":
            body = await read_object(request, services.limits, services.bodies)
            await self._runs.rename(key, validate_model(RenameConversation, body).title)
        include = _included_words(request, {_STRUCTURED_DATA})
        shown = await read_conversation(self._runs, key)
        if _STRUCTURED_DATA in include:  # a read of its own: the data may be large
            shown["structuredData"] = await self._runs.data(key)
        return json_answer(request.scope, shown)

    async def retract_permission(self, request: Request) -> Response:
        """Remove the lasting permission or denial of a tool."""
        await self._runs.retract(conversation_key(request), request.path_params["name"])
        return empty_answer(request.scope)

    async def get_messages(self, request: Request) -> Response:
        start = number_parameter(request, "after", 0, most=2**53)
        limit = number_parameter(request, "limit", _DEFAULT_LIMIT, most=_MAX_LIMIT, least=1)
        page = await self._runs.messages(conversation_key(request), start=start, limit=limit)
        end = page.start + len(page.messages)
        shown: MessagesView = {
            "messages": [message_view(message) for message in page.messages],
            # a page without messages must not name itself as the next one
            "next": end if page.messages and end < page.total else None,
            "total": page.total,
        }
        return json_answer(request.scope, shown)

    async def follow_run(self, request: Request) -> ASGIApp:
        """Stream a run.

        With a last event id: the run of that event, from the next event on. Else the named run, or
        the newest one, from its start.
        """
        asked, key, include = (
            requested_format(request),
            conversation_key(request),
            _included_words(request, INCLUDABLE),
        )
        run, since = await followed_run(request, self._runs, key)
        return run_answer(self._services, asked, run, include=include, since=since)

    async def watch(self, request: Request) -> ASGIApp:
        """Stream all runs of a conversation, live, behind the event that the client has seen."""
        accepted_type(request, [EVENTS_TYPE])
        key, include = conversation_key(request), _included_words(request, INCLUDABLE)
        absent = request.query_params.get("absent", "refuse")
        if absent not in {"refuse", "wait"}:
            raise InvalidRequest('absent is neither "refuse" nor "wait"')
        seen = seen_event(request)
        return ConversationStream(self._services, key, include, seen, waits=absent == "wait")

    async def cancel_run(self, request: Request) -> Response:
        """Cancel the run that body or query name, else the current or the first queued one.

        Raises:
            InvalidRequest: body and query name different runs.
            UnknownRun: the conversation has no such run, or the run's log has expired.
            Conflict: the run has ended.
        """
        key = conversation_key(request)
        posted = validate_model(
            CancelRun,
            await read_optional_object(request, self._services.limits, self._services.bodies),
        )
        asked = request.query_params.get("runId")
        if asked and posted.run_id not in {None, asked}:
            raise InvalidRequest("the body and the query name two different runs")
        given = asked or posted.run_id
        named = check_run_id(given) if given else None
        status = await self._runs.status(key)
        running = (status.run_id,) if status.running and status.run_id is not None else ()
        active = (*running, *status.queued)
        meant = [run_id for run_id in active if named in {None, run_id}][:1]
        cancelled = bool(meant) and await self._runs.cancel(RunRef(key, meant[0]))
        if named and not cancelled:
            # a log whose beginning has expired still proves that the run existed
            with suppress(CursorExpired):
                async with self._runs.follow(RunRef(key, named)):  # raises UnknownRun
                    pass
            raise Conflict("this run has ended")
        # 202: a running run ends later, when its worker has seen the cancel
        shown: CancelView = {"cancelled": cancelled}
        return json_answer(request.scope, shown, status=202 if cancelled else 200)

    async def report_alive(self, request: Request) -> Response:
        return json_answer(request.scope, {"status": "ok"})

    async def report_ready(self, request: Request) -> Response:
        await self._runs.ready()
        return json_answer(request.scope, {"status": "ready"})


def _included_words(request: Request, known: Collection[str]) -> frozenset[str]:
    """Return the words of the query's `include`. Raise InvalidRequest for an unknown one."""
    return parse_include(request.query_params.get("include", "").split(","), known)


_EXAMPLE_EVENTS = """\
data: {"type":"posted","runId":"run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O","first":2,"messages":[
data:   {"id":"msg_3","role":"user","content":"And Italy?"}]}

id: run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O.2-1
data: {"type":"run-start","runId":"run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O"}

id: run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O.2-3
data: {"type":"text","content":"Rome."}

"""

_PATHS: Mapping[str, JsonValue] = {
    "/conversations/{id}": {
        "parameters": [ID_PARAMETER],
        "get": describe_operation(
            "getConversation",
            "The status of a conversation, and the calls that the client owes.",
            {
                "200": json_response(
                    "The conversation.",
                    schema_reference("ConversationView"),
                    example={
                        "id": "6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51",
                        "title": "Read the file and delete it",
                        "createdAt": "2026-01-31T11:58:00.000Z",
                        "updatedAt": "2026-01-31T12:00:00.000Z",
                        "status": "running",
                        "runId": "run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O",
                        "running": {
                            "runId": "run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O",
                            "firstMessage": 0,
                            "attempt": 1,
                        },
                        "queued": ["run_693FyNLtTkEYVaTmsgaHHi2MRhLoW6zcdf"],
                        "owed": [],
                        "messageCount": 2,
                        "usage": {
                            "inputTokens": 812,
                            "outputTokens": 96,
                            "cachedTokens": 640,
                            "reasoningTokens": 0,
                        },
                        "cost": 0.0124,
                        "seconds": 21.5,
                        "plan": [
                            {"content": "Read the file.", "priority": "high", "status": "completed"}
                        ],
                        "refusals": [
                            {
                                "toolCallId": "call_693FyNLtTkEYVaTmsgaHHi7FXgdN3QfLF9",
                                "name": "delete_file",
                                "reason": "This call was not allowed. The user says: I need it.",
                            }
                        ],
                        "permissions": [{"name": "read_file", "decision": "allow"}],
                        "branches": [
                            {"after": None, "versions": ["msg_1", "msg_4"], "current": "msg_4"}
                        ],
                    },
                )
            },
            *CONVERSATION_ERRORS,
            "server_busy",
            parameters=[
                describe_parameter(
                    "include",
                    "query",
                    f"`{_STRUCTURED_DATA}`: adds the whole structured data.",
                )
            ],
        ),
        "patch": describe_operation(
            "renameConversation",
            "Give a conversation another title, also while a run goes on.",
            {"200": json_response("The conversation.", schema_reference("ConversationView"))},
            *CONVERSATION_ERRORS,
            *BODY_ERRORS[1:],  # the first is in CONVERSATION_ERRORS
            requestBody=json_body(
                schema_reference("RenameConversation"), example={"title": "The blue page"}
            ),
        ),
        "delete": describe_operation(
            "deleteConversation",
            "Delete a conversation with its runs and messages.",
            {"204": {"description": "It is gone.", "headers": dict(REQUEST_ID_HEADER)}},
            *CONVERSATION_ERRORS,
        ),
    },
    _PERMISSION: {
        "parameters": [ID_PARAMETER, describe_parameter("name", "path", "The tool's name.")],
        "delete": describe_operation(
            "retractPermission",
            "Remove a tool's lasting permission, a denial as well as an approval.",
            {
                "204": {
                    "description": "The tool has no lasting permission.",
                    "headers": dict(REQUEST_ID_HEADER),
                }
            },
            *CONVERSATION_ERRORS,
            "conversation_busy",
            "server_busy",
        ),
    },
    "/conversations/{id}/messages": {
        "parameters": [ID_PARAMETER],
        "get": describe_operation(
            "getMessages",
            "A page of messages, oldest first.",
            {"200": json_response("The page.", schema_reference("MessagesView"))},
            *CONVERSATION_ERRORS,
            parameters=[
                describe_parameter(
                    "after",
                    "query",
                    "How many messages to pass over.",
                    {"type": "integer", "minimum": 0, "default": 0},
                ),
                describe_parameter(
                    "limit",
                    "query",
                    "How many to give at most.",
                    {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": _MAX_LIMIT,
                        "default": _DEFAULT_LIMIT,
                    },
                ),
            ],
        ),
    },
    "/conversations/{id}/stream": {
        "parameters": [ID_PARAMETER],
        "get": describe_operation(
            "streamRun",
            "Follow a run: the newest or another one from its start, or any from the last event "
            "that was seen.",
            run_responses(
                headers={
                    "X-Conversation-Id": {"schema": {"type": "string"}},
                    "X-Run-Id": {"schema": {"type": "string"}},
                },
                example="id: run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O.1-4\ndata: [DONE]\n\n",
            ),
            *CONVERSATION_ERRORS,
            "run_not_found",
            "invalid_cursor",
            "cursor_expired",
            *RUN_ERRORS,
            parameters=[
                WAIT,
                *FOLLOW_PARAMETERS,
                describe_parameter(
                    "include", "query", "As in `/send-message`, separated by commas."
                ),
            ],
        ),
    },
    "/conversations/{id}/events": {
        "parameters": [ID_PARAMETER],
        "get": describe_operation(
            "watchConversation",
            "Follow a conversation: what is said in it, in all its runs, whoever begins them. From "
            "the last event that was seen; else from the start of the current run, or from now.",
            {
                "200": {
                    "description": "The events, until the conversation is deleted. `rewind` and "
                    "`run` are always included.",
                    "headers": {
                        **REQUEST_ID_HEADER,
                        "X-Conversation-Id": {"schema": {"type": "string"}},
                    },
                    "content": {
                        "text/event-stream": {
                            "schema": {"type": "string"},
                            "x-event-schema": {
                                "anyOf": [
                                    schema_reference("NativeEvent"),
                                    schema_reference("PostedEvent"),
                                    schema_reference("SwitchedEvent"),
                                    schema_reference("DeletedEvent"),
                                ]
                            },
                            "example": _EXAMPLE_EVENTS,
                        }
                    },
                }
            },
            *CONVERSATION_ERRORS,
            "not_acceptable",
            "invalid_cursor",
            "cursor_expired",
            parameters=[
                *SINCE_PARAMETERS,
                describe_parameter(
                    "include", "query", "As in `/send-message`, separated by commas."
                ),
                describe_parameter(
                    "absent",
                    "query",
                    "`wait`: a conversation that does not exist is waited for, unless there is a "
                    "last event id; `refuse` (the default): it is a 404.",
                ),
            ],
        ),
    },
    "/conversations/{id}/cancel": {
        "parameters": [ID_PARAMETER],
        "post": describe_operation(
            "cancelRun",
            "Stop a run, the current one if none is named. Its answer so far is kept.",
            {
                "200": json_response(
                    "No run was named, and none went on or waited.",
                    schema_reference("CancelView"),
                    example={"cancelled": False},
                ),
                "202": json_response(
                    "The run has been asked to end, or has left the queue.",
                    schema_reference("CancelView"),
                    example={"cancelled": True},
                ),
            },
            *CONVERSATION_ERRORS,
            *BODY_ERRORS[1:],  # the first is in CONVERSATION_ERRORS
            "run_not_found",
            "conflict",
            parameters=[
                describe_parameter("runId", "query", "Which run; the body may name it instead.")
            ],
            requestBody=json_body(
                schema_reference("CancelRun"),
                required=False,
                example={"runId": "run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O"},
            ),
        ),
    },
    "/healthz": {
        "get": describe_operation(
            "isAlive",
            "Whether the process is alive.",
            {
                "200": json_response(
                    "The process is alive.",
                    schema_reference("HealthView"),
                    example={"status": "ok"},
                )
            },
        )
    },
    "/readyz": {
        "get": describe_operation(
            "isReady",
            "Whether new posts can be served: the store answers, and the server is not about to "
            "stop.",
            {
                "200": json_response(
                    "New posts can be served.",
                    schema_reference("HealthView"),
                    example={"status": "ready"},
                )
            },
            *STORE_ERRORS,
            "shutting_down",
        )
    },
}
