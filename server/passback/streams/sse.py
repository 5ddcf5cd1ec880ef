"""A response that follows a run while it goes on, as server-sent events or in another format.

It is written by hand, because a response that works per event costs twice as much to send as this
one, which works per batch.
"""

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import field
from functools import partial

from starlette.types import Message, Receive, Scope, Send

from passback.core.errors import PassbackError, ShuttingDown
from passback.core.events import Completed, Failed, HandedBack, Logged, Outcome, RunFinished
from passback.core.messages import ConversationId, RunId, RunRef
from passback.core.values import value
from passback.http.answers import (
    SAFE_HEADERS,
    failure_answer,
    left_headers,
    request_id,
    run_headers,
)
from passback.http.requests import PLAIN_ID, Headers
from passback.http.wires import Services
from passback.pacing import wait_for_large_work
from passback.streams.frames import (
    EventId,
    PlacedEncoder,
    SseEncoder,
    SseFramer,
    split_batch,
    sse_frame,
)
from passback.streams.writer import PING, ResponseWriter

logger = logging.getLogger(__name__)

# The end of a response whose run goes on: the client has seen no end, and reconnects after 1000 ms.
CUT_SHORT = "retry: 1000\n\n"


def opening_comment(conversation_id: ConversationId, /) -> str:
    """Return the comment that begins a stream of events and names the conversation.

    It is for people who read a stream without its headers. The id is escaped as in JSON, to be
    copied into the next post.
    """
    plain = PLAIN_ID.fullmatch(conversation_id)
    named = conversation_id if plain else json.dumps(conversation_id)[1:-1]
    return f": conversation {named}\n\n"


@value
class ResponseFormat:
    """The format of a stream.

    Args:
        media_type: its content type.
        frame: formats a frame from its id and its data.
        opening: returns the text that is sent before the run has any output. None: the response
            begins with the first output, and a run that fails before it is answered with the
            status of an error.
        ping: text sent after a silence. Empty if the format has none.
        cut: text that ends a response whose run goes on. None: the format has none, and the
            transfer is broken off, also when the run was cancelled or failed.
        breaks_off: the transfer is broken off behind `cut`, because clients take the end of a
            transfer for the end of the run.
        headers: more headers of the response.
    """

    media_type: str
    frame: Callable[[str, str], str]
    opening: Callable[[ConversationId], str] | None = None
    ping: str = ""
    cut: str | None = None
    breaks_off: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


EVENTS = ResponseFormat(
    "text/event-stream; charset=utf-8", sse_frame, opening_comment, PING, CUT_SHORT
)


def last_event_id(headers: Headers, /) -> EventId | None:
    """Return the id in the `Last-Event-ID` header, or None.

    Raises:
        InvalidCursor: it is not of our form.
        UnknownRun: no run can have the id that it names.
    """
    given = headers.first.get(b"last-event-id", "")
    return EventId.parse(given) if given else None


def last_event_of(run: RunRef, seen: EventId | None, /) -> EventId | None:
    """Return the last event that a posting client has seen of its run, or None."""
    # an id of another run is that of the run which the client followed before
    return seen if seen and seen.cursor.run_id == run.run_id else None


def stream_headers(
    scope: Scope,
    conversation_id: ConversationId,
    run_id: RunId | None = None,
    /,
    *,
    media_type: str = EVENTS.media_type,
) -> dict[str, str]:
    """Return the headers of a stream."""
    return {
        "content-type": media_type,
        "cache-control": "no-store, no-transform",  # a proxy that compresses would buffer
        **SAFE_HEADERS,
        "x-accel-buffering": "no",  # nginx would buffer
        **run_headers(conversation_id, run_id),
        "x-request-id": request_id(scope),
    }


