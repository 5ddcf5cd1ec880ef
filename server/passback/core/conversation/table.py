"""The states of a conversation, and the commands that each allows: `decide` goes by this table."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from passback.core.conversation import commands, importing, rules
from passback.core.conversation.commands import Command
from passback.core.conversation.importing import Import
from passback.core.conversation.rules import Decided, Known, Reason, Refused
from passback.core.values import value

ConversationState: TypeAlias = Literal["gone", "idle", "running", "owing", "queued"]
"""A state of a conversation.

`gone`: there is none. `running`: a worker has the lease of a run, or had it and is lost. Without a
lease it is `queued` while posts wait, else `owing` while the client owes answers, else `idle`.
"""

STATES: tuple[ConversationState, ...] = ("gone", "idle", "running", "owing", "queued")


def state_of(known: Known, /) -> ConversationState:
    """Return the state of a conversation."""
    if not known.found.version:
        return "gone"
    if known.running:
        return "running"
    if known.found.queue:
        return "queued"
    return "owing" if known.head.owed else "idle"


@value
class Row:
    """One command.

    Attributes:
        rule: decides it where it is allowed.
        does: what it does, for people.
        states: where it is allowed.
        otherwise: why it is refused elsewhere; `gone` always says that there is no conversation.
    """

    rule: Callable[[Known, Any, int], Decided | Refused]
    does: str
    states: tuple[ConversationState, ...]
    otherwise: Reason = "changed"


_RESTING: tuple[ConversationState, ...] = ("idle", "owing", "queued")
_THERE: tuple[ConversationState, ...] = (*_RESTING, "running")
_RUNNING: tuple[ConversationState, ...] = ("running",)

TABLE: Mapping[type[Command | Import], Row] = {
    commands.Park: Row(rules.park, "stores messages; no run starts", ("gone", *_RESTING)),
    commands.Begin: Row(rules.begin, "stores messages, and a run starts", ("gone", *_RESTING)),
    commands.TakeOver: Row(
        rules.take_over, "another worker goes on, if the lease is over", _RUNNING
    ),
    commands.FailLost: Row(rules.fail_lost, "the run ends, if the lease is over", _RUNNING),
    commands.CommitTurn: Row(
        rules.commit_turn, "the holder of the lease stores a turn, or ends the run", _RUNNING
    ),
    commands.Release: Row(rules.release, "the holder of the lease gives it up", _RUNNING),
    # in front of an idle conversation a post need not wait
    commands.Queue: Row(
        rules.queue, "a post waits; one that interrupts asks the run to end", ("running", "queued")
    ),
    commands.Cancel: Row(rules.cancel, "the run is asked to end; one that waits ends", _THERE),
    commands.ClaimCall: Row(rules.claim_call, "a client claims an owed call", _RESTING),
    commands.KeepFollowed: Row(rules.keep_followed, "a remote reader follows the run", _THERE),
    commands.Rename: Row(rules.rename, "the title is a client's", _THERE),
    commands.Configure: Row(rules.configure, "the settings are replaced", _THERE),
    commands.HideRun: Row(rules.hide_run, "the record of a run that is over is hidden", _THERE),
    Import: Row(importing.import_conversation, "a document becomes a conversation", ("gone",)),
    commands.RecordTitle: Row(rules.record_title, "the title is a model's", _THERE),
}


def decide(known: Known, command: Command | Import, now: int, /) -> Decided | Refused:
    """Return what a command does to a conversation at a time of the store's clock, in ms."""
    row, state = TABLE[type(command)], state_of(known)
    if state not in row.states:
        return Refused("gone" if state == "gone" else row.otherwise)
    return row.rule(known, command, now)
