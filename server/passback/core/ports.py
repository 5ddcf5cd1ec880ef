"""Protocols between the layers, and the values that pass through them.

Arguments are positional-only and values frozen. A method raises only what its docstring names.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar, runtime_checkable

from passback.core.budgets import Spending, Spent
from passback.core.changes import (
    CallClaim,
    Change,
    ClaimRequest,
    Commit,
    ConversationPage,
    ConversationPlace,
    Enqueue,
    EnqueueAnswer,
    Inbox,
    InboxPlace,
    Lease,
    LeaseState,
    LoadedConversation,
    LogWrite,
    Page,
    Status,
    WrittenTitle,
)
from passback.core.conversation_settings import ConversationSettings
from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.errors import StoreError
from passback.core.events import START, Cursor, Logged, Position, RunEvent, RunFinished
from passback.core.messages import (
    ConversationKey,
    MediaPart,
    OwnerId,
    RunId,
    RunRef,
    ToolSpec,
)
from passback.core.posts import ReceiptName


@runtime_checkable
class ModelClient(Protocol):
    """A model that answers in a stream.

    The stream yields batches: the deltas of one read of the network, with neighbouring texts
    joined. Leaving the context closes the connection to the provider. One client serves many
    streams at once.
    """

    @property
    def name(self) -> str:
        """A name for people, such as `openai:gpt-5`; no secret in it."""
        ...

    def stream(
        self, request: ModelRequest, /
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[ModelDelta]]]:
        """Ask the model. The request is encoded by the call and sent on entering the context.

        A context that is never entered needs no cleanup.

        Raises:
            ModelError: on entering or between batches; retries before the first byte are done
                inside.
        """
        ...

    def refuses(self, part: MediaPart, /) -> str | None:
        """Return why the model cannot take this media, in words for the client; None if it can."""
        ...

    async def check(self) -> Sequence[str] | None:
        """Check that the model can be used, as cheaply as the provider allows; return warnings.

        Raises:
            ModelError: it cannot be used; the message says why.
        """
        ...

    async def aclose(self) -> None: ...


class ArgumentCheck(Protocol):
    """Checks a call of a client tool before the client sees it."""

    async def __call__(self, spec: ToolSpec, arguments: str, key: ConversationKey, /) -> str | None:
        """Return why arguments do not fit the tool's schema, for the model; None if they do.

        `arguments` is a JSON object. The time is bounded whatever schema and arguments are, and the
        event loop is blocked for no more than about 10 ms. Checks that have to wait take turns by
        the owner of the conversation `key`.
        """
        ...


class Watch(Protocol):
    """Notifications about the logs of one conversation."""

    async def wait(self, seconds: float = 2.0, /) -> None:
        """Return when a log may have grown, and after so many seconds in case a hint was lost."""
        ...


class Store(Protocol):
    """Conversations, leases and the logs of runs. Every write may be sent twice (P15).

    Used as an async context manager, which connects and closes.

    Raises (every method):
        StoreUnavailable: the store did not answer in time.
        StoreFull: the store has no room left; nothing was written.
        StoreError: the store failed otherwise.
    """

    async def __aenter__(self) -> "Store": ...

    async def __aexit__(self, *exc: object) -> None: ...

    @property
    def location(self) -> str:
        """A URL without its password, for people."""
        ...

    @property
    def sees_followers(self) -> bool:
        """True if `append` can answer `followed`.

        It does so where that applies, for a write that is new to the store. Other stores answer
        `held`.
        """
        ...

    async def check(self) -> Sequence[str]:
        """Check that the store can be used; return warnings about settings that weaken a promise.

        Raises:
            ConfigurationError: its settings would lose data silently.
        """
        ...

    async def ping(self) -> None:
        """Return when the store answers, for readiness checks; the wait is bounded."""
        ...

    async def status(self, key: ConversationKey, /) -> Status: ...

    async def load(
        self,
        key: ConversationKey,
        /,
        *,
        receipts: Collection[ReceiptName] = (),
        within: int | None = None,
    ) -> LoadedConversation:
        """Load a conversation with its messages from `state.history_start` on, and their size.

        `within`: leave messages out that are known to exceed this number of bytes.
        """
        ...

    async def park(self, change: Change, /) -> bool:
        """Apply a change that starts no run. False if the version has changed: load again."""
        ...

    async def begin(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        """Apply a change and take the lease for `lease` seconds.

        `events` open the run's log, numbered from 1.

        None if the version has changed, a run goes on, or `change.dequeues` is not the first of the
        queue: load again.
        """
        ...

    async def claim_call(self, request: ClaimRequest, /, *, seconds: float) -> CallClaim | None:
        """Claim an owed call for a client for so many seconds from now; 0 releases its claim.

        None if the version has changed or a run goes on: look again.
        """
        ...

    async def enqueue(self, entry: Enqueue, /) -> EnqueueAnswer:
        """Add a post to the queue. Sending the same entry again is `queued` and changes nothing."""
        ...

    async def take_over(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        """Take over a run whose lease has expired: apply the change, take the lease.

        It counts an attempt. Events of the run's log after `Status.committed` are removed; `events`
        follow under the new epoch, from 1.

        None if the version has changed or the lease has not expired.
        """
        ...

    async def release(self, lease: Lease, /) -> bool:
        """Release a lease so that another worker may continue at once; no attempt is counted.

        False if the lease was lost before.
        """
        ...

    async def take_due(self, limit: int, /, *, lease: float) -> Sequence[ConversationKey]:
        """Take conversations that are due for recovery.

        Their lease has expired, or nothing runs and posts are queued, or the time for what their
        client owes has ended.

        Each is returned to one caller in `lease` seconds. It is a hint: check the conversation
        before acting on it. A run that begins is found here when its lease expires, even if its
        worker died at once.
        """
        ...

    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        """Write to the logs of many runs in one round trip and renew their leases; one answer each.

        Sending the same `LogWrite` again changes nothing. A lost lease writes nothing. A lease is
        also lost if the events before `LogWrite.first` are missing, because the store failed over
        to a server that never had them. A write that fails alone (its conversation is damaged, its
        part of a cluster is down) has its error as its answer; the others are written.
        """
        ...

    async def commit(self, commit: Commit, /, *, lease: float) -> bool:
        """Commit a turn, and renew or release the lease.

        Returns True if the run has ended and posts wait in the queue.

        Raises:
            LeaseLost: as for `append`, or the conversation was deleted; nothing was written.
        """
        ...

    async def renew(
        self, leases: Sequence[Lease], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        """Renew leases; as `append`, without events."""
        ...

    async def fail_lost(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /
    ) -> bool:
        """End a lost run: as `take_over`, but no worker runs it any more.

        The last of `events` is `RunFinished`. False where `take_over` returns None.
        """
        ...

    async def cancel(self, run: RunRef, finished: RunFinished, /) -> bool:
        """Ask the owner of a run to cancel it. A queued one is removed; `finished` ends its log.

        False if the run neither goes on nor waits.
        """
        ...

    async def keep_followed(self, run: RunRef, /, *, seconds: float) -> None:
        """Record that a remote reader follows this run for the next `seconds`.

        Sets `Status.followed`. No effect once the run has ended.
        """
        ...

    async def read_log(
        self, run: RunRef, /, *, after: Position = START, limit: int = 1000
    ) -> Sequence[Logged]:
        """Return events of a run after a position, at least `limit` if there are that many.

        Entries of the log are not split, so there may be more.

        Raises:
            UnknownRun: the conversation has no such log, or it has expired.
            CursorExpired: events after the position were trimmed, because the log became too large.
        """
        ...

    async def next_run(self, key: ConversationKey, /, *, after: Position) -> Cursor | None:
        """Return the run with the first event after a position, of all runs of a conversation.

        The cursor's position is that of the last event of its log's entry. The run may still wait
        in the queue. None if there is no such event.
        """
        ...

    def watch(self, key: ConversationKey, /) -> AbstractAsyncContextManager[Watch]:
        """Watch for growth of a conversation's logs in other processes, and for its deletion.

        These are hints; the logs are the truth.
        """
        ...

    async def page(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        """Return at most `limit` messages; fewer if they are large, but one if there is one."""
        ...

    async def inbox(
        self, owner: OwnerId, /, *, after: InboxPlace | None = None, limit: int
    ) -> Inbox:
        """Return conversations of an owner that owe answers, with at most `limit` calls in all.

        Conversations are whole. There are fewer if the arguments are large, but at least one if
        there is one, however much it owes. There may be none and a `next` all the same, if not all
        could be read at once.
        """
        ...

    async def conversations(
        self,
        owner: OwnerId,
        /,
        *,
        after: ConversationPlace | None = None,
        limit: int,
        search: str = "",
    ) -> ConversationPage:
        """Return at most `limit` conversations of an owner, newest `Status.updated` first.

        Those whose title contains `search`, in upper or lower case. There are fewer if they owe
        large arguments. There may be none and a `next` all the same, if not all could be looked at
        at once. One that changes meanwhile moves to the front: pages behind it are without it.
        """
        ...

    async def rename(self, key: ConversationKey, title: str, /) -> bool:
        """Replace the title of a conversation by a client's. False if there is none.

        It changes neither `version` nor `updated`, also while a run goes on.
        """
        ...

    async def configure(self, key: ConversationKey, settings: ConversationSettings, /) -> bool:
        """Replace the settings of a conversation. False if there is none.

        It changes neither `version` nor `updated`, also while a run goes on.
        """
        ...

    async def write_title(self, written: WrittenTitle, /) -> bool:
        """Record what came of the model call for a title. False if there is no such conversation.

        The title replaces one that no client gave, unless it is empty. The first one of a
        conversation counts: another one changes nothing, and so does a repeat. It changes neither
        `version` nor `updated`, also while a run goes on.
        """
        ...

    async def spend(self, spending: Spending, /) -> Spent:
        """Count the amounts a run has spent under a lease; return its owner's total for that day.

        They replace the amounts counted for that lease before if `seq` is newer, so a repeat or a
        late report changes nothing. The difference, up or down, counts on the day that is named.
        Totals are kept for two days.
        """
        ...

    async def delete(self, key: ConversationKey, /) -> bool:
        """Delete a conversation and its logs; its run loses the lease. False if there is none."""
        ...


Frame_co = TypeVar("Frame_co", covariant=True)


class Encoder(Protocol, Generic[Frame_co]):
    """Encodes a run's events as frames of a wire. No I/O; one per stream; closes what it opened."""

    def feed(self, event: RunEvent, /) -> Sequence[Frame_co]: ...
