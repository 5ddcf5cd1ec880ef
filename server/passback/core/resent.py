"""What a client posts again because it sends all that was said, and nobody has answered it yet. Pure."""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from passback.core.messages import (
    Answer,
    AssistantMessage,
    Content,
    Message,
    MessageId,
    PostedMessage,
    SystemMessage,
    ToolMessage,
    UserMessage,
    lone_text,
)
from passback.core.posts import StartRun

_Said: TypeAlias = tuple[str, str | Content]


def resent(
    post: StartRun, new: Sequence[PostedMessage], stored: Sequence[Message], /, *, running: bool
) -> int:
    """How many of a post's first new messages are stored already, without an id by which that could be seen.

    Args:
        post: tells whether its client does such a thing.
        new: its messages without answers to calls, and without those that are known by their ids.
        stored: the transcript, and what waits behind it.
        running: whether a run goes on.
    """
    # what is taken back with its run is not stored any more
    if not post.resends or (running and post.on_busy == "rollback"):
        return 0
    return said_again(stored, new, post.named, answers=isinstance(post.messages[-1], Answer))


def said_again(
    stored: Sequence[Message],
    posted: Sequence[PostedMessage],
    named: Collection[MessageId] = (),
    /,
    *,
    answers: bool = False,
) -> int:
    """How many of the first posted messages are stored, in this order, behind what the agent said last.

    The last posted one is new: who says the same again wants an answer to it.

    Args:
        stored: the transcript, and what waits behind it.
        posted: what may be new.
        named: ids that the client chose: such a message is known by its id.
        answers: an answer to a call follows on them, which the client need not repeat: then the last one may be known, too.
    """
    candidates = posted if answers else posted[:-1]
    left = _unanswered(stored, answers=answers)
    known = 0
    for message in candidates:
        if isinstance(message, Answer) or message.id in named or _said(message) not in left:
            break
        known += 1
    return known


def _unanswered(stored: Sequence[Message], *, answers: bool) -> Iterator[_Said]:
    """What stands behind the agent's last words, in its order."""
    found: list[_Said] = []
    for message in reversed(stored):
        if isinstance(message, UserMessage | SystemMessage):
            found.append(_said(message))
        elif not _is_unseen(message, answers=answers):
            break
    return reversed(found)


def _is_unseen(message: Message, *, answers: bool) -> bool:
    """Whether a client may not have it: an answer in which nothing was said, or that broke off, or what it answers now."""
    if isinstance(message, AssistantMessage):
        silent = not (message.content or message.tool_calls)
        return silent or message.partial or (answers and bool(message.tool_calls))
    return answers and isinstance(message, ToolMessage)


def _said(message: UserMessage | SystemMessage) -> _Said:
    text = lone_text(message.content)
    return (message.role, message.content if text is None else text)
