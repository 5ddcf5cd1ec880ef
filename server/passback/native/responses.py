"""The forms of a run's answer: a stream of events, one JSON document, plain text."""

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
from passback.core.messages import ConversationKey, RunId, RunRef
from passback.core.ports import Parked, Runs
from passback.core.values import value
from passback.http.answers import json_answer, run_headers
from passback.http.headers import headers_of
from passback.http.requests import accepted, run_id, whole_number
from passback.http.wires import Services
from passback.native.document import MOST_SECONDS, WaitedAnswer, parked_view
from passback.native.encoder import DONE, NativeEncoder, native_data, owed_call, owed_event
from passback.native.openapi import parameter
from passback.streams.frames import EventId
from passback.streams.sse import (
    EventStream,
    ResponseFormat,
    last_event_id,
    opening_comment,
    stream_headers,
)

MARK = "\x1e"
"""ASCII's record separator, in front of the last line as in JSON text sequences (RFC 7464). No text holds it."""


def _plain(_: str, text: str, /) -> str:
    return text


TEXT = ResponseFormat("text/plain; charset=utf-8", _plain)


class PlainEncoder:
    """Run events to text: pieces of the answer, a newline at its end.

    An outcome other than the end of an answer is one more line: the mark, then a JSON object.
    """

    def __init__(self) -> None:
        self._last = "\n"

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        if isinstance(event, TextDelta):
            return self._words(event.text)
        return self._ending(event.outcome) if isinstance(event, RunFinished) else ()

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        return ()

    def fail(self, failed: Failed, /) -> Sequence[str]:
        return self._ending(failed)

    def end(self) -> Sequence[str]:
        return ()

    def _words(self, text: str) -> Sequence[str]:
        words = text.replace(MARK, "")
        self._last = words[-1:] or self._last
        return (words,) if words else ()

    def _ending(self, outcome: Outcome) -> Sequence[str]:
        newline = "" if self._last == "\n" else "\n"
        told = _told(outcome)
        return (f"{newline}{MARK}{json.dumps(told)}\n",) if told else (newline,)


def _told(outcome: Outcome) -> Mapping[str, object] | None:
    """What is said of an outcome; nothing of an answer that ended by itself."""
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
