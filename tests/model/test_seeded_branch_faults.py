"""Faults in rollbacks, branches and claims are found, too."""

from dataclasses import replace

import pytest
from tests.model.seeding import Fault, as_decided, unguarded, with_head

from passback.core.changes import dump_queued, load_queued
from passback.core.conversation import commands
from passback.core.conversation.commands import Begin, ClaimCall, Command, CommitTurn, Park
from passback.core.conversation.head import Head
from passback.core.conversation.rules import Known
from passback.core.conversation.store import Write
from passback.core.conversation.tree import NO_MESSAGE

pytestmark = pytest.mark.promise("P2", "P5", "P10", "P16")


def _without_its_view(known: Known, command: Command, write: Write) -> Write:
    return replace(write, view=None)


def _leaves_calls_open(command: Command) -> Command:
    assert isinstance(command, Begin | Park)
    return replace(command, change=replace(command.change, left=()))


def _stays(command: Command) -> Command:
    assert isinstance(command, Begin)
    return replace(command, change=replace(command.change, leaf=None))


def _goes_too_far(command: Command) -> Command:
    assert isinstance(command, Begin | Park)
    change = command.change
    if change.leaf is None:
        return command
    return replace(command, change=replace(change, leaf=max(NO_MESSAGE, change.leaf - 1)))


def _still_owes(known: Known, head: Head) -> Head:
    return replace(head, owed=known.head.owed)


def _forgets_its_place(known: Known, command: Command, write: Write) -> Write:
    assert write.enqueue is not None
    record = dump_queued(replace(load_queued(write.enqueue.record), follows=None))
    return replace(write, enqueue=replace(write.enqueue, record=record))


def _was_stopped(command: Command) -> Command:
    assert isinstance(command, CommitTurn)
    return replace(command, commit=replace(command.commit, stopped_early=True))


def _was_not_stopped(command: Command) -> Command:
    assert isinstance(command, CommitTurn)
    return replace(command, commit=replace(command.commit, stopped_early=False))


def _for_all(command: Command) -> Command:
    assert isinstance(command, ClaimCall)
    return replace(command, request=replace(command.request, claimant="anybody"))


FAULTS = {
    "Begin reads the branch that it leaves": Fault(
        commands.Begin, _without_its_view, "P10", 6, "branches"
    ),
    "Begin leaves calls open": Fault(
        commands.Begin, as_decided, "P5", 6, "branches", misread=_leaves_calls_open
    ),
    "Park leaves calls open": Fault(
        commands.Park, as_decided, "P5", 12, "switches", misread=_leaves_calls_open
    ),
    "Begin does not leave the branch": Fault(
        commands.Begin, as_decided, "P10", 8, "branches", misread=_stays
    ),
    "Begin takes back nothing": Fault(
        commands.Begin, as_decided, "P10", 12, "rollbacks", misread=_stays
    ),
    "Begin takes back too much": Fault(
        commands.Begin, as_decided, "P10", 16, "rollbacks", misread=_goes_too_far
    ),
    "CommitTurn says that it was stopped": Fault(
        commands.CommitTurn, as_decided, "P10", 15, "rollbacks", misread=_was_stopped
    ),
    "CommitTurn does not say that it was stopped": Fault(
        commands.CommitTurn, as_decided, "P10", 12, "rollbacks", misread=_was_not_stopped
    ),
    "Queue forgets what its post follows": Fault(
        commands.Queue, _forgets_its_place, "P10", 8, "branches that wait"
    ),
    "Park switches to another branch": Fault(
        commands.Park, as_decided, "P10", 12, "switches", misread=_goes_too_far
    ),
    "Park owes what it has left": Fault(
        commands.Park, with_head(_still_owes), "P2", 14, "switches"
    ),
    "ClaimCall without its guard": Fault(
        commands.ClaimCall, unguarded, "one claimant", 8, "claims"
    ),
    "ClaimCall does not tell clients apart": Fault(
        commands.ClaimCall, as_decided, "one claimant", 12, "claims", misread=_for_all
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_wrong_rule_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.seed(monkeypatch)

    fault.assert_found()
