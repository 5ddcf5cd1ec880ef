"""What a post means for the conversation that it comes to (DESIGN section 5). Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from passback.core.errors import (
    Conflict,
    ConversationBusy,
    InvalidRequest,
    NothingToDo,
    Reused,
    UnknownToolCall,
)
from passback.core.messages import (
    Answer,
    ApprovalMessage,
    AssistantMessage,
    CallId,
    Message,
    Owed,
    PostedMessage,
    RunId,
    Synthetic,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.permissions import refuse_too_many_denials
from passback.core.posts import (
    Receipt,
    ReceiptName,
    Receipts,
    StartRun,
    for_call,
    for_key,
    for_message,
)
from passback.core.questions import refuse_unfit
from passback.core.repeats import (
    OTHER_MESSAGE,
    TIMED_OUT,
    conflict,
    given_ids,
    new_messages,
    print_of,
    resent,
    run_by_key,
    run_of_last,
)
from passback.core.state import State
from passback.core.transcript import (
    MintMessageId,
    closing,
    lasting_permissions,
    left_unmade,
    owed,
    resumable,
    runnable,
    transcript_of,
    unanswered,
    waiting,
    within,
    written,
)
from passback.core.values import value

BUSY = "a run of this conversation is going on"
NOT_WAITING = "no such tool call is waiting in this conversation"
_CONTINUES = "a new conversation cannot begin with what the agent said: name the one in which it was said, or leave these messages out"


@value
class ConversationSnapshot:
    """How a conversation stands when a post comes.

    Args:
        messages: the transcript, from the boundary on.
        receipts: what is remembered of those names that the post may be known by.
        running: the run that is going on, if any.
        queued: the messages of the posts that wait for their turn.
        overdue: whether the time for what the client owes is over, and nothing runs.
        start: the position of the first of `messages`.
        exists: whether there is such a conversation.
        state: what it knows beside the messages.
    """

    messages: Sequence[Message]
    receipts: Receipts = field(default_factory=dict[ReceiptName, Receipt])
    running: RunId | None = None
    queued: Sequence[Message] = ()
    overdue: bool = False
    start: int = 0
    exists: bool = True
    state: State = field(default_factory=State)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said yet, and nothing waits to be."""
        return not (self.messages or self.start or self.running or self.queued)


@value
class Begins:
    """The post starts a run. `receipts` are the names that it settles, with their fingerprints."""

    append: tuple[Message, ...]
    receipts: Mapping[ReceiptName, str]


@value
class Queues:
    """The post waits for its turn; its new messages are `messages`."""

    messages: tuple[PostedMessage, ...]
    receipts: Mapping[ReceiptName, str]


@value
class Parks:
    """Results are kept, others are still owed; nothing runs. Empty `append`: a repeat, nothing to store."""

    append: tuple[Message, ...]
    receipts: Mapping[ReceiptName, str]
    owed: tuple[Owed, ...]


@value
class Joins:
    """A repeated post: it follows the run that the first one started."""

    run_id: RunId


Verdict: TypeAlias = Begins | Queues | Parks | Joins


