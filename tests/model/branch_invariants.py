"""What has to be true of the branches of every conversation, and of every step that changes them.

They are written from the promises, with the forks that the head names, and without the functions
that go along them.
"""

from collections.abc import Iterator

from tests.model.actors import Actor, Client, Step
from tests.model.apply_write import Conversation
from tests.model.invariants import Broken, broken, queued_post
from tests.model.reading import head_in, logged, messages_of
from tests.support.transcript_rules import faults_of, open_calls

from passback.core.conversation.head import CLAIMS, load_claims
from passback.core.conversation.store import Write
from passback.core.conversation.tree import NO_MESSAGE
from passback.core.events import Cancelled, RunFinished
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    ChildMessage,
    Message,
    ToolMessage,
    UserMessage,
)


def _parents(known: Conversation) -> list[int]:
    """Return for each message the number of the one that it follows."""
    parents = list(range(-1, len(known.messages) - 1))
    for fork in head_in(known).tree.forks:
        parents[fork.start] = fork.parent
    return parents


def _path(known: Conversation, number: int) -> tuple[bytes, ...]:
    """Return the records of the branch that ends with a message."""
    parents, found = _parents(known), list[bytes]()
    while number != NO_MESSAGE:
        found.append(known.messages[number])
        number = parents[number]
    return tuple(reversed(found))


# ---------------------------------------------------------------- in every conversation
def reads_its_branch(known: Conversation) -> Broken | None:
    """P16: the messages that the store reads are those of the branch that the head names."""
    if known.version and known.branch != _path(known, head_in(known).tree.leaf):
        return Broken("P16", "the store reads another branch than the head names")
    return None


def is_valid_everywhere(known: Conversation) -> Broken | None:
    """P5: a branch that is not read is one that every provider takes, and owes nothing."""
    return broken("P5", _faults_of_branches(known)) if head_in(known).tree.forks else None


def _faults_of_branches(known: Conversation) -> Iterator[str]:
    followed = {*_parents(known), head_in(known).tree.leaf}
    for number in range(len(known.messages)):
        if number not in followed:
            messages = messages_of(_path(known, number))
            yield from faults_of(messages, running=False)
            if open_calls(messages):
                yield "a branch that was left has an open call"


IN_CONVERSATIONS = (reads_its_branch, is_valid_everywhere)


# ---------------------------------------------------------------- in every step
def moves_as_asked(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """P10: a branch is left only for one that somebody has named, or for a rollback."""
    sent, after = step.sent, step.after
    if sent is None or after.version == before.version or not isinstance(sent.write, Write):
        return None
    named, rolls_back = sent.after, False
    if sent.what == "Queue":
        waiting = queued_post(after.queue[-1].record)
        return None if waiting.follows == named else Broken("P10", "a post that waits moves")
    if sent.write.dequeue is not None and sent.what == "Begin":
        first = queued_post(before.queue[0].record)
        named = first.follows
        is_stopped = _was_cancelled(before)
        rolls_back = named is None and first.post.on_busy == "rollback" and is_stopped
    if named is not None:
        return _is_behind(before, after, named, len(sent.write.messages))
    if rolls_back:
        return broken("P10", _faults_of_rollback(before, after))
    if after.branch[: len(before.branch)] != before.branch:
        return Broken("P10", f"{sent.what} leaves the branch")
    return None


def _is_behind(before: Conversation, after: Conversation, named: int, added: int) -> Broken | None:
    kept = _path(before, named)
    if after.branch[: len(kept)] != kept:
        return Broken("P10", "the branch does not have the message that it follows")
    if set(after.branch[len(kept) :]) - set(after.messages[len(after.messages) - added :]):
        return Broken("P10", "something else stands between a message and what follows it")
    return None


def _was_cancelled(known: Conversation) -> bool:
    run_id = head_in(known).run_id
    events = [] if run_id is None else [event for _, event in logged(known.log(run_id))]
    return any(isinstance(e, RunFinished) and isinstance(e.outcome, Cancelled) for e in events)


def _faults_of_rollback(before: Conversation, after: Conversation) -> Iterator[str]:
    """Yield what a rollback has done beside taking back a cancelled run."""
    run_id, gone = head_in(before).run_id, _removed(before, after)
    clients = {
        call.id
        for each in messages_of(before.branch)
        if isinstance(each, AssistantMessage)
        for call in each.tool_calls
        if call.client or call.asks
    }
    for each in gone:
        if isinstance(each, ChildMessage) or each.run_id != run_id:
            yield "a message of another run is taken back"
        if isinstance(each, ToolMessage) and each.synthetic is None and each.call_id in clients:
            yield "the result of a client's tool is taken back"
        if isinstance(each, ApprovalMessage):
            yield "an approval is taken back"
    for each in messages_of(after.branch):
        if isinstance(each, AssistantMessage | UserMessage) and each.run_id == run_id:
            yield "what the cancelled run has said or answered stays"


def _removed(before: Conversation, after: Conversation) -> tuple[Message, ...]:
    pairs = zip(before.branch, after.branch, strict=False)
    shared = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
    if shared is None:
        shared = min(len(before.branch), len(after.branch))
    return messages_of(before.branch[shared:])


def is_claimed(before: Conversation, actor: Actor, step: Step) -> Broken | None:
    """A claim is refused only while that of another client lasts."""
    if not step.blocked:
        return None
    claims = load_claims(dict(before.fields)[CLAIMS]).by_call
    until = max((end for call, (_, end) in claims.items() if call == step.blocked), default=0)
    return None if until > before.now else Broken("one claimant", "a claim that is over lasts")


IN_STEPS = (moves_as_asked, is_claimed)


# ---------------------------------------------------------------- in every state
def claimed_twice(known: Conversation, clients: list[Client]) -> bool:
    """Return whether two clients know that they have claimed one owed call."""
    if known.lease is not None:
        return False
    owed = {each.id for each in head_in(known).owed}
    held = [c.holds[0] for c in clients if c.holds is not None and c.holds[1] > known.now]
    return any(call in owed and held.count(call) > 1 for call in held)
