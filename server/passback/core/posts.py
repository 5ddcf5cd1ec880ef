"""A client's post, and the receipts by which a repeated one is recognised (P8, P9)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Literal, TypeAlias

from pydantic import JsonValue

from passback.core.messages import (
    Answer,
    CallId,
    Content,
    ConversationKey,
    HistoryMessage,
    MessageContext,
    MessageId,
    PostedMessage,
    RunId,
    ToolSpec,
    UserMessage,
)
from passback.core.values import value

OnBusy: TypeAlias = Literal["reject", "enqueue", "interrupt", "rollback"]
"""Policy for a post with a user message while a run goes on.

`reject`: raise a conflict. The others wait in the conversation's queue, first come first served,
and two of them stop the run before: `interrupt` keeps its partial answer, `rollback` takes back
what it said and the user message that it answered.
"""


OnDisconnect: TypeAlias = Literal["continue", "cancel"]
"""Policy for a run that nobody has followed for longer than a grace time."""


@value
class StartRun:
    """A client's post, decoded.

    Args:
        key: the conversation.
        messages: the new messages.
        tools: replaces the client tools of the conversation; None keeps them.
        idempotency_key: a later post with the same key is a repeat of this one.
        named: ids of messages that the client chose; a later message with such an id is a repeat.
        on_busy: policy while a run goes on.
        on_disconnect: policy for a run that nobody follows.
        resends: the client may repeat unanswered messages without ids.
        continues: the post contains messages of the agent, so the conversation must already exist.
        history: messages that a trusted client imports into a conversation that has none, ready to
            be stored. If the client `resends`, it is ignored where the conversation has messages.
        flaw: with `continues`, why the post cannot begin a conversation.
    """

    key: ConversationKey
    messages: tuple[PostedMessage, ...]
    tools: tuple[ToolSpec, ...] | None = None
    idempotency_key: str | None = None
    named: frozenset[MessageId] = frozenset()
    on_busy: OnBusy = "reject"
    on_disconnect: OnDisconnect = "continue"
    resends: bool = False
    continues: bool = False
    history: tuple[HistoryMessage, ...] = ()
    flaw: str = ""

    @property
    def fingerprint(self) -> str:
        """Equal for posts with equal content, whatever ids were made for them."""
        messages: list[JsonValue] = [_message_content(message) for message in self.messages]
        tools = None if self.tools is None else [asdict(tool) for tool in self.tools]
        # a client that resends its history may send less of it the next time
        if not self.history or self.resends:
            return _digest_json([messages, tools])
        history = [asdict(replace(message, id=MessageId(""))) for message in self.history]
        return _digest_json([messages, tools, history])


def with_arrival_time(post: StartRun, at: str, /) -> StartRun:
    """Return the post with the time `at` in its user messages."""
    messages = tuple(
        replace(each, brief=replace(each.brief or MessageContext(), at=at))
        if isinstance(each, UserMessage)
        else each
        for each in post.messages
    )
    return replace(post, messages=messages)


@value
class Receipt:
    """The record of something posted, kept to recognise a repeat.

    `run_id` is the run that it started; None while it has started none, because other calls are
    still owed.
    """

    fingerprint: str
    run_id: RunId | None = None


_encode_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

ReceiptName: TypeAlias = str
Receipts: TypeAlias = Mapping[ReceiptName, Receipt]


def call_receipt_name(call_id: CallId, /) -> ReceiptName:
    return f"call:{call_id}"


def message_receipt_name(message_id: MessageId, /) -> ReceiptName:
    return f"message:{message_id}"


def key_receipt_name(idempotency_key: str, /) -> ReceiptName:
    # hashed, because the client chooses its length and its characters
    return f"key:{hashlib.sha256(idempotency_key.encode()).hexdigest()[:32]}"


def receipt_names(post: StartRun, /) -> frozenset[ReceiptName]:
    """Return the names under which a post, or a part of it, may already have a receipt."""
    names = {call_receipt_name(each.call_id) for each in post.messages if isinstance(each, Answer)}
    names.update(map(message_receipt_name, post.named))
    if post.idempotency_key is not None:
        names.add(key_receipt_name(post.idempotency_key))
    return frozenset(names)


def content_fingerprint(
    content: Content, is_error: bool = False, context: MessageContext | None = None, /
) -> str:
    """Return 64 hex digits that are equal for equal content."""
    plain = content if isinstance(content, str) else [asdict(part) for part in content]
    return _digest_json([plain, is_error, _context_content(context)])


def _message_content(message: PostedMessage) -> JsonValue:
    """Return what a client said with a message: no id, nothing that the server adds."""
    plain: dict[str, JsonValue] = asdict(replace(message, id=MessageId("")))
    plain.pop("imported", None)
    if isinstance(message, UserMessage):
        del plain["command"]  # follows from the content and the agent's commands
        plain["brief"] = _context_content(message.brief)
    return plain


def _context_content(context: MessageContext | None) -> dict[str, JsonValue] | None:
    """Return what a client said beside a message; None if nothing.

    The time of arrival and fields that no protocol defines do not make a post another one.
    """
    said = replace(context or MessageContext(), at="", extras=None)
    return None if said == MessageContext() else asdict(said)


def _digest_json(value: object) -> str:
    return hashlib.sha256(_encode_canonical(value).encode()).hexdigest()
