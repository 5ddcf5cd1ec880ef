"""A run's log as a response of server-sent events.

Written by hand, because the ready-made response doubles the cost of sending: it works per event, this per batch.
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from time import monotonic
from urllib.parse import quote

import anyio
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from passback.core.errors import PassbackError
from passback.core.events import Logged, RunFinished
from passback.core.messages import ConversationId, RunId, RunRef
from passback.transport.frames import EventId, Framer, SseEncoder
from passback.transport.http import request_id
from passback.transport.sending import SendNow, send_now
from passback.transport.wires import Services

logger = logging.getLogger(__name__)

OPENING = ": open\n\n"
PING = ": ping\n\n"
CUT = "retry: 1000\n\n"
"""The end of a response whose run goes on: the client comes back after a second, and saw no end of the run."""

_LAST_WORDS_SECONDS = 2
"""How long a stopping server waits for a client to take them."""

_VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


def last_event_id(request: Request, /) -> EventId | None:
    """What the client saw last, by its `Last-Event-ID` header. Raises InvalidCursor."""
    given = request.headers.get("last-event-id")
    return EventId.parse(given) if given else None


def stream_headers(
    scope: Scope, conversation_id: ConversationId, run_id: RunId | None = None, /
) -> dict[str, str]:
    """The headers of every stream; what a header cannot hold of a conversation's id is percent-encoded."""
    headers = {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache, no-transform",
        "x-accel-buffering": "no",
        "x-conversation-id": quote(conversation_id, safe=_VISIBLE),
        "x-request-id": request_id(scope),
    }
    return headers if run_id is None else headers | {"x-run-id": run_id}


class EventStream:
    """Follows a run to its end: an ASGI callable, as Starlette's responses are.

    The run never notices its readers. The stream ends early, without the encoder's `end`, when the client leaves
    or does not read for `limits.send_seconds`, when the server stops, and when the store fails.

    Calling it raises `UnknownRun`, `InvalidCursor` or `CursorExpired` before anything is sent.
    """

    def __init__(
        self, services: Services, run: RunRef, encoder: SseEncoder, /, since: EventId | None = None
    ) -> None:
        self._services = services
        self._run = run
        self._framer = Framer(encoder, run.run_id, since)
        self._direct: SendNow | None = None
        self._last_words: str | None = None  # None: nobody is there to hear them
        self._sending_since: float | None = None
        self._last_sent = monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        runs, position = self._services.runs, self._framer.position
        self._direct = send_now(scope)
        async with runs.follow(self._run, after=position, take=self._take) as batches:
            headers = stream_headers(scope, self._run.key.id, self._run.run_id)
            await send(_start(headers))
            if scope["method"] == "HEAD":
                await send(_body("", more=False))
                return
            await self._serve(batches, receive, send)
            if self._last_words is not None:
                with anyio.move_on_after(self._patience()):
                    await send(_body(self._last_words, more=False))

    async def _serve(
        self, batches: AsyncIterator[Sequence[Logged]], receive: Receive, send: Send
    ) -> None:
        """Send until there is nothing more to send, or nobody to send it to."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_client, receive, tasks.cancel_scope)
            tasks.start_soon(self._watch_clock, send, tasks.cancel_scope)
            await self._send(send, OPENING)
            self._last_words = await self._pump(batches, send)
            tasks.cancel_scope.cancel()

    async def _pump(self, batches: AsyncIterator[Sequence[Logged]], send: Send) -> str:
        """Send what the log says, one chunk per batch; gives the last one, unsent."""
        chunk = ""
        try:
            async for batch in batches:
                chunk = self._framer.batch(batch)
                if self._framer.ended:
                    return chunk
                if isinstance(batch[-1].event, RunFinished):
                    break
                if chunk:
                    await self._send(send, chunk)
                    chunk = ""
        except PassbackError as error:
            logger.warning("reading run %s failed: %s", self._run.run_id, error.code)
            return CUT if error.retryable else self._framer.failure(error)
        return chunk + self._framer.end()

    def _take(self, batch: Sequence[Logged]) -> bool:
        """Send a batch from within the run's own step, if the connection takes it at once."""
        if self._direct is None or not self._direct.ready or self._framer.begins_anew(batch):
            return False
        if chunk := self._framer.batch(batch):
            self._direct.send(chunk.encode("ascii"))
            self._last_sent = monotonic()
        return True

    async def _send(self, send: Send, chunk: str) -> None:
        self._sending_since = monotonic()
        await send(_body(chunk))
        self._sending_since = None
        self._last_sent = monotonic()

    async def _watch_client(self, receive: Receive, scope: anyio.CancelScope) -> None:
        """End the stream when the client has left."""
        message = await receive()
        while message["type"] != "http.disconnect":
            message = await receive()
        scope.cancel()

    async def _watch_clock(self, send: Send, scope: anyio.CancelScope) -> None:
        """One timer for all: fill silences, drop a client that does not read, end when the server stops."""
        stopping, patience = self._services.stopping, self._services.limits.send_seconds
        while not stopping.is_set():
            with anyio.move_on_after(self._seconds_until_due()):
                await stopping.wait()
            if self._sending_since is not None:
                if monotonic() - self._sending_since >= patience:
                    break
            elif monotonic() - self._last_sent >= self._services.ping_seconds:
                with anyio.move_on_after(patience) as sending:
                    await send(_body(PING))
                if sending.cancelled_caught:
                    break
                self._last_sent = monotonic()
        else:
            self._last_words = CUT
        scope.cancel()

    def _patience(self) -> float:
        """How long the last chunk may wait for the client to read; the server's stop cannot wait long."""
        patience = self._services.limits.send_seconds
        stops = self._services.stopping.is_set()
        return min(patience, _LAST_WORDS_SECONDS) if stops else patience

    def _seconds_until_due(self) -> float:
        """How long nothing can be due: no silence to fill, no patience to lose."""
        now, ping = monotonic(), self._services.ping_seconds
        if self._sending_since is None:
            return self._last_sent + ping - now
        return min(ping, self._sending_since + self._services.limits.send_seconds - now)


def _start(headers: Mapping[str, str]) -> Message:
    raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": 200, "headers": raw}


def _body(chunk: str, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": chunk.encode("ascii"), "more_body": more}
