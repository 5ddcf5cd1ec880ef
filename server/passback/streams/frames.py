"""From batches of a run's log to the text of server-sent events, or another text. No I/O."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol, Self

from passback.core.errors import InvalidCursor, PassbackError
from passback.core.events import START, Cursor, Failed, Logged, Position, Rewound, TextDelta
from passback.core.messages import RunId
from passback.core.pieces import join, stream_of
from passback.core.ports import Encoder
from passback.http.requests import run_id
from passback.pacing import LARGE


class SseEncoder(Encoder[str], Protocol):
    """Run events to the `data` of server-sent events: one line of ASCII each.

    Without memory of earlier events, for a stream may begin anywhere in a run. One with a memory is told of the whole
    run: see `SseFramer`. What `feed` raises, a `PassbackError`, ends the stream.
    """

    def rewind(self, to: Cursor, /) -> Sequence[str]:
        """What tells that all behind a place is void; nothing where the protocol has no word for it."""
        ...

    def fail(self, failed: Failed, /) -> Sequence[str]:
        """What tells that the stream cannot go on, though its run may; `end` follows."""
        ...

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
            UnknownRun: no run can have the id that it names.
        """
        place, mark, frames = text.partition("~")
        if mark and not (frames.isascii() and frames.isdigit() and len(frames) <= 6):
            raise InvalidCursor("the event id is not one that this server gave")
        cursor = Cursor.parse(place)
        run_id(cursor.run_id)
        return cls(cursor, int(frames or 0))


REWOUND = Failed(
    "rewound",
    "another worker took this run over, and a part of what was sent is void: read the run again from its start",
    retryable=True,
)
"""The end of a stream whose reader cannot be told what is void."""


def sse_frame(event_id: str, data: str, /) -> str:
    return f"id: {event_id}\ndata: {data}\n\n"


class SseFramer:
    """Writes one stream's frames, each with its id.

    Args:
        encoder: gives the data.
        run_id: the run whose log this is.
        since: what the client has already; the batches must begin right after it.
        frame: writes a frame from its id and its data.
        remembers: whether the encoder has a memory. Then `recall` comes before the batches.
    """

    def __init__(
        self,
        encoder: SseEncoder,
        run_id: RunId,
        since: EventId | None = None,
        *,
        frame: Callable[[str, str], str] = sse_frame,
        remembers: bool = False,
    ) -> None:
        self._encoder = encoder
        self._remembers = remembers
        self._frame = frame
        self._run_id = run_id
        self._prefix = f"{run_id}."
        self._skip = since.frames if since else 0
        self.position = since.cursor.position if since else START
        """The last event that was written whole."""
        self._shown = _seen(since) if since else START
        self.ended = False
        """Whether the stream has got its end, though the log may go on."""

    @property
    def recalls(self) -> bool:
        """Whether the encoder has to be told first what the client has already."""
        return self._remembers and self.position > START

    def recall(self, batch: Sequence[Logged], /) -> bool:
        """Tell the encoder what the client has already, from the start of the log on. False: that was all of it."""
        for position, event in batch:
            if position > self.position:
                return False
            self._encoder.feed(event)
        return batch[-1].position < self.position

    def batch(self, batch: Sequence[Logged], /) -> str:
        """The frames of the next events of the log; nothing once it has `ended`."""
        chunk: list[str] = []
        for position, event in () if self.ended else coalesced(batch):
            try:
                frames = (
                    self._rewind(event) if isinstance(event, Rewound) else self._encoder.feed(event)
                )
            except PassbackError as error:
                self.ended = True
                return "".join((*chunk, self.failure(error)))
            if self.ended:
                return "".join((*chunk, self._failure(REWOUND)))
            for number, data in enumerate(frames[self._skip :], self._skip + 1):
                place = position if number == len(frames) else f"{self.position}~{number}"
                chunk.append(self._frame(f"{self._prefix}{place}", data))
            self._skip = 0
            self.position = position
            if frames or self._remembers:  # what is only remembered may become void, too
                self._shown = position
        return "".join(chunk)

    def begins_anew(self, batch: Sequence[Logged], /) -> bool:
        """Whether the log goes on under another lease: only then may it be rewound."""
        return batch[-1].position.epoch != self.position.epoch

    def end(self) -> str:
        """The frames after the end of the log."""
        return self._at_position(self._encoder.end())

    def failure(self, error: PassbackError, /) -> str:
        """The end for a reader whose run cannot be read any more; its ids are of what was read last."""
        return self._failure(Failed(error.code, error.message))

    def _rewind(self, event: Rewound) -> Sequence[str]:
        """Tell of a rewind, if any frame of the client's is void; end the stream where it cannot be told."""
        self._skip = 0
        if self._shown <= event.to:
            return ()
        frames = self._encoder.rewind(Cursor(self._run_id, event.to))
        if not frames:
            self.ended = True
            self.position = START  # a client that comes back by itself gets the run from its start
        return frames

    def _failure(self, failed: Failed) -> str:
        return self._at_position((*self._encoder.fail(failed), *self._encoder.end()))

    def _at_position(self, frames: Sequence[str]) -> str:
        return "".join(self._frame(f"{self._prefix}{self.position}", data) for data in frames)


def _seen(since: EventId) -> Position:
    """The place up to which a client has frames; some frames of an event are a piece of the next one."""
    position = since.cursor.position
    return Position(position.epoch, position.seq + 1) if since.frames else position


def parts(batch: Sequence[Logged], /) -> Iterator[tuple[Sequence[Logged], bool]]:
    """A batch in parts that may each be written at once, and whether that is large work. An event is not divided."""
    start, size = 0, 0
    for end, logged in enumerate(batch, 1):
        if isinstance(logged.event, TextDelta):
            size += len(logged.event.text)
        if size > LARGE:
            yield batch[start:end], True
            start, size = end, 0
    if start < len(batch):
        yield batch[start:], False


def coalesced(batch: Sequence[Logged], /) -> Sequence[Logged]:
    """The batch with neighbouring pieces of one text or of one call's arguments joined, at the last one's place."""
    if len(batch) == 1:
        return batch
    joined: list[Logged] = []
    for stream, group in groupby(batch, key=lambda logged: stream_of(logged.event)):
        pieces = list(group)
        if stream is None or len(pieces) == 1:
            joined += pieces
        else:
            joined.append(Logged(pieces[-1].position, join([piece.event for piece in pieces])))
    return joined
