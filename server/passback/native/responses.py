"""The formats of a run's answer: a stream of events, one JSON document, plain text."""

import json
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, TypeAlias, assert_never

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from passback.core.errors import InvalidCursor, InvalidRequest, UnknownRun
from passback.core.events import (
    Cancelled,
    Compacted,
    Completed,
    ContextWarned,
    Cursor,
    Failed,
    HandedBack,
    Nested,
    Outcome,
    OutputAccepted,
    PlanUpdated,
    ReasoningDelta,
    Rewound,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    StateChanged,
    TextDelta,
    ToolBegan,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import CallId, ConversationKey, RunRef
from passback.core.posts import Parked
from passback.core.runs import Runs
from passback.core.values import value
from passback.http.answers import json_answer, run_headers
from passback.http.requests import (
    check_run_id,
    headers_of,
    parse_whole_number,
    preferred_media_type,
)
from passback.http.wires import Services
from passback.native import shapes
from passback.native.document import MAX_WAIT_SECONDS, WaitedAnswer, parked_view
from passback.native.openapi import describe_parameter
from passback.native.shapes import NativeEvent
from passback.streams.frames import EventId
from passback.streams.sse import (
    EventStream,
    ResponseFormat,
    last_event_id,
    opening_comment,
    stream_headers,
)

# Events that a request may ask for beyond the protocol's own ones.
INCLUDABLE = frozenset(
    {
        *("agents", "context", "message-ids", "output", "owed", "plan", "progress"),
        *("reasoning", "rewind", "run", "state", "tools", "usage"),
    }
)

DONE = "[DONE]"

ALWAYS: Final = ""
_OF_ALL_AGENTS: Final = frozenset({ALWAYS, "state", "tools", "usage"})

_Convert: TypeAlias = Callable[[Any], NativeEvent]

# Events that become one native event each: the word of `INCLUDABLE` that a request needs for it,
# and the function that converts it.
CONVERSIONS: Mapping[type[RunEvent], tuple[str, _Convert]] = {
    ToolCallStarted: (ALWAYS, shapes.tool_call_start),
    ToolCallArguments: (ALWAYS, shapes.tool_call_args),
    ToolCallEnded: (ALWAYS, shapes.tool_call_end),
    ToolResulted: (ALWAYS, shapes.tool_result),
    RunQueued: ("run", shapes.run_queued),
    RunStarted: ("run", shapes.run_start),
    OutputAccepted: ("output", shapes.accepted_output),
    TurnStarted: ("message-ids", shapes.message_start),
    ReasoningDelta: ("reasoning", shapes.reasoning),
    ToolBegan: ("tools", shapes.tool_begin),
    ToolProgressed: ("progress", shapes.tool_progress),
    PlanUpdated: ("plan", shapes.plan),
    StateChanged: ("state", shapes.state),
    UsageReported: ("usage", shapes.usage),
    ContextWarned: ("context", shapes.context_warning),
    Compacted: ("context", shapes.compaction),
}

# The same for a request with the word `tools`, which adds fields to two events.
_CONVERSIONS_WITH_TOOLS: Mapping[type[RunEvent], tuple[str, _Convert]] = {
    **CONVERSIONS,
    ToolCallStarted: (ALWAYS, shapes.titled_call_start),
    ToolResulted: (ALWAYS, shapes.timed_result),
}

_encode_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def native_data(event: Mapping[str, object], /) -> str:
    """Return a native event as one line of ASCII."""
    return _encode_json(event)


class NativeEncoder:
    """Encodes run events as native ones. It keeps no state: a stream may begin anywhere in a run.

    Args:
        include: words of `INCLUDABLE`.
    """

    def __init__(self, include: frozenset[str] = frozenset()) -> None:
        self._include = include | {ALWAYS}
        self._conversions = _CONVERSIONS_WITH_TOOLS if "tools" in include else CONVERSIONS

    def feed(self, event: RunEvent, /) -> Sequence[str]:
        match event:
            case TextDelta():  # most events are text: written by hand, which is faster
                return (f'{{"type":"text","content":{quoted(event.text)}}}',)
            case RunFinished():
                return [native_data(native) for native in self._ending_events(event)]
            case Nested(call_id, inner):
                return self._feed_nested(call_id, inner)
            # `rewind` encodes the one, and the messages show what the other says
            case Rewound() | TurnEnded():
                return ()
            case _:
                word, convert = self._conversions[type(event)]
                return (native_data(convert(event)),) if word in self._include else ()

    def _feed_nested(self, parent: CallId, event: RunEvent) -> Sequence[str]:
        """Return the data of a sub-agent's event, if it is included.

        Its calls are sent as all others. Its text is no part of the answer, and has to be asked
        for.
        """
        match event:
            case Nested(call_id, inner):
                return self._feed_nested(call_id, inner)
            case TextDelta(text):
                needed: set[str] = {"agents"}
                native: Mapping[str, object] = shapes.agent_text(text, parent)
            case RunQueued() | RunStarted() | OutputAccepted() | RunFinished() | Rewound():
                return ()  # that run is not one of the client's
            case TurnEnded():  # as the messages show it
                return ()
            case _:
                word, convert = self._conversions[type(event)]
                # tools like their calls; usage and state, or what they add up to would be wrong
                needed = {word} if word in _OF_ALL_AGENTS else {word, "agents"}
                native = {**convert(event), "parentToolCallId": parent}
        return (native_data(native),) if needed <= self._include else ()

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        if "rewind" not in self._include:
            return ()
        return (native_data(shapes.rewind(to)),)

    def fail(self, failed: Failed, /) -> Sequence[str]:
        return (native_data(shapes.error(failed)),)

    def end(self) -> Sequence[str]:
        return (DONE,)

    def _ending_events(self, end: RunFinished) -> list[NativeEvent]:
        outcome = end.outcome
        endings: list[NativeEvent] = []
        if isinstance(outcome, Failed):
            endings.append(shapes.error(outcome))
        if isinstance(outcome, HandedBack):
            # approvals are among the protocol's own events, other calls have to be included
            endings.extend(
                shapes.interrupt(each) for each in outcome.owed if each.kind == "approval"
            )
            if "owed" in self._include:
                endings.append(shapes.owed_event(outcome.owed))
        if "run" in self._include:
            endings.append(shapes.run_end(end))
        return endings


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
        view: dict[str, object] = {"outcome": outcome.type}
        match outcome:
            case Completed("end_turn"):  # the answer ended by itself
                return (newline,)
            case Completed(reason):
                view |= {"reason": reason}
            case HandedBack(owed):
                view |= {"owed": [shapes.owed_call(each) for each in owed]}
            case Failed(code, message, retryable):
                view |= {"code": code, "message": message, "retryable": retryable}
            case Cancelled():
                pass
            case _:
                assert_never(outcome)
        return (f"{newline}{MARK}{json.dumps(view)}\n",)


_SINCE = "The `id` of the last event that was seen: the events after it are sent."
# The parameters of following, for the OpenAPI document.
SINCE_PARAMETERS = (
    describe_parameter("Last-Event-ID", "header", _SINCE),
    describe_parameter("lastEventId", "query", f"{_SINCE} For the first connect."),
)
FOLLOW_PARAMETERS = (
    describe_parameter("runId", "query", "Which run; it may still wait in the queue."),
    *SINCE_PARAMETERS,
)
FOLLOW_QUERY = ("runId", "lastEventId")  # those of them that are in the query


def seen_event(request: Request, /) -> EventId | None:
    """Return the last event that a client has seen, by its header or by the query.

    Raises:
        InvalidCursor: it is none of ours.
    """
    since = last_event_id(headers_of(request.scope))
    # an EventSource cannot set headers when it first connects
    in_query = request.query_params.get("lastEventId")
    return EventId.parse(in_query) if since is None and in_query else since


async def followed_run(
    request: Request, runs: Runs, key: ConversationKey, /
) -> tuple[RunRef, EventId | None]:
    """Return the run that a request follows, and the last event that the client has seen of it.

    It is the run of the event id, else the one that the request names, else the newest.

    Raises:
        InvalidCursor: the event id is none of ours, or of another run than the named one.
        UnknownConversation, UnknownRun: there is nothing to follow.
    """
    since = seen_event(request)
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
    seconds: int | None = None
    if asked is not None and asked != "false":
        seconds = (
            MAX_WAIT_SECONDS
            if asked == "true"
            else parse_whole_number(asked, least=1, most=MAX_WAIT_SECONDS)
        )
        if seconds is None:
            raise InvalidRequest(
                f"wait has to be true, false, or a number of seconds from 1 to {MAX_WAIT_SECONDS}",
                details={"parameter": "wait"},
            )
    offers = [DOCUMENT_TYPE] if seconds else [EVENTS_TYPE, DOCUMENT_TYPE, TEXT_TYPE]
    return RequestedFormat(accepted_type(request, offers), seconds or MAX_WAIT_SECONDS)


def accepted_type(request: Request, offers: Sequence[str], /) -> str:
    """Return the first of the offered media types that the client prefers.

    Raises:
        NotAcceptable: it accepts none of them.
    """
    accepted = ", ".join(headers_of(request.scope).all.get(b"accept", ()))
    return preferred_media_type(accepted, offers)


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
    data = [native_data(shapes.owed_event(parked.owed))] if "owed" in include else []
    frames = [opening_comment(parked.key.id), f": still owed: {' '.join(ids)}\n\n"]
    frames += [f"data: {each}\n\n" for each in (*data, DONE)]
    return Response("".join(frames), headers=stream_headers(scope, parked.key.id) | missing)
