"""Follows a stream over as many connections as needed: no event of a run is lost or repeated."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

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


class Frames:
    """The frames of a stream, over as many connections as needed.

    Args:
        settings: of the stream.
        opener: opens a connection that begins after `cursor`.
        cursor: of the last frame that was read; None: there is none.
        counts_pings: whether a connection on which only pings came was no failure.
    """

    def __init__(
        self,
        settings: StreamSettings,
        opener: Callable[[], Awaitable[Connection]],
        cursor: str | None = None,
        *,
        counts_pings: bool = False,
    ) -> None:
        self.cursor = cursor
        self._opener = opener
        self._waits_while_busy = settings.waits_while_busy
        self._counts_pings = counts_pings
        self._backoff = Backoff(settings.retry, settings.channel.contact)
        self._connection: Connection | None = None
        self._ready: deque[SseEvent] = deque()
        self._is_over = False

    async def connect(self) -> bool:
        """Wait until the server has answered; return whether a connection was opened for that.

        Raises:
            PassbackError: it did not, or it refused.
        """
        is_new = False
        while self._connection is None and not self._is_over:
            try:
                self._backoff.begin()
                self._connection = await self._opener()
                is_new = True
            except PassbackError as error:
                await self._recover(error)
        return is_new

    async def next(self) -> SseEvent | None:
        """Return the next frame; None if the connection was lost, or the stream is closed.

        Raises:
            Unreachable: the connection broke too often.
            PassbackError: a frame is too large.
        """
        while not self._ready and self._connection is not None:
            try:
                self._ready += await self._connection.read()
            except PassbackError as error:
                await self._recover(error)
        return self._ready.popleft() if self._ready else None

    def succeeded(self) -> None:
        """Note that the stream goes on: failures are counted from the beginning."""
        self._backoff.succeeded()

    async def finish(self) -> None:
        """Read the end after the last frame, so that the connection can be reused."""
        assert self._connection is not None
        await self._connection.finish()

    async def aclose(self) -> None:
        """Close the connection."""
        self._is_over = True
        self._ready.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _recover(self, error: PassbackError) -> None:
        """Wait for the next attempt; raise the error if there is none."""
        asked = None
        connection, self._connection = self._connection, None
        if connection is not None:
            self.cursor = connection.cursor or self.cursor
            asked = connection.retry
            if self._counts_pings and connection.pings:
                self._backoff.succeeded()
            await connection.aclose()
        waits = self._waits_while_busy or not isinstance(error, Busy)
        if not (error.retryable and waits):
            raise error
        await anyio.sleep(self._backoff.pause_after(error, asked))


class Follower:
    """The events of a run that a post starts, or that exists already.

    Attributes:
        left: the rest of the limits when the newest response began.
    """

    def __init__(self, settings: StreamSettings, start: Post | RunRef) -> None:
        self.left: Left | None = None
        self._run = start if isinstance(start, RunRef) else RunRef("")
        self._post = start if isinstance(start, Post) else None
        self._settings = settings
        self._frames = Frames(settings, self._open, self._run.cursor)
        # after a cursor there may be no more events; from its start, each run has some
        self._is_begun = self._run.cursor is not None
        self._is_over = False

    @property
    def run(self) -> RunRef:
        """The run, as far as it is known."""
        return replace(self._run, cursor=self._frames.cursor)

    async def connect(self) -> None:
        """Wait until the server has answered.

        Raises:
            PassbackError: it did not, or it refused.
        """
        await self._frames.connect()

    async def next(self) -> Event | None:
        """Return the next event, None at the end of the run.

        Raises:
            Unreachable: the connection broke too often.
            PassbackError: the server refuses.
        """
        while not self._is_over:
            await self._frames.connect()
            frame = await self._frames.next()
            if frame is not None:
                return await self._read_frame(frame)
        return None

    async def aclose(self) -> None:
        """Close the connection; the run continues."""
        self._is_over = True
        await self._frames.aclose()

    async def _open(self) -> Connection:
        """Open a connection; repeat the post until its run is known."""
        settings, post, run = self._settings, self._post, self.run
        if post is not None and run.run_id is None:
            connection = await settings.channel.post(post)
        else:
            connection = await settings.channel.follow(run, settings.include)
        name = connection.conversation_id or run.conversation_id
        self._run = RunRef(name, connection.run_id or run.run_id)
        self.left = connection.left or self.left
        return connection

    async def _read_frame(self, frame: SseEvent) -> Event | None:
        self._frames.succeeded()
        if self._run.run_id is not None:
            Place.parse(frame.id)
        if frame.data == _DONE:
            if not self._is_begun:
                raise BadAnswer("the stream ends before its first event")
            self._is_over = True
            await self._frames.finish()
            return None
        self._is_begun = True
        event = parse_event(frame.data, frame.id)
        self._frames.cursor = frame.id or self._frames.cursor
        return event
