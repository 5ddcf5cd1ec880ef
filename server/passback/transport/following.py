"""Which run a client asks to follow, and what of it it has seen."""

from starlette.requests import Request

from passback.core.errors import InvalidCursor, UnknownRun
from passback.core.messages import ConversationKey, RunId, RunRef
from passback.core.ports import Runs
from passback.transport.frames import EventId
from passback.transport.openapi import parameter
from passback.transport.requests import run_id
from passback.transport.sse import last_event_id

_SINCE = "The `id` of the event that was seen last: what came after it is sent."
FOLLOWING = (
    parameter("runId", "query", "Which run; it may still wait in the queue."),
    parameter("Last-Event-ID", "header", _SINCE),
    parameter("lastEventId", "query", f"{_SINCE} For the first connect."),
)
"""How a run is asked for, for the OpenAPI document."""
FOLLOWED = ("runId", "lastEventId")
"""Those of its parameters that are in the query."""


async def followed_run(
    request: Request, runs: Runs, key: ConversationKey, /
) -> tuple[RunRef, EventId | None]:
    """The run that the client followed, with the place where it stopped; else the one that it names, else the newest.

    Raises:
        InvalidCursor: an event id that is none of ours, or of another run than the named one.
        UnknownConversation, UnknownRun: there is nothing to follow.
    """
    since = last_event_id(request) or _first_connect(request)
    given = request.query_params.get("runId")
    named = run_id(given) if given else None
    if since is None:
        return RunRef(key, named or await _newest_run(runs, key)), None
    if given not in {None, since.cursor.run_id}:
        raise InvalidCursor("the event id is of another run")
    return RunRef(key, since.cursor.run_id), since


async def _newest_run(runs: Runs, key: ConversationKey) -> RunId:
    newest = (await runs.status(key)).run_id
    if newest is None:
        raise UnknownRun("this conversation has had no run")
    return newest


def _first_connect(request: Request) -> EventId | None:
    """An EventSource cannot set headers when it first connects."""
    given = request.query_params.get("lastEventId")
    return EventId.parse(given) if given else None
