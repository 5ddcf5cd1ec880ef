"""Faults that are put into the rules are found: the search is not blind.

Each test changes one rule, or one row of the table, and the searches of CI find a promise that this
breaks, by a shortest path.
"""

from dataclasses import replace

import pytest
from tests.model.seeding import LOOKOUTS, Fault, assert_found, unguarded, with_head

from passback.core.admission import ConversationSnapshot, Verdict, decide_post
from passback.core.conversation import commands
from passback.core.conversation.commands import Command
from passback.core.conversation.head import Head, dump_head, load_head
from passback.core.conversation.rules import Known, make_fence
from passback.core.conversation.store import NEVER_DUE, RenewLease, TakeLease, Write
from passback.core.conversation.table import TABLE, Row
from passback.core.posts import StartRun
from passback.core.transcript import MintMessageId


def _of_any_lease(known: Known, command: Command, write: Write) -> Write:
    return replace(write, guard=replace(write.guard, lease_over=False))


def _of_any_fence(known: Known, command: Command, write: Write) -> Write:
    return replace(write, guard=replace(write.guard, fence=None))


def _with_any_count(known: Known, command: Command, write: Write) -> Write:
    return replace(write, guard=replace(write.guard, message_count=None))


def _without_receipts(known: Known, command: Command, write: Write) -> Write:
    return replace(write, receipts={})


def _without_dequeue(known: Known, command: Command, write: Write) -> Write:
    return replace(write, dequeue=None)


def _keeps_lease_at_end(known: Known, command: Command, write: Write) -> Write:
    return replace(write, lease=RenewLease(10)) if write.lease == "end" else write


def _keeps_void_text(known: Known, command: Command, write: Write) -> Write:
    assert write.log is not None
    return replace(write, log=replace(write.log, void_after=None))


def _logs_nothing(known: Known, command: Command, write: Write) -> Write:
    return write if write.log is None else replace(write, log=replace(write.log, entry=None))


def _never_due(known: Known, command: Command, write: Write) -> Write:
    return write if write.due is None else replace(write, due=NEVER_DUE)


def _not_in_the_index(known: Known, command: Command, write: Write) -> Write:
    return replace(write, owes=None)


def _still_owes(known: Known, head: Head) -> Head:
    return replace(head, owed=known.head.owed)


def _owes_nothing(known: Known, head: Head) -> Head:
    return replace(head, owed=())


def _counts_no_attempt(known: Known, head: Head) -> Head:
    return replace(head, attempt=known.head.attempt)


def _commits_nothing(known: Known, head: Head) -> Head:
    return replace(head, committed=known.head.committed)


def _in_the_same_epoch(known: Known, command: Command, write: Write) -> Write:
    """Take a run over without a new epoch."""
    assert write.head is not None
    assert write.log is not None
    assert write.log.entry is not None
    assert isinstance(write.lease, TakeLease)
    epoch, entry = known.head.epoch, write.log.entry
    position = entry.position._replace(epoch=epoch)
    head = load_head(write.head)
    return replace(
        write,
        head=dump_head(replace(head, epoch=epoch, committed=position)),
        log=replace(write.log, entry=replace(entry, position=position)),
        lease=replace(write.lease, fence=make_fence(epoch, write.id)),
    )


FAULTS = {
    "Begin without its guard": Fault(commands.Begin, unguarded, "P15", 7, "results"),
    "Begin without receipts": Fault(commands.Begin, _without_receipts, "P8", 12, "repeated posts"),
    "Begin keeps what is owed": Fault(commands.Begin, with_head(_still_owes), "P2", 9, "results"),
    "Begin leaves its post in the queue": Fault(
        commands.Begin, _without_dequeue, "P6", 10, "queued posts"
    ),
    "Begin leaves the index of those that owe": Fault(
        commands.Begin, _not_in_the_index, "P2", 12, "results"
    ),
    "TakeOver of a lease that goes on": Fault(
        commands.TakeOver, _of_any_lease, "one owner", 8, "lost workers"
    ),
    "TakeOver in the same epoch": Fault(
        commands.TakeOver, _in_the_same_epoch, "P6", 8, "lost workers"
    ),
    "TakeOver keeps void text": Fault(
        commands.TakeOver, _keeps_void_text, "P10", 10, "lost workers"
    ),
    "TakeOver counts no attempt": Fault(
        commands.TakeOver, with_head(_counts_no_attempt), "P10", 6, "lost workers"
    ),
    "FailLost of a lease that goes on": Fault(
        commands.FailLost, _of_any_lease, "one owner", 14, "lost workers, crashes", "network"
    ),
    "FailLost without an end": Fault(
        commands.FailLost, _logs_nothing, "P6", 12, "lost workers, crashes", "network"
    ),
    "CommitTurn of any fence": Fault(
        commands.CommitTurn, _of_any_fence, "one owner", 6, "lost workers"
    ),
    "CommitTurn after any message": Fault(
        commands.CommitTurn, _with_any_count, "P15", 5, "lost workers", "network"
    ),
    "CommitTurn keeps the lease at an end": Fault(
        commands.CommitTurn, _keeps_lease_at_end, "P2", 4, "results"
    ),
    "CommitTurn owes nothing": Fault(
        commands.CommitTurn, with_head(_owes_nothing), "P2", 4, "results"
    ),
    "CommitTurn commits nothing": Fault(
        commands.CommitTurn, with_head(_commits_nothing), "P10", 4, "lost workers"
    ),
    "CommitTurn without its events": Fault(commands.CommitTurn, _logs_nothing, "P6", 4, "results"),
    "CommitTurn sends nobody": Fault(commands.CommitTurn, _never_due, "P10", 4, "timeouts"),
    "Release counts an attempt": Fault(
        commands.Release, with_head(_counts_no_attempt), "P10", 5, "lost workers"
    ),
    "Queue without receipts": Fault(commands.Queue, _without_receipts, "P8", 10, "queued posts"),
    "Cancel without an end": Fault(commands.Cancel, _logs_nothing, "P6", 10, "queued posts"),
    "Park without its guard": Fault(
        commands.Park, unguarded, "P15", 7, "partial results", "network"
    ),
}

pytestmark = pytest.mark.promise("P2", "P6", "P8", "P9", "P10", "P15", "P16")


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_wrong_rule_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.seed(monkeypatch)

    fault.assert_found()


def test_a_command_that_is_refused_where_it_is_needed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row: Row = replace(TABLE[commands.Queue], states=("running",))
    monkeypatch.setitem(TABLE, commands.Queue, row)

    assert_found(LOOKOUTS["crashes"]["results that wait"], "P16", 9)


def test_a_result_that_is_taken_after_its_time_is_found() -> None:
    def take_late(
        snapshot: ConversationSnapshot, post: StartRun, mint: MintMessageId, /
    ) -> Verdict:
        return decide_post(replace(snapshot, overdue=False), post, mint)

    lookout = LOOKOUTS["crashes"]["timeouts"]

    assert_found(replace(lookout, scene=replace(lookout.scene, decide_post=take_late)), "P9", 7)
