"""The forms in which a run is answered: events, plain text, or one document. The request says which."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from passback.core.errors import InvalidRequest
from passback.core.events import HandedBack, RunFinished
from passback.core.messages import RunRef
from passback.core.ports import Parked
from passback.core.values import value
from passback.transport.frames import EventId
from passback.transport.headers import headers_of
from passback.transport.http import json_answer, run_headers
from passback.transport.native import DONE, NativeEncoder, native_data, owed_event
from passback.transport.negotiation import accepted
from passback.transport.plain import TEXT, PlainEncoder
from passback.transport.requests import whole_number
from passback.transport.sse import EventStream, opening_comment, stream_headers
from passback.transport.waiting import MOST_SECONDS, WaitedAnswer, parked_view
from passback.transport.wires import Services

EVENTS_TYPE, DOCUMENT_TYPE, TEXT_TYPE = "text/event-stream", "application/json", "text/plain"


@value
class Asked:
    """What a client wants to get: a media type, and for a document how many seconds it may take."""

    media_type: str
    seconds: int


def asked_form(request: Request, /) -> Asked:
    """Read `?wait=` and `Accept`.

    Raises:
        InvalidRequest: `wait` is neither true, false nor a number of seconds.
        NotAcceptable: the client takes none of the forms, or not the one document that it wants to wait for.
    """
    # mostly there is no query, and none is parsed
    asked = request.query_params.get("wait") if request.scope["query_string"] else None
    seconds = None if asked is None else _wait(asked)
    offers = [DOCUMENT_TYPE] if seconds else [EVENTS_TYPE, DOCUMENT_TYPE, TEXT_TYPE]
    media_type = accepted(", ".join(headers_of(request.scope).all(b"accept")), offers)
    return Asked(media_type, seconds or MOST_SECONDS)


def _wait(given: str) -> int | None:
    match given:
        case "false":
            return None
        case "true":
            return MOST_SECONDS
        case _ if (seconds := whole_number(given, least=1, most=MOST_SECONDS)) is not None:
            return seconds
        case _:
            raise InvalidRequest(
                f"wait has to be true, false, or a number of seconds from 1 to {MOST_SECONDS}",
                details={"parameter": "wait"},
            )


def run_answer(
    services: Services,
    asked: Asked,
    run: RunRef,
    /,
    *,
    include: frozenset[str],
    since: EventId | None,
) -> ASGIApp:
    """The answer that follows a run; a document is always of the whole run, whatever the client has seen."""
    if asked.media_type == DOCUMENT_TYPE:
        return WaitedAnswer(services, run, seconds=asked.seconds)
    if asked.media_type == TEXT_TYPE:
        return EventStream(services, run, PlainEncoder(), since, form=TEXT)
    return EventStream(services, run, NativeEncoder(include), since)


def parked_answer(
    scope: Scope, asked: Asked, parked: Parked, /, *, include: frozenset[str]
) -> Response:
    """The answer to results that are stored while others are still owed: no run, no events."""
    ids = [owed.id for owed in parked.owed]
    missing = {"x-owed-tool-calls": ",".join(ids)}
    if asked.media_type == DOCUMENT_TYPE:
        headers = run_headers(parked.key.id, None) | missing
        return json_answer(scope, parked_view(parked), headers=headers)
    if asked.media_type == TEXT_TYPE:
        text = PlainEncoder().feed(RunFinished(HandedBack(parked.owed)))
        headers = stream_headers(scope, parked.key.id, media_type=TEXT.media_type)
        return Response("".join(text), headers=headers | missing)
    data = [native_data(owed_event(parked.owed))] if "owed" in include else []
    frames = [opening_comment(parked.key.id), f": still owed: {' '.join(ids)}\n\n"]
    frames += [f"data: {each}\n\n" for each in (*data, DONE)]
    return Response("".join(frames), headers=stream_headers(scope, parked.key.id) | missing)
