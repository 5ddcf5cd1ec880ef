"""What has to be true of every conversation, and of every step: the promises, one by one.

They are written from the promises, with the messages and events that are stored, and without the
rules that make these.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from tests.model.actors import Actor, Judged, Late, Run, Step, deliver
from tests.model.apply_write import Conversation
from tests.model.reading import head_in, logged, messages_of
from tests.support.transcript_rules import faults_of

from passback.core.admission import Begins, Joins, Parks, Queues
from passback.core.changes import load_queued
from passback.core.conversation.head import load_receipt
from passback.core.conversation.store import Append, TakeLease, Write
from passback.core.events import (
    RunFinished,
    RunQueued,
    TextDelta,
    TurnEnded,
    TurnStarted,
)
from passback.core.messages import (
    Answer,
    AssistantMessage,
    Message,
    MessageId,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import ReceiptName, call_receipt_name, message_fingerprint
from passback.core.transcript import owed_answers


class Broken(NamedTuple):
    """A broken promise, and in what way."""

    promise: str
    what: str


InConversation: TypeAlias = Callable[[Conversation], Broken | None]
InStep: TypeAlias = Callable[[Conversation, Actor, Step], Broken | None]

queued_post = lru_cache(maxsize=10_000)(load_queued)


def broken(promise: str, faults: Iterator[str]) -> Broken | None:
    first = next(faults, None)
    return None if first is None else Broken(promise, first)


# ---------------------------------------------------------------- in every conversation
def owes_what_is_open(known: Conversation) -> Broken | None:
    """P2: the head owes what the transcript says; while a run goes on, nothing."""
    if not known.version:
        return None
    owed = head_in(known).owed
    if known.lease is not None:
        owes = bool(owed) or known.owes
        return Broken("P2", "something is owed while a run goes on") if owes else None
    if owed != owed_answers(messages_of(known.branch)):
        return Broken("P2", f"{len(owed)} owed, and not what the transcript says")
    if known.owes is not bool(owed):
        return Broken("P2", "the index of those that owe is wrong")
    return None


def is_valid(known: Conversation) -> Broken | None:
    """P5: the transcript is one that every provider takes."""
    return broken("P5", iter(faults_of(messages_of(known.branch), running=known.lease is not None)))


def ends_once(known: Conversation) -> Broken | None:
    """P6: a run has one end, the last of its log, once it is over."""
    return broken("P6", _faults_of_ends(known))


def _faults_of_ends(known: Conversation) -> Iterator[str]:
    waiting = {each.run_id for each in known.queue}
    going_on = head_in(known).run_id if known.lease is not None else None
    for run_id, entries in known.logs:
        events = [event for _, event in logged(entries)]
        ends = [n for n, event in enumerate(events) if isinstance(event, RunFinished)]
        if run_id in waiting:
            if any(not isinstance(event, RunQueued) for event in events):
                yield "a run that waits has begun"
        elif run_id == going_on:
            if ends:
                yield "a run that goes on has ended"
        elif ends != [len(events) - 1]:
            yield (
                f"a run that is over has {len(ends)} ends"
                if len(ends) != 1
                else "an end is not the last event"
            )
    if going_on in waiting:
        yield "a run waits that has begun"


def is_one_run(known: Conversation) -> Broken | None:
    """P8: what was posted with a key, or with an id, is there once."""
    said = Counter(
        message.content
        for message in (*messages_of(known.messages), *_waiting(known))
        if isinstance(message, UserMessage) and str(message.content).startswith("once")
    )
    twice = (f"{text!r} led to {count} runs" for text, count in said.items() if count > 1)
    return broken("P8", twice)


def _waiting(known: Conversation) -> Iterator[Message]:
    for each in known.queue:
        yield from queued_post(each.record).post.messages


def _answered(known: Conversation) -> set[ReceiptName]:
    """Return the names of the receipts of calls that have a result."""
    messages = messages_of(known.messages)
    return {call_receipt_name(e.call_id) for e in messages if isinstance(e, ToolMessage)}


def is_answered_once(known: Conversation) -> Broken | None:
    """P9: each call has one result."""
    messages = messages_of(known.messages)
    results = Counter(each.call_id for each in messages if isinstance(each, ToolMessage))
    if results and max(results.values()) > 1:
        return Broken("P9", "a call has two results")
    return None


def keeps_what_is_committed(known: Conversation) -> Broken | None:
    """P10: the log and the record say the same, and only what may become void is behind."""
    return broken("P10", _faults_of_logs(known))


def _faults_of_logs(known: Conversation) -> Iterator[str]:
    head = head_in(known)
    going_on = head.run_id if known.lease is not None else None
    stored = {each.id for each in messages_of(known.messages) if isinstance(each, AssistantMessage)}
    shown: set[MessageId] = set()
    for run_id, entries in known.logs:
        events = list(logged(entries))
        positions = [position for position, _ in events]
        if positions != sorted(set(positions)):
            yield "the positions of a log do not grow"
        ended = {event.message_id for _, event in events if isinstance(event, TurnEnded)}
        shown |= ended
        if run_id == going_on:
            behind = [event for position, event in events if position > head.committed]
            if any(not isinstance(event, TurnStarted | TextDelta) for event in behind):
                yield "what is committed may become void"
            events = [each for each in events if each[0] <= head.committed]
        begun = {event.message_id for _, event in events if isinstance(event, TurnStarted)}
        if not begun <= ended:
            yield "text of an interrupted turn is not void"
    if stored != shown:
        yield "an answer is in the record or in the log, and not in both"


def _queue_has(known: Conversation, run_id: str) -> bool:
    return any(each.run_id == run_id for each in known.queue)


def is_looked_after(known: Conversation) -> Broken | None:
    """P10: what waits while nothing runs is due for recovery."""
    if known.lease is not None or not known.version:
        return None
    if known.queue and known.due is None:
        return Broken("P10", "a post waits, and nobody is sent to it")
    head = head_in(known)
    if head.answer_by is not None and head.owed and known.due is None:
        return Broken("P10", "a time limit ends, and nobody is sent to it")
    return None


IN_CONVERSATIONS: Final[tuple[InConversation, ...]] = (
    owes_what_is_open,
    is_valid,
    ends_once,
    is_one_run,
    is_answered_once,
    keeps_what_is_committed,
    is_looked_after,
)


# ---------------------------------------------------------------- in every step
def repeats_change_nothing(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P15: a write that comes again changes nothing, also if the store has forgotten its id."""
    sent = step.sent
    if sent is None or step.after == before:
        return None
    again, _ = deliver(step.after, sent)
    if again != step.after:
        return Broken("P15", f"{sent.what} again changes something")
    if isinstance(sent.write, Write) and not sent.applied:
        forgotten = step.after._replace(writes=())
        again, _ = deliver(forgotten, sent)
        if again._replace(version=0, writes=()) != forgotten._replace(version=0):
            return Broken("P15", f"{sent.what}, forgotten and sent again, changes something")
    return None


