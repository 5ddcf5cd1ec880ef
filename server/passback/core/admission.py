"""Admission: decide what a post means for its conversation. Pure.

The table is in docs/explanation/design.md, under "What a post means".
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from passback.core.errors import (
    Conflict,
    ConversationBusy,
    InvalidRequest,
    NothingToDo,
    Reused,
    UnknownConversation,
    UnknownMessage,
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
    SideMessage,
    Synthetic,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.permissions import refuse_too_many_denials
from passback.core.posts import (
    OTHER_MESSAGE,
    TIMED_OUT,
    Receipt,
    ReceiptName,
    Receipts,
    StartRun,
    call_receipt_name,
    count_resent,
    is_said_again,
    key_receipt_name,
    message_fingerprint,
    message_receipt_name,
    new_messages,
    placed_fingerprint,
    result_conflict,
    run_by_key,
    run_of_last_message,
)
from passback.core.questions import check_question_answer
from passback.core.state import State
from passback.core.transcript import (
    MintMessageId,
    OpenCall,
    answer_messages,
    child_transcript,
    closing_results,
    lasting_permissions,
    owed_answers,
    resumable_calls,
    runnable_calls,
    unanswered_calls,
    unmade_results,
    waiting_calls,
    wrap_in_children,
)
from passback.core.values import value

BUSY = "a run of this conversation is going on"
NOT_WAITING = "no such tool call is waiting in this conversation"
NO_MESSAGE_HERE = "there is no such message in this conversation"
NOT_WHOLE = (
    "the tool calls of the message to go on after are answered only behind it: "
    "name the last answer, or a message before the calls"
)
_LEFT_BEHIND = (
    "the calls that are answered wait on the branch that `after` leaves: "
    "post the results without `after`"
)


@value
class ConversationSnapshot:
    """A conversation at the time a post comes.

    Args:
        messages: the transcript, from `state.history_start` on.
        receipts: the stored receipts under the names of the post.
        running: the current run, if any.
        queued: the messages of the queued posts.
        overdue: the time for what the client owes has ended, and nothing runs.
        start: the position of the first of `messages`.
        exists: False if there is no such conversation.
        state: its derived data.
        place: where the post is `after` another message than the last one: the messages up to that
            one, from the `history_start` of that branch on.
    """

    messages: Sequence[Message]
    receipts: Receipts = field(default_factory=dict[ReceiptName, Receipt])
    running: RunId | None = None
    queued: Sequence[Message] = ()
    overdue: bool = False
    start: int = 0
    exists: bool = True
    state: State = field(default_factory=State)
    place: Sequence[Message] | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing was said, runs or waits."""
        return not (self.messages or self.start or self.is_busy)

    @property
    def is_busy(self) -> bool:
        """True if a run goes on, or posts wait."""
        return bool(self.running or self.queued)


@value
class Begins:
    """The post starts a run. `receipts` maps the names that it settles to fingerprints.

    `left` closes the calls on the branch that the post leaves, if it does.
    """

    append: tuple[Message, ...]
    receipts: Mapping[ReceiptName, str]
    left: tuple[Message, ...] = ()


@value
class Queues:
    """The post waits in the queue; `messages` are its new ones."""

    messages: tuple[PostedMessage, ...]
    receipts: Mapping[ReceiptName, str]


@value
class Parks:
    """The post's results are kept; other answers are still owed, and nothing runs.

    Empty `append`: the post is a repeat, with nothing to store.
    """

    append: tuple[Message, ...]
    receipts: Mapping[ReceiptName, str]
    owed: tuple[Owed, ...]


@value
class Joins:
    """The post is a repeat: it follows the run that the first one started."""

    run_id: RunId


Verdict: TypeAlias = Begins | Queues | Parks | Joins


