"""The routes of owed calls.

The inbox lists all calls that wait for an answer. A claim makes sure that one client, and no other,
runs a call.
"""

from collections.abc import Mapping
from typing import Annotated, NotRequired

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from passback.core.changes import InboxPlace
from passback.core.errors import InvalidRequest
from passback.core.messages import CallId, OwedKind
from passback.http.answers import empty_answer, json_answer, lister_of
from passback.http.body import read_object, read_optional_object
from passback.http.requests import number_parameter, parse_place, validate_model
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire
from passback.native.history import owed_views
from passback.native.openapi import (
    BODY_ERRORS,
    REQUEST_ID_HEADER,
    STORE_ERRORS,
    describe_operation,
    describe_parameter,
    json_body,
    json_response,
    schema_reference,
)
from passback.native.parts import Posted
from passback.native.times import utc_timestamp
from passback.wire.rest.conversations import (
    CONVERSATION_ERRORS,
    ID_PARAMETER,
    conversation_key,
)

_CLAIM = "/conversations/{id}/tool-calls/{callId}/claim"
_MAX_SECONDS = 600
_DEFAULT_LIMIT = 100
_MAX_LIMIT = 1000
_Claimant = Annotated[str, Field(min_length=1, max_length=128)]


class ClaimCall(Posted):
    """A claim. `claimant` is any text that the client keeps while it works, such as a UUID.

    It is not a secret.
    """

    claimant: _Claimant
    seconds: Annotated[int, Field(ge=1, le=_MAX_SECONDS)] = 30


class DropClaim(Posted):
    """The claimant that gives its claim back; the query may name it instead."""

    claimant: _Claimant | None = None


class ClaimView(TypedDict):
    """A claim that holds until `expiresAt`, an RFC 3339 time in UTC.

    Claiming again before that renews it.
    """

    callId: str
    claimant: str
    expiresAt: str


class InboxCallView(TypedDict):
    """A call that waits for an answer, as its conversation shows it, with the conversation's id."""

    conversationId: str
    runId: str | None
    id: str
    name: str
    arguments: str
    kind: OwedKind
    reason: NotRequired[str]
    parentToolCallId: NotRequired[str]
    deadline: str | None
    claimedUntil: str | None


class InboxView(TypedDict):
    """A page of calls, oldest first. `next` is the `after` of the next page, null at the end."""

    toolCalls: list[InboxCallView]
    next: str | None


def build(services: Services, /) -> Wire:
    wire = _Calls(services)
    return Wire(
        routes=[
            Endpoint(
                "/tool-calls",
                wire.get_inbox,
                methods=["GET"],
                query={"GET": ["status", "after", "limit"]},
            ),
            Endpoint(
                _CLAIM,
                wire.change_claim,
                methods=["POST", "DELETE"],
                query={"DELETE": ["claimant"]},
            ),
        ],
        paths=_PATHS,
        types=(ClaimCall, DropClaim, ClaimView, InboxView),
    )


class _Calls:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    async def get_inbox(self, request: Request) -> Response:
        owner = lister_of(request)
        given = request.query_params
        if given.get("status") != "owed":
            raise InvalidRequest("status has to be owed: which calls to list")
        limit = number_parameter(request, "limit", _DEFAULT_LIMIT, most=_MAX_LIMIT, least=1)
        cursor = given.get("after")
        after = None if cursor is None else InboxPlace(*parse_place(cursor, "after"))
        page = await self._runs.inbox(owner, after=after, limit=limit)
        shown: InboxView = {
            "toolCalls": [
                {"conversationId": each.key.id, "runId": each.status.run_id, **call}
                for each in page.owing
                for call in owed_views(each.status)
            ],
            "next": f"{page.next.since}-{page.next.tag}" if page.next else None,
        }
        return json_answer(request.scope, shown)

    async def change_claim(self, request: Request) -> Response:
        key, call_id = conversation_key(request), CallId(request.path_params["callId"])
        limits, bodies = self._services.limits, self._services.bodies
        if request.method == "DELETE":
            dropped = validate_model(DropClaim, await read_optional_object(request, limits, bodies))
            # the query may name the claimant: many programs cannot send a body with a DELETE
            named = request.query_params.get("claimant")
            if named is not None and dropped.claimant not in {None, named}:
                raise InvalidRequest("the body and the query name two different claimants")
            # `ClaimCall` has the bounds of a claimant, and refuses a missing one
            claim = validate_model(ClaimCall, {"claimant": dropped.claimant or named})
            await self._runs.release_call(key, call_id, claim.claimant)
            return empty_answer(request.scope)
        asked = validate_model(ClaimCall, await read_object(request, limits, bodies))
        held = await self._runs.claim_call(key, call_id, asked.claimant, seconds=asked.seconds)
        shown: ClaimView = {
            "callId": call_id,
            "claimant": asked.claimant,
            "expiresAt": utc_timestamp(held.until),
        }
        return json_answer(request.scope, shown)


_CALL_ID_PARAMETER = describe_parameter("callId", "path", "The call's id, percent-encoded.")
_CLAIMANT_PARAMETER = describe_parameter(
    "claimant", "query", "Who gives the claim back; the body may say it instead."
)
_EXAMPLE_CLAIM: Mapping[str, JsonValue] = {
    "callId": "call_693FyNLtTkEYVaTmsgaHHi7FXgdN3QfLF9",
    "claimant": "tab-7f3a",
    "expiresAt": "2026-01-31T12:00:30.000Z",
}
_CLAIM_ERRORS = (
    *CONVERSATION_ERRORS,
    *BODY_ERRORS[1:],  # the first is in CONVERSATION_ERRORS
    "tool_call_not_found",
    "tool_result_conflict",
    "call_claimed",
    "conversation_busy",
)
_PATHS: Mapping[str, JsonValue] = {
    "/tool-calls": {
        "get": describe_operation(
            "getToolCalls",
            "Every call that waits for its result, in all conversations, oldest first.",
            {
                "200": json_response(
                    "A page of whole conversations. One that owes more than `limit` calls is a "
                    "page of its own.",
                    schema_reference("InboxView"),
                )
            },
            "invalid_request",
            "invalid_cursor",
            "keys_needed",
            *STORE_ERRORS,
            parameters=[
                describe_parameter(
                    "status", "query", "Which calls.", {"const": "owed"}, required=True
                ),
                describe_parameter("after", "query", "The `next` of the page before."),
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
    _CLAIM: {
        "parameters": [ID_PARAMETER, _CALL_ID_PARAMETER],
        "post": describe_operation(
            "claimToolCall",
            "Claim a call that waits for its result, or renew the claim: no other client can, "
            "until it is over.",
            {
                "200": json_response(
                    "The claim holds.", schema_reference("ClaimView"), example=dict(_EXAMPLE_CLAIM)
                )
            },
            *_CLAIM_ERRORS,
            requestBody=json_body(
                schema_reference("ClaimCall"), example={"claimant": "tab-7f3a", "seconds": 30}
            ),
        ),
        "delete": describe_operation(
            "dropToolCallClaim",
            "Give a claim back. A call that is answered has none: that is no error.",
            {
                "204": {
                    "description": "The claim is given back.",
                    "headers": dict(REQUEST_ID_HEADER),
                }
            },
            *[code for code in _CLAIM_ERRORS if code != "tool_result_conflict"],
            parameters=[_CLAIMANT_PARAMETER],
            requestBody=json_body(
                schema_reference("DropClaim"), required=False, example={"claimant": "tab-7f3a"}
            ),
        ),
    },
}
