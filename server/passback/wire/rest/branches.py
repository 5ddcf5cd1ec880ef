"""The routes of a conversation's branches: switch to another one, fork the conversation."""

from collections.abc import Mapping

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from passback.core.messages import ConversationKey, MessageId
from passback.http.answers import json_answer
from passback.http.body import read_object, read_optional_object
from passback.http.requests import (
    OptionalId,
    PostedId,
    headers_of,
    idempotency_key,
    posted_conversation_id,
    validate_model,
)
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire
from passback.native.history import read_conversation
from passback.native.openapi import (
    BODY_ERRORS,
    describe_operation,
    json_body,
    json_response,
    schema_reference,
)
from passback.native.parts import Posted
from passback.wire.rest.conversations import CONVERSATION_ERRORS, ID_PARAMETER, conversation_key

_LEAF = "/conversations/{id}/leaf"
_FORK = "/conversations/{id}/fork"


class SwitchBranch(Posted):
    """The branch to read from now on: the one that ends with the newest message behind this one.

    Such as one of the `versions` in a conversation's `branches`.
    """

    message: PostedId


class ForkConversation(Posted):
    """A copy of a conversation.

    `after`: the last message that is copied, of any branch; empty: none is; missing: the last one.
    `conversationId`: the id of the copy; missing: a new one.
    """

    after: OptionalId | None = None
    conversation_id: str | None = Field(default=None, min_length=1, max_length=256)


def build(services: Services, /) -> Wire:
    wire = _Branches(services)
    return Wire(
        routes=[
            Endpoint(_LEAF, wire.switch_branch, methods=["POST"]),
            Endpoint(_FORK, wire.fork_conversation, methods=["POST"]),
        ],
        paths=_PATHS,
        types=(SwitchBranch, ForkConversation),
    )


class _Branches:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    async def switch_branch(self, request: Request) -> Response:
        """Read another branch from now on; answer with the conversation."""
        key = conversation_key(request)
        body = await read_object(request, self._services.limits, self._services.bodies)
        await self._runs.switch(key, MessageId(validate_model(SwitchBranch, body).message))
        return json_answer(request.scope, await read_conversation(self._runs, key))

    async def fork_conversation(self, request: Request) -> Response:
        """Copy a conversation; answer with the copy. A repeat with the same id or key finds it."""
        key = conversation_key(request)
        body = await read_optional_object(request, self._services.limits, self._services.bodies)
        posted = validate_model(ForkConversation, body)
        named = idempotency_key(headers_of(request.scope))
        given = posted.conversation_id
        target = posted_conversation_id(key.owner, named, given, source=key.id)
        copy = ConversationKey(key.owner, target)
        after = None if posted.after is None else MessageId(posted.after)
        await self._runs.fork(key, copy, after=after)
        return json_answer(request.scope, await read_conversation(self._runs, copy), status=201)


_ERRORS = (*CONVERSATION_ERRORS, *BODY_ERRORS[1:], "message_not_found", "conversation_busy")

_PATHS: Mapping[str, JsonValue] = {
    _LEAF: {
        "parameters": [ID_PARAMETER],
        "post": describe_operation(
            "switchBranch",
            "Read another branch of a conversation: `/messages`, runs and posts go on with it.",
            {"200": json_response("The conversation.", schema_reference("ConversationView"))},
            *_ERRORS,
            "conflict",
            "history_too_large",
            "server_busy",
            requestBody=json_body(schema_reference("SwitchBranch"), example={"message": "msg_1"}),
        ),
    },
    _FORK: {
        "parameters": [ID_PARAMETER],
        "post": describe_operation(
            "forkConversation",
            "Copy a conversation, up to its end or up to a message, into a new one.",
            {"201": json_response("The copy.", schema_reference("ConversationView"))},
            *_ERRORS,
            "conflict",
            "history_too_large",
            "server_busy",
            "shutting_down",
            requestBody=json_body(
                schema_reference("ForkConversation"), required=False, example={"after": "msg_2"}
            ),
        ),
    },
}