def decide_post(snapshot: ConversationSnapshot, post: StartRun, mint: MintMessageId, /) -> Verdict:
    """Decide what a post means; `mint` makes ids for messages that the server adds.

    Raises:
        UnknownConversation: it continues one that does not exist.
        UnknownMessage: it is `after` a message, and there is no conversation.
        InvalidRequest: it cannot begin a conversation (`StartRun.flaw`), or adds too many lasting
            denials. Or `after` names a place within a turn, or leaves calls that it answers.
        NothingToDo: it has no message, and nothing is to be answered anew.
        Reused: its idempotency key, or the id of one of its messages, was used with other content
            or for another place.
        UnknownToolCall: an answer to a call that is neither owed nor answered.
        InvalidAnswer: an answer that does not fit the call's questions.
        ResultConflict: an answer that differs from another to the same call, or one that is too
            late.
        ConversationBusy: a run goes on or is about to begin, and the post may not wait.
        Conflict: both the post and the conversation have a history.
    """
    _refuse_without_conversation(snapshot, post)
    if (known := run_by_key(post, snapshot.receipts)) is not None:
        return Joins(known)
    if post.history and snapshot.is_empty:
        return _begin_imported(post)
    # while a run goes on nothing is owed: its calls are still being made
    open_calls = () if snapshot.running else waiting_calls(snapshot.messages)
    if snapshot.place is not None:
        _refuse_left_answers(snapshot, post)
    snapshot = _without_withdrawn(snapshot, [each.call.id for each in open_calls])
    fresh = _fresh_answers(snapshot, post, open_calls)
    # posted messages that are no repeats of earlier ones
    new = new_messages(post, snapshot.receipts, snapshot.messages, start=snapshot.start)
    stored = (*snapshot.messages, *snapshot.queued)
    others = new[count_resent(post, new, stored, running=bool(snapshot.running)) :]
    nothing_new = bool(post.messages) and not (fresh or others)
    repeat = (
        _answer_repeat(snapshot, owed_answers(snapshot.messages), post) if nothing_new else None
    )
    # a repeat that led to no run starts one if what was owed then is overdue
    if repeat is not None and not (isinstance(repeat, Parks) and snapshot.overdue):
        return repeat
    if post.history and not post.resends:
        raise Conflict(
            "this conversation already has messages: a history can only begin a new one. "
            "Send only the new messages"
        )
    return _decide_new(snapshot, post, mint, fresh=fresh, others=others)


def _decide_new(
    snapshot: ConversationSnapshot,
    post: StartRun,
    mint: MintMessageId,
    *,
    fresh: Mapping[CallId, Answer],
    others: Sequence[PostedMessage],
) -> Verdict:
    """Decide what a post means that is no repeat.

    Args:
        snapshot: the conversation.
        post: the post.
        mint: makes ids.
        fresh: its answers to open calls.
        others: its other messages that are new.
    """
    open_calls = () if snapshot.running else waiting_calls(snapshot.messages)
    receipts, overdue = _make_receipts(post, fresh.values(), others), snapshot.overdue
    waits = snapshot.is_busy and bool(others or not post.messages)
    if post.after is not None:
        _refuse_place(snapshot, post, others, waits=waits)
    if waits:
        # with open calls even `reject` queues: their answers may never come, and a new message
        # lets the queue go on without them
        if post.on_busy == "reject" and not open_calls:
            raise ConversationBusy(BUSY, retry_after=1)
        return Queues((*fresh.values(), *others), receipts)
    if snapshot.place is not None:
        closed = close_open_calls(snapshot.messages, mint, overdue=overdue)
        return Begins(tuple(others), {**closed.receipts, **receipts}, closed.append)
    left = tuple(each.owed for each in open_calls if each.call.id not in fresh)
    if left and not others and not overdue:
        return Parks(_write_answers(snapshot.messages, fresh.values(), mint), receipts, left)
    answered = tuple(fresh.values())
    return _begin_turn(
        snapshot.messages, answered, others, mint, receipts=receipts, overdue=overdue
    )


def _refuse_without_conversation(snapshot: ConversationSnapshot, post: StartRun) -> None:
    if post.continues and not snapshot.exists:
        if post.flaw:
            raise InvalidRequest(post.flaw)
        raise UnknownConversation("there is no such conversation")
    if post.after and not snapshot.exists:
        raise UnknownMessage(NO_MESSAGE_HERE)
    refuse_empty(post)


def _refuse_left_answers(snapshot: ConversationSnapshot, post: StartRun) -> None:
    answered = {each.call_id for each in post.messages if isinstance(each, Answer)}
    if any(call_receipt_name(call_id) not in snapshot.receipts for call_id in answered):
        raise InvalidRequest(_LEFT_BEHIND)


