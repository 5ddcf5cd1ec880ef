"""Events for clients of the chat socket, with numbers that are their cursors. Pure."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from passback.core.errors import InvalidCursor
from passback.core.events import Position


class Said(NamedTuple):
    """One event for the clients.

    Attributes:
        name: `chat:start`, `turn:start`, `turn:patch`, `turn:end`, `chat:end` or
            `session:updated`.
        data: its payload, without `session_id`, which its sender adds.
        number: its `stream_sequence`: it grows over all runs of the conversation.
    """

    name: str
    data: dict[str, Any]
    number: int


_SEQ_BITS: Final = 23  # events of one run under one lease
_PLACE_BITS: Final = 10  # events for clients that one of them becomes
_MOST_SEQ: Final = 2**_SEQ_BITS - 1
_MOST_PLACE: Final = 2**_PLACE_BITS - 1
_END: Final = 2**53  # of the whole numbers that every client can read


def number_of(position: Position, place: int = 0, /) -> int:
    """Return the number of the event at a place among those that one event of a log became."""
    # more of them than there are places share the last one
    seq, place = min(position.seq, _MOST_SEQ), min(place, _MOST_PLACE)
    return ((position.epoch << _SEQ_BITS | seq) << _PLACE_BITS | place) + 1


def position_of(number: int, /) -> Position:
    """Return the position in the log of a numbered event.

    Raises:
        InvalidCursor: no event has this number.
    """
    epoch, seq = divmod((number - 1) >> _PLACE_BITS, _MOST_SEQ + 1)
    if not (0 < number < _END and epoch and seq):
        raise InvalidCursor("the sequence is not one that this server gave")
    return Position(epoch, seq)


def join_said(said: Sequence[Said], /) -> Sequence[Said]:
    """Join neighbouring pieces of one text: the patch has the number and sequence of the last."""
    if len(said) < 2:
        return said
    joined: list[Said] = []
    pieces: list[str] = []
    for each in said:
        if joined and _continues(joined[-1], each):
            pieces.append(each.data["data"]["text_delta"])
            joined[-1] = each
            continue
        _join_pieces(joined, pieces)
        joined.append(each)
        pieces = [_text_delta(each)]
    _join_pieces(joined, pieces)
    return joined


def _text_delta(said: Said) -> str:
    data = said.data.get("data")
    return data.get("text_delta", "") if data else ""


def _continues(before: Said, said: Said) -> bool:
    first, second = before.data, said.data
    return (
        first.get("patch_type") == second.get("patch_type") == "add_content"
        and first["turn_id"] == second["turn_id"]
        and first["data"]["type"] == second["data"]["type"]
    )


def _join_pieces(joined: list[Said], pieces: Sequence[str]) -> None:
    if len(pieces) < 2:
        return
    last = joined[-1]
    data = {**last.data["data"], "text_delta": "".join(pieces)}
    joined[-1] = last._replace(data={**last.data, "data": data})
