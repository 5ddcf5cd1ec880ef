"""Follows one run to its end, over as many connections as that takes: no event is lost, none comes
twice.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from passback_client.answer import Place
from passback_client.backoff import Backoff
from passback_client.channel import Channel, Connection, Post, Which
from passback_client.errors import BadAnswer, Busy, PassbackError
from passback_client.events import Event, Left
from passback_client.limits import Retry
from passback_client.parsing import parse_event
from passback_client.sse import SseEvent

_DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Line:
    """The server's address and the options of a stream; calls are claimed in the name of
    `claimant`, if there is one.
    """

    channel: Channel
    retry: Retry
    include: Sequence[str]
    waits_while_busy: bool = False
    claimant: str | None = None


class Follower:
    """Begins with a post, or with a run that is there already.

    Attributes:
        which: the run, as far as it is known.
        left: of limits, as the answer's beginning told it last.
    """

    def __init__(self, line: Line, start: Post | Which) -> None:
        self.which = start if isinstance(start, Which) else Which("")
        self.left: Left | None = None
        self._post = start if isinstance(start, Post) else None
        self._line = line
        self._backoff = Backoff(line.retry, line.channel.contact)
        self._connection: Connection | None = None
        self._ready: deque[SseEvent] = deque()
        # behind a cursor there may be nothing left to say; from its start, each run says something
        self._is_begun = self.which.cursor is not None
        self._is_over = False

    async def connect(self) -> None:
        """Wait until the server has answered.

        Raises:
            PassbackError: it did not, or refuses.
        """
        while self._connection is None:
            try:
                self._connection = await self._open()
            except PassbackError as error:
                await self._recover(error)

    async def next(self) -> Event | None:
        """The next event, None at the end of the run.

        Raises:
            Unreachable: the connection broke too often.
            PassbackError: the server refuses.
        """
        while not self._is_over:
            if self._ready:
                return await self._take(self._ready.popleft())
            await self._read()
        return None

    async def aclose(self) -> None:
        """Leave; the run goes on."""
        self._is_over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _open(self) -> Connection:
        """A post is repeated as long as no run is known that could be followed."""
        line, post = self._line, self._post
        self._backoff.begin()
        if post is not None and self.which.run_id is None:
            connection = await line.channel.post(post)
        else:
            connection = await line.channel.follow(self.which, line.include)
        name = connection.conversation_id or self.which.conversation_id
        run_id = connection.run_id or self.which.run_id
        self.which = Which(name, run_id, self.which.cursor)
        self.left = connection.left or self.left
        return connection

    async def _read(self) -> None:
        try:
            connection = self._connection = self._connection or await self._open()
            self._ready += await connection.read()
        except PassbackError as error:
            await self._recover(error)

    async def _take(self, frame: SseEvent) -> Event | None:
        self._backoff.succeeded()
        if self.which.run_id is not None:
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
        self._note(frame.id)
        return event

    async def _recover(self, error: PassbackError) -> None:
        """Wait until it is time for another attempt; raise where there is none."""
        asked = None
        connection, self._connection = self._connection, None
        if connection is not None:
            self._note(connection.cursor)
            asked = connection.retry
            await connection.aclose()
        waits = self._line.waits_while_busy or not isinstance(error, Busy)
        if not (error.retryable and waits):
            raise error
        await anyio.sleep(self._backoff.pause_after(error, asked))

    def _note(self, cursor: str) -> None:
        if cursor:
            self.which = Which(self.which.conversation_id, self.which.run_id, cursor)
