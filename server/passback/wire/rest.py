"""Our own routes, for the conversations of every wire: look, page through, follow, cancel, delete; health."""

from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from passback.core.errors import InvalidRequest, UnknownRun
from passback.core.messages import ConversationKey, RunId, RunRef
from passback.transport.frames import EventId
from passback.transport.history import MessageView, view
from passback.transport.http import json_answer, owner_of, request_id
from passback.transport.native import NativeEncoder, OwedCall, owed_call
from passback.transport.openapi import (
    GATE_ERRORS,
    REQUEST_ID_HEADER,
    STORE_ERRORS,
    error_responses,
    json_response,
    reference,
    schemas_of,
    stream_response,
)
from passback.transport.requests import conversation_id
from passback.transport.routing import Endpoint
from passback.transport.sse import EventStream, last_event_id
from passback.transport.wires import Services, Wire

_PAGE = 100
_LARGEST_PAGE = 1000


class ConversationView(TypedDict):
    """A conversation without its messages. `runId` is the newest run; `owed` is what the client has to answer."""

    id: str
    status: Literal["idle", "running"]
    runId: str | None
    owed: list[OwedCall]
    messageCount: int


class MessagesView(TypedDict):
    """Some messages, oldest first. `next` is the `after` of the next page, null at the end."""

    messages: list[MessageView]
    next: int | None
    total: int


class CancelView(TypedDict):
    """`cancelled` is false when nothing was running."""

    cancelled: bool


class HealthView(TypedDict):
    status: Literal["ok", "ready"]


def build(services: Services, /) -> Wire:
    wire = _Rest(services)
    return Wire(
        routes=[
            Endpoint("/conversations/{id}", wire.conversation, methods=["GET", "DELETE"]),
            Endpoint("/conversations/{id}/messages", wire.messages, methods=["GET"]),
            Endpoint("/conversations/{id}/stream", wire.stream, methods=["GET"]),
            Endpoint("/conversations/{id}/cancel", wire.cancel, methods=["POST"]),
            Endpoint("/healthz", wire.alive, methods=["GET"]),
            Endpoint("/readyz", wire.ready, methods=["GET"]),
            Endpoint("/openapi.json", wire.describe, methods=["GET"]),
        ],
        paths=_PATHS,
        schemas=schemas_of(ConversationView, MessagesView, CancelView, HealthView),
        public=frozenset({"/healthz", "/readyz"}),
    )


class _Rest:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    async def conversation(self, request: Request) -> Response:
        key = _key(request)
        if request.method == "DELETE":
            await self._runs.delete(key)
            return Response(status_code=204, headers={"x-request-id": request_id(request.scope)})
        status = await self._runs.status(key)
        shown: ConversationView = {
            "id": key.id,
            "status": "running" if status.running else "idle",
            "runId": status.run_id,
            "owed": [owed_call(owed) for owed in status.owed],
            "messageCount": status.message_count,
        }
        return json_answer(request.scope, shown)

    async def messages(self, request: Request) -> Response:
        start = _count(request, "after", 0, most=2**53)
        limit = _count(request, "limit", _PAGE, most=_LARGEST_PAGE, least=1)
        page = await self._runs.messages(_key(request), start=start, limit=limit)
        end = page.start + len(page.messages)
        shown: MessagesView = {
            "messages": [view(message) for message in page.messages],
            "next": end if page.messages and end < page.total else None,
            "total": page.total,
        }
        return json_answer(request.scope, shown)

    async def stream(self, request: Request) -> ASGIApp:
        """The newest run from its start, or the run that the client was following, from where it stopped."""
        key = _key(request)
        since = last_event_id(request) or _first_connect(request)
        run_id = since.cursor.run_id if since else await self._newest_run(key)
        encoder = NativeEncoder(frozenset(request.query_params.get("include", "").split(",")))
        return EventStream(self._services, RunRef(key, run_id), encoder, since)

    async def _newest_run(self, key: ConversationKey) -> RunId:
        run_id = (await self._runs.status(key)).run_id
        if run_id is None:
            raise UnknownRun("this conversation has had no run")
        return run_id

    async def cancel(self, request: Request) -> Response:
        key = _key(request)
        status = await self._runs.status(key)
        cancelled = False
        if status.running and status.run_id is not None:
            cancelled = await self._runs.cancel(RunRef(key, status.run_id))
        return json_answer(
            request.scope, {"cancelled": cancelled}, status=202 if cancelled else 200
        )

    async def alive(self, request: Request) -> Response:
        return json_answer(request.scope, {"status": "ok"})

    async def ready(self, request: Request) -> Response:
        await self._runs.ready()
        return json_answer(request.scope, {"status": "ready"})

    async def describe(self, request: Request) -> Response:
        return json_answer(request.scope, self._services.describe())


# ---------------------------------------------------------------- what is asked
def _key(request: Request) -> ConversationKey:
    return ConversationKey(owner_of(request), conversation_id(request.path_params["id"]))


def _first_connect(request: Request) -> EventId | None:
    """An EventSource cannot set headers when it first connects."""
    given = request.query_params.get("lastEventId")
    return EventId.parse(given) if given else None


