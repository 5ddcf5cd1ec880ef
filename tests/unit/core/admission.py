"""Values that the tests of admission judge: short to make, and compared whole."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from passback.core.admission import ConversationSnapshot, Verdict, decide_post
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    Content,
    ConversationId,
    ConversationKey,
    Message,
    MessageId,
    OwnerId,
    PostedMessage,
    RunId,
    Synthetic,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.posts import (
    OnBusy,
    Receipt,
    ReceiptName,
    StartRun,
    call_receipt_name,
    content_fingerprint,
    key_receipt_name,
    message_receipt_name,
    placed_fingerprint,
)
from passback.core.transcript import SYNTHETIC_TEXT, MintMessageId

KEY = ConversationKey(OwnerId("owner"), ConversationId("conversation"))


# ---------------------------------------------------------------- messages
def user(text: str = "hi", message_id: str = "u") -> UserMessage:
    return UserMessage(MessageId(message_id), text)


def call(call_id: str, *, client: bool = True) -> ToolCall:
    return ToolCall(CallId(call_id), f"tool_{call_id}", "{}", client)


def needing(call_id: str) -> ToolCall:
    """A call of the server's that a person has to allow."""
    return replace(call(call_id, client=False), asks="approval", reason="Sure?")


def says_yes(call_id: str, *, always: bool = False, tool: str = "") -> ApprovalMessage:
    """Return a result as it is posted; in the transcript it has the tool's name."""
    return ApprovalMessage(
        MessageId(f"yes-{call_id}"), CallId(call_id), True, always=always, tool=tool
    )


def says_no(call_id: str, reason: str = "", tool: str = "") -> ApprovalMessage:
    return ApprovalMessage(MessageId(f"no-{call_id}"), CallId(call_id), False, reason, tool=tool)


def asks(*calls: ToolCall, text: str = "") -> AssistantMessage:
    return AssistantMessage(MessageId("a"), text, calls)


def result(call_id: str, content: Content = "done", message_id: str = "t") -> ToolMessage:
    return ToolMessage(MessageId(message_id), CallId(call_id), content)


def closed(call_id: str, reason: Synthetic = "superseded", minted: str = "minted-1") -> ToolMessage:
    text = SYNTHETIC_TEXT[reason]
    return ToolMessage(MessageId(minted), CallId(call_id), text, is_error=True, synthetic=reason)


IDLE: list[Message] = [user(), AssistantMessage(MessageId("a"), "hello")]
C1, C2 = call("c1"), call("c2")
OWING: list[Message] = [user(), asks(C1, C2)]


# ---------------------------------------------------------------- receipts
def by_call(**contents: str) -> dict[ReceiptName, str]:
    """The receipts that results with these contents settle."""
    return {
        call_receipt_name(CallId(name)): content_fingerprint(content)
        for name, content in contents.items()
    }


def superseded(*calls: str, reason: Synthetic = "superseded") -> dict[ReceiptName, str]:
    text = content_fingerprint(SYNTHETIC_TEXT[reason], True)
    return {call_receipt_name(CallId(name)): text for name in calls}


def remembered(
    receipts: Mapping[ReceiptName, str], run_id: str | None = "r1"
) -> dict[ReceiptName, Receipt]:
    """Return a store's answer after a verdict with these receipts."""
    run = RunId(run_id) if run_id else None
    return {name: Receipt(text, run) for name, text in receipts.items()}


def by_message(message: UserMessage) -> dict[ReceiptName, str]:
    return {message_receipt_name(message.id): content_fingerprint(message.content)}


def by_place(post: StartRun) -> dict[ReceiptName, str]:
    """The receipts of messages with the place that their post names."""
    return {message_receipt_name(each.id): placed_fingerprint(post, each) for each in post.messages}


def by_key(post: StartRun) -> dict[ReceiptName, str]:
    assert post.idempotency_key is not None
    return {key_receipt_name(post.idempotency_key): post.fingerprint}


# ---------------------------------------------------------------- posts
def post(
    *messages: PostedMessage,
    key: str | None = None,
    named: Sequence[str] = (),
    on_busy: OnBusy = "reject",
    tools: tuple[ToolSpec, ...] | None = None,
    after: str | None = None,
) -> StartRun:
    names = frozenset(map(MessageId, named))
    place = None if after is None else MessageId(after)
    return StartRun(KEY, messages, tools, key, names, on_busy, after=place)


def minting() -> MintMessageId:
    count = itertools.count(1)
    return lambda: MessageId(f"minted-{next(count)}")


def judge(
    messages: Sequence[Message],
    what: StartRun | PostedMessage,
    *more: PostedMessage,
    receipts: Mapping[ReceiptName, Receipt] | None = None,
    running: str | None = None,
    waiting: bool = False,
    overdue: bool = False,
    start: int = 0,
    exists: bool = True,
    queued: Sequence[Message] = (),
    place: Sequence[Message] | None = None,
) -> Verdict:
    """Return the verdict on a post; one without options may be given as its messages."""
    posted = what if isinstance(what, StartRun) else post(what, *more)
    run_id = RunId(running) if running else None
    waits = queued or ([user("queued")] if waiting else [])
    standing = ConversationSnapshot(
        messages, receipts or {}, run_id, waits, overdue, start, exists, place=place
    )
    return decide_post(standing, posted, minting())
