"""The port `Runs`, by which wires start, follow and manage runs, and what passes through it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from pydantic import JsonValue

from passback.core.budgets import Left
from passback.core.changes import (
    CallClaim,
    ConversationPage,
    ConversationPlace,
    Erased,
    Inbox,
    InboxPlace,
    Page,
    RunRecord,
    Status,
)
from passback.core.conversation.document import ConversationDocument
from passback.core.conversation_settings import NO_SETTINGS, ConversationSettings
from passback.core.events import START, Cursor, Logged, Position
from passback.core.ids import MadeId
from passback.core.messages import CallId, ConversationKey, Medium, MessageId, OwnerId, RunRef
from passback.core.posts import Parked, StartRun
from passback.core.toolsets import Toolset
from passback.core.values import value

TakeBatch: TypeAlias = Callable[[Sequence[Logged]], bool]
"""Takes a batch without waiting; returns False if it cannot. What it raises, the reader raises."""


class RunBatch(NamedTuple):
    """Events of one run of a conversation."""

    run: RunRef
    events: Sequence[Logged]


TakeRunBatch: TypeAlias = Callable[[RunBatch], bool]
"""As `TakeBatch`, for the batches of a conversation."""
TellSwitch: TypeAlias = Callable[[Status], Awaitable[None]]
"""Tells a reader of a conversation that another branch is read, with the status of then."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command's name and description, as users see them."""

    name: str
    description: str


@value
class BranchPoint:
    """A place of the branch that is read where the conversation has other branches, too.

    Attributes:
        after: the message before it; None: there is none.
        versions: the first message of each branch from there on, oldest first.
        current: the one of them on the branch that is read; None if that ends here.
    """

    after: MessageId | None
    versions: tuple[MessageId, ...]
    current: MessageId | None