def _refuse_place(
    snapshot: ConversationSnapshot,
    post: StartRun,
    others: Sequence[PostedMessage],
    *,
    waits: bool,
) -> None:
    """Check that a run may begin after the message that a post names."""
    is_elsewhere = snapshot.place is not None
    place = snapshot.messages if snapshot.place is None else snapshot.place
    is_open = bool(unanswered_calls(place))
    # at the end of the branch, calls may wait for this post, unless it has to wait itself
    if is_open and (is_elsewhere or waits):
        raise InvalidRequest(NOT_WHOLE)
    asks_anew = not post.messages or (is_elsewhere and not others)
    if asks_anew and (is_open or not _asks_model(place)):
        raise NothingToDo(
            "without a new message, one is answered anew: go on after a message of the user, or "
            "after the last result of a tool call"
        )


def _asks_model(messages: Sequence[Message]) -> bool:
    """Return whether a transcript ends with something for the model to answer."""
    for message in reversed(messages):
        if not isinstance(message, SideMessage):
            return not isinstance(message, AssistantMessage)
    return False


def _without_withdrawn(
    snapshot: ConversationSnapshot, owed: Sequence[CallId]
) -> ConversationSnapshot:
    """Return the snapshot without receipts of answers that the client owes once more.

    They came with a post that was cancelled while it waited, and no run has used them.
    """
    waiting = {each.call_id for each in snapshot.queued if isinstance(each, Answer)}
    withdrawn = {call_receipt_name(call) for call in owed if call not in waiting}
    if withdrawn.isdisjoint(snapshot.receipts):
        return snapshot
    left = {name: each for name, each in snapshot.receipts.items() if name not in withdrawn}
    return replace(snapshot, receipts=left)


def refuse_empty(post: StartRun, /) -> None:
    """Raise `NothingToDo` for a post without messages that does not say what to answer anew."""
    if not post.messages and post.after is None:
        raise NothingToDo("the post has no message, and nothing waits to be resumed")


def begin_queued_run(
    messages: Sequence[Message],
    posted: Sequence[PostedMessage],
    mint: MintMessageId,
    /,
    *,
    overdue: bool = False,
) -> Begins:
    """Return the run of messages that were accepted before, whatever is still owed.

    Without messages it is the run after a timeout: the model continues with the answers that there
    are.
    """
    open_ids = {each.call.id for each in waiting_calls(messages)}
    # a call may have been closed since the answer was queued
    answers = [m for m in posted if isinstance(m, Answer) and m.call_id in open_ids]
    others = [message for message in posted if not isinstance(message, Answer)]
    settled = {call_receipt_name(each.call_id): message_fingerprint(each) for each in answers}
    return _begin_turn(messages, answers, others, mint, receipts=settled, overdue=overdue)


def close_open_calls(
    messages: Sequence[Message],
    mint: MintMessageId,
    /,
    *,
    posted: Sequence[PostedMessage] = (),
    overdue: bool = False,
) -> Begins:
    """Return the run that ends all open calls, because the user goes on without them.

    `posted`: messages that were accepted before; the answers among them are kept.
    """
    open_ids = {each.call.id for each in waiting_calls(messages)}
    answers = [m for m in posted if isinstance(m, Answer) and m.call_id in open_ids]
    settled = {call_receipt_name(each.call_id): message_fingerprint(each) for each in answers}
    return _begin_turn(messages, answers, (), mint, receipts=settled, overdue=overdue, goes_on=True)


def _begin_turn(
    messages: Sequence[Message],
    answers: Collection[Answer],
    others: Sequence[PostedMessage],
    mint: MintMessageId,
    *,
    receipts: Mapping[ReceiptName, str],
    overdue: bool,
    goes_on: bool = False,
) -> Begins:
    if not unanswered_calls(messages):  # the most frequent case: no call is open
        return Begins(tuple(others), receipts)
    open_calls = waiting_calls(messages)
    given = _write_answers(messages, answers, mint)
    turn = (*messages, *given)
    closed = (
        _close_superseded(turn, mint, overdue=overdue, begun=not open_calls)
        if others or goes_on
        else _close_unanswered(turn, mint, overdue=overdue)
    )
    reason: Synthetic = "timeout" if overdue else "superseded"
    ends = closing_results((each.call for each in open_calls), reason, mint)
    approved = {call.id for call in runnable_calls(turn) if call.asks}
    # an approved call keeps the receipt of its approval
    cut = (m for m in closed if isinstance(m, ToolMessage) and m.call_id not in approved)
    parked = _parked_answers(messages) if open_calls else ()
    settled = {
        call_receipt_name(each.call_id): message_fingerprint(each)
        for each in (*cut, *ends, *parked)
    }
    return Begins((*given, *closed, *others), {**settled, **receipts})


