"""A run's log as a response of server-sent events.

Written by hand, because the ready-made response doubles the cost of sending: it works per event, this per batch.
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from urllib.parse import quote

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from passback.core.errors import PassbackError
from passback.core.events import Logged, RunFinished
from passback.core.messages import ConversationId, RunId, RunRef
from passback.transport.frames import EventId, Framer, SseEncoder
from passback.transport.http import request_id
from passback.transport.line import Line
from passback.transport.wires import Services

logger = logging.getLogger(__name__)

OPENING = ": open\n\n"
CUT = "retry: 1000\n\n"
"""The end of a response whose run goes on: the client comes back after a second, and saw no end of the run."""

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

    _line: Line

    def __init__(
        self, services: Services, run: RunRef, encoder: SseEncoder, /, since: EventId | None = None
    ) -> None:
        self._services = services
        self._run = run
        self._framer = Framer(encoder, run.run_id, since)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        runs, position = self._services.runs, self._framer.position
        self._line = Line(self._services, scope, receive, send)
        async with runs.follow(self._run, after=position, take=self._take) as batches:
            headers = stream_headers(scope, self._run.key.id, self._run.run_id)
            await send(_start(headers))
            if scope["method"] == "HEAD":
                await self._line.end("")
                return
            last_words = await self._line.hold(partial(self._pump, batches))
            if last_words is None and self._services.stopping.is_set:
                last_words = CUT
            if last_words is not None:
                await self._line.end(last_words)

    async def _pump(self, batches: AsyncIterator[Sequence[Logged]]) -> str:
        """Send what the log says, one chunk per batch; gives the last one, unsent."""
        await self._line.send(OPENING)
        chunk = ""
        try:
            async for batch in batches:
                chunk = self._framer.batch(batch)
                if self._framer.ended:
                    return chunk
                if isinstance(batch[-1].event, RunFinished):
                    break
                if chunk:
                    await self._line.send(chunk)
                    chunk = ""
        except PassbackError as error:
            logger.warning("reading run %s failed: %s", self._run.run_id, error.code)
            return CUT if error.retryable else self._framer.failure(error)
        return chunk + self._framer.end()

    def _take(self, batch: Sequence[Logged]) -> bool:
        """Send a batch from within the run's own step, if the connection takes it at once."""
        if not self._line.ready or self._framer.begins_anew(batch):
            return False
        if chunk := self._framer.batch(batch):
            self._line.send_now(chunk)
        return True


def _start(headers: Mapping[str, str]) -> Message:
    raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": 200, "headers": raw}
