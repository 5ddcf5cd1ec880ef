"""The formats of a run's answer: a stream of events, one JSON document, plain text."""

import json
from collections.abc import Mapping, Sequence
from typing import assert_never

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from passback.core.errors import InvalidCursor, InvalidRequest, UnknownRun
from passback.core.events import (
    Cancelled,
    Completed,
    Cursor,
    Failed,
    HandedBack,
    Outcome,
    RunEvent,
    RunFinished,
    TextDelta,
)
from passback.core.messages import ConversationKey, RunRef
from passback.core.ports import Parked, Runs
from passback.core.values import value
from passback.http.answers import json_answer, run_headers
from passback.http.headers import headers_of
from passback.http.requests import check_run_id, parse_whole_number, preferred_media_type
from passback.http.wires import Services
from passback.native.document import MAX_WAIT_SECONDS, WaitedAnswer, parked_view
from passback.native.encoder import DONE, NativeEncoder, native_data
from passback.native.openapi import describe_parameter
from passback.native.shapes import owed_call, owed_event
from passback.streams.frames import EventId
from passback.streams.sse import (
    EventStream,
    ResponseFormat,
    last_event_id,
    opening_comment,
    stream_headers,
)

# ASCII's record separator, in front of the last line as in JSON text sequences (RFC 7464). It is
# removed from the answer's text.
MARK = "\x1e"


TEXT = ResponseFormat("text/plain; charset=utf-8", lambda _, text: text)


class PlainEncoder:
    """Encodes run events as plain text: the text of the answer, and a newline at its end.

    An outcome other than the end of an answer is one more line: the mark, then a JSON object.
    """

    def __init__(self) -> None:
        self._last_character = "\n"

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        if isinstance(event, TextDelta):
            text = event.text.replace(MARK, "")
            self._last_character = text[-1:] or self._last_character
            return (text,) if text else ()
        return self._ending_lines(event.outcome) if isinstance(event, RunFinished) else ()

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        return ()

    def fail(self, failed: Failed, /) -> Sequence[str]:
        return self._ending_lines(failed)

    def end(self) -> Sequence[str]:
        return ()

    def _ending_lines(self, outcome: Outcome) -> Sequence[str]:
        newline = "" if self._last_character == "\n" else "\n"
        view = _outcome_view(outcome)
        return (f"{newline}{MARK}{json.dumps(view)}\n",) if view else (newline,)


def _outcome_view(outcome: Outcome) -> Mapping[str, object] | None:
    """Return an outcome as JSON, or None for an answer that ended by itself."""
    match outcome:
        case Completed("end_turn"):
            return None
        case Completed(reason):
            return {"outcome": "completed", "reason": reason}
        case HandedBack(owed):
            return {"outcome": "handed-back", "owed": [owed_call(each) for each in owed]}
        case Cancelled():
            return {"outcome": "cancelled"}
        case Failed(code, message, retryable):
            return {"outcome": "failed", "code": code, "message": message, "retryable": retryable}
        case _:
            assert_never(outcome)


_SINCE = "The `id` of the last event that was seen: the events after it are sent."
# The parameters of following a run, for the OpenAPI document.
FOLLOW_PARAMETERS = (
    describe_parameter("runId", "query", "Which run; it may still wait in the queue."),
    describe_parameter("Last-Event-ID", "header", _SINCE),
    describe_parameter("lastEventId", "query", f"{_SINCE} For the first connect."),
)
FOLLOW_QUERY = ("runId", "lastEventId")  # those of them that are in the query


async def followed_run(
    request: Request, runs: Runs, key: ConversationKey, /
) -> tuple[RunRef, EventId | None]:
    """Return the run that a request follows, and the last event that the client has seen of it.

    It is the run of the event id, else the one that the request names, else the newest.

    Raises:
        InvalidCursor: the event id is none of ours, or of another run than the named one.
        UnknownConversation, UnknownRun: there is nothing to follow.
    """
    since = last_event_id(request)
    # an EventSource cannot set headers when it first connects
    in_query = request.query_params.get("lastEventId")
    if since is None and in_query:
        since = EventId.parse(in_query)
    given = request.query_params.get("runId")
    named = check_run_id(given) if given else None
    if since is None:
        newest = named or (await runs.status(key)).run_id
        if newest is None:
            raise UnknownRun("this conversation has had no run")
        return RunRef(key, newest), None
    if given not in {None, since.cursor.run_id}:
        raise InvalidCursor("the event id is of another run than the one in runId")
    return RunRef(key, since.cursor.run_id), since


EVENTS_TYPE, DOCUMENT_TYPE, TEXT_TYPE = "text/event-stream", "application/json", "text/plain"


@value
class RequestedFormat:
    """The format that a client asks for: a media type, and the longest wait for a document."""

    media_type: str
    seconds: int


def requested_format(request: Request, /) -> RequestedFormat:
    """Return the format that `?wait=` and `Accept` ask for.

    Raises:
        InvalidRequest: `wait` is neither true, false nor a number of seconds.
        NotAcceptable: the client accepts none of the formats, or waits for a document that it does
            not accept.
    """
    # most requests have no query, and none is parsed
    asked = request.query_params.get("wait") if request.scope["query_string"] else None
    seconds = None if asked is None else _parse_wait(asked)
    offers = [DOCUMENT_TYPE] if seconds else [EVENTS_TYPE, DOCUMENT_TYPE, TEXT_TYPE]
    media_type = preferred_media_type(", ".join(headers_of(request.scope).all(b"accept")), offers)
    return RequestedFormat(media_type, seconds or MAX_WAIT_SECONDS)


def _parse_wait(given: str) -> int | None:
    """Return the seconds of `?wait=`, or None for no wait.

    Raises:
        InvalidRequest: it is neither true, false nor a number of seconds.
    """
    match given:
        case "false":
            return None
        case "true":
            return MAX_WAIT_SECONDS
        case _ if (
            seconds := parse_whole_number(given, least=1, most=MAX_WAIT_SECONDS)
        ) is not None:
            return seconds
        case _:
            raise InvalidRequest(
                f"wait has to be true, false, or a number of seconds from 1 to {MAX_WAIT_SECONDS}",
                details={"parameter": "wait"},
            )


def run_answer(
    services: Services,
    asked: RequestedFormat,
    run: RunRef,
    /,
    *,
    include: frozenset[str],
    since: EventId | None,
) -> ASGIApp:
    """Return the answer that follows a run, in the format that was asked for."""
    if asked.media_type == DOCUMENT_TYPE:  # always of the whole run, whatever the client has seen
        return WaitedAnswer(services, run, seconds=asked.seconds)
    if asked.media_type == TEXT_TYPE:
        return EventStream(services, run, PlainEncoder(), since, form=TEXT)
    return EventStream(services, run, NativeEncoder(include), since)


def parked_answer(
    scope: Scope, asked: RequestedFormat, parked: Parked, /, *, include: frozenset[str]
) -> Response:
    """Return the answer to stored results while others are still owed: no run, no events."""
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
