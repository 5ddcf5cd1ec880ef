"""The doors between the floors, as Protocols, and the values that pass through them.

Arguments are positional-only and values frozen. Every method may raise what its docstring names, nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from pydantic import JsonValue

from passback.core.budgets import Left, Spending, Spent
from passback.core.changes import (
    CallClaim,
    Change,
    ClaimRequest,
    Commit,
    Enqueue,
    EnqueueAnswer,
    Inbox,
    Lease,
    LeaseState,
    Loaded,
    LogWrite,
    Page,
    Place,
    Status,
)
from passback.core.commands import Command
from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.errors import StoreError
from passback.core.events import START, Logged, Position, RunEvent, RunFinished
from passback.core.messages import (
    CallId,
    ConversationKey,
    MediaPart,
    Message,
    Owed,
    OwnerId,
    RunId,
    RunRef,
    ToolSpec,
)
from passback.core.posts import ReceiptName, StartRun
from passback.core.values import value

# ---------------------------------------------------------------- the model
TakeDeltas: TypeAlias = Callable[[Sequence[ModelDelta]], object]
"""Takes deltas at once, and does not raise."""


class Eager(ABC):
    """Batches of an answer that can come before their reader's turn of the event loop."""

    @abstractmethod
    def try_deliver(self, take: TakeDeltas, /) -> None:
        """While the reader waits, give `take` some of the batches in its place, within the event that brings them."""


@runtime_checkable
class ModelClient(Protocol):
    """A model that answers in a stream.

    The stream yields batches: what one read of the network brought. Neighbouring texts of one batch are joined.
    Leaving the context closes the connection to the provider. One client serves many streams at once. Batches may be
    `Eager`.
    """

    @property
    def name(self) -> str:
        """What to show people, such as `openai:gpt-5`; no secret in it."""
        ...

    def stream(
        self, request: ModelRequest, /
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[ModelDelta]]]:
        """Ask the model: encoded at once, sent on entering. What is not entered costs nothing more.

        Raises:
            ModelError: on entering or between batches; retries before the first byte are done inside.
        """
        ...

    def refuses(self, part: MediaPart, /) -> str | None:
        """Why the model cannot be shown an image, a sound or a file, in words for the client. None: it can."""
        ...

    async def check(self) -> Sequence[str] | None:
        """Find out whether the model can be used, as cheaply as the provider allows; gives warnings, if there are any.

        Raises:
            ModelError: with a sentence that says what is wrong.
        """
        ...

    async def aclose(self) -> None: ...


# ---------------------------------------------------------------- client tools
class ArgumentCheck(Protocol):
    """Whether a call of a client's tool may be shown to the client."""

    async def __call__(self, spec: ToolSpec, arguments: str, key: ConversationKey, /) -> str | None:
        """What is wrong with the arguments, a JSON object, in few words for the model. None: they fit the tool's schema.

        Bounded in time, whatever the schema and the arguments are; blocks the event loop for no longer than some 10 ms.
        Where checks wait for each other, the owner of the conversation `key` has only his turn.
        """
        ...


# ---------------------------------------------------------------- the store
class Watch(Protocol):
    async def wait(self) -> None:
        """Return when the log may have grown, and now and then without a reason."""
        ...


