"""Repeats of what was posted, known by an idempotency key, by a message's id, and by what it says. Pure."""

from collections.abc import Collection, Iterable

from passback.core.errors import ResultConflict, Reused
from passback.core.ids import may_be_ours
from passback.core.messages import (
    Answer,
    ApprovalMessage,
    Message,
    MessageId,
    PostedMessage,
    RunId,
    TextPart,
    ToolMessage,
    UserMessage,
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
