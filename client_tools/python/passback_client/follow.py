"""Follows one run to its end, over as many connections as needed: no event is lost or repeated."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from passback_client.answer import Place
from passback_client.backoff import Backoff
from passback_client.channel import Channel, Connection, Post, RunRef
from passback_client.errors import BadAnswer, Busy, PassbackError
from passback_client.events import Event, Left
from passback_client.limits import Retry
from passback_client.parsing import parse_event
from passback_client.sse import SseEvent

_DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The server and the options of a stream; calls are claimed for `claimant`, if there is one."""

    channel: Channel
    retry: Retry
    include: Sequence[str]
    waits_while_busy: bool = False
    claimant: str | None = None


class Follower:
    """The events of a run that a post starts, or that exists already.

    Attributes:
        run: the run, as far as it is known.
        left: the rest of the limits when the newest response began.
    """

    def __init__(self, settings: StreamSettings, start: Post | RunRef) -> None:
        self.run = start if isinstance(start, RunRef) else RunRef("")
        self.left: Left | None = None
        self._post = start if isinstance(start, Post) else None
        self._settings = settings
        self._backoff = Backoff(settings.retry, settings.channel.contact)
        self._connection: Connection | None = None
        self._ready: deque[SseEvent] = deque()
        # after a cursor there may be no more events; from its start, each run has some
        self._is_begun = self.run.cursor is not None
        self._is_over = False

    async def connect(self) -> None:
        """Wait until the server has answered.

        Raises:
            PassbackError: it did not, or it refused.
        """
        while self._connection is None:
            try:
                self._connection = await self._open()
            except PassbackError as error:
                await self._recover(error)

    async def next(self) -> Event | None:
        """Return the next event, None at the end of the run.

        Raises:
            Unreachable: the connection broke too often.
            PassbackError: the server refuses.
        """
        while not self._is_over:
            if self._ready:
                return await self._read_frame(self._ready.popleft())
            await self._read()
        return None

    async def aclose(self) -> None:
        """Close the connection; the run continues."""
        self._is_over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _open(self) -> Connection:
        """Open a connection; repeat the post until its run is known."""
        settings, post = self._settings, self._post
        self._backoff.begin()
        if post is not None and self.run.run_id is None:
            connection = await settings.channel.post(post)
        else:
            connection = await settings.channel.follow(self.run, settings.include)
        name = connection.conversation_id or self.run.conversation_id
        run_id = connection.run_id or self.run.run_id
        self.run = RunRef(name, run_id, self.run.cursor)
        self.left = connection.left or self.left
        return connection

    async def _read(self) -> None:
        try:
            connection = self._connection = self._connection or await self._open()
            self._ready += await connection.read()
        except PassbackError as error:
            await self._recover(error)

    async def _read_frame(self, frame: SseEvent) -> Event | None:
        self._backoff.succeeded()
        if self.run.run_id is not None:
            Place.parse(frame.id)
        if frame.data == _DONE:
            if not self._is_begun:
                raise BadAnswer("the stream ends before its first event")
            self._is_over = True
            assert self._connection is not None
            await self._connection.finish()
            return None
        self._is_begun = True
        event = parse_event(frame.data, frame.id)
        self._set_cursor(frame.id)
        return event

    async def _recover(self, error: PassbackError) -> None:
        """Wait for the next attempt; raise the error if there is none."""
        asked = None
        connection, self._connection = self._connection, None
        if connection is not None:
            self._set_cursor(connection.cursor)
            asked = connection.retry
            await connection.aclose()
        waits = self._settings.waits_while_busy or not isinstance(error, Busy)
        if not (error.retryable and waits):
            raise error
        await anyio.sleep(self._backoff.pause_after(error, asked))

    def _set_cursor(self, cursor: str) -> None:
        if cursor:
            self.run = RunRef(self.run.conversation_id, self.run.run_id, cursor)