def accept(snapshot: ConversationSnapshot, post: StartRun, mint: MintMessageId, /) -> Verdict:
    """Decide what a post means; `mint` makes ids for the messages that the server adds.

    Raises:
        InvalidRequest: it goes on with a conversation that there is not, or denies too many tools for good.
        NothingToDo: no message.
        Reused: its idempotency key, or the id of one of its messages, was used with other content.
        UnknownToolCall: an answer to a call that is neither owed nor answered.
        InvalidAnswer: one that does not fit the call's questions.
        ResultConflict: an answer to an answered call, or two in one post, with other content; one that is late.
        ConversationBusy: a run is going on or about to begin, and the post would not wait.
        Conflict: it has a history, and so has the conversation.
    """
    _refuse_unfounded(snapshot, post)
    if (known := run_by_key(post, snapshot.receipts)) is not None:
        return Joins(known)
    if post.history and snapshot.is_empty:
        return _imports(post)
    open_calls = () if snapshot.running else waiting(snapshot.messages)
    answers = [message for message in post.messages if isinstance(message, Answer)]
    fresh = _fresh_answers(answers, {each.call.id: each.call for each in open_calls}, snapshot)
    _refuse_too_many_denials(snapshot, fresh.values())
    others = _unstored(snapshot, post)
    if not fresh and not others and not _starts(snapshot, post):
        return _repeat(snapshot, post)
    if post.history and not post.resends:
        raise Conflict(
            "this conversation has messages already: a history can only begin a new one. Post what is new alone"
        )
    receipts = _receipts(post, fresh.values(), others)
    if others and (snapshot.running or snapshot.queued):
        # what the client owes may never come: then a message moves on those that wait, and waits itself
        if post.on_busy == "reject" and not open_calls:
            raise ConversationBusy(BUSY, retry_after=1)
        return Queues((*fresh.values(), *others), receipts)
    left = tuple(each.owed for each in open_calls if each.call.id not in fresh)
    if left and not others and not snapshot.overdue:
        return Parks(_written(snapshot.messages, fresh.values(), mint), receipts, left)
    answered, overdue = tuple(fresh.values()), snapshot.overdue
    return _begins(snapshot.messages, answered, others, mint, receipts=receipts, overdue=overdue)


def _refuse_unfounded(snapshot: ConversationSnapshot, post: StartRun) -> None:
    if post.continues and not snapshot.exists:
        raise InvalidRequest(post.flaw or _CONTINUES)
    refuse_empty(post)


def _refuse_too_many_denials(snapshot: ConversationSnapshot, fresh: Collection[Answer]) -> None:
    """Those that wait in the queue count, too: they are not judged again."""
    newer = [each for each in lasting_permissions(fresh) if not each.approved]
    if newer:
        answered = lasting_permissions((*snapshot.queued, *fresh))
        refuse_too_many_denials(snapshot.state.permissions(snapshot.messages), answered)


def refuse_empty(post: StartRun, /) -> None:
    """Raise `NothingToDo` for a post without messages."""
    if not post.messages:
        raise NothingToDo("the post has no message, and nothing waits to be resumed")


def begins(
    messages: Sequence[Message],
    posted: Sequence[PostedMessage],
    mint: MintMessageId,
    /,
    *,
    overdue: bool = False,
) -> Begins:
    """What messages that were accepted before mean now: a run starts, whatever was owed.

    Without any it is that of calls whose time is over: the model goes on with the answers that there are.
    """
    open_ids = {each.call.id for each in waiting(messages)}
    answers = [m for m in posted if isinstance(m, Answer) and m.call_id in open_ids]
    others = [message for message in posted if not isinstance(message, Answer)]
    settled = {for_call(each.call_id): print_of(each) for each in answers}
    return _begins(messages, answers, others, mint, receipts=settled, overdue=overdue)


def _begins(
    messages: Sequence[Message],
    answers: Collection[Answer],
    others: Sequence[PostedMessage],
    mint: MintMessageId,
    *,
    receipts: Mapping[ReceiptName, str],
    overdue: bool,
) -> Begins:
    if not unanswered(messages):  # as before most runs
        return Begins(tuple(others), receipts)
    open_calls = waiting(messages)
    given = _written(messages, answers, mint)
    turn = (*messages, *given)
    closed = (
        _left_behind(turn, mint, overdue=overdue, begun=not open_calls)
        if others
        else _unanswered(turn, mint, overdue=overdue)
    )
    reason: Synthetic = "timeout" if overdue else "superseded"
    ends = closing((each.call for each in open_calls), reason, mint)
    approved = {call.id for call in runnable(turn) if call.asks}
    cut = (m for m in closed if isinstance(m, ToolMessage) and m.call_id not in approved)
    parked = _parked(messages) if open_calls else ()
    settled = {for_call(each.call_id): print_of(each) for each in (*cut, *ends, *parked)}
    return Begins((*given, *closed, *others), {**settled, **receipts})


def _imports(post: StartRun) -> Begins:
    """The run of a post that brings a history along, which has the results of its calls in itself."""
    if any(isinstance(each, ApprovalMessage) for each in post.messages):
        raise UnknownToolCall(NOT_WAITING)
    new = [each for each in post.messages if not isinstance(each, Answer)]
    said = [each for each in post.history if isinstance(each, SystemMessage | UserMessage)]
    return Begins((*post.history, *new), _receipts(post, (), (*said, *new)))


