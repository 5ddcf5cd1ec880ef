"""Turns read from the record of a conversation."""

from collections.abc import Sequence
from typing import Any

from passback.core.messages import ConversationKey, Message
from passback.core.ports import Runs
from passback.wire.chat.turns import Turns


def project(messages: Sequence[Message], /, *, start: int = 0) -> list[dict[str, Any]]:
    """Return the turns of a record (TurnProjections), in their order.

    Args:
        messages: the record from `start` on; either all of it, or from a message of the user on.
        start: the position in the record of the first of them.
    """
    raise NotImplementedError


async def read_turns_before(runs: Runs, key: ConversationKey, first: int, /) -> Turns:
    """Read the record before a position back to the last message of the user.

    Args:
        runs: reads the record.
        key: the conversation.
        first: `RunStarted.first` of the run that is to be fed.
    """
    raise NotImplementedError


async def read_posted(
    runs: Runs, key: ConversationKey, first: int, posted: int, /
) -> Sequence[Message]:
    """Read the messages that a run began with: for `Turns.feed` with its `RunStarted`."""
    raise NotImplementedError