class Runs(Protocol):
    """The service that wires use; they use nothing else of the engine."""

    async def start(self, post: StartRun, /) -> RunRef | Parked:
        """Accept a post; return when it is stored.

        Its run has begun, is queued, or was started by an earlier post that this one repeats.

        Raises:
            ClientError: the post is refused, for example as too large; nothing was stored.
            ConversationBusy, QueueFull: a run goes on.
            TooManyRuns: too many runs of the owner go on in this process.
            ShuttingDown: this worker takes no new runs.
            StoreError: the store failed. A repeat is safe for tool results, named messages and
                idempotency keys.
        """
        ...

    def follow(
        self, run: RunRef, /, *, after: Position = START, take: TakeBatch | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Logged]]]:
        """Read a run's log from a position to its end, live, in batches of what is ready.

        While the reader waits, the run itself may offer the next batch to `take`, which saves
        waking a task. A batch that it takes is not yielded. The last batch of a run is never
        offered.

        Raises:
            UnknownRun: on entering: the conversation has no such run, or its log has expired.
            InvalidCursor: on entering: the position is beyond the log's end.
            CursorExpired: events after the position were trimmed.
        """
        ...

    def watch(
        self,
        key: ConversationKey,
        /,
        *,
        after: Cursor | Position | None = None,
        take: TakeRunBatch | None = None,
        tell_switch: TellSwitch | None = None,
        waits: bool = False,
    ) -> AbstractAsyncContextManager[AsyncIterator[RunBatch]]:
        """Read the runs of a conversation one after the other, live, whoever begins them.

        Positions grow over all runs. It ends with the conversation, which is deleted.

        Args:
            key: the conversation.
            after: events after it are read; with a position alone, its run is read from the start,
                for readers who need all of a run, unless a take-over has made the position void:
                then the first event is `Rewound`. None: those of the run that goes on, and later
                ones.
            take: as in `follow`.
            tell_switch: awaited between two runs, when another branch is read than before; and
                right after `after` if it is not the one that was written last, since the reader may
                have missed a switch.
            waits: a conversation that does not exist is waited for, unless `after` is given.

        Raises:
            UnknownConversation: on entering: there is none.
            InvalidCursor: on entering: the conversation never had such an event.
            CursorExpired: the logs have lost events after the position; the messages have what
                came of them.
        """
        ...

    async def run(self, run: RunRef, /) -> RunRecord:
        """Return the record of a run, which outlives its log.

        Raises:
            UnknownConversation: there is none.
            UnknownRun: it has no such run, or the run waits in the queue.
        """
        ...

    def left(self, run: RunRef, /) -> Left | None:
        """Return what is left of the limits of a run's conversation and owner, without I/O.

        None if this process knows nothing of the run.
        """
        ...

    async def cancel(self, run: RunRef, /) -> bool:
        """Ask for a run to be cancelled. False if it neither goes on nor waits."""
        ...

    async def hide(self, run: RunRef, /) -> None:
        """Hide the record of a run for good, and forget its note (`RunRecord.hidden`).

        What it has said stays in the conversation.

        Raises:
            UnknownConversation, UnknownRun: there is none, or the run waits in the queue.
            ConversationBusy: it goes on.
        """
        ...

    async def close_calls(self, key: ConversationKey, /) -> RunRef | None:
        """Close the calls that the client owes, as a message that goes on without them does.

        A run does it, which ends as cancelled. None if nothing is owed.

        Raises:
            UnknownConversation: there is none.
            ConversationBusy: a run goes on, or too many concurrent writes to the conversation.
        """
        ...

    async def compact(self, key: ConversationKey, /) -> RunRef:
        """Let the agent sum up what was said before, as its command `/compact` does.

        Raises as `start`, and:
            UnknownConversation: there is none.
            Conflict: the client owes answers.
        """
        ...

    async def claim_call(
        self, key: ConversationKey, call_id: CallId, claimant: str, /, *, seconds: float
    ) -> CallClaim:
        """Claim an owed call for a client, or renew its claim.

        A result counts whoever posts it.

        Raises:
            UnknownConversation, UnknownToolCall: no such call was handed back in this conversation.
            ResultConflict: the call is answered, or its time has ended.
            CallClaimed: another client's claim is in force.
            ConversationBusy: too many concurrent writes to the conversation.
        """
        ...

    async def release_call(self, key: ConversationKey, call_id: CallId, claimant: str, /) -> None:
        """Release a claim that is still in force.

        Raises as `claim_call`, but has no effect on a call that is answered.
        """
        ...

    async def inbox(
        self, owner: OwnerId, /, *, after: InboxPlace | None = None, limit: int
    ) -> Inbox:
        """Return conversations as `Store.inbox`, without overdue ones."""
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
        """Return conversations as `Store.conversations`."""
        ...

    async def create(
        self,
        key: ConversationKey,
        /,
        *,
        title: str = "",
        settings: ConversationSettings = NO_SETTINGS,
    ) -> None:
        """Create a conversation without messages. Its first message gives it a title, if this is
        empty.

        Raises:
            InvalidRequest: the title cannot be one, or the settings cannot be stored.
            Conflict: the conversation exists already.
        """
        ...

    async def rename(self, key: ConversationKey, title: str, /) -> None:
        """Give a conversation a title, also while a run goes on.

        Raises:
            InvalidRequest: the title cannot be one.
            UnknownConversation: there is none.
        """
        ...

    async def configure(self, key: ConversationKey, settings: ConversationSettings, /) -> None:
        """Replace the settings of a conversation (`Status.settings`), also while a run goes on.

        Raises:
            InvalidRequest: the settings cannot be stored.
            UnknownConversation: there is none.
        """
        ...

    async def status(self, key: ConversationKey, /) -> Status:
        """Return a conversation's status. Raises UnknownConversation."""
        ...

    async def locate(self, owner: OwnerId, made: MadeId, /) -> ConversationKey | None:
        """Return the owner's conversation for which the server made the id of a run, message or
        call; None if there is none, or somebody else has chosen the id.

        Whether the conversation has it is not looked at. Copies of a message are found where the
        message was written first.
        """
        ...

    async def messages(self, key: ConversationKey, /, *, start: int, limit: int) -> Page:
        """Return a page of messages. Raises UnknownConversation."""
        ...

    async def branches(self, key: ConversationKey, /) -> Sequence[BranchPoint]:
        """Return where the branch that is read has other versions, from its beginning on.

        Raises UnknownConversation.
        """
        ...

    async def switch(self, key: ConversationKey, message_id: MessageId, /) -> None:
        """Read the branch from now on that ends with the newest message behind this one.

        It may be on any branch. What the client owes is closed, as by a message that goes on
        without it. Nothing changes if that branch is read already.

        Raises:
            UnknownConversation, UnknownMessage: there is none.
            ConversationBusy: a run goes on, posts wait, or too many concurrent writes to the
                conversation.
            Conflict: it has too many branches.
            HistoryTooLarge: the other branch is too large to be loaded.
            ServerBusy: too many large conversations are read at once.
        """
        ...

    async def fork(
        self, key: ConversationKey, target: ConversationKey, /, *, after: MessageId | None = None
    ) -> None:
        """Copy a conversation up to the message `after` into a new one of the same owner.

        None: up to its end. The empty id: no message. The copy has its client tools, settings,
        title and lasting permissions; what the client owes is closed in the copy. A repeat changes
        nothing, and one after a failure goes on where that left off.

        Raises:
            UnknownConversation, UnknownMessage: there is none.
            InvalidRequest: calls that the server makes are answered only after this message.
            Conflict: there is another conversation with the id of `target`.
            ServerBusy: too many large conversations are read at once.
            ShuttingDown: this worker takes on nothing new.
        """
        ...

    async def data(self, key: ConversationKey, /) -> JsonValue:
        """Return the current structured data, read from the messages.

        Raises:
            UnknownConversation: there is none.
            ServerBusy: too many large conversations are read at once.
        """
        ...

    async def retract(self, key: ConversationKey, tool: str, /) -> None:
        """Remove the lasting permissions of a tool, if there are any.

        Raises:
            UnknownConversation: there is none.
            ConversationBusy: a run goes on, or too many concurrent writes to the conversation.
            ServerBusy: too many large conversations are read at once.
        """
        ...

    async def delete(self, key: ConversationKey, /) -> None:
        """Delete a conversation. Raises UnknownConversation."""
        ...

    async def erase(self, owner: OwnerId, /, *, limit: int) -> Erased:
        """Delete at most `limit` conversations of an owner, as `delete` does.

        One that cannot be deleted does not stop the others.

        Raises:
            StoreError: none could be deleted, and there are some.
        """
        ...

    async def export(self, key: ConversationKey, /) -> AsyncIterator[bytes]:
        """Return a conversation as a document (`ConversationDocument`), in pieces of its JSON.

        Raises:
            UnknownConversation: there is none; or it is deleted while its pieces are read.
        """
        ...

    async def import_conversation(
        self, key: ConversationKey, document: ConversationDocument, /
    ) -> None:
        """Make a conversation from a document, whose contents are checked as those of a post are.

        A run that went on is over in it, and calls that the server would make have results that
        say that they were stopped.

        Raises:
            InvalidRequest: the server cannot have written the document.
            HistoryTooLarge: the conversation would be too large to load.
            ToolNameClash: a client's tool has the name of the agent's.
            Conflict: the conversation exists already.
        """
        ...

    def commands(self, agent: str = "", /) -> Sequence[Command]:
        """Return the slash commands of an agent, or of the default agent. Raises UnknownAgent."""
        ...

    def models(self, agent: str = "", /) -> Sequence[str]:
        """Return the models that a post may choose, the agent's own first. Raises as `commands`."""
        ...

    def effort(self, agent: str = "", /) -> str | None:
        """Return the effort of reasoning with which an agent's model answers by default.

        None: a post cannot choose one (`Generation.effort`). Raises as `commands`.
        """
        ...

    def agents(self) -> Sequence[str]:
        """Return the names of the agents, the default agent's first; empty for one without."""
        ...

    def media(self, agent: str = "", /, *, model: str = "") -> frozenset[Medium]:
        """Return the media that a model of an agent takes: its own, or one of `models`.

        The model may refuse some forms all the same, such as an address or a rare file type.
        Raises as `commands`.
        """
        ...

    def lend(
        self, key: ConversationKey, toolsets: Sequence[Toolset], /
    ) -> AbstractContextManager[None]:
        """Lend server tools to a conversation, which may not exist yet, while the context is open.

        Its runs that this process begins or takes over in that time have them beside the agent's
        own; sub-agents do not have them, forks do. Tools and instructions are asked for anew by
        each run. One whose name a tool of the agent has, or one that was lent before, is left out.
        When the context is left, or another worker takes the run over, a call is not made and gets
        an error result that says so.
        """
        ...

    async def ready(self) -> None:
        """Check that new posts can be served.

        Raises:
            ShuttingDown: this worker takes no new runs.
            StoreError: the store cannot be used.
        """
        ...
