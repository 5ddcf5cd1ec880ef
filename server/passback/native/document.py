"""A run's answer as one JSON document, for clients that wait for its end."""

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
    innermost_event,
)
from passback.core.messages import RunRef, Usage, add_usages
from passback.core.posts import Parked
from passback.http.answers import (
    error_answer,
    failure_answer,
    json_answer,
    left_headers,
    run_headers,
)
from passback.http.routing import relative_reference
from passback.http.wires import Services
from passback.native.shapes import LeftView, OwedCall, UsageView, left_view, owed_call, usage_view
from passback.streams.writer import ResponseWriter

MAX_WAIT_SECONDS = 3600  # that a client may wait


class RunUsageView(UsageView):
    """Usage of all model calls of a run. `left` is the rest of its limits after the last one."""

    left: NotRequired[LeftView]


class RunAnswer(TypedDict):
    """The whole answer of a run.

    `owed` are the calls that the client has to answer, with complete arguments. `reason` is set
    when the run completed. `runId` and `lastEventId` are null when results were stored, others are
    still owed, and so no run began. `usage` is that of all model calls of the run, those of
    sub-agents included, or null when the model reported none. `model` is the name of the model
    that answered last, or null when none did. `output` is there when the post had an output
    schema, and the answer fits it.
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
    """The time to wait is over, and the run goes on. Read it, or wait again, at `follow`.

    `follow` is a reference relative to the address of the request (RFC 3986, section 5).
    """

    runId: str
    conversationId: str
    follow: str


class Gatherer(Protocol):
    """Gathers the events of one run, from its start, for a document."""

    @property
    def chars(self) -> int:
        """Number of characters of text that were gathered."""
        ...

    def feed(self, event: RunEvent, /) -> object: ...

    def document(self, last: Cursor, /) -> Mapping[str, object] | Failed:
        """Return the document, or the failure of the run, after its last event was fed.

        `last` is the place of that event.
        """
        ...


class AnswerEncoder:
    """The gatherer of `RunAnswer`.

    Args:
        run: whose events these are.
    """

    _outcome: Outcome
    _left: Left | None = None

    def __init__(self, run: RunRef, /) -> None:
        self._run = run
        self._text = StringIO()
        self._usage: Usage | None = None
        self._output: OutputAccepted | None = None
        self._model: str | None = None

    @property
    def chars(self) -> int:
        return self._text.tell()

    def feed(self, event: RunEvent, /) -> None:
        if isinstance(event, TextDelta):
            self._text.write(event.text)
        elif isinstance(reported := innermost_event(event), UsageReported):
            self._usage = add_usages(self._usage, reported.usage)
            left = reported.left
            if left is not None and reported is not event:
                # a sub-agent reports the turns of its own limit, which are not those of the run
                left = replace(left, turns=None if self._left is None else self._left.turns)
            self._left = left
        elif isinstance(event, OutputAccepted):
            self._output = event
        elif isinstance(event, RunFinished):
            self._outcome, self._model = event.outcome, event.model or None

    def document(self, last: Cursor, /) -> Mapping[str, object] | Failed:
        outcome = self._outcome
        if isinstance(outcome, Failed):
            return outcome
        usage: RunUsageView | None = None
        if self._usage is not None:
            usage = cast("RunUsageView", usage_view(self._usage))
            if self._left is not None:
                usage["left"] = left_view(self._left)
        owed = outcome.owed if isinstance(outcome, HandedBack) else ()
        answer: RunAnswer = {
            "runId": self._run.run_id,
            "conversationId": self._run.key.id,
            "outcome": outcome.type,
            "reason": outcome.reason if isinstance(outcome, Completed) else None,
            "text": self._text.getvalue(),
            "owed": [owed_call(each) for each in owed],
            "usage": usage,
            "model": self._model,
            "lastEventId": str(last),
        }
        if self._output is not None:
            answer["output"] = self._output.value
        return cast("Mapping[str, object]", answer)


def parked_view(parked: Parked, /) -> RunAnswer:
    """Return the document of a post that began no run, because results are still missing."""
    return {
        "runId": None,
        "conversationId": parked.key.id,
        "outcome": "handed-back",
        "reason": None,
        "text": "",
        "owed": [owed_call(each) for each in parked.owed],
        "usage": None,
        "model": None,
        "lastEventId": None,
    }


class WaitedAnswer:
    """A response with one document at the end of a run, an ASGI callable as Starlette's are.

    Nothing is sent before, so a run that failed has the status of an error. When the wait takes
    longer than `seconds`, the server stops or the store fails, the answer is 202 with the address
    where the run can be read on. A client that disconnects ends the wait, not the run.

    Args:
        services: with the run's log, and the limit of a document.
        run: the run to wait for.
        seconds: the longest wait.
        gatherer: returns a new gatherer. Called again when a part of what was read became void.
        follow: path of the conversations whose streams have the format of this document.
        goes_on: the document if the run goes on, in place of a 202 with that address.
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
        goes_on: Mapping[str, object] | None = None,
    ) -> None:
        self._services = services
        self._run = run
        self._seconds = seconds
        self._new_gatherer = gatherer
        self._follow = follow
        self._goes_on = goes_on
        left = left_headers(services.runs.left(run))
        self._headers = run_headers(run.key.id, run.run_id) | left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = ResponseWriter(self._services, scope, receive, send)
        answer = await writer.run(partial(self._wait_for_end, scope))
        # without an answer, and if the server does not stop, the client has disconnected
        if answer or self._services.stopping.is_set:
            await (answer or self._goes_on_answer(scope))(scope, receive, send)

    async def _wait_for_end(self, scope: Scope) -> Response:
        answer: Response | None = None
        with anyio.move_on_after(self._seconds):
            try:
                while answer is None:
                    async with self._services.runs.follow(self._run) as batches:
                        answer = await self._read_run(scope, batches)
            except PassbackError as error:
                # after a retryable one the client can read the run on, as after a timeout
                if not error.retryable:
                    answer = error_answer(scope, error, headers=self._headers)
        return answer or self._goes_on_answer(scope)

    async def _read_run(
        self, scope: Scope, batches: AsyncIterator[Sequence[Logged]]
    ) -> Response | None:
        """Read the run to its end and return the response.

        Returns None if a part of what was read is void. It was removed from the log.

        Raises:
            CursorExpired: the answer is too long for one document.
        """
        gathered, seen = self._new_gatherer(self._run), START
        async for batch in batches:
            for position, event in batch:
                # a gatherer cannot forget what it was fed: a new one has to read the log again
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

    def _goes_on_answer(self, scope: Scope) -> Response:
        if self._goes_on is not None:
            return json_answer(scope, self._goes_on, headers=self._headers)
        conversation_id, run_id = self._run.key.id, self._run.run_id
        path = f"{self._follow}/{quote(conversation_id, safe='')}/stream?runId={run_id}"
        follow = relative_reference(scope, path)
        body: RunGoesOn = {
            "runId": run_id,
            "conversationId": conversation_id,
            "follow": follow,
        }
        return json_answer(scope, body, status=202, headers={**self._headers, "location": follow})
