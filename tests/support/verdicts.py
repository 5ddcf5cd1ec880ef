"""What the table "What a post means" says of answers to calls, judged by what everybody can see of a conversation."""

from collections.abc import Sequence

from tests.support.transcripts import (
    answers_of,
    approvals_of,
    awaited_calls,
    calls_of,
    words_of,
)

from passback.core.changes import Status
from passback.core.errors import ResultConflict, UnknownToolCall
from passback.core.messages import Answer, ApprovalMessage, CallId, Message


def verdict_on(posted: Sequence[Answer], status: Status, messages: Sequence[Message]) -> str | None:
    """What the table says of answers; None: it depends on more than the transcript."""
    if status.lapsed or status.queued:
        return None
    awaited = [] if status.running else awaited_calls(messages)
    asked = {call.id: call.asks == "approval" for call in awaited}
    known = known_answers(messages)
    for each in posted:
        if asked.get(each.call_id) is isinstance(each, ApprovalMessage):
            known.setdefault(each.call_id, words_of(each))
        if each.call_id not in known:
            return UnknownToolCall.code
        if known[each.call_id] != words_of(each):
            return ResultConflict.code
    return verdict_on_good_ones({each.call_id for each in posted}, {*asked})


def known_answers(messages: Sequence[Message]) -> dict[CallId, tuple[object, ...]]:
    """What is remembered of the calls that the client was asked to answer."""
    results, approvals = answers_of(messages), approvals_of(messages)
    known = {call_id: words_of(each) for call_id, each in approvals.items()}
    for call in calls_of(messages):
        closed = results.get(call.id)
        if closed is None or call.id in known or not (call.client or call.asks):
            continue
        if closed.synthetic == "superseded" or (call.client and closed.synthetic is None):
            known[call.id] = words_of(closed)
    return known


def verdict_on_good_ones(posted: set[CallId], open_ids: set[CallId]) -> str | None:
    """They are equal to what is known, or the first."""
    if posted & open_ids:
        return "owes" if open_ids - posted else "runs"
    return None if open_ids else "joins"  # some of them may be of the turn that is still open
