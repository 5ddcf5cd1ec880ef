"""The routes of conversations as documents: export, and import by clients that may do that."""

import logging
from collections.abc import AsyncIterator, Mapping

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from passback.core.conversation.document import FORMAT, VERSION
from passback.core.errors import InvalidRequest, PassbackError
from passback.core.messages import ConversationKey
from passback.http.answers import SAFE_HEADERS, json_answer, owner_of, request_id
from passback.http.body import read_document_object
from passback.http.requests import check_conversation_id
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire
from passback.native.documents import read_posted_document, refuse_import
from passback.native.history import ConversationView, conversation_view
from passback.native.openapi import (
    BODY_ERRORS,
    STORE_ERRORS,
    describe_operation,
    describe_parameter,
    json_body,
    json_response,
    schema_reference,
)
from passback.streams.writer import ResponseWriter
from passback.wire.rest.conversations import (
    CONVERSATION_ERRORS,
    ID_PARAMETER,
    conversation_key,
)

logger = logging.getLogger(__name__)

_CHUNK = 2**20  # characters that are sent at once
_EXPORT = "/conversations/{id}/export"
_IMPORT = "/conversations/import"


def build(services: Services, /) -> Wire:
    async def export(request: Request) -> ASGIApp:
        key = conversation_key(request)
        return _ExportResponse(services, await services.runs.export(key))

    async def import_document(request: Request) -> Response:
        refuse_import(services.allow_roles)
        posted = await read_document_object(request, services.limits, services.bodies)
        named = request.query_params.get("id", posted.get("id"))
        if not isinstance(named, str):
            raise InvalidRequest("id: a document has the id of its conversation")
        key = ConversationKey(owner_of(request), check_conversation_id(named))
        document = await read_posted_document(posted, services.limits, key, services.allow_roles)
        await services.runs.import_conversation(key, document)
        shown = conversation_view(key.id, await services.runs.status(key))
        return json_answer(request.scope, shown, status=201)

    return Wire(
        routes=[
            Endpoint(_EXPORT, export, methods=["GET"]),
            Endpoint(_IMPORT, import_document, methods=["POST"], query={"POST": ["id"]}),
        ],
        paths=_PATHS,
        types=(ConversationView,),
    )


class _ExportResponse:
    """A document, sent piece by piece as it is read.

    It is broken off where it cannot be read to its end: no client takes a part for the whole.
    """

    def __init__(self, services: Services, pieces: AsyncIterator[bytes], /) -> None:
        self._services = services
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = ResponseWriter(self._services, scope, receive, send)
        headers = {
            "content-type": "application/json",
            "content-disposition": 'attachment; filename="conversation.json"',
            "cache-control": "no-store",
            **SAFE_HEADERS,
            "x-request-id": request_id(scope),
        }
        raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        await writer.send_head({"type": "http.response.start", "status": 200, "headers": raw})
        is_whole: bool | None = True
        if scope["method"] != "HEAD":
            is_whole = await writer.run(lambda: self._send_pieces(writer, request_id(scope)))
        if is_whole is not None or self._services.stopping.is_set:
            await writer.send_last("", whole=bool(is_whole))

    async def _send_pieces(self, writer: ResponseWriter, request: str) -> bool:
        """Return whether all was sent."""
        try:
            async for piece in self._pieces:
                text = piece.decode()
                for start in range(0, len(text), _CHUNK):
                    await writer.send(text[start : start + _CHUNK])
        except PassbackError as error:
            logger.warning("answer to request %s broken off: %s", request, error.code)
            return False
        return True


_DOCUMENT_SCHEMA: Mapping[str, JsonValue] = {
    "type": "object",
    "required": ["format", "version", "id", "messages"],
    "properties": {
        "format": {"const": FORMAT},
        "version": {"const": VERSION},
        "id": {"type": "string", "minLength": 1, "maxLength": 256},
        "messages": {
            "type": "array",
            "items": {"type": "object", "required": ["role"], "additionalProperties": True},
        },
    },
    "additionalProperties": True,
}
_EXAMPLE: Mapping[str, JsonValue] = {
    "format": FORMAT,
    "version": VERSION,
    "id": "6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51",
    "title": "Hello",
    "leaf": 1,
    "messages": [
        {"role": "user", "id": "msg_693FyNLtTkEYVaTmsgaHHi8vnMdrEyLTyc", "content": "Hello"},
        {"role": "assistant", "id": "msg_693FyNLtTkEYVaTmsgaHHiawtYz6lZXd1M", "content": "Hi!"},
    ],
}

_IMPORT_ERRORS = (
    *BODY_ERRORS,
    "not_allowed",
    "invalid_request",
    "invalid_tool",
    "tool_name_clash",
    "invalid_output_schema",
    "data_too_large",
    "attachment_too_large",
    "history_too_large",
    "schemas_busy",
    "conflict",
    *STORE_ERRORS,
)

_PATHS: Mapping[str, JsonValue] = {
    _EXPORT: {
        "parameters": [ID_PARAMETER],
        "get": describe_operation(
            "exportConversation",
            "A conversation as one JSON document: all branches with their attachments, and what "
            "the next post depends on. During a run: what is committed.",
            {"200": json_response("The document.", dict(_DOCUMENT_SCHEMA), example=dict(_EXAMPLE))},
            *CONVERSATION_ERRORS,
        ),
    },
    _IMPORT: {
        "post": describe_operation(
            "importConversation",
            "Make a conversation from a document, where the server's settings allow clients to "
            "bring messages of the agent.",
            {"201": json_response("The conversation.", schema_reference("ConversationView"))},
            *_IMPORT_ERRORS,
            parameters=[
                describe_parameter(
                    "id", "query", "The id of the conversation; without it, the document's."
                )
            ],
            requestBody=json_body(dict(_DOCUMENT_SCHEMA), example=dict(_EXAMPLE)),
        )
    },
}
