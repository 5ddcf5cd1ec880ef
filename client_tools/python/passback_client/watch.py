"""Follows a conversation live: the events of all its runs, whoever posts."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

from typing_extensions import override

from passback_client.channel import Connection
from passback_client.conversation import Message, read_messages
from passback_client.errors import CursorExpired, Refused
from passback_client.events import Event, Failure, Unknown
from passback_client.fields import count, text
from passback_client.follow import Frames, StreamSettings
from passback_client.parsing import parse_event
from passback_client.sse import SseEvent


@dataclass(frozen=True, slots=True)
class Watching:
    """The beginning of a watch: a run in progress follows from its start, or the next run.

    What was said before is in the history. It comes from this library, not from the server.
    """


@dataclass(frozen=True, slots=True)
class Posted:
    """The messages with which a run begins, right before its `RunStart`.

    Attributes:
        run_id: of the run.
        first: they replace all messages of the conversation from this position on.
        messages: as `MessagePage` has them. Many come in several events.
    """

    run_id: str
    first: int
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Switched:
    """Another branch is read, which ends with `message`: read the messages again.

    It also comes behind a reconnect, if it may have been missed.
    """

    message: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """The conversation was deleted: the last event."""


WatchEvent: TypeAlias = Event | Watching | Posted | Switched | Deleted


class Watch(AsyncIterator[WatchEvent]):
    """The events of a conversation, of one run after the other.

    Nothing is sent before the first event is requested. Leaving the loop closes the connection.
    Read it in one task at a time.
    """

    def __init__(self, settings: StreamSettings, conversation_id: str, after: str | None) -> None:
        self._watcher = _Watcher(settings, conversation_id, after)
        # a generator, so that leaving the loop ends it, and with it the connection
        self._events = _events(self._watcher)

    @property
    def cursor(self) -> str | None:
        """The place of the last event that has one, for the `after` of another watch."""
        return self._watcher.cursor

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> WatchEvent:
        """Return the next event.

        Raises:
            CursorExpired: events after the cursor are lost: read the messages again, and watch
                without `after`.
            Unreachable: no answer, or too many disconnects.
            PassbackError: the server refuses; an event is too large.
        """
        return await anext(self._events)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


async def _events(watcher: "_Watcher") -> AsyncGenerator[WatchEvent]:
    try:
        while not watcher.is_over:
            yield await watcher.next()
    finally:
        await watcher.aclose()


class _Watcher:
    """Reads the events of a conversation, over as many connections as needed.

    Attributes:
        is_over: whether the conversation was deleted.
    """

    def __init__(self, settings: StreamSettings, conversation_id: str, after: str | None) -> None:
        self.is_over = False
        self._settings = settings
        self._conversation_id = conversation_id
        self._is_known = after is not None
        # a conversation may be silent for hours
        self._frames = Frames(settings, self._open, after, counts_pings=True)

    @property
    def cursor(self) -> str | None:
        """The id of the last event that has one."""
        return self._frames.cursor

    async def next(self) -> WatchEvent:
        """Return the next event.

        Raises:
            PassbackError: there is none.
        """
        while True:
            try:
                is_new = await self._frames.connect()
            except Refused as error:
                if not self._is_known or error.code != "conversation_not_found":
                    raise
                self.is_over = True
                return Deleted()
            self._is_known = True
            if is_new and self.cursor is None:
                return Watching()
            frame = await self._frames.next()
            if frame is not None:
                return self._read_frame(frame)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._frames.aclose()

    async def _open(self) -> Connection:
        channel, include = self._settings.channel, self._settings.include
        return await channel.watch(self._conversation_id, self.cursor, include)

    def _read_frame(self, frame: SseEvent) -> WatchEvent:
        # an event without an id of its own has that of the one before
        is_placed = frame.id not in {"", self.cursor}
        event = parse_event(frame.data, frame.id if is_placed else "")
        if is_placed:
            self._frames.succeeded()
            self._frames.cursor = frame.id
        elif isinstance(event, Failure):  # of the stream, not of a run
            kind = CursorExpired if event.code == "cursor_expired" else Refused
            raise kind(event.message, code=event.code)
        match event:
            case Unknown("posted", fields):
                first, messages = count(fields, "first"), read_messages(fields)
                return Posted(text(fields, "runId"), first, messages)
            case Unknown("switched", fields):
                return Switched(text(fields, "message"))
            case Unknown("deleted"):
                self.is_over = True
                return Deleted()
            case _:
                return event