def refuse_claim(
    snapshot: ConversationSnapshot, owing: Collection[Owed], call_id: CallId, /
) -> None:
    """Return if a call waits for its result, so that a client may claim it; what is owed is `owing`, while nothing runs.

    Raises:
        UnknownToolCall: it was never handed back here.
        ResultConflict: it is answered, or its time is over.
    """
    if known := snapshot.receipts.get(for_call(call_id)):
        raise conflict(known.fingerprint)
    if call_id not in {each.id for each in owing} or snapshot.running:
        raise UnknownToolCall(NOT_WAITING)
    if snapshot.overdue:
        raise conflict(TIMED_OUT)


def _receipts(
    post: StartRun, answers: Collection[Answer], others: Collection[PostedMessage]
) -> dict[ReceiptName, str]:
    names = {for_call(answer.call_id): print_of(answer) for answer in answers}
    names |= {for_message(each.id): print_of(each) for each in others if each.id in post.named}
    if post.idempotency_key is not None:
        names[for_key(post.idempotency_key)] = post.fingerprint
    return names


# ---------------------------------------------------------------- repeats
def _unstored(snapshot: ConversationSnapshot, post: StartRun) -> Sequence[PostedMessage]:
    """The posted messages, answers aside, that are not repeats of earlier ones."""
    given = given_ids(post.named, snapshot.messages, start=snapshot.start)
    new = new_messages(post, snapshot.receipts, given)
    stored = (*snapshot.messages, *snapshot.queued)
    return new[resent(post, new, stored, running=bool(snapshot.running)) :]


def _fresh_answers(
    answers: Sequence[Answer], open_calls: Mapping[CallId, ToolCall], snapshot: ConversationSnapshot
) -> dict[CallId, Answer]:
    """The posted answers to open calls; equal repeats are left out."""
    fresh: dict[CallId, Answer] = {}
    for answer in answers:
        known = snapshot.receipts.get(for_call(answer.call_id))
        first = known.fingerprint if known else None
        if answer.call_id in fresh:
            first = print_of(fresh[answer.call_id])
        elif known is None and _is_answer_to(open_calls.get(answer.call_id), answer):
            if snapshot.overdue:
                first = TIMED_OUT
            else:
                fresh[answer.call_id] = _fitting(open_calls[answer.call_id], answer)
                continue
        if first is None:
            raise UnknownToolCall(NOT_WAITING)
        if first != print_of(answer):
            raise conflict(first)
    return fresh


def _is_answer_to(call: ToolCall | None, answer: Answer) -> bool:
    """A call that needs approval has no result of the client's, and a client's call needs none."""
    return call is not None and (call.asks == "approval") is isinstance(answer, ApprovalMessage)


def _fitting(call: ToolCall, answer: Answer) -> Answer:
    if isinstance(answer, ApprovalMessage):
        return replace(answer, tool=call.name, digest=call.digest)
    if call.asks == "question":
        refuse_unfit(call.arguments, answer)
    return answer


def _starts(snapshot: ConversationSnapshot, post: StartRun) -> bool:
    """Whether a repeat leads to no run yet, because calls were owed whose time is over by now."""
    return snapshot.overdue and isinstance(_repeat(snapshot, post), Parks)


def _repeat(snapshot: ConversationSnapshot, post: StartRun) -> Verdict:
    run_id = run_of_last(post, snapshot.receipts)
    return Parks((), {}, owed(snapshot.messages)) if run_id is None else Joins(run_id)


# ---------------------------------------------------------------- what an open turn still needs
def _written(
    messages: Sequence[Message], answers: Iterable[Answer], mint: MintMessageId
) -> tuple[Message, ...]:
    """Answers as they stand in the transcript: a sub-agent's in its own."""
    paths = {each.call.id: each.path for each in waiting(messages)}
    return tuple(
        within(paths[answer.call_id], message)
        for answer in answers
        for message in written(answer, mint)
    )