def _begin_imported(post: StartRun) -> Begins:
    """Return the run of a post with a history, which contains the results of its calls."""
    # the calls of an imported history were made elsewhere: none waits for approval
    if any(isinstance(each, ApprovalMessage) for each in post.messages):
        raise UnknownToolCall(NOT_WAITING)
    new = [each for each in post.messages if not isinstance(each, Answer)]
    said = [each for each in post.history if isinstance(each, SystemMessage | UserMessage)]
    return Begins((*post.history, *new), _make_receipts(post, (), (*said, *new)))


def refuse_claim(
    snapshot: ConversationSnapshot, owing: Collection[Owed], call_id: CallId, /
) -> None:
    """Check that a call waits for its result, so that a client may claim it.

    `owing` is what is owed while nothing runs.

    Raises:
        UnknownToolCall: it was never handed back here.
        ResultConflict: it is answered, or its time has ended.
    """
    if known := snapshot.receipts.get(call_receipt_name(call_id)):
        raise result_conflict(known.fingerprint)
    if call_id not in {each.id for each in owing} or snapshot.running:
        raise UnknownToolCall(NOT_WAITING)
    if snapshot.overdue:
        raise result_conflict(TIMED_OUT)


def _make_receipts(
    post: StartRun, answers: Collection[Answer], others: Collection[PostedMessage]
) -> dict[ReceiptName, str]:
    names = {call_receipt_name(answer.call_id): message_fingerprint(answer) for answer in answers}
    names |= {
        message_receipt_name(each.id): placed_fingerprint(post, each)
        for each in others
        if each.id in post.named
    }
    if post.idempotency_key is not None:
        names[key_receipt_name(post.idempotency_key)] = post.fingerprint
    return names


def _fresh_answers(
    snapshot: ConversationSnapshot, post: StartRun, open_calls: Sequence[OpenCall]
) -> dict[CallId, Answer]:
    """Return the posted answers to open calls, without equal repeats, by call."""
    calls = {each.call.id: each.call for each in open_calls}
    fresh: dict[CallId, Answer] = {}
    for answer in [message for message in post.messages if isinstance(message, Answer)]:
        known = snapshot.receipts.get(call_receipt_name(answer.call_id))
        first = known.fingerprint if known else None
        if answer.call_id in fresh:  # two answers to one call in one post have to be equal
            first = message_fingerprint(fresh[answer.call_id])
        elif known is None and (call := calls.get(answer.call_id)):
            # an approval, where one is asked for
            fits = (call.asks == "approval") is isinstance(answer, ApprovalMessage)
            if fits and not snapshot.overdue:
                fresh[answer.call_id] = _complete_answer(call, answer)
                continue
            # the timeout is not written yet, but the time for an answer has ended
            first = TIMED_OUT if fits else None
        if first is None:
            raise UnknownToolCall(NOT_WAITING)
        if first != message_fingerprint(answer):
            raise result_conflict(first)
    if fresh and not all(each.approved for each in lasting_permissions(fresh.values())):
        # with those in the queue: a queued post is not judged again
        newer = lasting_permissions((*snapshot.queued, *fresh.values()))
        refuse_too_many_denials(snapshot.state.permissions(snapshot.messages), newer)
    return fresh


def _complete_answer(call: ToolCall, answer: Answer) -> Answer:
    if isinstance(answer, ApprovalMessage):
        return replace(answer, tool=call.name, digest=call.digest)
    if call.asks == "question":
        check_question_answer(call.arguments, answer)
    return answer


def _answer_repeat(
    snapshot: ConversationSnapshot, owing: Collection[Owed], post: StartRun
) -> Joins | Parks:
    """Return where a post leads that repeats an earlier one; `owing` is what is still owed."""
    run_id = run_of_last_message(post, snapshot.receipts)
    return Parks((), {}, tuple(owing)) if run_id is None else Joins(run_id)


def _write_answers(
    messages: Sequence[Message], answers: Iterable[Answer], mint: MintMessageId
) -> tuple[Message, ...]:
    """Return answers as they stand in the transcript: a sub-agent's within its own."""
    paths = {each.call.id: each.path for each in waiting_calls(messages)}
    return tuple(
        wrap_in_children(paths[answer.call_id], message)
        for answer in answers
        for message in answer_messages(answer, mint)
    )


