"""Parameters that several of these routes share, and their descriptions."""

from starlette.requests import Request

from passback.core.errors import InvalidRequest
from passback.core.messages import ConversationKey
from passback.http.answers import owner_of
from passback.http.requests import check_conversation_id, parse_whole_number
from passback.native.openapi import STORE_ERRORS, describe_parameter

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


def number_parameter(
    request: Request, name: str, default: int, *, most: int, least: int = 0
) -> int:
    """Return a number of the query, or its default.

    Raises:
        InvalidRequest: it is not a whole number from `least` to `most`.
    """
    given = request.query_params.get(name)
    if given is None:
        return default
    number = parse_whole_number(given, least=least, most=most)
    if number is None:
        raise InvalidRequest(f"{name} has to be a number from {least} to {most}")
    return number