def _left_behind(
    turn: Sequence[Message], mint: MintMessageId, *, overdue: bool, begun: bool
) -> tuple[Message, ...]:
    """Results for all calls that are open, because the user goes on without them.

    What the client owes is superseded, together with the sub-agents that wait for it, or its time is over. So is what
    it has approved, if the call cannot have `begun`. A call of the server's own was cut.
    """
    reason: Synthetic = "timeout" if overdue else "superseded"
    ready = runnable(turn)
    unmade = () if begun else resumable(turn)
    left = [call for call in unanswered(turn) if call not in ready]
    cut = [call for call in ready if call not in unmade]
    return (
        *closing(left, reason, mint),
        *left_unmade(unmade, mint),
        *closing(cut, "interrupted", mint),
    )


def _unanswered(
    turn: Sequence[Message], mint: MintMessageId, *, overdue: bool
) -> tuple[Message, ...]:
    """Results for what the client still owes, and for calls that a crash has cut; what it has answered goes on now."""
    reason: Synthetic = "timeout" if overdue else "superseded"
    kept = resumable(turn)
    late = (within(each.path, closing([each.call], reason, mint)[0]) for each in waiting(turn))
    cut = [call for call in runnable(turn) if call not in kept]
    return (*late, *closing(cut, "interrupted", mint))


def _parked(messages: Sequence[Message]) -> Iterator[Answer]:
    """The client's answers to an open turn's calls, and its sub-agents', that came in earlier posts."""
    turn = next(message for message in reversed(messages) if isinstance(message, AssistantMessage))
    calls = {call.id: call for call in turn.tool_calls}
    for message in messages:
        match message:
            case ToolMessage(call_id=call_id, synthetic=None) if call_id in calls:
                if calls[call_id].client:
                    yield message
            case ApprovalMessage(call_id=call_id) if call_id in calls:
                yield message
            case _:
                pass
    for call in unanswered(messages):
        if child := transcript_of(call.id, messages):
            yield from _parked(child)


def accept_unread(
    snapshot: ConversationSnapshot, owing: Collection[Owed], post: StartRun, /
) -> Joins | Parks | None:
    """Decide what a post means by receipts and by what is owed alone. None: it takes the messages.

    Args:
        snapshot: without messages.
        owing: what the client has to answer, while nothing runs.
        post: may be any.

    Raises:
        NothingToDo, Reused, UnknownToolCall, ResultConflict, ConversationBusy: as `accept`.
    """
    refuse_empty(post)
    if (run_id := run_by_key(post, snapshot.receipts)) is not None:
        return Joins(run_id)
    fresh = [each for each in post.messages if not _is_known(each, post, snapshot.receipts)]
    if fresh:
        _refuse_fresh(fresh, snapshot, owing, post)
        return None
    run_id = run_of_last(post, snapshot.receipts)
    if run_id is not None:
        return Joins(run_id)
    # tools may clash with the server's, and are stored even with a repeat
    takes_messages = snapshot.running or snapshot.overdue or post.tools is not None
    return None if takes_messages else Parks((), {}, tuple(owing))


def _refuse_fresh(
    fresh: Collection[PostedMessage],
    snapshot: ConversationSnapshot,
    owing: Collection[Owed],
    post: StartRun,
) -> None:
    """Raise what needs no message to be known: answers that nobody owes, and words while a run goes on."""
    answered = {each.call_id for each in fresh if isinstance(each, Answer)}
    if not snapshot.running:
        if answered - {each.id for each in owing}:
            raise UnknownToolCall(NOT_WAITING)
        return
    may_be_known = post.resends or any(each.id in post.named for each in fresh)
    if post.on_busy == "reject" and not answered and not may_be_known:
        raise ConversationBusy(BUSY, retry_after=1)


def _is_known(message: PostedMessage, post: StartRun, receipts: Receipts) -> bool:
    """Return whether a posted message is an equal repeat of one that has a receipt."""
    if isinstance(message, Answer):
        known = receipts.get(for_call(message.call_id))
        if known is not None and known.fingerprint != print_of(message):
            raise conflict(known.fingerprint)
        return known is not None
    known = receipts.get(for_message(message.id)) if message.id in post.named else None
    if known is not None and known.fingerprint != print_of(message):
        raise Reused(OTHER_MESSAGE)
    return known is not None