class Store(Protocol):
    """Conversations, leases and the logs of runs. Every write may be sent twice (P15).

    Every method raises `StoreUnavailable` when the store does not answer in time, `StoreFull` when it has no room
    (nothing was written then), `StoreError` otherwise. Used as an async context manager: connects, and closes.
    """

    async def __aenter__(self) -> "Store": ...

    async def __aexit__(self, *exc: object) -> None: ...

    @property
    def location(self) -> str:
        """What to show people: a URL without its password."""
        ...

    @property
    def sees_followers(self) -> bool:
        """Whether `append` says `followed` where that is so, of a write that it had not seen yet; a store that cannot tell
        says `held`.
        """
        ...

    async def check(self) -> Sequence[str]:
        """Find out whether the store can be used; gives warnings about settings that weaken a promise.

        Raises:
            ConfigurationError: settings under which data would be lost silently.
        """
        ...

    async def ping(self) -> None:
        """Return when the store answers: readiness, a bounded wait."""
        ...

    async def status(self, key: ConversationKey, /) -> Status: ...

    async def load(
        self,
        key: ConversationKey,
        /,
        *,
        receipts: Collection[ReceiptName] = (),
        within: int | None = None,
    ) -> Loaded:
        """A conversation with its messages from the boundary of its state on, and their bytes counted.

        `within`: messages that are known to be more than so many bytes are left out.
        """
        ...

    async def park(self, change: Change, /) -> bool:
        """Apply a change that starts no run. False: the version is another one, load again."""
        ...

    async def begin(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        """Apply a change and take the lease for `lease` seconds; `events` open the run's log, numbered from 1.

        None: the version is another one, a run goes on, or `change.dequeues` is not the first of the queue; load again.
        """
        ...

    async def claim_call(self, hold: ClaimRequest, /, *, seconds: float) -> CallClaim | None:
        """Claim an owed call for one of the clients, from now on; for 0 seconds: give its claim back.

        None: the version is another one, or a run goes on; look again.
        """
        ...

    async def enqueue(self, entry: Enqueue, /) -> EnqueueAnswer:
        """Let a post wait for its turn. The same entry again is `queued` and changes nothing."""
        ...

    async def take_over(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        """Take over a run whose lease is over: the change, a new lease, one attempt more.

        What the run's log holds beyond `Status.committed` is removed; `events` follow under the new epoch, from 1.

        None: the version is another one, or the lease is not over.
        """
        ...

    async def release(self, lease: Lease, /) -> bool:
        """End a lease so that another worker may go on at once; no attempt is counted. False: it was lost before."""
        ...

    async def abandoned(self, limit: int, /, *, lease: float) -> Sequence[ConversationKey]:
        """Conversations that somebody has to look after: their lease is over, or nothing runs and their queue waits,
        or the time for what their client owes is over.

        Each is given to one caller in `lease` seconds. It is a hint: look before you act. A run that begins is found
        here when its lease is over, whatever became of its worker.
        """
        ...

    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        """Write to the logs of many runs in one round trip and renew their leases; one answer per write.

        Writing the same `LogWrite` again changes nothing. A lost lease writes nothing; it is lost too when the events
        before the first of these are missing, because the store failed over to a server that never had them. A write that fails by itself
        (its conversation is damaged, its part of a cluster is away) gives its error as its answer; the others go on.
        """
        ...

    async def commit(self, commit: Commit, /, *, lease: float) -> bool:
        """Commit a turn, and renew or release the lease. True: the run has ended, and posts wait in the queue.

        Raises:
            LeaseLost: as for `append`, or the conversation was deleted; nothing was written.
        """
        ...

    async def renew(
        self, leases: Sequence[Lease], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        """As `append`, without events."""
        ...

    async def fail_lost(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /
    ) -> bool:
        """As `claim`, but nobody runs it any more: the last of `events` is `RunFinished`. False: as None there."""
        ...

    async def cancel(self, run: RunRef, finished: RunFinished, /) -> bool:
        """Ask the owner of a run to cancel it; one that waits leaves the queue, and `finished` ends its log.

        False: this run neither goes on nor waits.
        """
        ...

    async def keep_followed(self, run: RunRef, /, *, seconds: float) -> None:
        """Say that somebody follows a run: `Status.followed` for so long. Nothing happens if it does not go on."""
        ...

    async def read_log(
        self, run: RunRef, /, *, after: Position = START, limit: int = 1000
    ) -> Sequence[Logged]:
        """Events of a run after a position; at least `limit` when there are that many, entries are not cut.

        Raises:
            UnknownRun: the conversation has no such log, or it has expired.
            CursorExpired: what follows the position was trimmed, because the log became too large.
        """
        ...

    def watch(self, run: RunRef, /) -> AbstractAsyncContextManager[Watch]:
        """Hints that a run's log has grown in another process. The log itself is the truth."""
        ...

    async def page(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        """At most `limit` messages, fewer when these are large, but one at least if there is one."""
        ...

    async def inbox(self, owner: OwnerId, /, *, after: Place | None = None, limit: int) -> Inbox:
        """The conversations of an owner that owe something: whole ones, with at most `limit` calls together.

        Fewer when their arguments are large, but one at least if there is one, however much it owes. There may be
        none, and a `next` all the same: not all could be looked at in one go.
        """
        ...

    async def spend(self, spending: Spending, /) -> Spent:
        """Count what a run has spent under a lease; gives what all runs of its owner were counted for on that day.

        It replaces what was counted for that lease, if its `seq` is newer: a repeat changes nothing, and one that comes
        late neither. What is more than before, or less, counts on the day that is named. It is kept for two days.
        """
        ...

    async def delete(self, key: ConversationKey, /) -> bool:
        """Remove a conversation with its logs; a run that is going on loses its lease. False: there is none."""
        ...


# ---------------------------------------------------------------- the service
@value
class Parked:
    """Results were stored, but no run starts: these are still owed."""

    key: ConversationKey
    owed: tuple[Owed, ...]


Take: TypeAlias = Callable[[Sequence[Logged]], bool]
"""Whether a batch was dealt with, at once and without waiting; what it raises, its reader raises."""


class Runs(Protocol):
    """The only door a wire may knock on."""

    async def start(self, post: StartRun, /) -> RunRef | Parked:
        """Admit a post: returns as soon as it is stored and its run has begun, or waits its turn, or is found again.

        Raises:
            ClientError: the post cannot be accepted; nothing was stored. It may be too large, alone or for its conversation.
            ConversationBusy, QueueFull: a run is going on.
            TooManyRuns: so many of the owner's runs go on in this process.
            ShuttingDown: this worker takes no new runs.
            StoreError: the store failed; a repeat is safe for tool results, named messages and idempotency keys.
        """
        ...

    def follow(
        self, run: RunRef, /, *, after: Position = START, take: Take | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Logged]]]:
        """Read a run's log from a position on, live, to its end; what is ready comes as one batch.

        `take` may be offered a batch while its reader waits for the next one, by the run itself: no task has to wake
        up for it. A batch that it takes does not come again; the last one of a run is never offered.

        Raises:
            UnknownRun: on entering: no such run in this conversation, or its log has expired.
            InvalidCursor: on entering: the position is beyond the log's end.
            CursorExpired: what follows the position was trimmed.
        """
        ...

    def left(self, run: RunRef, /) -> Left | None:
        """What is left of the limits of a run's conversation and owner, as far as this process knows, without asking.

        None: it knows nothing of the run.
        """
        ...

    async def cancel(self, run: RunRef, /) -> bool:
        """Ask for a run to be cancelled. False: it neither goes on nor waits."""
        ...

    async def claim_call(
        self, key: ConversationKey, call_id: CallId, claimant: str, /, *, seconds: float
    ) -> CallClaim:
        """Claim an owed call for one of the clients, or renew its claim. Results count all the same, whoever posts them.

        Raises:
            UnknownConversation, UnknownToolCall: no such call was handed back in this conversation.
            ResultConflict: it is answered, or its time is over.
            CallClaimed: another client's claim holds.
            ConversationBusy: too many others write to the conversation at the same time.
        """
        ...

    async def release_call(self, key: ConversationKey, call_id: CallId, claimant: str, /) -> None:
        """Give a claim back, if it still holds. Raises as `hold`, but an answered call has no claim to give back."""
        ...

    async def inbox(self, owner: OwnerId, /, *, after: Place | None = None, limit: int) -> Inbox:
        """As `Store.inbox`, without what is overdue."""
        ...

    async def status(self, key: ConversationKey, /) -> Status:
        """Raises UnknownConversation."""
        ...

    async def messages(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        """Raises UnknownConversation."""
        ...

    async def data(self, key: ConversationKey, /) -> JsonValue:
        """The structured data that counts, which is looked for in the messages. Raises UnknownConversation, ServerBusy."""
        ...

    async def retract(self, key: ConversationKey, tool: str, /) -> None:
        """Take back what people have answered for good about a tool; nothing happens where nobody has.

        Raises:
            UnknownConversation: there is none.
            ConversationBusy: a run is going on, or too many others write to the conversation.
            ServerBusy: too many large conversations are read at once.
        """
        ...

    async def delete(self, key: ConversationKey, /) -> None:
        """Raises UnknownConversation."""
        ...

    def commands(self, agent: str = "", /) -> Sequence[Command]:
        """The slash commands of an agent, or of the one that is asked by default. Raises UnknownAgent."""
        ...

    async def ready(self) -> None:
        """Raises ShuttingDown or StoreError when new posts cannot be served."""
        ...


# ---------------------------------------------------------------- the wires
Frame_co = TypeVar("Frame_co", covariant=True)


class Encoder(Protocol, Generic[Frame_co]):
    """Run events to a wire's frames; sans-IO, one per stream; total: what it opened is closed at the end."""

    def feed(self, event: RunEvent, /) -> Sequence[Frame_co]: ...


def section(heading: str, text: str, /) -> str:
    """A section of the system prompt: nothing, if there is no text; a text that begins with a heading keeps its own."""
    has_own = text.startswith("#") and text.lstrip("#").startswith(" ")
    return text if not text or has_own else f"# {heading}\n{text}"


class PromptBuilder(Protocol):
    """Says how a model is shown the words of others, and what was posted beside them."""

    def shown(self, message: Message, /) -> Message:
        """The message with its `MessageContext` as a part of its words, in which nothing passes for a part of the prompt.

        Pure: the same on every worker, and in every turn.
        """
        ...

    def instructed(self, said: Mapping[str, str], /) -> str:
        """What servers of tools say of their use, by the servers' names, as a part of the prompt that is not cached."""
        ...


ExtraPrompt: TypeAlias = Callable[[RunRef], Awaitable[str]]
"""What the model is told in one run only; asked for once by each worker that works on it. What it raises, fails the run."""
