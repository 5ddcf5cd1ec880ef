"""Commands: what may be asked of a conversation."""

from typing import TypeAlias

from passback.core.changes import Change, ClaimRequest, Commit, Enqueue, Lease, WrittenTitle
from passback.core.conversation_settings import ConversationSettings
from passback.core.events import RunEvent, RunFinished
from passback.core.messages import ConversationKey, RunId, RunRef
from passback.core.values import value


@value
class Park:
    """Apply a change that starts no run."""

    change: Change


@value
class Begin:
    """Apply a change and take the lease for a run. `events` open its log; `lease` in ms."""

    change: Change
    run_id: RunId
    events: tuple[RunEvent, ...]
    lease: int


@value
class TakeOver:
    """Go on with a run whose lease is over: as `Begin`."""

    change: Change
    run_id: RunId
    events: tuple[RunEvent, ...]
    lease: int


@value
class FailLost:
    """End a run whose lease is over. The last of `events` is `RunFinished`."""

    change: Change
    run_id: RunId
    events: tuple[RunEvent, ...]


@value
class CommitTurn:
    """Write a turn under a lease, and renew it for `lease` milliseconds, or end it."""

    commit: Commit
    lease: int


@value
class Release:
    """Give up a lease, so that another worker goes on at once; the attempt does not count."""

    lease: Lease


@value
class Queue:
    """Add a post to the queue."""

    entry: Enqueue
    nonce: str


@value
class Cancel:
    """Ask for the end of a run; one that waits leaves the queue, and `finished` ends its log."""

    run: RunRef
    finished: RunFinished
    nonce: str


@value
class ClaimCall:
    """Claim an owed call for a client for some milliseconds; 0 releases its claim."""

    request: ClaimRequest
    milliseconds: int


@value
class KeepFollowed:
    """Record that a remote reader follows a run for the next milliseconds."""

    run: RunRef
    milliseconds: int
    nonce: str


@value
class Rename:
    """Replace the title by a client's."""

    key: ConversationKey
    title: str
    nonce: str


@value
class Configure:
    """Replace the settings."""

    key: ConversationKey
    settings: ConversationSettings
    nonce: str


@value
class HideRun:
    """Hide the record of a run that is over, without its note."""

    run: RunRef
    nonce: str


@value
class RecordTitle:
    """Record what came of the model call for a title."""

    written: WrittenTitle
    nonce: str


Command: TypeAlias = (
    Park
    | Begin
    | TakeOver
    | FailLost
    | CommitTurn
    | Release
    | Queue
    | Cancel
    | ClaimCall
    | KeepFollowed
    | Rename
    | Configure
    | HideRun
    | RecordTitle
)
