"""Turns read from the record of a conversation."""

from collections.abc import Sequence
from itertools import pairwise

from passback.core.errors import InvalidRequest, UnknownMessage
from passback.core.messages import (
    ApprovalMessage,
    ChildMessage,
    ConversationKey,
    Message,
    MessageId,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from passback.core.runs import Runs
from passback.core.transcript import innermost_message
from passback.native.earlier import read_range
from passback.wire.chat.projections import JsonDict, shown_text
from passback.wire.chat.turns import Turns

_PAGE = 100  # messages
_LARGE_PAGE = 1_000  # messages, of a history that is read whole
_ANSWERS = (ToolMessage, ApprovalMessage, ChildMessage)  # to the calls of the turn before them


def project(
    messages: Sequence[Message], /, *, start: int = 0, running: bool = False
) -> list[JsonDict]:
    """Return the turns of a record (TurnProjections), in their order.

    Args:
        messages: the record from `start` on; either all of it, or from a message of the user on.
        start: the position in the record of the first of them.
        running: a run goes on.
    """
    return Turns(messages, start=start, running=running).views


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
    messages, start = await _read_back(runs, key, first)
    return Turns(messages, start=start)


async def _read_back(runs: Runs, key: ConversationKey, end: int) -> tuple[tuple[Message, ...], int]:
    """Return the messages before a position, back to one of the user, and where that is."""
    messages: tuple[Message, ...] = ()
    start = end
    while start > 0:
        page = max(0, start - _PAGE)
        messages = (*await read_range(runs, key, page, start), *messages)
        start = page
        places = [at for at, message in enumerate(messages) if is_input(message)]
        if places:
            return messages[places[-1] :], start + places[-1]
    return messages, 0


async def read_turns(
    runs: Runs, key: ConversationKey, /, *, after: int, limit: int | None, most: int
) -> list[JsonDict]:
    """Read the turns of a conversation.

    Args:
        runs: reads the record.
        key: the conversation.
        after: those behind the turn of the main agent or the user with this `sequence`.
        limit: so many turns of the main agent and the user, each with those of its sub-agents;
            None: all that there are.
        most: characters that the answer may have.

    Raises:
        UnknownConversation: there is none.
        InvalidRequest: there are too many for one answer.
    """
    status = await runs.status(key)
    begin = min(after, status.message_count)
    messages, start = await _read_back(runs, key, begin)
    size = 0
    while True:
        position = start + len(messages)
        page = await runs.messages(key, start=position, limit=_PAGE if limit else _LARGE_PAGE)
        messages = (*messages, *page.messages)
        size += sum(map(_text_size, page.messages))
        if size > most:
            raise InvalidRequest(
                f"these turns have more than {most} characters: read them in pages, with limit "
                "and after"
            )
        is_whole = not page.messages or position + len(page.messages) >= page.total
        if is_whole or limit:
            found = _turns_after(project(messages, start=start, running=status.running), after)
            # a turn with another one behind it does not change any more
            if is_whole or len(found) > (limit or 0):
                return [turn for turns in found[:limit] for turn in turns]


async def find_end_of_turn(runs: Runs, key: ConversationKey, sequence: int, /) -> MessageId:
    """Return the last message of a turn of the main agent or the user: the results of its calls
    belong to it. The empty id for the `sequence` 0, which is before the first turn.

    Raises:
        UnknownConversation: there is none.
        UnknownMessage: it has no turn with this `sequence`.
    """
    status = await runs.status(key)
    if not sequence:
        return MessageId("")
    messages, start = await _read_back(runs, key, min(sequence, status.message_count))
    while not any(at >= sequence and is_input(each) for at, each in enumerate(messages, start)):
        page = await runs.messages(key, start=start + len(messages), limit=_PAGE)
        if not page.messages:
            break
        messages = (*messages, *page.messages)
    end = _end_of_turn(messages, start, sequence)
    if end is None:
        raise UnknownMessage(f"this session has no turn with the sequence {sequence}")
    return messages[end].id


def _end_of_turn(messages: Sequence[Message], start: int, sequence: int) -> int | None:
    """Return the index of the last message of a turn; None: there is no such turn."""
    sequences = Turns.sequences(messages, start=start)
    pairs = enumerate(pairwise([start, *sequences]))
    begins = [at for at, (before, last) in pairs if before < last == sequence]
    # a turn that came to nothing gives its place to the next one
    if not begins or min(sequences[begins[-1] :]) < sequence:
        return None
    end = begins[-1]
    while end + 1 < len(messages) and isinstance(messages[end + 1], _ANSWERS):
        end += 1
    return end


def _text_size(message: Message) -> int:
    said = innermost_message(message)
    return 0 if isinstance(said, ApprovalMessage | ChildMessage) else len(shown_text(said.content))


def _turns_after(turns: Sequence[JsonDict], after: int) -> list[list[JsonDict]]:
    """Return the turns behind a sequence, each with those of its sub-agents."""
    found: list[list[JsonDict]] = []
    for turn in turns:
        if turn["parent_fork_tool_call_id"] is not None:
            if found:
                found[-1].append(turn)
        elif turn["sequence"] > after:
            found.append([turn])
    return found
