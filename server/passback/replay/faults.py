"""Failures of one play of an exchange: recorded ones, wanted faults, random faults.

All of it is decided when the play is planned, from the recording, the faults and the number of the
play, so that the same replay fails in the same way.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, TypeAlias, cast

from pydantic_core import from_json

from passback.core.errors import InvalidCursor, UnknownRun
from passback.core.events import START, Cursor, Position
from passback.core.messages import RunId
from passback.core.values import value
from passback.native import shapes
from passback.native.responses import DONE, native_data
from passback.replay.recording import Cut, Exchange, Faults, Frame, RecordedResponse
from passback.streams.frames import REWOUND, EventId

# a turn of the model begins after one of these; a take-over never makes them void
_STORED: Final = frozenset({"run-queued", "run-start", "tool-result"})
# by then the turn is stored: a server never makes one of these void
_COMMITTED: Final = frozenset({"tool-call-end", "owed", "interrupt", "output", "run-end", "error"})


@value
class Refuse:
    """A request is refused, when `after` frames were sent."""

    response: RecordedResponse
    after: int = 0


@value
class Lose:
    """A request reaches the server, and gets no answer."""

    after: int = 0


@value
class BreakOff:
    """The stream breaks off behind `after` frames of the recording."""

    after: int


@value
class TakeOver:
    """The stream breaks off, and the run continues as after the death of its worker."""

    after: int


Failure: TypeAlias = Refuse | Lose | BreakOff | TakeOver

_REFUSALS: Final = {
    409: ("conversation_busy", "this replay refuses the post as a busy conversation does"),
    429: ("too_many_runs", "this replay refuses the post as a server with too many runs does"),
    503: ("server_busy", "this replay refuses the post as a busy server does"),
}


@value
class Plan:
    """The failures of one play, in their order, and its delays in milliseconds."""

    failures: Sequence[Failure] = ()
    delay: float = 0
    delay_first: float = 0


def plan_play(exchange: Exchange, faults: Faults, number: int, *, recorded: bool = True) -> Plan:
    """Plan a play of an exchange.

    Args:
        exchange: what is played.
        faults: what is to go wrong.
        number: of this play, among those of all exchanges; decides with the seed.
        recorded: whether the failures in the recording are played.
    """
    if faults.seed is not None:
        # repeatable, and no secret depends on it
        random = Random(f"{faults.seed}.{number}")  # noqa: S311
        faults = _add_random_faults(exchange, faults, random)
    before: list[Failure] = [Refuse(_refusal(status, faults)) for status in faults.refuse]
    if faults.twice:
        before.append(Lose())
    within: list[Failure] = _recorded_failures(exchange) if recorded else []
    within += map(BreakOff, faults.cut_after)
    if faults.take_over_after is not None:
        within.append(TakeOver(faults.take_over_after))
    # stable: failures at one place keep their order, those of the recording first
    within.sort(key=lambda failure: failure.after)
    return Plan((*before, *within), faults.delay, faults.delay_first)


def _refusal(status: int, faults: Faults) -> RecordedResponse:
    code, message = _REFUSALS[status]
    return RecordedResponse(
        status=status,
        headers={"retry-after": str(faults.retry_after)},
        body={"code": code, "message": message, "request_id": ""},
    )


def _recorded_failures(exchange: Exchange) -> list[Failure]:
    return [_recorded_failure(exchange, cut) for cut in exchange.cuts]


def _recorded_failure(exchange: Exchange, cut: Cut) -> Failure:
    after = cut.after
    if after is None:
        after = sum(frame.at <= cut.at for frame in exchange.frames)
    if cut.response is not None and cut.response.status != 200:
        return Refuse(cut.response, after)
    # without a word of the response, an attempt that brought frames had one
    had_response = cut.response is not None or ("response" not in cut.model_fields_set and after)
    return BreakOff(after) if had_response else Lose(after)


def _add_random_faults(exchange: Exchange, faults: Faults, random: Random) -> Faults:
    """Return the faults and some more, which leave the answer whole for a client that retries.

    A post is not refused with 409: clients show that, and do not retry.
    """
    places = range(1, len(exchange.frames))
    refusals = random.choices((429, 503), k=random.choice((0, 0, 0, 1, 2)))
    twice = random.random() < 0.25
    cuts = random.sample(places, min(len(places), random.randint(0, 3)))
    takes_over = random.random() < 0.25 and len(places) > 0
    more = {
        "refuse": (*faults.refuse, *refusals),
        "twice": faults.twice or twice,
        "cut_after": (*faults.cut_after, *cuts),
        "delay": faults.delay + random.choice((0, 0, 2, 10)),
    }
    if takes_over and faults.take_over_after is None:
        more["take_over_after"] = random.choice(places)
    return faults.model_copy(update=more)


# ---------------------------------------------------------------- the frames of a play
@value
class PlayedFrame:
    """A frame, and the number of frames of the recording up to it."""

    frame: Frame
    count: int


class PlayLog:
    """The frames of one play, and what of them a take-over has made void."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = [PlayedFrame(frame, number) for number, frame in enumerate(frames, 1)]
        self._void: Sequence[PlayedFrame] = ()
        # where the frames that were sent again begin, and the id of the last one that stays
        self._kept = 0
        self._rewind: tuple[RunId, Position, Position] | None = None

    def holds(self, event_id: str) -> bool:
        """Return whether a frame has this id, or is void and had it."""
        return any(one.frame.id == event_id for one in (*self._frames, *self._void))

    def frames_after(self, event_id: str | None, *, rewinds: bool) -> Sequence[PlayedFrame]:
        """Return the frames for a reader that has seen those up to an id; None: no frame.

        Args:
            event_id: an id that the log does not hold counts as None.
            rewinds: whether the reader asked for `rewind` events. To one that did not, and has
                seen what is void, the stream ends with an error.
        """
        if event_id is None:
            return self._frames
        places = [n for n, one in enumerate(self._frames) if one.frame.id == event_id]
        if places:
            # the end has the id of the last event, and is sent again to whoever comes back with it
            last = places[-1]
            return self._frames[last if self._frames[last].frame.data == DONE else last + 1 :]
        if not any(one.frame.id == event_id for one in self._void):
            return self._frames
        return self._frames_after_void(rewinds=rewinds)

    def _frames_after_void(self, *, rewinds: bool) -> Sequence[PlayedFrame]:
        assert self._rewind is not None  # only a take-over makes frames void
        run_id, to, at = self._rewind
        again = self._frames[self._kept :]
        moment = again[0].frame.at if again else 0
        if rewinds:
            data = native_data(shapes.rewind(Cursor(run_id, to)))
            event = Frame(at=moment, id=str(Cursor(run_id, at)), data=data)
            return (PlayedFrame(event, self._kept), *again)
        start = str(Cursor(run_id, START))
        ends = (native_data(shapes.error(REWOUND)), DONE)
        return [PlayedFrame(Frame(at=moment, id=start, data=data), self._kept) for data in ends]

    def take_over(self, after: int) -> PlayedFrame | None:
        """Make the turn void in which so many frames were sent, and put it behind them again.

        Its frames get ids of the next epoch. Return the first of them. None, and nothing changes,
        if the turn was complete, the frames have no ids of a server, or there was a take-over in
        the recording.
        """
        sent = [one for one in self._frames if one.count <= after]
        ids = _event_ids(self._frames)
        if not sent or not ids:
            return None
        kept = _count_stored(sent)
        if any(_type_of(one.frame.data) in _COMMITTED for one in sent[kept:]):
            return None
        run_id = ids[0].cursor.run_id
        epoch = max(one.cursor.position.epoch for one in ids) + 1
        to = ids[kept - 1].cursor.position if kept else START
        self._void = self._frames[kept : len(sent)]
        self._frames = [*self._frames[:kept], *_renumber(self._frames[kept:], run_id, epoch)]
        self._kept = kept
        self._rewind = (run_id, to, Position(epoch, 1))
        return self._frames[kept]