def is_known_again(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P15: a write that was applied changes nothing when it comes again later."""
    if step.sent is not None and step.sent.applied and step.after.version != before.version:
        return Broken("P15", f"{step.sent.what} was applied twice")
    return None


def has_one_owner(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """A lease is taken only where there is none, or where its time is over."""
    write = step.sent.write if step.sent else None
    if not isinstance(write, Write) or step.after == before:
        return None
    lease, after = before.lease, step.after.lease
    if isinstance(write.lease, TakeLease) and lease is not None and not before.lease_is_over:
        return Broken("one owner", "a lease was taken that another worker has")
    is_held = lease is not None and not before.lease_is_over
    if is_held and after is None and not isinstance(actor, Run | Late):
        return Broken("one owner", "a run was ended that another worker has")
    return None


def is_no_zombie(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P10: a worker without the lease writes nothing."""
    sent = step.sent
    if (
        sent is None
        or step.after == before
        or sent.what not in {"commit", "end", "release", "text"}
    ):
        return None
    epoch = _epoch_of(sent.write)
    if (
        before.lease is None
        or head_in(before).run_id != sent.run_id
        or head_in(before).epoch != epoch
    ):
        return Broken("P10", f"a worker without the lease has written its {sent.what}")
    return None


def _epoch_of(write: Write | Append) -> int:
    fence = write.fence if isinstance(write, Append) else write.id
    return int(fence.partition(":")[0])


def is_written_whole(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P6: the events of a write that is applied are in the log."""
    write = step.sent.write if step.sent else None
    if step.after == before or not isinstance(write, Write) or write.log is None:
        return None
    entry = write.log.entry
    if entry is not None and entry not in step.after.log(write.log.run_id):
        return Broken("P6", "the events of a write are not in the log")
    return None


def loses_nothing(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P10: what is committed stays: messages, and the events up to `committed`."""
    if step.after.messages[: len(before.messages)] != before.messages:
        return Broken("P10", "messages of committed turns are gone")
    head = head_in(before)
    for run_id, entries in before.logs:
        kept = [
            each for each in entries if run_id != head.run_id or each.position <= head.committed
        ]
        if step.after.log(run_id)[: len(kept)] != tuple(kept):
            return Broken("P10", "events of committed turns are gone")
    return None


def counts_attempts(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P10: a take-over counts, and a hand-over does not."""
    sent = step.sent
    if sent is None or step.after.version == before.version:
        return None
    was, now = head_in(before).attempt, head_in(step.after).attempt
    expected = {"TakeOver": was + 1, "release": was - 1, "Begin": 1}.get(sent.what, was)
    if now != expected:
        return Broken("P10", f"attempt {now} after {was} and {sent.what}")
    return None


def keeps_runs_of_receipts(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P8: a post leads to the run to which it led first."""
    after = dict(step.after.receipts)
    for name, text in before.receipts:
        first, now = load_receipt(text), load_receipt(after.get(name, "|"))
        if first == now or first == replace(now, run_id=None):
            continue
        # an answer that waits goes with the first run that can use it, if none is cancelled
        if not name.startswith("call:") or name in _answered(before):
            return Broken("P8", f"the receipt {name.partition(':')[0]} leads elsewhere")
    return None


def takes_first_result(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P9: an equal result joins, another one is refused, and so is one of no call."""
    judged = step.judged
    if judged is None:
        return None
    given = {each.call_id: each for each in judged.post.messages if isinstance(each, ToolMessage)}
    stored = {
        each.call_id: each
        for each in (*messages_of(before.messages), *_waiting(before))
        if isinstance(each, ToolMessage)
    }
    accepted = not isinstance(judged.verdict, str) and not _is_known_by_key(judged)
    for call, result in given.items():
        first = stored.get(call)
        if (
            first is not None
            and accepted
            and message_fingerprint(first) != message_fingerprint(result)
        ):
            return Broken("P9", "a second result of a call is taken")
    if accepted and any(call == "call_unknown" for call in given):
        return Broken("P9", "a result of no call is taken")
    late = head_in(before).answer_by
    fresh = isinstance(judged.verdict, Begins | Parks | Queues) and any(
        isinstance(each, ToolMessage) and each.synthetic is None for each in _brought(judged)
    )
    if fresh and before.lease is None and late is not None and late <= before.now:
        return Broken("P9", "a result is taken after its time")
    return None


def _is_known_by_key(judged: Judged) -> bool:
    """Return whether a post follows the run of an equal one, whatever became of its results."""
    return isinstance(judged.verdict, Joins) and judged.post.idempotency_key is not None


def _brought(judged: Judged) -> Sequence[Message]:
    verdict = judged.verdict
    if isinstance(verdict, Begins | Parks):
        return verdict.append
    return verdict.messages if isinstance(verdict, Queues) else ()


def can_be_answered(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P9: a result of a call that is owed is taken, unless another one waits or its time is over."""
    judged, head = step.judged, head_in(before)
    if judged is None or before.lease is not None or head.answer_by is not None:
        return None
    waiting = {each.call_id for each in _waiting(before) if isinstance(each, Answer)}
    owed = {each.id for each in head.owed} - waiting
    given = {each.call_id for each in judged.post.messages if isinstance(each, ToolMessage)}
    brought = {each.call_id for each in _brought(judged) if isinstance(each, Answer)}
    if _is_known_by_key(judged):
        return None
    if given and given <= owed and not given <= brought:
        return Broken("P9", "a result of a call that is owed is not taken")
    return None


def joins_first_run(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P8: a repeat of a stored post leads to its run, and both ways to judge it agree."""
    judged = step.judged
    if judged is None:
        return None
    verdict = judged.verdict
    if isinstance(verdict, Joins) and verdict.run_id not in dict(before.logs):
        return Broken("P8", "a repeat joins a run that there is not")
    unread = judged.unread
    if unread is not None and unread != verdict:
        return Broken("P8", f"judged without messages {unread}, with them {verdict}")
    if judged.refused not in {"", "full"}:
        return Broken("P16", "admission decides what the rules refuse")
    return None


IN_STEPS: Final[tuple[InStep, ...]] = (
    repeats_change_nothing,
    is_known_again,
    has_one_owner,
    is_no_zombie,
    is_written_whole,
    loses_nothing,
    counts_attempts,
    keeps_runs_of_receipts,
    takes_first_result,
    can_be_answered,
    joins_first_run,
)


# ---------------------------------------------------------------- in every state
def is_unsettled(known: Conversation) -> bool:
    """Return whether somebody has to go on with a conversation now."""
    if known.lease is not None:
        return known.lease_is_over
    return bool(known.queue) and not head_in(known).owed
