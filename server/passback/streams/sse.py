"""A run's log as a response that is sent while the run goes on: as server-sent events, or in another form.

Written by hand, because the ready-made response doubles the cost of sending: it works per event, this per batch.
"""

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from passback.core.errors import PassbackError, ShuttingDown
from passback.core.events import Completed, Failed, HandedBack, Logged, Outcome, RunFinished
from passback.core.messages import ConversationId, RunId, RunRef
from passback.core.values import value
from passback.http.answers import SAFE_HEADERS, failure_answer, request_id, run_headers
from passback.http.headers import headers_of, is_plain_id, left_headers
from passback.http.wires import Services
from passback.pacing import large_work
from passback.streams.frames import EventId, SseEncoder, SseFramer, parts, sse_frame
from passback.streams.writer import PING, ResponseWriter

logger = logging.getLogger(__name__)

CUT = "retry: 1000\n\n"
"""The end of a response whose run goes on: the client comes back after a second, and saw no end of the run."""


def opening_comment(conversation_id: ConversationId, /) -> str:
    """Return the comment that begins a stream of events: who reads it without its headers learns how to go on.

    The id is written as in a JSON text, to be copied into the next post.
    """
    plain = is_plain_id(conversation_id)
    named = conversation_id if plain else json.dumps(conversation_id)[1:-1]
    return f": conversation {named}\n\n"


@value
class ResponseFormat:
    """How a stream is written.

    Args:
        media_type: its content type.
        frame: writes a frame from its id and its data.
        opening: gives what is sent of a conversation before the run says anything. None: the response begins with the
            first words, and a run that fails before these is answered with an error's status.
        ping: what fills a silence; empty where nothing can.
        cut: what ends a response whose run goes on. None: nothing can say so, and the transfer is broken off; it is,
            too, when the run was cancelled or failed.
    """

    media_type: str
    frame: Callable[[str, str], str]
    opening: Callable[[ConversationId], str] | None = None
    ping: str = ""
    cut: str | None = None


EVENTS = ResponseFormat("text/event-stream; charset=utf-8", sse_frame, opening_comment, PING, CUT)


def last_event_id(request: Request, /) -> EventId | None:
    """What the client saw last, by its `Last-Event-ID` header. Raises InvalidCursor."""
    given = headers_of(request.scope).get(b"last-event-id")
    return EventId.parse(given) if given else None


def since_of(run: RunRef, seen: EventId | None, /) -> EventId | None:
    """What a client that posts has seen of the run that it gets; an id of another run is of what it followed before."""
    return seen if seen and seen.cursor.run_id == run.run_id else None


def stream_headers(
    scope: Scope,
    conversation_id: ConversationId,
    run_id: RunId | None = None,
    /,
    *,
    media_type: str = EVENTS.media_type,
) -> dict[str, str]:
    """The headers of every stream."""
    return {
        "content-type": media_type,
        "cache-control": "no-store, no-transform",
        **SAFE_HEADERS,
        "x-accel-buffering": "no",
        **run_headers(conversation_id, run_id),
        "x-request-id": request_id(scope),
    }


