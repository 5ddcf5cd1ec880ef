"""A run's answer as one JSON document, for clients that wait for its end instead of reading a stream."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Literal, NotRequired, Protocol, cast
from urllib.parse import quote

import anyio
from pydantic import JsonValue
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from passback.core.budgets import Left
from passback.core.errors import CursorExpired, PassbackError
from passback.core.events import (
    START,
    Completed,
    CompletedReason,
    Cursor,
    Failed,
    HandedBack,
    Logged,
    Outcome,
    OutputAccepted,
    Rewound,
    RunEvent,
    RunFinished,
    TextDelta,
    UsageReported,
    innermost,
)
from passback.core.messages import Owed, RunRef, Usage, together
from passback.core.ports import Parked
from passback.http.answers import error_answer, failure_answer, json_answer, run_headers
from passback.http.headers import left_headers
from passback.http.routing import relative_reference
from passback.http.wires import Services
from passback.native.encoder import owed_call
from passback.native.shapes import LeftView, OwedCall, UsageView, left_view, usage_view
from passback.streams.writer import ResponseWriter

MOST_SECONDS = 3600
"""How long a client may wait."""


# ---------------------------------------------------------------- shapes
class RunUsageView(UsageView):
    """Of all model calls of a run; `left` is what was left of its limits at the end of the last one."""

    left: NotRequired[LeftView]


class RunAnswer(TypedDict):
    """What a run said, whole.

    `owed` is what the client has to answer now, with complete arguments; `reason` is there when the run completed.
    `runId` and `lastEventId` are null when results were stored, no run began, and others are still owed. `usage` is of
    all model calls of the run, those of sub-agents included, null when the model told nothing of it. `model` is the name
    of the model that spoke last, null when none did. `output` is there when an answer was asked for by a schema, and fits
    it.
    """

    runId: str | None
    conversationId: str
    outcome: Literal["completed", "handed-back", "cancelled"]
    reason: CompletedReason | None
    text: str
    output: NotRequired[JsonValue]
    owed: list[OwedCall]
    usage: RunUsageView | None
    model: str | None
    lastEventId: str | None


class RunGoesOn(TypedDict):
    """The wait is over, the run is not: `follow` is where to read it, or to wait again.

    It is a reference relative to the address of the request that is answered (RFC 3986, section 5).
    """

    runId: str
    conversationId: str
    follow: str


# ---------------------------------------------------------------- run events to one document
class Gatherer(Protocol):
    """Gathers what one run says, from its start, for a document."""

    @property
    def chars(self) -> int:
        """How much text was gathered."""
        ...

    def feed(self, event: RunEvent, /) -> object: ...

    def document(self, last: Cursor, /) -> Mapping[str, object] | Failed:
        """The document, or the failure of the run; `last` is the place of its end, which has been fed."""
        ...


class AnswerEncoder:
    """The gatherer of `RunAnswer`.

    Args:
        run: whose events these are.
    """

    _outcome: Outcome

    def __init__(self, run: RunRef, /) -> None:
        self._run = run
        self._text = StringIO()
        self._usage: Usage | None = None
        self._left: Left | None = None
        self._output: OutputAccepted | None = None
        self._model: str | None = None

    @property
    def chars(self) -> int:
        return self._text.tell()

    def feed(self, event: RunEvent, /) -> None:
        if isinstance(event, TextDelta):
            self._text.write(event.text)
        elif isinstance(told := innermost(event), UsageReported):
            self._usage = together(self._usage, told.usage)
            self._left = self._left_of(told.left, is_own=told is event)
        elif isinstance(event, OutputAccepted):
            self._output = event
        elif isinstance(event, RunFinished):
            self._outcome, self._model = event.outcome, event.model or None

    def _left_of(self, left: Left | None, *, is_own: bool) -> Left | None:
        """What is left of the run's limits; a sub-agent tells of turns that are its own."""
        if is_own or left is None:
            return left
        return replace(left, turns=None if self._left is None else self._left.turns)

    def document(self, last: Cursor, /) -> Mapping[str, object] | Failed:
        outcome = self._outcome
        if isinstance(outcome, Failed):
            return outcome
        answer: RunAnswer = {
            "runId": self._run.run_id,
            "conversationId": self._run.key.id,
            "outcome": outcome.type,
            "reason": outcome.reason if isinstance(outcome, Completed) else None,
            "text": self._text.getvalue(),
            "owed": _owed_calls(outcome.owed if isinstance(outcome, HandedBack) else ()),
            "usage": None if self._usage is None else _run_usage(self._usage, self._left),
            "model": self._model,
            "lastEventId": str(last),
        }
        if self._output is not None:
            answer["output"] = self._output.value
        return cast("Mapping[str, object]", answer)


