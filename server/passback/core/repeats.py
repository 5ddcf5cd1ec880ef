"""Repeated and resent posts: find what is stored already. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from passback.core.errors import ResultConflict, Reused
from passback.core.ids import may_be_ours
from passback.core.messages import (
    Answer,
    ApprovalMessage,
    AssistantMessage,
    Content,
    Message,
    MessageId,
    PostedMessage,
    RunId,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
    lone_text,
)
from passback.core.posts import (
    ReceiptName,
    Receipts,
    StartRun,
    fingerprint,
    for_call,
    for_key,
    for_message,
)
from passback.core.transcript import SYNTHETIC_TEXT

OTHER_MESSAGE = "this message id was used for another message"

TIMED_OUT = fingerprint(SYNTHETIC_TEXT["timeout"], True)
"""Of the result that the server writes for a call whose time is over."""


def print_of(message: PostedMessage, /) -> str:
    """The fingerprint by which a repeat of a message, or of an answer, is known."""
    if isinstance(message, ApprovalMessage):
        given = "approved" if message.approved else "denied"
        decision = f"{given} always" if message.always else given
        return fingerprint((TextPart(decision), TextPart(message.reason)))
    is_error = message.is_error if isinstance(message, ToolMessage) else False
    brief = message.brief if isinstance(message, UserMessage) else None
    return fingerprint(message.content, is_error, brief)


def run_by_key(post: StartRun, receipts: Receipts, /) -> RunId | None:
    """The run that a post with the same idempotency key started; None: there is none.

    Raises:
        Reused: the key was used for another post.
    """
    if post.idempotency_key is None:
        return None
    known = receipts.get(for_key(post.idempotency_key))
    if known is None:
        return None
    if known.fingerprint != post.fingerprint:
        raise Reused("this idempotency key was used for another post")
    # a post that started no run is judged by its results: by now they may have started one
    return known.run_id


def given_ids(
    named: Collection[MessageId], messages: Iterable[Message], /, *, start: int
) -> Collection[MessageId]:
    """Those of the ids that a client chose which the server gave to messages before.

    Of messages before the boundary, which is at `start`, it knows only what such ids look like.
    """
    if not named:
        return ()
    given = {each.id for each in messages if each.id in named}
    return given.union(filter(may_be_ours, named)) if start > 0 else given


def new_messages(
    post: StartRun, receipts: Receipts, given: Collection[MessageId], /
) -> list[PostedMessage]:
    """The posted messages, answers aside, that are not known by an id that their client chose.

    Raises:
        Reused: an id was used for another message, or is one of the `given` ids.
    """
    new: list[PostedMessage] = []
    seen: dict[ReceiptName, str] = {}
    for message in post.messages:
        if isinstance(message, Answer):
            continue
        if message.id not in post.named:
            new.append(message)
            continue
        name = for_message(message.id)
        known = receipts.get(name)
        first = seen.get(name, known.fingerprint if known else None)
        if first is None and message.id in given:
            raise Reused("the server gave this id to another message")
        if first is None:
            new.append(message)
            seen[name] = print_of(message)
        elif first != print_of(message):
            raise Reused(OTHER_MESSAGE)
    return new


def run_of_last(post: StartRun, receipts: Receipts, /) -> RunId | None:
    """The run that the first post of a repeat has led to; None: to none yet."""
    last = post.messages[-1]
    name = for_call(last.call_id) if isinstance(last, Answer) else for_message(last.id)
    known = receipts.get(name)
    return known.run_id if known else None


def conflict(first: str, /) -> ResultConflict:
    """The error for a result of a call that has another one, whose fingerprint is `first`."""
    if first == TIMED_OUT:
        return ResultConflict("the time for this tool call's result is over")
    return ResultConflict("this tool call was already answered")


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