def _count(request: Request, name: str, default: int, *, most: int, least: int = 0) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    is_number = given.isascii() and given.isdigit() and len(given) <= 16
    if not is_number or not least <= int(given) <= most:
        raise InvalidRequest(f"{name} has to be a number from {least} to {most}")
    return int(given)


# ---------------------------------------------------------------- its description
def _operation(
    operation_id: str,
    summary: str,
    responses: Mapping[str, JsonValue],
    *codes: str,
    parameters: list[JsonValue] | None = None,
) -> dict[str, JsonValue]:
    return {
        "operationId": operation_id,
        "summary": summary,
        **({"parameters": parameters} if parameters else {}),
        "responses": {**responses, **error_responses(*codes, *GATE_ERRORS)},
    }


def _parameter(
    name: str, where: str, description: str, schema: Mapping[str, JsonValue] | None = None
) -> JsonValue:
    return {
        "name": name,
        "in": where,
        "required": where == "path",
        "description": description,
        "schema": dict(schema or {"type": "string"}),
    }


_ID = _parameter(
    "id",
    "path",
    "The conversation's id, percent-encoded.",
    {"type": "string", "minLength": 1, "maxLength": 256},
)
_OF_CONVERSATION = ("invalid_request", "conversation_not_found", "bad_request", *STORE_ERRORS)
_SINCE = "The `id` of the event that was seen last: what came after it is sent."
_PATHS: Mapping[str, JsonValue] = {
    "/conversations/{id}": {
        "parameters": [_ID],
        "get": _operation(
            "getConversation",
            "How a conversation stands, and what the client owes.",
            {
                "200": json_response(
                    "The conversation.",
                    reference("ConversationView"),
                    example={
                        "id": "6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51",
                        "status": "idle",
                        "runId": "run_5f0c2a9be1d84f6a7c3e9b10",
                        "owed": [],
                        "messageCount": 2,
                    },
                )
            },
            *_OF_CONVERSATION,
        ),
        "delete": _operation(
            "deleteConversation",
            "Remove a conversation, its runs and what they said.",
            {"204": {"description": "It is gone.", "headers": dict(REQUEST_ID_HEADER)}},
            *_OF_CONVERSATION,
        ),
    },
    "/conversations/{id}/messages": {
        "parameters": [_ID],
        "get": _operation(
            "getMessages",
            "A page of messages, oldest first.",
            {"200": json_response("The page.", reference("MessagesView"))},
            *_OF_CONVERSATION,
            parameters=[
                _parameter(
                    "after",
                    "query",
                    "How many messages to pass over.",
                    {"type": "integer", "minimum": 0, "default": 0},
                ),
                _parameter(
                    "limit",
                    "query",
                    "How many to give at most.",
                    {"type": "integer", "minimum": 1, "maximum": _LARGEST_PAGE, "default": _PAGE},
                ),
            ],
        ),
    },
    "/conversations/{id}/stream": {
        "parameters": [_ID],
        "get": _operation(
            "streamRun",
            "Follow a run: the newest from its start, or any from the last event that was seen.",
            {
                "200": stream_response(
                    "The run's events, to its end; `[DONE]` is last.",
                    headers={
                        "X-Conversation-Id": {"schema": {"type": "string"}},
                        "X-Run-Id": {"schema": {"type": "string"}},
                    },
                    example="id: run_5f0c2a9be1d84f6a7c3e9b10.1-4\ndata: [DONE]\n\n",
                )
            },
            *_OF_CONVERSATION,
            "run_not_found",
            "invalid_cursor",
            parameters=[
                _parameter("Last-Event-ID", "header", _SINCE),
                _parameter("lastEventId", "query", f"{_SINCE} For the first connect."),
                _parameter("include", "query", "As in `/send-message`, separated by commas."),
            ],
        ),
    },
    "/conversations/{id}/cancel": {
        "parameters": [_ID],
        "post": _operation(
            "cancelRun",
            "Stop the run that is going on; what it said so far is kept.",
            {
                "200": json_response(
                    "Nothing was running.", reference("CancelView"), example={"cancelled": False}
                ),
                "202": json_response(
                    "The run has been asked to end.",
                    reference("CancelView"),
                    example={"cancelled": True},
                ),
            },
            *_OF_CONVERSATION,
        ),
    },
    "/healthz": {
        "get": _operation(
            "isAlive",
            "Whether the process is alive.",
            {"200": json_response("It is.", reference("HealthView"), example={"status": "ok"})},
        )
    },
    "/readyz": {
        "get": _operation(
            "isReady",
            "Whether new posts can be served: the store answers, and the server is not about to stop.",
            {
                "200": json_response(
                    "They can.", reference("HealthView"), example={"status": "ready"}
                )
            },
            *STORE_ERRORS,
            "shutting_down",
        )
    },
    "/openapi.json": {
        "get": _operation(
            "describe",
            "This document.",
            {"200": json_response("It.", {"type": "object"})},
        )
    },
}