def _close_superseded(
    turn: Sequence[Message], mint: MintMessageId, *, overdue: bool, begun: bool
) -> tuple[Message, ...]:
    """Return results for all open calls, because the user continues without them.

    Calls that the client owes are superseded or timed out, together with the sub-agents that wait
    for them. So are calls that it has approved, if they cannot have `begun`. Calls of the server's
    own were interrupted.
    """
    reason: Synthetic = "timeout" if overdue else "superseded"
    ready = runnable_calls(turn)
    unmade = () if begun else resumable_calls(turn)
    left = [call for call in unanswered_calls(turn) if call not in ready]
    cut = [call for call in ready if call not in unmade]
    return (
        *closing_results(left, reason, mint),
        *unmade_results(unmade, mint),
        *closing_results(cut, "interrupted", mint),
    )


def _close_unanswered(
    turn: Sequence[Message], mint: MintMessageId, *, overdue: bool
) -> tuple[Message, ...]:
    """Return results for calls that the client still owes or that a crash has interrupted.

    Calls that the client has answered go on.
    """
    reason: Synthetic = "timeout" if overdue else "superseded"
    kept = resumable_calls(turn)
    late = (
        wrap_in_children(each.path, closing_results([each.call], reason, mint)[0])
        for each in waiting_calls(turn)
    )
    cut = [call for call in runnable_calls(turn) if call not in kept]
    return (*late, *closing_results(cut, "interrupted", mint))


def _parked_answers(messages: Sequence[Message]) -> Iterator[Answer]:
    """Yield the client's answers from earlier posts to calls of an open turn and its sub-agents."""
    turn = next(message for message in reversed(messages) if isinstance(message, AssistantMessage))
    calls = {call.id: call for call in turn.tool_calls}
    for message in messages:
        match message:
            case ToolMessage(call_id=call_id, synthetic=None) if call_id in calls:
                # a server tool's result was not posted, so it needs no receipt
                if calls[call_id].client:
                    yield message
            case ApprovalMessage(call_id=call_id) if call_id in calls:
                yield message
            case _:
                pass
    for call in unanswered_calls(messages):
        if child := child_transcript(call.id, messages):
            yield from _parked_answers(child)


def decide_unread_post(
    snapshot: ConversationSnapshot, owing: Collection[Owed], post: StartRun, /
) -> Joins | Parks | None:
    """Decide what a post means by receipts and owed answers alone. None if messages are needed.

    Args:
        snapshot: without messages.
        owing: the answers that the client owes, while nothing runs.
        post: any post.

    Raises:
        NothingToDo, Reused, UnknownToolCall, ResultConflict, ConversationBusy: as `decide_post`.
    """
    refuse_empty(post)
    if (run_id := run_by_key(post, snapshot.receipts)) is not None:
        return Joins(run_id)
    snapshot = _without_withdrawn(snapshot, [each.id for each in owing])
    fresh = [each for each in post.messages if not _is_known(each, post, snapshot.receipts)]
    if fresh or not post.messages:
        answered = {each.call_id for each in fresh if isinstance(each, Answer)}
        # messages may turn out to be repeats, which are never refused as busy
        may_be_known = post.resends or any(each.id in post.named for each in fresh)
        if not snapshot.running:
            if answered - {each.id for each in owing}:
                raise UnknownToolCall(NOT_WAITING)
        elif post.on_busy == "reject" and not answered and not may_be_known:
            raise ConversationBusy(BUSY, retry_after=1)
        return None
    repeat = _answer_repeat(snapshot, owing, post)
    # tools are checked against the server's and stored, even with a repeat
    takes_messages = snapshot.running or snapshot.overdue or post.tools is not None
    return None if isinstance(repeat, Parks) and takes_messages else repeat


def _is_known(message: PostedMessage, post: StartRun, receipts: Receipts) -> bool:
    """Return whether a posted message is an equal repeat of one that has a receipt."""
    if isinstance(message, Answer):
        known = receipts.get(call_receipt_name(message.call_id))
        if known is not None and known.fingerprint != message_fingerprint(message):
            raise result_conflict(known.fingerprint)
        return known is not None
    known = receipts.get(message_receipt_name(message.id)) if message.id in post.named else None
    if known is not None and not is_said_again(post, message, known.fingerprint):
        raise Reused(OTHER_MESSAGE)
    return known is not None
