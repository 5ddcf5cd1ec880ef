"""The stream of a conversation: the events of all its runs, and what was posted for each."""

import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Literal

from starlette.types import Message, Receive, Scope, Send
from typing_extensions import TypedDict

from passback.core.changes import Status
from passback.core.errors import PassbackError, UnknownConversation
from passback.core.events import Failed, Logged, RunStarted
from passback.core.messages import ConversationKey, RunRef
from passback.core.runs import RunBatch
from passback.http.wires import Services
from passback.native.history import MessageView, message_view
from passback.native.responses import NativeEncoder, native_data
from passback.pacing import wait_for_large_work
from passback.streams.frames import EventId, SseFramer, split_batch
from passback.streams.sse import CUT_SHORT, opening_comment, stream_headers
from passback.streams.writer import PING, ResponseWriter

logger = logging.getLogger(__name__)

ALWAYS_INCLUDED = frozenset({"rewind", "run"})
"""Without these, nobody could tell the runs apart, or what is void."""


class PostedEvent(TypedDict):
    """The messages with which a run begins, right before its `run-start`.

    They replace all messages from the position `first` of the conversation on, if there are any.
    """

    type: Literal["posted"]
    runId: str
    first: int
    messages: list[MessageView]


class SwitchedEvent(TypedDict):
    """Another branch is read: the messages up to `message`, its last one, have to be read again.

    A client that comes back gets it, too, if the branch is not the one that was written last; it
    may have those messages already.
    """

    type: Literal["switched"]
    message: str


class DeletedEvent(TypedDict):
    """The conversation was deleted. Nothing follows."""

    type: Literal["deleted"]


class ConversationStream:
    """A response that follows a conversation, live, an ASGI callable as Starlette's are.

    It ends with the conversation; early when the client disconnects or does not read for
    `limits.send_seconds`, when the server stops, and when the store fails: then the client
    reconnects.

    Raises:
        UnknownConversation, InvalidCursor, CursorExpired: on calling it, before anything is sent.
    """

    _writer: ResponseWriter

    def __init__(
        self,
        services: Services,
        key: ConversationKey,
        include: frozenset[str],
        since: EventId | None,
        /,
        *,
        waits: bool = False,
    ) -> None:
        self._services = services
        self._key = key
        self._encoder = NativeEncoder(include | ALWAYS_INCLUDED)
        self._since = since
        self._waits = waits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services = self._services
        self._writer = writer = ResponseWriter(services, scope, receive, send, ping=PING)
        after = None if self._since is None else self._since.cursor
        watching = services.runs.watch(
            self._key, after=after, tell_switch=self._send_switched, waits=self._waits
        )
        async with watching as batches:
            headers = stream_headers(scope, self._key.id)
            raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
            start: Message = {"type": "http.response.start", "status": 200, "headers": raw}
            if scope["method"] == "HEAD":
                await writer.send_head(start)
                await writer.send_last("")
                return
            opening = await writer.send_head(start, opening_comment(self._key.id))
            last_chunk = await writer.run(partial(self._send_runs, batches, opening))
            await self._end_response(last_chunk)

    async def _end_response(self, last_chunk: str | None) -> None:
        """Send the last chunk. None: the client has left, or the server stops."""
        if last_chunk is None and not self._services.stopping.is_set:
            return
        await self._writer.send_last(CUT_SHORT if last_chunk is None else last_chunk)

    async def _send_runs(self, batches: AsyncIterator[RunBatch], opening: str) -> str:
        """Send all events. Return the last chunk, unsent."""
        if opening:
            await self._writer.send(opening)
        framer: SseFramer | None = None
        run: RunRef | None = None
        try:
            async for batch in batches:
                if framer is None or batch.run != run:
                    run, framer = batch.run, self._new_framer(batch.run)
                await self._send_events(batch.run, batch.events, framer)
        except UnknownConversation:
            pass  # it was deleted while its messages were read
        except PassbackError as error:
            logger.warning("watching a conversation failed: %s", error.code)
            # a client may come back after a retryable error, so it must not see an end
            if error.retryable:
                return CUT_SHORT
            [failure] = self._encoder.fail(Failed(error.code, error.message))
            return _frame(failure)
        return _frame(native_data(DeletedEvent(type="deleted")))

    def _new_framer(self, run: RunRef) -> SseFramer:
        since = self._since
        is_begun = since is not None and since.cursor.run_id == run.run_id
        return SseFramer(self._encoder, run.run_id, since if is_begun else None)

    async def _send_events(self, run: RunRef, batch: Sequence[Logged], framer: SseFramer) -> None:
        for event in (logged.event for logged in batch):
            if isinstance(event, RunStarted):
                await self._send_posted(run, event)
        for part, is_large in split_batch(batch):
            if is_large:
                await wait_for_large_work()
            if chunk := framer.frame_batch(part):
                await self._writer.send(chunk)

    async def _send_switched(self, status: Status) -> None:
        """Send that another branch is read, in a frame without an id."""
        last = max(0, status.message_count - 1)
        page = await self._services.runs.messages(self._key, start=last, limit=1)
        for message in page.messages:
            switched = SwitchedEvent(type="switched", message=message.id)
            await self._writer.send(_frame(native_data(switched)))

    async def _send_posted(self, run: RunRef, event: RunStarted) -> None:
        """Send what was posted for a run, in a frame for each page of messages.

        The frames have no id: a client that loses what follows them gets them again.
        """
        first, end = event.first, event.first + event.posted
        while first < end:
            page = await self._services.runs.messages(self._key, start=first, limit=end - first)
            if not page.messages:
                return  # a rollback has removed them, and the run with them
            posted: PostedEvent = {
                "type": "posted",
                "runId": run.run_id,
                "first": first,
                "messages": [message_view(message) for message in page.messages],
            }
            await self._writer.send(_frame(native_data(posted)))
            first += len(page.messages)


def _frame(data: str) -> str:
    """Return a frame without an id: a client comes back with that of the event before it."""
    return f"data: {data}\n\n"
