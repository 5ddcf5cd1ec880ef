"""Encoding batches of a run's log as server-sent events, or as another text. No I/O."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol, Self

from passback.core.errors import InvalidCursor, PassbackError
from passback.core.events import (
    START,
    Cursor,
    Failed,
    Logged,
    Position,
    Rewound,
    RunEvent,
    TextDelta,
    join_events,
    stream_of,
)
from passback.core.messages import RunId
from passback.core.ports import Encoder
from passback.http.requests import check_run_id
from passback.pacing import LARGE


class SseEncoder(Encoder[str], Protocol):
    """An encoder of run events as the `data` of server-sent events: one line of ASCII each.

    It keeps no state between events, because a stream may begin anywhere in a run. One that does
    is fed the whole run: see `SseFramer`. A `PassbackError` that `feed` raises ends the stream.
    """

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        """Return data saying that all after `to` is void, or nothing if the protocol cannot."""
        ...

    def fail(self, failed: Failed, /) -> Sequence[str]:
        """Return data saying that the stream cannot go on, though its run may. `end` follows."""
        ...

    def end(self) -> Sequence[str]:
        """Return the data after the last event of the log. It gets that event's id."""
        ...


class PlacedEncoder(ABC):
    """An encoder whose data depends on the places of the events in the log, such as numbers.

    It is fed the whole run, event by event: a replay gives the same data, so no deltas are joined.
    The other methods are as in `SseEncoder`.
    """

    @abstractmethod
    def feed_at(self, position: Position, event: RunEvent, /) -> Sequence[str]: ...

    @abstractmethod
    def rewind(self, to: Cursor, /) -> Sequence[str]: ...

    @abstractmethod
    def fail(self, failed: Failed, /) -> Sequence[str]: ...

    @abstractmethod
    def end(self) -> Sequence[str]: ...


class EventId(NamedTuple):
    """The `id:` of a frame.

    Args:
        cursor: the last event that was sent whole.
        frames: number of frames of the next event that were sent.
    """

    cursor: Cursor
    frames: int = 0

    @classmethod
    def parse(cls, text: str, /) -> Self:
        """Parse a `Last-Event-ID`.

        Raises:
            InvalidCursor: it is not of our form.
            UnknownRun: no run can have the id that it names.
        """
        place, mark, frames = text.partition("~")
        if mark and not (frames.isascii() and frames.isdigit() and len(frames) <= 6):
            raise InvalidCursor("the event id is not one that this server gave")
        cursor = Cursor.parse(place)
        check_run_id(cursor.run_id)
        return cls(cursor, int(frames or 0))


# The end of a stream whose protocol has no event for a rewind.
REWOUND = Failed(
    "rewound",
    "another worker took this run over, and a part of what was sent is void: "
    "read the run again from its start",
    retryable=True,
)


def sse_frame(event_id: str, data: str, /) -> str:
    """Return one server-sent event."""
    return f"id: {event_id}\ndata: {data}\n\n"