def _run_usage(usage: Usage, left: Left | None) -> RunUsageView:
    view = cast("RunUsageView", usage_view(usage))
    if left is not None:
        view["left"] = left_view(left)
    return view


def _owed_calls(owed: Sequence[Owed]) -> list[OwedCall]:
    return [owed_call(each) for each in owed]


def parked_view(parked: Parked, /) -> RunAnswer:
    """The document of a post that began no run, because results are still missing."""
    return {
        "runId": None,
        "conversationId": parked.key.id,
        "outcome": "handed-back",
        "reason": None,
        "text": "",
        "owed": _owed_calls(parked.owed),
        "usage": None,
        "model": None,
        "lastEventId": None,
    }


# ---------------------------------------------------------------- the response
class WaitedAnswer:
    """Waits for the end of a run, then gives one document: an ASGI callable, as Starlette's responses are.

    Nothing is sent before: a run that failed has the status of an error. When the wait takes longer than `seconds`,
    the server stops or the store fails, the answer is 202 with the place where the run can be read on. A client that
    leaves ends the wait, not the run.

    Args:
        services: with the run's log, and how large a document may be.
        run: which one.
        seconds: how long the wait may take.
        gatherer: makes what the document is made by, anew when some of what was read became void.
        follow: where conversations can be followed in the form of this document.
    """

    def __init__(
        self,
        services: Services,
        run: RunRef,
        /,
        *,
        seconds: float,
        gatherer: Callable[[RunRef], Gatherer] = AnswerEncoder,
        follow: str = "/conversations",
    ) -> None:
        self._services = services
        self._run = run
        self._seconds = seconds
        self._gatherer = gatherer
        self._follow = follow
        left = left_headers(services.runs.left(run))
        self._headers = run_headers(run.key.id, run.run_id) | left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = ResponseWriter(self._services, scope, receive, send)
        answer = await writer.run(partial(self._wait_for_end, scope))
        if answer or self._services.stopping.is_set:
            await (answer or self._goes_on(scope))(scope, receive, send)

    async def _wait_for_end(self, scope: Scope) -> Response:
        answer: Response | None = None
        with anyio.move_on_after(self._seconds):
            try:
                while answer is None:
                    async with self._services.runs.follow(self._run) as batches:
                        answer = await self._gather(scope, batches)
            except PassbackError as error:
                if not error.retryable:
                    answer = error_answer(scope, error, headers=self._headers)
        return answer or self._goes_on(scope)

    async def _gather(
        self, scope: Scope, batches: AsyncIterator[Sequence[Logged]]
    ) -> Response | None:
        """Read the run to its end. None: some of what was read is void, and the log does not have it any more."""
        gathered, seen = self._gatherer(self._run), START
        async for batch in batches:
            for position, event in batch:
                if isinstance(event, Rewound) and event.to < seen:
                    return None
                gathered.feed(event)
                seen = position
            if gathered.chars > self._services.limits.answer_chars:
                raise CursorExpired(
                    "this answer is too long for one document; the conversation's messages have it"
                )
        document = gathered.document(Cursor(self._run.run_id, seen))
        if isinstance(document, Failed):
            return failure_answer(scope, document, headers=self._headers)
        return json_answer(scope, document, headers=self._headers)

    def _goes_on(self, scope: Scope) -> Response:
        conversation_id, run_id = self._run.key.id, self._run.run_id
        path = f"{self._follow}/{quote(conversation_id, safe='')}/stream?runId={run_id}"
        follow = relative_reference(scope, path)
        body: RunGoesOn = {
            "runId": run_id,
            "conversationId": conversation_id,
            "follow": follow,
        }
        return json_answer(scope, body, status=202, headers={**self._headers, "location": follow})