class EventStream:
    """Follows a run to its end: an ASGI callable, as Starlette's responses are.

    The run never notices its readers. The stream ends early, without the encoder's `end`, when the client leaves
    or does not read for `limits.send_seconds`, when the server stops, and when the store fails.

    Calling it raises `UnknownRun`, `InvalidCursor` or `CursorExpired` before anything is sent.

    An encoder that `remembers` what it was fed is fed the whole run, also where the client has seen the beginning.
    """

    _line: ResponseWriter
    _scope: Scope
    _send: Send

    def __init__(
        self,
        services: Services,
        run: RunRef,
        encoder: SseEncoder,
        /,
        since: EventId | None = None,
        *,
        form: ResponseFormat = EVENTS,
        remembers: bool = False,
    ) -> None:
        self._services = services
        self._run = run
        self._form = form
        self._left = left_headers(services.runs.left(run))
        self._framer = SseFramer(encoder, run.run_id, since, frame=form.frame, remembers=remembers)
        self._begun = False
        self._outcome: Outcome | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        runs, position = self._services.runs, self._framer.position
        self._scope, self._send = scope, send
        self._line = ResponseWriter(self._services, scope, receive, send, ping=self._form.ping)
        async with runs.follow(self._run, after=position, take=self._take) as batches:
            await self._recall()
            is_head = scope["method"] == "HEAD"
            say, opening = self._form.opening, ""
            if say is not None or is_head:
                opening = await self._begin(say(self._run.key.id) if say and not is_head else "")
            if is_head:
                await self._line.end("")
                return
            said = await self._line.hold(partial(self._pump, batches, opening))
            last_words = self._parting() if said is None else said
            if last_words is not None:
                await self._end(last_words, receive)

    async def _recall(self) -> None:
        if not self._framer.recalls:
            return
        async with self._services.runs.follow(self._run) as batches:
            while (batch := await anext(batches, None)) and self._framer.recall(batch):
                pass

    async def _pump(self, batches: AsyncIterator[Sequence[Logged]], opening: str) -> str:
        """Send what the log says, a chunk per batch; gives the last one, unsent."""
        if opening:
            await self._line.send(opening)
        chunk = ""
        try:
            async for batch in batches:
                one = len(batch) == 1
                chunk = self._framer.batch(batch) if one else await self._written(batch)
                if self._framer.ended:
                    return chunk
                if isinstance(last := batch[-1].event, RunFinished):
                    self._outcome = last.outcome
                    break
                if chunk:
                    await self._say(chunk)
                    chunk = ""
        except PassbackError as error:
            logger.warning("reading run %s failed: %s", self._run.run_id, error.code)
            cut = self._cut(error)
            return cut if error.retryable else self._framer.failure(error)
        return chunk + self._framer.end()

    async def _written(self, batch: Sequence[Logged]) -> str:
        """Write a batch; of a large one all parts but the last are sent, each when the client has room for it."""
        chunk = ""
        for part, is_large in parts(batch):
            if chunk:
                await self._say(chunk)
            if is_large:
                await large_work()
            chunk = self._framer.batch(part)
            if self._framer.ended:
                break
        return chunk

    def _take(self, batch: Sequence[Logged]) -> bool:
        """Send a batch from within the run's own step, if the connection takes it at once."""
        framer = self._framer
        if not self._line.ready or framer.ended or framer.begins_anew(batch):
            return False
        if chunk := framer.batch(batch):
            self._line.send_now(chunk)
        return True

    async def _say(self, chunk: str) -> None:
        if not self._begun:
            await self._begin()
        await self._line.send(chunk)

    async def _begin(self, opening: str = "") -> str:
        self._begun = True
        key, media_type = self._run.key, self._form.media_type
        headers = stream_headers(self._scope, key.id, self._run.run_id, media_type=media_type)
        return await self._line.begin(_start(headers | self._left), opening)

    def _parting(self) -> str | None:
        """The last words of a stream that did not come to an end; None: nobody is there to hear them."""
        if not self._services.stopping.is_set:
            return None
        return self._cut(ShuttingDown("this worker stops; the run goes on"))

    def _cut(self, error: PassbackError) -> str:
        """The last words of a response that ends before its run."""
        self._outcome = Failed(error.code, error.message, error.retryable)
        return self._form.cut or ""

    async def _end(self, last_words: str, receive: Receive) -> None:
        outcome = self._outcome
        if not self._begun and isinstance(outcome, Failed):
            headers = run_headers(self._run.key.id, self._run.run_id) | self._left
            refusal = failure_answer(self._scope, outcome, headers=headers)
            await refusal(self._scope, receive, self._send)
            return
        if not self._begun:
            await self._begin()
        is_whole = isinstance(outcome, Completed | HandedBack)
        await self._line.end(last_words, whole=is_whole or self._form.cut is not None)


def _start(headers: Mapping[str, str]) -> Message:
    raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": 200, "headers": raw}