class SseFramer:
    """Frames the events of one stream, each with its id.

    Attributes:
        position: the last event that was framed whole.
        needs_recall: the encoder needs `recall` before anything is framed, because the client has
            some of the run already.
        ended: the stream has got its end, though the log may go on.

    Args:
        encoder: returns the data of the frames.
        run_id: the run whose log this is.
        since: the last event that the client has. The batches must begin right after it.
        frame: formats a frame from its id and its data.
        remembers: the encoder keeps state between events. `recall` then comes before the batches.
    """

    def __init__(
        self,
        encoder: SseEncoder | PlacedEncoder,
        run_id: RunId,
        since: EventId | None = None,
        *,
        frame: Callable[[str, str], str] = sse_frame,
        remembers: bool = False,
    ) -> None:
        self._encoder = encoder
        self._is_placed = isinstance(encoder, PlacedEncoder)
        self._remembers = remembers
        self._frame = frame
        self._run_id = run_id
        self._prefix = f"{run_id}."
        self._skip = since.frames if since else 0
        self.position = since.cursor.position if since else START
        self.needs_recall = remembers and self.position > START
        # the last event of which the client has any frame
        epoch, seq = self.position
        self._shown = Position(epoch, seq + 1) if self._skip else self.position
        self.ended = False

    def recall(self, batch: Sequence[Logged], /) -> bool:
        """Feed the encoder what the client has already, from the start of the log on.

        Return whether more is needed.
        """
        for position, event in batch:
            if position > self.position:
                return False
            self._feed(position, event)
        return batch[-1].position < self.position

    def frame_batch(self, batch: Sequence[Logged], /) -> str:
        """Return the frames of the next events of the log, or nothing once it has `ended`."""
        chunk: list[str] = []
        whole = batch if self._is_placed else join_deltas(batch)
        for position, event in () if self.ended else whole:
            try:
                frames = (
                    self._rewind_frames(event)
                    if isinstance(event, Rewound)
                    else self._feed(position, event)
                )
            except PassbackError as error:
                self.ended = True
                return "".join((*chunk, self.failure_frames(error)))
            if self.ended:
                return "".join((*chunk, self._failure_frames(REWOUND)))
            for number, data in enumerate(frames[self._skip :], self._skip + 1):
                # only the last frame of an event has the event's own id: a client that comes
                # back with it has the event whole
                place = position if number == len(frames) else f"{self.position}~{number}"
                chunk.append(self._frame(f"{self._prefix}{place}", data))
            self._skip = 0
            self.position = position
            if frames or self._remembers:  # events that were only remembered may become void, too
                self._shown = position
        return "".join(chunk)

    def is_new_lease(self, batch: Sequence[Logged], /) -> bool:
        """Return whether the log goes on under another lease. Only then can it be rewound."""
        return batch[-1].position.epoch != self.position.epoch

    def end_frames(self) -> str:
        """Return the frames after the end of the log."""
        return self._frames_at_position(self._encoder.end())

    def failure_frames(self, error: PassbackError, /) -> str:
        """Return the frames that end a stream whose run cannot be read on.

        They have the id of the last event.
        """
        return self._failure_frames(Failed(error.code, error.message))

    def _feed(self, position: Position, event: RunEvent) -> Sequence[str]:
        encoder = self._encoder
        if isinstance(encoder, PlacedEncoder):
            return encoder.feed_at(position, event)
        return encoder.feed(event)

    def _rewind_frames(self, event: Rewound) -> Sequence[str]:
        """Return the frames of a rewind. End the stream if the encoder has none for it."""
        self._skip = 0
        if self._shown <= event.to:  # the client has nothing of what is void
            return ()
        frames = self._encoder.rewind(Cursor(self._run_id, event.to))
        if not frames:
            self.ended = True
            self.position = START  # a client that reconnects by itself gets the run from its start
        return frames

    def _failure_frames(self, failed: Failed) -> str:
        return self._frames_at_position((*self._encoder.fail(failed), *self._encoder.end()))

    def _frames_at_position(self, frames: Sequence[str]) -> str:
        return "".join(self._frame(f"{self._prefix}{self.position}", data) for data in frames)


def split_batch(batch: Sequence[Logged], /) -> Iterator[tuple[Sequence[Logged], bool]]:
    """Yield the parts of a batch that may each be encoded at once, and whether a part is large.

    Events are not divided.
    """
    start, size = 0, 0
    for end, logged in enumerate(batch, 1):
        if isinstance(logged.event, TextDelta):
            size += len(logged.event.text)
        if size > LARGE:
            yield batch[start:end], True
            start, size = end, 0
    if start < len(batch):
        yield batch[start:], False


def join_deltas(batch: Sequence[Logged], /) -> Sequence[Logged]:
    """Return the batch with adjacent deltas of one text, or of one call's arguments, joined.

    They are joined at the position of the last one.
    """
    if len(batch) == 1:
        return batch
    joined: list[Logged] = []
    for stream, group in groupby(batch, key=lambda logged: stream_of(logged.event)):
        pieces = list(group)
        if stream is None or len(pieces) == 1:
            joined += pieces
        else:
            whole = join_events([piece.event for piece in pieces])
            joined.append(Logged(pieces[-1].position, whole))
    return joined
