"""What a client posts again because it sends all that was said, and nobody has answered it yet. Pure."""

from collections.abc import Collection, Sequence
from typing import TypeAlias

from passback.core.messages import (
    Answer,
    AssistantMessage,
    Content,
    Message,
    MessageId,
    PostedMessage,
    SystemMessage,
    UserMessage,
    lone_text,
)

_Said: TypeAlias = tuple[str, str | Content]


def resent(
    transcript: Sequence[Message],
    posted: Sequence[PostedMessage],
    named: Collection[MessageId] = (),
    /,
) -> int:
    """How many of the first posted messages are those that the transcript ends with.

    The last posted one is new: who says the same again wants an answer to it. One of the `named` ids is known by that.
    """
    again: list[_Said] = []
    for message in posted[:-1]:
        if isinstance(message, Answer) or message.id in named:
            break
        again.append(_said(message))
    return _overlap(_unanswered(transcript, len(again)), again)


def _unanswered(transcript: Sequence[Message], most: int) -> list[_Said]:
    """The last messages behind what the agent said last, at most so many."""
    found: list[_Said] = []
    for message in reversed(transcript):
        if _is_silent(message):
            continue
        if len(found) == most or not isinstance(message, UserMessage | SystemMessage):
            break
        found.append(_said(message))
    return found[::-1]


def _is_silent(message: Message) -> bool:
    """An answer in which nothing was said: no client has seen it."""
    return isinstance(message, AssistantMessage) and not (message.content or message.tool_calls)


def _said(message: UserMessage | SystemMessage) -> _Said:
    text = lone_text(message.content)
    return (message.role, message.content if text is None else text)


def _overlap(end: Sequence[_Said], start: Sequence[_Said]) -> int:
    """The length of the longest piece that one list ends and the other one starts with, in linear time."""
    fits = [0] * len(start)  # how far the list starts with what each place of it ends with
    size = 0
    for place in range(1, len(start)):
        while size and start[place] != start[size]:
            size = fits[size - 1]
        size += start[place] == start[size]
        fits[place] = size
    size = 0
    for said in end:
        while size and (size == len(start) or said != start[size]):
            size = fits[size - 1]
        size += size < len(start) and said == start[size]
    return size
