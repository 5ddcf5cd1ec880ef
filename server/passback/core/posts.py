"""A client's post, and how a repeated or resent one is recognised (P8, P9). Pure."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from passback.core.errors import ResultConflict, Reused
from passback.core.ids import is_server_made
from passback.core.messages import (
    Answer,
    ApprovalMessage,
    AssistantMessage,
    CallId,
    Content,
    ConversationKey,
    HistoryMessage,
    JsonObject,
    Message,
    MessageContext,
    MessageId,
    Owed,
    PostedMessage,
    RunId,
    SystemMessage,
    TextPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
    single_text,
)
from passback.core.transcript import SYNTHETIC_TEXT
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
        continues: the conversation must already exist.
        history: messages that a trusted client imports into a conversation that has none, ready to
            be stored. If the client `resends`, it is ignored where the conversation has messages.
        flaw: with `continues`, why the post cannot begin a conversation, if it is to blame.
        after: the message that the new ones follow, on any branch of the conversation; the empty
            text: they are its first ones. Without messages, what comes after it is answered
            anew. None: they follow the last message.
        digest: of the whole request, where it depends on the stored messages what of it is new:
            two requests with one key are equal if their digests are.
        note: what the protocol keeps of the request in the record of its run.
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
    after: MessageId | None = None
    digest: str = ""
    note: JsonObject | None = None

    @property
    def fingerprint(self) -> str:
        """Equal for posts with equal content, whatever ids were made for them."""
        if self.digest:
            return _digest_json({"request": self.digest})
        messages: list[JsonValue] = [_message_content(message) for message in self.messages]
        tools = None if self.tools is None else [_plain_fields(tool) for tool in self.tools]
        # a client that resends its history may send less of it the next time
        content: list[object] = [messages, tools]
        if self.history and not self.resends:
            content.append(
                [_plain_fields(replace(each, id=MessageId(""))) for each in self.history]
            )
        if self.after is not None:
            content.append({"after": self.after})
        return _digest_json(content)


def with_arrival_time(post: StartRun, at: str, /) -> StartRun:
    """Return the post with the time `at` in its user messages."""
    messages = tuple(
        replace(each, context=replace(each.context or MessageContext(), at=at))
        if isinstance(each, UserMessage)
        else each
        for each in post.messages
    )
    return replace(post, messages=messages)


@value
class Parked:
    """Results were stored, but no run starts: these answers are still owed."""

    key: ConversationKey
    owed: tuple[Owed, ...]


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


# fields of messages that the server sets
_SET_HERE: Final = frozenset({"created", "run_id", "duration", "started", "window"})


def _plain_fields(said: Message | ToolSpec) -> dict[str, JsonValue]:
    """Return what a client said with a message or a tool as plain values."""
    return asdict(
        said,
        dict_factory=lambda pairs: {name: given for name, given in pairs if name not in _SET_HERE},
    )


def _message_content(message: PostedMessage) -> JsonValue:
    """Return what a client said with a message: no id, nothing that the server adds."""
    plain = _plain_fields(replace(message, id=MessageId("")))
    plain.pop("imported", None)
    if isinstance(message, UserMessage):
        del plain["command"]  # follows from the content and the agent's commands
        plain["context"] = _context_content(message.context)
    return plain


def _context_content(context: MessageContext | None) -> dict[str, JsonValue] | None:
    """Return what a client said beside a message; None if nothing.

    The time of arrival, who answers questions, and fields that no protocol defines do not make a
    post another one.
    """
    said = replace(context or MessageContext(), at="", extras=None, answered=None)
    return None if said == MessageContext() else asdict(said)


def _digest_json(value: object) -> str:
    return hashlib.sha256(_encode_canonical(value).encode()).hexdigest()


OTHER_MESSAGE = "this message id was used for another message, or in another place"

# The fingerprint of the result that the server writes for a call that timed out.
TIMED_OUT = content_fingerprint(SYNTHETIC_TEXT["timeout"], True)


def message_fingerprint(message: PostedMessage, /) -> str:
    """Return the fingerprint by which a repeat of a message or an answer is recognised."""
    if isinstance(message, ApprovalMessage):
        given = "approved" if message.approved else "denied"
        decision = f"{given} always" if message.always else given
        return content_fingerprint((TextPart(decision), TextPart(message.reason)))
    is_error = message.is_error if isinstance(message, ToolMessage) else False
    context = message.context if isinstance(message, UserMessage) else None
    return content_fingerprint(message.content, is_error, context)


def placed_fingerprint(post: StartRun, message: PostedMessage, /) -> str:
    """Return the fingerprint of a message and of the place that its post names for it, if any.

    A digest stands for a client that names no place: `after` is read from the stored messages.
    """
    content = message_fingerprint(message)
    if post.after is None or post.digest:
        return content
    half = len(content) // 2
    return content[:half] + _digest_json({"after": post.after})[half:]


def is_said_again(post: StartRun, message: PostedMessage, known: str, /) -> bool:
    """Return whether a posted message is the one whose receipt has the fingerprint `known`.

    A client that resends its messages names their place only once, if at all.
    """
    if post.resends or post.digest:
        half = len(known) // 2
        return known[:half] == message_fingerprint(message)[:half]
    return known == placed_fingerprint(post, message)


ResentRole: TypeAlias = Literal["user", "answer", "text", "call", "ignored"]
"""The kind of a message in a resent conversation: the user's, an answer to a call, the agent's
text, its call or thought, or one that does not count."""


def new_indexes(roles: Sequence[ResentRole], /) -> list[int]:
    """Return the indexes of the new messages where a client resends the whole conversation.

    They are those after the agent's last text. Answers may stand between the calls that they
    answer. Messages of the user before these calls are history.
    """
    new: list[int] = []
    behind_calls = False
    for at in reversed(range(len(roles))):
        role = roles[at]
        # all before a text of the agent is history
        if role == "text" or (role == "user" and behind_calls):
            break
        if role in {"answer", "user"}:
            new.append(at)
        behind_calls = behind_calls or role == "call"
    return new[::-1]


def run_by_key(post: StartRun, receipts: Receipts, /) -> RunId | None:
    """Return the run that a post with the same idempotency key started; None if there is none.

    Raises:
        Reused: the key was used for another post.
    """
    if post.idempotency_key is None:
        return None
    known = receipts.get(key_receipt_name(post.idempotency_key))
    if known is None:
        return None
    if known.fingerprint != post.fingerprint:
        raise Reused("this idempotency key was used for another post")
    # a post that started no run is judged by its results: by now they may have started one
    return known.run_id


def new_messages(
    post: StartRun, receipts: Receipts, earlier: Iterable[Message], /, *, start: int
) -> list[PostedMessage]:
    """Return the posted messages, without answers and those known by an id of the client's.

    `earlier` are the messages from position `start` of the conversation on. Those before are not
    loaded: any id in the server's format may be one of theirs.

    Raises:
        Reused: an id was used for another message or place, or the server gave it to one.
    """
    given = {each.id for each in earlier if each.id in post.named} if post.named else ()
    new: list[PostedMessage] = []
    seen: dict[ReceiptName, str] = {}
    for message in post.messages:
        if isinstance(message, Answer):
            continue
        if message.id not in post.named:
            new.append(message)
            continue
        name = message_receipt_name(message.id)
        known = receipts.get(name)
        first = seen.get(name, known.fingerprint if known else None)
        if first is None:
            if message.id in given or (start > 0 and is_server_made(message.id)):
                raise Reused("the server gave this id to another message")
            new.append(message)
            seen[name] = placed_fingerprint(post, message)
        elif not is_said_again(post, message, first):
            raise Reused(OTHER_MESSAGE)
    return new


def run_of_last_message(post: StartRun, receipts: Receipts, /) -> RunId | None:
    """Return the run that the first post of a repeat has led to; None if it has led to none yet."""
    last = post.messages[-1]
    name = (
        call_receipt_name(last.call_id)
        if isinstance(last, Answer)
        else message_receipt_name(last.id)
    )
    known = receipts.get(name)
    return known.run_id if known else None


def result_conflict(first: str, /) -> ResultConflict:
    """Return the error for a second result of a call whose answer has the fingerprint `first`."""
    if first == TIMED_OUT:
        return ResultConflict("the time for this tool call's result is over")
    return ResultConflict("this tool call was already answered")


_ComparableText: TypeAlias = tuple[str, str | Content]


def count_resent(
    post: StartRun, new: Sequence[PostedMessage], stored: Sequence[Message], /, *, running: bool
) -> int:
    """Return how many of a post's first new messages are stored already, although no id shows it.

    Args:
        post: says whether its client resends messages at all.
        new: its messages, without answers to calls and those known by their ids.
        stored: the transcript, then the queued messages.
        running: True while a run goes on.
    """
    # a rollback removes the messages of the run, so none of them counts as stored
    if not post.resends or (running and post.on_busy == "rollback"):
        return 0
    return count_repeated(stored, new, post.named, answers=isinstance(post.messages[-1], Answer))


def count_repeated(
    stored: Sequence[Message],
    posted: Sequence[PostedMessage],
    named: Collection[MessageId] = (),
    /,
    *,
    answers: bool = False,
) -> int:
    """Return how many of the first posted messages are stored, in order, after the last answer.

    The last posted message is always new: a client that says the same again wants another answer.

    Args:
        stored: the transcript, then the queued messages.
        posted: messages that may be new.
        named: ids that the client chose; such a message is recognised by its id instead.
        answers: an answer to a call follows, which the client need not repeat; then the last posted
            message may be stored, too.
    """
    candidates = posted if answers else posted[:-1]
    said: list[_ComparableText] = []  # after the agent's last answer
    for earlier in reversed(stored):
        if isinstance(earlier, UserMessage | SystemMessage):
            said.append(_comparable_text(earlier))
        elif not _may_be_unseen(earlier, answers=answers):
            break
    # an iterator: each `in` goes on where the one before ended, so the order has to be the same
    left = reversed(said)
    known = 0
    for message in candidates:
        if (
            isinstance(message, Answer)
            or message.id in named
            or _comparable_text(message) not in left
        ):
            break
        known += 1
    return known


def _may_be_unseen(message: Message, *, answers: bool) -> bool:
    """Return whether a client may lack a message.

    That is an answer without content, one that was interrupted, or one whose calls it answers in
    this post.
    """
    if isinstance(message, AssistantMessage):
        silent = not (message.content or message.tool_calls)
        return silent or message.partial or (answers and bool(message.tool_calls))
    return answers and isinstance(message, ToolMessage)


def _comparable_text(message: UserMessage | SystemMessage) -> _ComparableText:
    text = single_text(message.content)
    return (message.role, message.content if text is None else text)


WHAT_A_POST_MEANS: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "idle",
        "a user message",
        "a run starts",
    ),
    (
        "idle, calls owed",
        "all owed results, in any order, in one post or as the last of several",
        "a run starts",
    ),
    (
        "idle, calls owed",
        "some of them",
        "they are stored, the answer names what is still owed; no run",
    ),
    (
        "idle, calls owed",
        "a user message",
        "each open call is closed with an error result `superseded`; the message; a run starts",
    ),
    (
        "idle, calls owed",
        "results and a user message",
        "the results first, the rest is closed, then the message",
    ),
    (
        "running",
        "the result of a call of this run that is not handed back yet",
        "the post waits, within bounds, until it is",
    ),
    (
        "running",
        "a user message",
        "by `on_busy`: `reject` (409, try again later), `enqueue`, `interrupt`, `rollback`",
    ),
    (
        "idle, but posts wait",
        "a user message",
        "it waits behind them, and they no longer wait for what the client owes",
    ),
    (
        "idle",
        "a user message, or none, `after` an earlier message, or one of another branch",
        "a run starts on a branch that ends with it; what stood behind stays on its own branch",
    ),
    (
        "idle, calls owed",
        "the same",
        "each open call is closed with `superseded` on the branch that is left; a run starts",
    ),
    (
        "running, or posts wait",
        "the same",
        "by `on_busy`, as for a user message; its branch begins when its run does",
    ),
    (
        "any",
        "`after` the last message",
        "as without `after`; without messages, an unanswered user message is answered",
    ),
    (
        "any",
        "`after` a message whose calls are answered only behind it",
        "422, nothing is stored",
    ),
    (
        "any",
        "`after` an unknown message",
        "404, nothing is stored",
    ),
    (
        "any",
        "no messages, `after` one that leaves nothing to answer",
        "422, nothing is stored",
    ),
    (
        "any",
        "the idempotency key or the message ids of an earlier post, with the same content",
        "the post joins the run that that one started",
    ),
    (
        "any",
        "the same with other content",
        "422",
    ),
    (
        "any",
        "a result that is already stored, with the same content",
        "the post joins the run that it started",
    ),
    (
        "any",
        "a result that is already stored, with other content",
        "409",
    ),
    (
        "any",
        "a result for an unknown call",
        "404, nothing is stored",
    ),
    (
        "idle, calls owed past their deadline",
        "a user message",
        "the calls are closed with an error result `timeout`, then the message; a run starts",
    ),
    (
        "idle, calls owed past their deadline",
        "a result of such a call",
        "409",
    ),
    (
        "idle, calls owed past their deadline",
        "nothing",
        "the calls are closed with `timeout`, and a run starts with the answers that there are",
    ),
    (
        "any",
        "nothing, without `after`",
        "422",
    ),
)
"""Rows of conversation, post, and what happens; `core.admission.decide_post` decides it."""