class EventStream:
    """A response that follows a run to its end, an ASGI callable as Starlette's are.

    Readers do not affect the run. The stream ends early, without the encoder's `end`, when the
    client disconnects or does not read for `limits.send_seconds`, when the server stops, and when
    the store fails.

    An encoder that `remembers` is fed the whole run, even if the client has seen the beginning.

    Raises:
        UnknownRun, InvalidCursor, CursorExpired: on calling it, before anything is sent.
    """

    _writer: ResponseWriter
    _scope: Scope
    _send: Send

    def __init__(
        self,
        services: Services,
        run: RunRef,
        encoder: SseEncoder | PlacedEncoder,
        /,
        since: EventId | None = None,
        *,
        form: ResponseFormat = EVENTS,
        remembers: bool = False,
    ) -> None:
        self._services = services
        self._run = run
        self._form = form
        self._left_headers = left_headers(services.runs.left(run))
        self._framer = SseFramer(encoder, run.run_id, since, frame=form.frame, remembers=remembers)
        self._begun = False
        self._is_cut = False
        self._outcome: Outcome | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        runs, position = self._services.runs, self._framer.position
        self._scope, self._send = scope, send
        self._writer = ResponseWriter(self._services, scope, receive, send, ping=self._form.ping)
        async with runs.follow(self._run, after=position, take=self._send_at_once) as batches:
            if self._framer.needs_recall:
                # feed the encoder the events that the client has; `batches` has the rest
                async with runs.follow(self._run) as seen:
                    while (batch := await anext(seen, None)) and self._framer.recall(batch):
                        pass
            if scope["method"] == "HEAD":
                await self._begin_response()
                await self._writer.send_last("")
                return
            opening = ""
            if self._form.opening is not None:
                opening = await self._begin_response(self._form.opening(self._run.key.id))
            last_chunk = await self._writer.run(partial(self._send_log, batches, opening))
            if last_chunk is None and self._services.stopping.is_set:
                last_chunk = self._cut_short(ShuttingDown("this worker stops; the run goes on"))
            if last_chunk is not None:  # otherwise no client is there to read it
                await self._end_response(last_chunk, receive)

    async def _send_log(self, batches: AsyncIterator[Sequence[Logged]], opening: str) -> str:
        """Send the log, a chunk per batch. Return the last chunk, unsent."""
        if opening:
            await self._writer.send(opening)
        chunk = ""
        try:
            async for batch in batches:
                is_single = len(batch) == 1  # most are: such a batch has no parts
                chunk = (
                    self._framer.frame_batch(batch) if is_single else await self._frame_parts(batch)
                )
                if self._framer.ended:
                    return chunk
                if isinstance(last := batch[-1].event, RunFinished):
                    self._outcome = last.outcome
                    break
                if chunk:
                    await self._send_chunk(chunk)
                    chunk = ""
        except PassbackError as error:
            logger.warning("reading run %s failed: %s", self._run.run_id, error.code)
            cut = self._cut_short(error)
            # a client may come back after a retryable error, so it must not see an end
            return cut if error.retryable else self._framer.failure_frames(error)
        return chunk + self._framer.end_frames()

    async def _frame_parts(self, batch: Sequence[Logged]) -> str:
        """Return the frames of a batch. Of a large one, all parts but the last are sent."""
        chunk = ""
        for part, is_large in split_batch(batch):
            if chunk:
                await self._send_chunk(chunk)
            if is_large:
                await wait_for_large_work()
            chunk = self._framer.frame_batch(part)
            if self._framer.ended:
                break
        return chunk

    def _send_at_once(self, batch: Sequence[Logged]) -> bool:
        """Send a batch within the run's own step, and return True, if the connection is ready."""
        framer = self._framer
        # under another lease a rewind may come, which may have to end the stream
        if not self._writer.ready or framer.ended or framer.is_new_lease(batch):
            return False
        if chunk := framer.frame_batch(batch):
            self._writer.send_now(chunk)
        return True

    async def _send_chunk(self, chunk: str) -> None:
        if not self._begun:
            await self._begin_response()
        await self._writer.send(chunk)

    async def _begin_response(self, opening: str = "") -> str:
        """Send the head, and `opening` if it goes at once. Return what is still to be sent."""
        self._begun = True
        key, media_type = self._run.key, self._form.media_type
        headers = stream_headers(self._scope, key.id, self._run.run_id, media_type=media_type)
        headers |= {**self._left_headers, **self._form.headers}
        raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        start: Message = {"type": "http.response.start", "status": 200, "headers": raw}
        return await self._writer.send_head(start, opening)

    def _cut_short(self, error: PassbackError) -> str:
        """Record the error, and return the last chunk of a response that ends before its run."""
        self._is_cut = error.retryable  # otherwise the client sees an end
        self._outcome = Failed(error.code, error.message, error.retryable)
        return self._form.cut or ""

    async def _end_response(self, last_chunk: str, receive: Receive) -> None:
        outcome = self._outcome
        # nothing was sent yet: the failure can have the status of an error
        if not self._begun and isinstance(outcome, Failed):
            headers = run_headers(self._run.key.id, self._run.run_id) | self._left_headers
            refusal = failure_answer(self._scope, outcome, headers=headers)
            await refusal(self._scope, receive, self._send)
            return
        if not self._begun:
            await self._begin_response()
        is_whole = isinstance(outcome, Completed | HandedBack) or self._form.cut is not None
        breaks = self._is_cut and self._form.breaks_off
        await self._writer.send_last(last_chunk, whole=is_whole and not breaks)
