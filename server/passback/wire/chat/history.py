"""Turns read from the record of a conversation."""

from collections.abc import Sequence

from passback.core.messages import ConversationKey, Message, SystemMessage, UserMessage
from passback.core.ports import Runs
from passback.wire.chat.projections import JsonDict
from passback.wire.chat.turns import Turns

_PAGE = 100  # messages


def project(messages: Sequence[Message], /, *, start: int = 0) -> list[JsonDict]:
    """Return the turns of a record (TurnProjections), in their order.

    Args:
        messages: the record from `start` on; either all of it, or from a message of the user on.
        start: the position in the record of the first of them.
    """
    return Turns(messages, start=start).views


def is_input(message: Message, /) -> bool:
    """Return whether a message is a turn by itself, so that nothing before it changes any more."""
    return isinstance(message, UserMessage) or (
        isinstance(message, SystemMessage) and not message.synthetic
    )


async def read_turns_before(runs: Runs, key: ConversationKey, first: int, /) -> Turns:
    """Read the record before a position back to the last message of the user.

    Args:
        runs: reads the record.
        key: the conversation.
        first: `RunStarted.first` of the run that is to be fed.

    Raises:
        UnknownConversation: there is none.
    """
    messages: tuple[Message, ...] = ()
    start = first
    while start > 0:
        page = max(0, start - _PAGE)
        messages = (*await read_messages(runs, key, page, start - page), *messages)
        start = page
        places = [at for at, message in enumerate(messages) if is_input(message)]
        if places:
            return Turns(messages[places[-1] :], start=start + places[-1])
    return Turns(messages)


async def read_messages(
    runs: Runs, key: ConversationKey, start: int, count: int, /
) -> tuple[Message, ...]:
    """Read so many messages of the record from a position on, or all that there are.

    Raises:
        UnknownConversation: there is none.
    """
    messages: tuple[Message, ...] = ()
    while len(messages) < count:
        left = count - len(messages)
        page = await runs.messages(key, start=start + len(messages), limit=left)
        if not page.messages:
            break
        messages = (*messages, *page.messages)
    return messages
