"""Whether a client can have seen what it says that it has."""

from collections.abc import AsyncIterator, Sequence

from passback.core.errors import InvalidCursor
from passback.core.events import Logged, Position
from passback.core.messages import RunRef
from passback.core.ports import Runs
from passback.transport.frames import EventId, SseEncoder


async def refuse_invented(runs: Runs, run: RunRef, since: EventId, encoder: SseEncoder, /) -> None:
    """Return if an event has more frames than those that the client has of it; `encoder` is a fresh one.

    Raises:
        InvalidCursor: it has not, or the run cannot be followed from there.
        UnknownRun, CursorExpired: there is nothing to follow.
    """
    async with runs.follow(run) as batches:
        frames = await _frames(batches, since.cursor.position, encoder)
    if since.frames >= frames:
        raise InvalidCursor("the event id is not one that this server gave")


async def _frames(
    batches: AsyncIterator[Sequence[Logged]], place: Position, encoder: SseEncoder
) -> float:
    """How many the first event behind a place has; after a take-over nobody knows how many there were."""
    async for batch in batches:
        for position, event in batch:
            frames = encoder.feed(event)
            if position > place:
                return len(frames) if position.epoch == place.epoch else float("inf")
    return 0