def _event_ids(frames: Sequence[PlayedFrame]) -> Sequence[EventId]:
    """Return the ids of the frames; none if a frame has none, or is itself a rewind."""
    try:
        ids = [EventId.parse(one.frame.id) for one in frames]
    except (InvalidCursor, UnknownRun):
        return ()
    return () if any(_type_of(one.frame.data) == "rewind" for one in frames) else ids


def _count_stored(sent: Sequence[PlayedFrame]) -> int:
    """Return the number of frames before the turn in which the last one was sent."""
    for number in range(len(sent), 0, -1):
        frame = sent[number - 1].frame
        # an id with `~` is within an event, which is stored whole
        if "~" not in frame.id and _type_of(frame.data) in _STORED:
            return number
    return 0


def _type_of(data: str) -> object:
    try:
        event = from_json(data)
    except ValueError:
        return None
    return cast("dict[str, object]", event).get("type") if isinstance(event, dict) else None


def _renumber(frames: Sequence[PlayedFrame], run_id: RunId, epoch: int) -> Iterable[PlayedFrame]:
    """Yield the frames with ids of another epoch. Those that shared an id still do."""
    number, last = 1, None
    for one in frames:
        number += one.frame.id != last
        last = one.frame.id
        place = str(Cursor(run_id, Position(epoch, number)))
        yield PlayedFrame(one.frame.model_copy(update={"id": place}), one.count)
