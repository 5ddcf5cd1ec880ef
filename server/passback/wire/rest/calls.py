"""The routes of what clients owe: one of them claims a call, so that no other one runs it too."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from passback.core.errors import InvalidRequest
from passback.core.messages import CallId
from passback.transport.body import read_object, read_optional_object
from passback.transport.history import instant
from passback.transport.http import json_answer, request_id
from passback.transport.openapi import (
    BODY_ERRORS,
    REQUEST_ID_HEADER,
    json_body,
    json_response,
    operation,
    parameter,
    reference,
    schemas_of,
)
from passback.transport.parts import Posted
from passback.transport.requests import validated
from passback.transport.routing import Endpoint
from passback.transport.wires import Services, Wire
from passback.wire.rest.asked import ID, OF_CONVERSATION, key_of

_CLAIM = "/conversations/{id}/tool-calls/{callId}/claim"
_MOST_SECONDS = 600
_Claimant = Annotated[str, Field(min_length=1, max_length=128)]


class ClaimCall(Posted):
    """Who claims: any text that the client keeps while it works, such as a UUID. It is no secret."""

    claimant: _Claimant
    seconds: Annotated[int, Field(ge=1, le=_MOST_SECONDS)] = 30


class DropClaim(Posted):
    """Whose claim is given back; the address may say it instead."""

    claimant: _Claimant | None = None


class ClaimView(TypedDict):
    """The claim holds until `expiresAt`, an RFC 3339 time in UTC; claiming again before that renews it."""

    callId: str
    claimant: str
    expiresAt: str


def build(services: Services, /) -> Wire:
    wire = _Calls(services)
    return Wire(
        routes=[Endpoint(_CLAIM, wire.claim, methods=["POST", "DELETE"])],
        paths=_PATHS,
        schemas=schemas_of(ClaimCall, DropClaim, ClaimView),
    )


class _Calls:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    async def claim(self, request: Request) -> Response:
        key, call_id = key_of(request), CallId(request.path_params["callId"])
        if request.method == "DELETE":
            await self._runs.drop(key, call_id, await self._claimant(request))
            return Response(status_code=204, headers={"x-request-id": request_id(request.scope)})
        asked = validated(ClaimCall, await read_object(request, self._services.limits))
        held = await self._runs.hold(key, call_id, asked.claimant, seconds=asked.seconds)
        shown: ClaimView = {
            "callId": call_id,
            "claimant": asked.claimant,
            "expiresAt": instant(held.until),
        }
        return json_answer(request.scope, shown)

    async def _claimant(self, request: Request) -> str:
        """Whose claim is given back: many programs send no body with a DELETE."""
        posted = validated(DropClaim, await read_optional_object(request, self._services.limits))
        named = request.query_params.get("claimant")
        if named is not None and posted.claimant not in {None, named}:
            raise InvalidRequest("the body and the address name two different claimants")
        return validated(ClaimCall, {"claimant": posted.claimant or named}).claimant


# ---------------------------------------------------------------- its description
_CALL_ID = parameter("callId", "path", "The call's id, percent-encoded.")
_CLAIMANT = parameter("claimant", "query", "Who gives the claim back; the body may say it instead.")
_EXAMPLE: Mapping[str, JsonValue] = {
    "callId": "call_0b6f4c1d2e3a495867f8a9b0",
    "claimant": "tab-7f3a",
    "expiresAt": "2026-01-31T12:00:30.000Z",
}
_CODES = (
    *OF_CONVERSATION,
    *BODY_ERRORS[1:],
    "tool_call_not_found",
    "tool_result_conflict",
    "call_claimed",
    "conversation_busy",
)
_PATHS: Mapping[str, JsonValue] = {
    _CLAIM: {
        "parameters": [ID, _CALL_ID],
        "post": operation(
            "claimToolCall",
            "Claim a call that waits for its result, or renew the claim: no other client can, until it is over.",
            {
                "200": json_response(
                    "The claim holds.", reference("ClaimView"), example=dict(_EXAMPLE)
                )
            },
            *_CODES,
            requestBody=json_body(
                reference("ClaimCall"), example={"claimant": "tab-7f3a", "seconds": 30}
            ),
        ),
        "delete": operation(
            "dropToolCallClaim",
            "Give a claim back. A call that is answered has none: that is no error.",
            {
                "204": {
                    "description": "This claim holds no longer.",
                    "headers": dict(REQUEST_ID_HEADER),
                }
            },
            *[code for code in _CODES if code != "tool_result_conflict"],
            parameters=[_CLAIMANT],
            requestBody=json_body(
                reference("DropClaim"), required=False, example={"claimant": "tab-7f3a"}
            ),
        ),
    },
}
