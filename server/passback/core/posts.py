"""A client's post, and what is remembered of posts so that a repeated one is known again (P8, P9)."""

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
"""What a post with a user message means while a run goes on.

`reject`: a conflict. The others wait in the conversation's queue, first come first served, and two of them stop what
runs before: `interrupt` keeps its partial answer, `rollback` takes back what it said and the user message that it answered.
"""


OnDisconnect: TypeAlias = Literal["continue", "cancel"]
"""What becomes of a run when nobody follows it any more, for longer than a grace time."""


@value
class StartRun:
    """A client's post, decoded.

    Args:
        key: the conversation.
        messages: the new ones.
        tools: replaces the client tools of the conversation, None keeps them.
        idempotency_key: a later post with the same key is a repeat of this one.
        named: ids of messages that the client chose; a later message with such an id is a repeat.
        on_busy: what to do while a run goes on.
        on_disconnect: what becomes of the run when nobody follows it.
        resends: its client may say again what was not answered, without ids.
        continues: it was posted with words of the agent: the conversation has to exist.
        history: what a trusted client brings along for a conversation that has no messages, as it is to be stored. Of a client
            that `resends` it is passed over where the conversation has some.
        flaw: why what it was posted with cannot begin a conversation, where it `continues` one.
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
        """Equal for posts that say the same, whatever ids were minted for them."""
        messages: list[JsonValue] = [_plain(message) for message in self.messages]
        tools = None if self.tools is None else [asdict(tool) for tool in self.tools]
        if (
            not self.history or self.resends
        ):  # who resends a history may send less of it the next time
            return _digest([messages, tools])
        history = [asdict(replace(message, id=MessageId(""))) for message in self.history]
        return _digest([messages, tools, history])


def dated(post: StartRun, at: str, /) -> StartRun:
    """The post, whose user messages say when it came."""
    messages = tuple(
        replace(each, brief=replace(each.brief or MessageContext(), at=at))
        if isinstance(each, UserMessage)
        else each
        for each in post.messages
    )
    return replace(post, messages=messages)


@value
class Receipt:
    """What is remembered of a posted thing.

    `run_id` is the run that it started; None while it has started none, because other calls are still owed.
    """

    fingerprint: str
    run_id: RunId | None = None


ReceiptName: TypeAlias = str
Receipts: TypeAlias = Mapping[ReceiptName, Receipt]


def for_call(call_id: CallId, /) -> ReceiptName:
    return f"call:{call_id}"


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def for_message(message_id: MessageId, /) -> ReceiptName:
    return f"message:{message_id}"


def for_key(idempotency_key: str, /) -> ReceiptName:
    return f"key:{hashlib.sha256(idempotency_key.encode()).hexdigest()[:32]}"


def receipt_names(post: StartRun, /) -> frozenset[ReceiptName]:
    """Under which a post, or a part of it, may be known already."""
    names = {for_call(each.call_id) for each in post.messages if isinstance(each, Answer)}
    names.update(map(for_message, post.named))
    if post.idempotency_key is not None:
        names.add(for_key(post.idempotency_key))
    return frozenset(names)


def fingerprint(
    content: Content, is_error: bool = False, brief: MessageContext | None = None, /
) -> str:
    """Equal for equal content: 64 hex digits of its canonical form."""
    plain = content if isinstance(content, str) else [asdict(part) for part in content]
    said = _said(brief)
    return _digest([plain, is_error] if said is None else [plain, is_error, said])


def _plain(message: PostedMessage) -> JsonValue:
    plain: dict[str, JsonValue] = asdict(replace(message, id=MessageId("")))
    plain.pop("imported", None)
    if isinstance(message, UserMessage):
        said = _said(message.brief)
        plain = {**plain, "brief": said, "agent": message.agent or None, "command": None}
    # what says nothing leaves no trace: posts that an older version has seen are known again
    later = (
        {"brief", "agent", "command", "synthetic"}
        if message.role in ("user", "system")
        else set[str]()
    )
    return {key: value for key, value in plain.items() if value is not None or key not in later}


def _said(brief: MessageContext | None) -> dict[str, JsonValue] | None:
    """What a brief says to us, whenever it came; None: nothing."""
    timeless = None if brief is None else replace(brief, at="", extras=None)
    if timeless is None or timeless == MessageContext():
        return None
    said = asdict(timeless)
    del said["extras"]
    if timeless.generation is None:  # posts that an older version has seen are known again
        del said["generation"]
    if not timeless.forgets:  # as an older version wrote it
        del said["forgets"]
    if not timeless.model:
        del said["model"]
    return said


def _digest(value: object) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()
