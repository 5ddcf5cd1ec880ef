"""The route of the conversations of an owner: listed by their titles, or erased."""

from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from passback.core.changes import ConversationPlace, ListedConversation
from passback.core.errors import InvalidRequest, NotAllowed
from passback.core.titles import MAX_TITLE
from passback.http.answers import json_answer, lister_of
from passback.http.requests import number_parameter, parse_place
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire
from passback.native.openapi import (
    STORE_ERRORS,
    describe_operation,
    describe_parameter,
    json_response,
    schema_reference,
)
from passback.native.times import utc_timestamp

_DEFAULT_LIMIT = 20
_MAX_LIMIT = 100
_ERASED_AT_ONCE = 100  # conversations of one request


class ListedConversationView(TypedDict):
    """A conversation in a list.

    `status` is `waiting` if nothing runs and the client has to answer `owed` calls. `runId` is the
    newest run, and `cursor` its last stored event: a stream goes on behind it.
    """

    id: str
    title: str
    createdAt: str
    updatedAt: str
    status: Literal["idle", "running", "waiting"]
    runId: str | None
    owed: int
    cursor: str | None


class ConversationsView(TypedDict):
    """A page of conversations. `next` is the `after` of the next page, null at the end."""

    conversations: list[ListedConversationView]
    next: str | None


class ErasedView(TypedDict):
    """The result of a step. `more`: there are other conversations; repeat the request."""

    deleted: int
    more: bool


def build(services: Services, /) -> Wire:
    async def list_conversations(request: Request) -> Response:
        owner, given = lister_of(request), request.query_params
        limit = number_parameter(request, "limit", _DEFAULT_LIMIT, most=_MAX_LIMIT, least=1)
        search = given.get("search", "")
        if len(search) > MAX_TITLE:
            raise InvalidRequest(f"search has {len(search)} characters, {MAX_TITLE} at most")
        cursor = given.get("after")
        after = None if cursor is None else ConversationPlace(*parse_place(cursor, "after"))
        page = await services.runs.conversations(owner, after=after, limit=limit, search=search)
        shown: ConversationsView = {
            "conversations": [_listed_view(each) for each in page.conversations],
            "next": f"{page.next.updated}-{page.next.tag}" if page.next else None,
        }
        return json_answer(request.scope, shown)

    async def erase_conversations(request: Request) -> Response:
        if "owner" in request.query_params:
            raise NotAllowed(
                "a key erases the conversations of its own owner only; the server's operator can "
                "erase those of others: passback erase --owner NAME"
            )
        erased = await services.runs.erase(lister_of(request), limit=_ERASED_AT_ONCE)
        shown: ErasedView = {"deleted": erased.deleted, "more": erased.more}
        return json_answer(request.scope, shown)

    async def answer_conversations(request: Request) -> Response:
        erases = request.method == "DELETE"
        return await (erase_conversations if erases else list_conversations)(request)

    return Wire(
        routes=[
            Endpoint(
                "/conversations",
                answer_conversations,
                methods=["GET", "DELETE"],
                query={"GET": ["limit", "after", "search"], "DELETE": ["owner"]},
            )
        ],
        paths=_PATHS,
        types=(ConversationsView, ErasedView),
    )


def _listed_view(listed: ListedConversation) -> ListedConversationView:
    status = listed.status
    # nobody can answer calls whose time has ended: the conversation goes on without the answers
    owed = 0 if status.overdue else len(status.owed)
    idle: Literal["idle", "waiting"] = "waiting" if owed else "idle"
    return {
        "id": listed.key.id,
        "title": status.title,
        "createdAt": utc_timestamp(status.created),
        "updatedAt": utc_timestamp(status.updated),
        "status": "running" if status.running else idle,
        "runId": status.run_id,
        "owed": owed,
        "cursor": None if status.run_id is None else f"{status.run_id}.{status.logged}",
    }


_PATHS: Mapping[str, JsonValue] = {
    "/conversations": {
        "get": describe_operation(
            "listConversations",
            "The conversations of an owner, the one first that a client changed last.",
            {
                "200": json_response(
                    "A page. It may be short, or empty, and not the last one: `next` tells.",
                    schema_reference("ConversationsView"),
                    example={
                        "conversations": [
                            {
                                "id": "6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51",
                                "title": "Make the page blue",
                                "createdAt": "2026-01-31T11:58:00.000Z",
                                "updatedAt": "2026-01-31T12:00:00.000Z",
                                "status": "waiting",
                                "runId": "run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O",
                                "owed": 1,
                                "cursor": "run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O.1-9",
                            }
                        ],
                        "next": "1769860800000000-0123456789abcdef0123456789abcdef",
                    },
                )
            },
            "invalid_request",
            "invalid_cursor",
            "keys_needed",
            *STORE_ERRORS,
            parameters=[
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
                describe_parameter(
                    "search",
                    "query",
                    "Only those whose title contains this, in upper or lower case.",
                    {"type": "string", "maxLength": MAX_TITLE},
                ),
            ],
        ),
        "delete": describe_operation(
            "eraseConversations",
            "Delete all conversations of the owner, with their runs and messages: some by each "
            "request, until `more` is false.",
            {
                "200": json_response(
                    "How many are gone by this request.",
                    schema_reference("ErasedView"),
                    example={"deleted": 100, "more": True},
                )
            },
            "invalid_request",
            "not_allowed",
            "keys_needed",
            *STORE_ERRORS,
            parameters=[
                describe_parameter(
                    "owner", "query", "Always refused: a key erases what is its own owner's."
                )
            ],
        ),
    },
}
