"""Rules: what each command does to a conversation. Pure; `table.py` says when it is allowed.

Every rule is a function of the conversation as it was read, a command, and the store's clock. It
returns a write, which applies only if the conversation is still as it was read, or why there is
none.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from passback.core.budgets import Spent
from passback.core.changes import (
    CallClaim,
    Change,
    RunRecord,
    dump_events,
    dump_message,
    dump_queued,
    dump_run,
    dump_state,
    dump_title_call,
    load_run,
    load_state,
)
from passback.core.conversation.changing import changed_head, changed_view, write_change
from passback.core.conversation.commands import (
    Begin,
    Cancel,
    ClaimCall,
    CommitTurn,
    Configure,
    FailLost,
    HideRun,
    KeepFollowed,
    Park,
    Queue,
    RecordTitle,
    Release,
    Rename,
    TakeOver,
)
from passback.core.conversation.head import (
    CANCEL,
    CLAIMS,
    EPOCHS,
    FOLLOWED,
    NAMED,
    SETTINGS,
    STATE,
    TITLE,
    TITLE_CALL,
    Claims,
    Head,
    dump_claims,
    dump_head,
    dump_receipts,
    load_claims,
    newest_epoch,
)
from passback.core.conversation.store import (
    NEVER_DUE,
    Due,
    Found,
    Guard,
    LogChange,
    LogEntry,
    QueueEntry,
    RenewLease,
    TakeLease,
    Write,
)
from passback.core.conversation_settings import dump_settings
from passback.core.events import Position, RunEvent, RunFinished
from passback.core.messages import UNUSED, CallId, ConversationKey, RunId, RunRef
from passback.core.state import State
from passback.core.values import milliseconds, value

QUEUE_DUE = 10_000
"""Milliseconds after which others look at a queue in front of which nothing runs."""


@value
class Known:
    """A conversation as it was read.

    For a command of the one who has the lease, `found` has only what it knows.
    """

    found: Found
    head: Head

    @property
    def running(self) -> bool:
        return self.found.lease is not None

    def runs(self, run: RunRef, /) -> bool:
        """Return whether this run goes on."""
        return self.running and self.head.run_id == run.run_id


# ---------------------------------------------------------------- decisions
@value
class Decided:
    """A command is to be done.

    Attributes:
        write: what to write; None: nothing is left to do.
        head: the head afterwards.
        claim: the answer to a `ClaimCall`.
    """

    write: Write | None
    head: Head
    claim: CallClaim | None = None


Reason: TypeAlias = Literal["gone", "changed", "full"]


@value
class Refused:
    """A command is not done.

    `gone`: there is no such conversation. `full`: its queue has no room. `changed`: the state of
    the conversation does not allow it; whoever asks has to look again.
    """

    reason: Reason


CHANGED = Refused("changed")


def park(known: Known, command: Park, _now: int) -> Decided | Refused:
    change = command.change
    if change.expected != known.found.version:
        return CHANGED
    head = changed_head(known.head, known.found.message_count, change)
    owes = None if change.owed else False  # it has owed these for some time
    write = replace(write_change(known.found, known.head, head, change), owes=owes, touches=True)
    if head.answer_by != known.head.answer_by:
        write = replace(write, due=Due(queued=QUEUE_DUE))
    return Decided(write, head)


def begin(known: Known, command: Begin, now: int) -> Decided | Refused:
    change, found = command.change, known.found
    if change.expected != found.version:
        return CHANGED
    # another worker may have begun this run, or a client cancelled it
    if change.dequeues not in {None, *(each.run_id for each in found.queue[:1])}:
        return CHANGED
    epoch, entry = _new_epoch(known, command.events)
    state = change.state or _state(found)
    changed = changed_head(known.head, found.message_count, change)
    first = found.message_count + len(change.left)
    follows = changed.tree.parent(first) if change.append else changed.tree.leaf
    head = replace(
        changed,
        run_id=command.run_id,
        epoch=epoch,
        committed=Position(epoch, len(command.events)),
        open_turns=None,
        attempt=1,
        run_start=change.run_start,
        stopped_early=False,
        cancel_on_disconnect=change.cancel_on_disconnect,
        answer_by=None,
        run=RunRecord(follows, len(change.append), now, note=change.note),
        before=Spent(state.tokens, state.seconds, state.cost),
        usage_before=state.usage,
        unchanged=None,
    )
    write = write_change(found, known.head, head, change)
    followed = {FOLLOWED: None} if FOLLOWED in found.fields else {}
    return Decided(
        replace(
            write,
            fields={**write.fields, **followed, EPOCHS: b"%d" % epoch},
            dequeue=change.dequeues,
            log=LogChange(command.run_id, entry),
            lease=TakeLease(make_fence(epoch, change.nonce), command.lease),
            due=NEVER_DUE,
            owes=False,
            touches=True,
        ),
        head,
    )


def take_over(known: Known, command: TakeOver, _now: int) -> Decided | Refused:
    decided = _replace_lost_worker(known, command.change, command.run_id, command.events)
    if isinstance(decided, Refused):
        return decided
    write, head = decided
    lease = known.found.lease
    head = replace(head, attempt=head.attempt + 1)
    take = TakeLease(
        make_fence(head.epoch, command.change.nonce),
        command.lease,
        signal="" if lease is None else lease.signal,
    )
    return Decided(replace(write, head=dump_head(head), lease=take), head)


def fail_lost(known: Known, command: FailLost, now: int) -> Decided | Refused:
    decided = _replace_lost_worker(known, command.change, command.run_id, command.events)
    if isinstance(decided, Refused):
        return decided
    write, head = decided
    assert write.log is not None
    state = command.change.state or _state(known.found)
    runs, head = _ended_run(head, command.events[-1], state, now)
    ended = replace(
        write,
        head=dump_head(head),
        lease="end",
        log=replace(write.log, ends=True),
        runs=runs,
        due=Due(queued=0),
    )
    return Decided(ended, head)


def _replace_lost_worker(
    known: Known, change: Change, run_id: RunId, events: tuple[RunEvent, ...]
) -> tuple[Write, Head] | Refused:
    """Return what a take-over and the end of a lost run have in common."""
    if change.expected != known.found.version or known.head.run_id != run_id:
        return CHANGED
    epoch, entry = _new_epoch(known, events)
    changed = changed_head(known.head, known.found.message_count, change)
    head = replace(
        _with_stored(changed, len(change.append)),
        epoch=epoch,
        committed=Position(epoch, len(events)),
        open_turns=None,
    )
    write = write_change(known.found, known.head, head, change)
    return (
        replace(
            write,
            guard=replace(write.guard, lease_over=True),
            fields={**write.fields, EPOCHS: b"%d" % epoch},
            log=LogChange(run_id, entry, void_after=known.head.committed),
        ),
        head,
    )


def commit_turn(known: Known, command: CommitTurn, now: int) -> Decided | Refused:
    commit, head, stored = command.commit, known.head, known.found.message_count
    log, lease, state = commit.log, commit.log.lease, commit.state
    last = log.first + len(log.events) - 1
    turns = commit.open_turns
    committed = last if turns is None else turns.committed.seq
    messages = tuple(map(dump_message, commit.append))
    tree = head.tree.grown(len(messages), stored)
    start = head.history_start if state is None else state.history_start
    after = replace(
        head,
        committed=Position(lease.epoch, committed),
        open_turns=turns,
        owed=commit.owed,
        history_start=start,
        tree=tree,
    )
    within = None if commit.answer_within is None else milliseconds(commit.answer_within)
    after, runs = _with_stored(after, len(messages)), dict[RunId, bytes]()
    if commit.ends:
        answer_by = head.answer_by if within is None else now + within
        after = replace(after, stopped_early=commit.stopped_early, answer_by=answer_by)
        runs, after = _ended_run(after, log.events[-1], state, now)
    write = Write(
        lease.run.key,
        f"{lease.fence}:{commit.step}",
        Guard(fence=lease.fence, message_count=stored),
        head=dump_head(after),
        fields={} if state is None else {STATE: dump_state(state)},
        messages=messages,
        view=changed_view(head, after, stored, len(messages)),
        log=LogChange(
            lease.run.run_id, log_entry(lease.epoch, log.first, log.events), ends=commit.ends
        ),
        runs=runs,
        lease="end" if commit.ends else RenewLease(command.lease),
        # the worker that ends a run goes on with the queue; others look when that takes too long
        due=Due(after=within, queued=command.lease) if commit.ends else None,
        owes=True if commit.ends and commit.owed else None,
    )
    return Decided(write, after)


def release(known: Known, command: Release, _now: int) -> Decided | Refused:
    lease, head = command.lease, replace(known.head, attempt=known.head.attempt - 1)
    write = Write(
        lease.run.key,
        f"{lease.fence}:release",
        Guard(fence=lease.fence),
        head=dump_head(head),
        lease="release",
    )
    return Decided(write, head)


def queue(known: Known, command: Queue, now: int) -> Decided | Refused:
    entry, found = command.entry, known.found
    run_id = entry.queued.run_id
    if any(each.run_id == run_id for each in found.queue):
        return Decided(None, known.head)
    is_taken = any(name in found.receipts for name in entry.receipts)
    if is_taken if entry.expected is None else entry.expected != found.version:
        return CHANGED
    if len(found.queue) >= entry.limit:
        return Refused("full")
    epoch, opening = _new_epoch(known, entry.events)
    return Decided(
        Write(
            entry.run.key,
            command.nonce,
            Guard(version=found.version),
            fields={EPOCHS: b"%d" % epoch},
            receipts=dump_receipts(entry.receipts),
            enqueue=QueueEntry(run_id, dump_queued(entry.queued)),
            log=LogChange(run_id, opening),
            signal=CANCEL if entry.stops else None,
            due=_due_idle(known, now),
            touches=True,
        ),
        known.head,
    )


def cancel(known: Known, command: Cancel, now: int) -> Decided | Refused:
    run, found = command.run, known.found
    write = Write(run.key, command.nonce, Guard(version=found.version))
    if known.runs(run):
        return Decided(replace(write, signal=CANCEL), known.head)
    if all(each.run_id != run.run_id for each in found.queue):
        ended = found.runs.get(run.run_id)
        is_repeat = ended is not None and not load_run(ended).began
        return Decided(None, known.head) if is_repeat else CHANGED
    epoch, ending = _new_epoch(known, (command.finished,))
    return Decided(
        replace(
            write,
            fields={EPOCHS: b"%d" % epoch},
            dequeue=run.run_id,
            log=LogChange(run.run_id, ending, ends=True),
            runs={run.run_id: dump_run(RunRecord(ended=now, outcome=command.finished.outcome))},
            due=_due_idle(known, now),
        ),
        known.head,
    )


def claim_call(known: Known, command: ClaimCall, now: int) -> Decided | Refused:
    request, found = command.request, known.found
    if request.expected != found.version:
        return CHANGED
    claims = load_claims(found.fields[CLAIMS]).at(now) if CLAIMS in found.fields else Claims()
    by_call: dict[CallId, tuple[str, int]] = dict(claims.by_call)
    claimant = claimant_name(request.claimant)
    holder, until = by_call.get(request.call_id, (claimant, now))
    if holder != claimant:
        return Decided(None, known.head, CallClaim(False, until, until - now))
    until = now + command.milliseconds
    by_call.pop(request.call_id, None)
    if until > now:
        by_call[request.call_id] = claimant, until
    write = Write(
        request.key,
        request.nonce,
        Guard(version=found.version),
        fields={CLAIMS: dump_claims(Claims(by_call))},
    )
    return Decided(write, known.head, CallClaim(True, until, until - now))


def keep_followed(known: Known, command: KeepFollowed, now: int) -> Decided | Refused:
    if not known.runs(command.run):
        return Decided(None, known.head)
    until = b"%d" % (now + command.milliseconds)
    return _set_fields(known, command.run.key, command.nonce, {FOLLOWED: until})


def rename(known: Known, command: Rename, _now: int) -> Decided | Refused:
    fields = {TITLE: command.title.encode(), NAMED: b"1"}
    return _set_fields(known, command.key, command.nonce, fields)


def configure(known: Known, command: Configure, _now: int) -> Decided | Refused:
    fields = {SETTINGS: dump_settings(command.settings)}
    return _set_fields(known, command.key, command.nonce, fields)


def hide_run(known: Known, command: HideRun, _now: int) -> Decided | Refused:
    run, found = command.run, known.found
    kept = found.runs.get(run.run_id)
    if kept is None:  # it goes on, or waits, or there is none
        return CHANGED
    record = load_run(kept)
    if record.hidden:
        return Decided(None, known.head)
    hidden = dump_run(replace(record, note=None, hidden=True))
    write = Write(run.key, command.nonce, Guard(version=found.version), runs={run.run_id: hidden})
    return Decided(write, known.head)


def record_title(known: Known, command: RecordTitle, _now: int) -> Decided | Refused:
    written, found = command.written, known.found
    if found.created // 1000 != written.created:
        return Refused("gone")  # it was made again under the same id
    if TITLE_CALL in found.fields:  # the first call counts
        return Decided(None, known.head)
    fields = {TITLE_CALL: dump_title_call(written.call)}
    if written.title and NAMED not in found.fields:
        fields[TITLE] = written.title.encode()
    return _set_fields(known, written.key, command.nonce, fields)


# ---------------------------------------------------------------- parts of rules
def _state(found: Found) -> State:
    """Return the state of a conversation, whose boundary is in the head."""
    return load_state(found.fields[STATE]) if STATE in found.fields else State()


def _ended_run(
    head: Head, end: RunEvent, state: State | None, now: int
) -> tuple[dict[RunId, bytes], Head]:
    """Return the record of a run that ends with an event, and the head after it."""
    if head.run is None or head.run_id is None or not isinstance(end, RunFinished):
        return {}, head
    record = replace(head.run, ended=now, outcome=end.outcome, model=end.model)
    if state is not None:
        spent = Spent(state.tokens, state.seconds, state.cost)
        record = replace(record, spent=spent - head.before, usage=state.usage - head.usage_before)
    ended = replace(head, run=None, before=Spent(), usage_before=UNUSED)
    return {head.run_id: dump_run(record)}, ended


def _with_stored(head: Head, count: int) -> Head:
    """Return the head after the run has stored so many messages more."""
    return replace(head, run=head.run and replace(head.run, messages=head.run.messages + count))


def _new_epoch(known: Known, events: Sequence[RunEvent]) -> tuple[int, LogEntry | None]:
    """Return the next epoch of a conversation, and the entry that opens it."""
    epoch = newest_epoch(known.found) + 1
    return epoch, log_entry(epoch, 1, events)


def _due_idle(known: Known, now: int) -> Due | None:
    """Return when a conversation without a lease is due after its queue has changed."""
    if known.running:
        return None
    answer_by, due = known.head.answer_by, known.found.due
    queued = QUEUE_DUE if due is None else min(QUEUE_DUE, max(0, due - now))
    return Due(None if answer_by is None else max(0, answer_by - now), queued)


def _set_fields(
    known: Known, key: ConversationKey, nonce: str, fields: dict[str, bytes]
) -> Decided:
    return Decided(
        Write(key, nonce, Guard(version=known.found.version), fields=dict(fields)), known.head
    )


def log_entry(epoch: int, first: int, events: Sequence[RunEvent], /) -> LogEntry | None:
    """Return an entry for events numbered from `first`; None without events."""
    if not events:
        return None
    position = Position(epoch, first + len(events) - 1)
    return LogEntry(position, len(events), dump_events(events))


def make_fence(epoch: int, nonce: str, /) -> str:
    """Return what a lease is written under: never used again, also after a store's failover."""
    return f"{epoch}:{nonce}"


def claimant_name(claimant: str, /) -> str:
    """Return the name under which a claim is stored: what the client calls itself is not."""
    return hashlib.sha256(claimant.encode("utf-8", "surrogatepass")).hexdigest()[:32]
