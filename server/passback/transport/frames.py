"""From batches of a run's log to the text of server-sent events. No I/O."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, Protocol, Self

from passback.core.errors import InvalidCursor, PassbackError
from passback.core.events import (
    START,
    Cursor,
    Failed,
    Logged,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    TextDelta,
    ToolCallArguments,
)
from passback.core.messages import RunId
from passback.core.ports import Encoder


class SseEncoder(Encoder[str], Protocol):
    """Run events to the `data` of server-sent events: one line of ASCII each.

    Without memory of earlier events, for a stream may begin anywhere in a run.
    """

    def end(self) -> Sequence[str]:
        """What follows the last event of the log; it has the last event's id."""
        ...


class EventId(NamedTuple):
    """The `id:` of a frame: the last event that was sent whole, and how many frames of the next one were sent."""

    cursor: Cursor
    frames: int = 0

    @classmethod
    def parse(cls, text: str, /) -> Self:
        """Read a `Last-Event-ID` back.

        Raises:
            InvalidCursor: not of our form.
        """
        place, mark, frames = text.partition("~")
        if mark and not (frames.isascii() and frames.isdigit() and len(frames) <= 3):
            raise InvalidCursor("the event id is not one that this server gave")
        return cls(Cursor.parse(place), int(frames or 0))


class Framer:
    """Writes one stream's frames, each with its id.

    Args:
        encoder: gives the data.
        run_id: the run whose log this is.
        since: what the client has already; the batches must begin right after it.
    """

    def __init__(self, encoder: SseEncoder, run_id: RunId, since: EventId | None = None) -> None:
        self._encoder = encoder
        self._prefix = f"id: {run_id}."
        self._skip = since.frames if since else 0
        self.position = since.cursor.position if since else START
        """The last event that was written whole."""

    def batch(self, batch: Sequence[Logged], /) -> str:
        """The frames of the next events of the log."""
        chunk: list[str] = []
        for position, event in coalesced(batch):
            frames = self._encoder.feed(event)
            for number, data in enumerate(frames[self._skip :], self._skip + 1):
                place = position if number == len(frames) else f"{self.position}~{number}"
                chunk.append(f"{self._prefix}{place}\ndata: {data}\n\n")
            self._skip = 0
            self.position = position
        return "".join(chunk)

    def end(self) -> str:
        """The frames after the end of the log."""
        return self._at_position(self._encoder.end())

    def failure(self, error: PassbackError, /) -> str:
        """The end for a reader whose run cannot be read any more; its ids are of what was read last."""
        frames = self._encoder.feed(RunFinished(Failed(error.code, error.message)))
        return self._at_position((*frames, *self._encoder.end()))

    def _at_position(self, frames: Sequence[str]) -> str:
        return "".join(f"{self._prefix}{self.position}\ndata: {data}\n\n" for data in frames)


def coalesced(batch: Sequence[Logged], /) -> Sequence[Logged]:
    """The batch with neighbouring pieces of one text or of one call's arguments joined, at the last one's place."""
    if len(batch) == 1:
        return batch
    joined: list[Logged] = []
    for stream, group in groupby(batch, key=_stream_of):
        pieces = list(group)
        if stream is None or len(pieces) == 1:
            joined += pieces
        else:
            joined.append(Logged(pieces[-1].position, _join([piece.event for piece in pieces])))
    return joined


def _stream_of(logged: Logged) -> object:
    """Equal for pieces that may be joined, None for an event that stands alone."""
    event = logged.event
    if isinstance(event, ToolCallArguments):
        return event.call_id
    return type(event) if isinstance(event, TextDelta | ReasoningDelta) else None


def _join(events: Sequence[RunEvent]) -> RunEvent:
    first = events[0]
    if isinstance(first, ToolCallArguments):
        deltas = [event.delta for event in events if isinstance(event, ToolCallArguments)]
        return ToolCallArguments(first.call_id, "".join(deltas))
    texts = [event.text for event in events if isinstance(event, TextDelta | ReasoningDelta)]
    kind = TextDelta if isinstance(first, TextDelta) else ReasoningDelta
    return kind("".join(texts))
