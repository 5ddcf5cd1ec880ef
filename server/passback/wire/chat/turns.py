"""Turns of a conversation, as the clients of the chat socket are told of them. No I/O."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from passback.core.events import Logged, Position
from passback.core.messages import Message, RunRef


class Said(NamedTuple):
    """One event for the clients.

    Attributes:
        name: `chat:start`, `turn:start`, `turn:patch`, `turn:end` or `chat:end`.
        data: its payload, without `session_id`, which its sender adds.
        number: its `stream_sequence`: it grows over all runs of the conversation.
    """

    name: str
    data: dict[str, Any]
    number: int


def number_of(position: Position, place: int = 0, /) -> int:
    """Return the number of the event at a place among those that one event of a log became."""
    raise NotImplementedError


def position_of(number: int, /) -> Position:
    """Return the position in the log of a numbered event.

    Raises:
        InvalidCursor: no event has this number.
    """
    raise NotImplementedError


def join_said(said: Sequence[Said], /) -> list[Said]:
    """Join neighbouring pieces of one text: the patch has the number and sequence of the last."""
    raise NotImplementedError


class Turns:
    """The turns of a conversation so far, and the events that tell clients how they grow.

    Args:
        messages: the record before the run that is fed first, back to the last message of the
            user at least (`history.read_turns_before` reads it).
        start: the position in the record of the first of them.
    """

    def __init__(self, messages: Sequence[Message] = (), /, *, start: int = 0) -> None:
        raise NotImplementedError

    def feed(self, run: RunRef, logged: Logged, posted: Sequence[Message] = (), /) -> list[Said]:
        """Return the events that an event of a run becomes.

        Runs are fed one after the other, each from its start, without `Rewound`.

        Args:
            run: the run.
            logged: the next event of its log.
            posted: with `RunStarted`, the messages of the record from `first` on, `posted` of them.
        """
        raise NotImplementedError

    def rewind(self, fresh: "Turns", position: Position, /) -> list[Said]:
        """Return the events that replace what a take-over made void, and become as `fresh`.

        Args:
            fresh: made anew, and fed with the run from its start up to `Rewound.to`.
            position: that of the event `Rewound`.
        """
        raise NotImplementedError

    def restate(self, position: Position, /) -> list[Said]:
        """Return the events that tell the turns of the run anew, to a client whose cursor is void.

        Args:
            position: that of the event `Rewound`.
        """
        raise NotImplementedError

    def snapshot(self) -> list[Said]:
        """Return the events for a client that comes late: the open turns of the run in progress.

        All have the number of the last event that was fed. Empty if no run is in progress.
        """
        raise NotImplementedError
