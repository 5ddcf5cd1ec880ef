"""The conversation to which a post belongs."""

from collections.abc import Iterable

from starlette.requests import Request

from passback.core.ids import MadeId, tag_of
from passback.core.messages import ConversationKey
from passback.core.runs import Runs
from passback.http.answers import may_list, owner_of
from passback.http.requests import headers_of, idempotency_key, posted_conversation_id


async def posted_conversation(
    request: Request, runs: Runs, given: str | None, named: Iterable[MadeId], /
) -> ConversationKey:
    """Return the conversation of a post.

    It is the `given` one. Without that, it is the one in which the server made an id that the post
    has `named`, such as that of a call; and a new one if there is none. Where the ids of
    conversations are secrets (`Access.may_list`), no other id stands for them.

    Raises:
        BadRequest, InvalidRequest: as `idempotency_key` and `check_conversation_id` raise them.
    """
    owner, key = owner_of(request), idempotency_key(headers_of(request.scope))
    if given is None and may_list(request.scope):
        made = next((each for each in named if tag_of(each)), None)
        found = None if made is None else await runs.locate(owner, made)
        if found is not None:
            return found
    return ConversationKey(owner, posted_conversation_id(owner, key, given))
