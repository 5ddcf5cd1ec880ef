"""Values that are read from a store and written to it."""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import Field, TypeAdapter

from passback.core.budgets import Spent
from passback.core.conversation.tree import Tree
from passback.core.conversation_settings import NO_SETTINGS, ConversationSettings
from passback.core.events import START, Outcome, Position, RunEvent
from passback.core.messages import (
    UNUSED,
    CallId,
    ConversationKey,
    JsonObject,
    Message,
    Owed,
    RunId,
    RunRef,
    ToolSpec,
    Usage,
)
from passback.core.posts import Receipt, ReceiptName, Receipts, StartRun
from passback.core.state import State, TitleCall
from passback.core.values import DEFERRED, value


@value
class Lease:
    """The right to run a conversation.

    `fence` is a counter and a nonce, so that it is never reused, even after a failover of the
    store.
    """

    run: RunRef
    epoch: int
    fence: str


LeaseState: TypeAlias = Literal["held", "followed", "cancelled", "lost"]
"""The answer of a store to a write under a lease.

`followed`: held, and another process has a `watch` on the conversation. `cancelled`: still held,
and somebody asked to cancel the run.
"""


@value
class ClaimedCall:
    """An owed call that a client has claimed, so that no other client works on it.

    `until` is the end of the claim, in milliseconds of the store's clock.
    """

    call_id: CallId
    until: int = field(compare=False)


@value
class OpenTurn:
    """A turn that its agent had begun and not committed.

    Attributes:
        path: the calls on which the agent works, outermost first.
        after: what the agent said up to this event is committed.
    """

    path: tuple[CallId, ...]
    after: Position


@value
class OpenTurns:
    """The turns that were open at a commit, one at least. What all others had said by then is
    committed.

    Attributes:
        end: the last event of the commit.
    """

    end: Position
    turns: tuple[OpenTurn, ...]

    @property
    def committed(self) -> Position:
        """The last event, of a write to the log, before the oldest of them."""
        return min(each.after for each in self.turns)


@value
class Status:
    """A conversation without its messages.

    Attributes:
        version: changes with every write to the transcript or the lease; 0 if there is no such
            conversation.
        run_id: the newest run that has begun.
        running: True while that run goes on.
        lapsed: the run goes on but its lease has expired: its worker is gone.
        lease_expires: the end of its lease, in milliseconds of the store's clock; moved by each
            heartbeat.
        owed: the answers that the client owes.
        message_count: of the branch that is read.
        attempt: the number of workers that have run it, this one included; a hand-over is not
            counted.
        logged: the position of the last stored event of the run.
        committed: the position of the last event that a take-over keeps.
        open_turns: the turns that were open at the last commit. They come after `committed`, and so
            may events that were committed beside them. None: nothing after it is committed.
        run_start: index of the first message this run added; tool results posted with it come
            before.
        cancelled: the run goes on although somebody asked to cancel it.
        stopped_early: the run was stopped before its own end.
        cancel_on_disconnect: cancel the run when nobody follows it any more.
        followed: a reader in another process has said recently that it follows the run.
        queued: the runs of the queued posts, in order.
        answer_by: when the time to answer what is owed ends, in milliseconds of the store's clock;
            None if never.
        overdue: that time has ended, and nothing runs: the calls count as answered with `timeout`.
        claims: the unexpired claims of calls in `owed`.
        state: the conversation's derived data.
        history_bytes: the size of the records of its messages from `state.history_start` on; None
            if not counted yet.
        title: for people; empty if it has none.
        named: a client gave the title.
        settings: what a client has set for the conversation.
        created: when its first change was written, in milliseconds of the store's clock.
        updated: when a client last changed it (`park`, `begin` or `enqueue`), by the same clock.
        tree: its branches.
        stored: the number of messages of all branches.
        unchanged: readers of the runs so far know so many messages of the branch; None: all.
    """

    version: int = 0
    run_id: RunId | None = None
    running: bool = False
    lapsed: bool = False
    lease_expires: int = field(default=0, compare=False)
    owed: tuple[Owed, ...] = ()
    message_count: int = 0
    attempt: int = 0
    logged: Position = START
    committed: Position = START
    open_turns: OpenTurns | None = None
    run_start: int = 0
    cancelled: bool = False
    stopped_early: bool = False
    cancel_on_disconnect: bool = False
    followed: bool = False
    queued: tuple[RunId, ...] = ()
    answer_by: int | None = field(default=None, compare=False)
    overdue: bool = False
    claims: tuple[ClaimedCall, ...] = ()
    state: State = field(default_factory=State)
    history_bytes: int | None = field(default=0, compare=False)
    title: str = ""
    named: bool = False
    settings: ConversationSettings = NO_SETTINGS
    created: int = field(default=0, compare=False)
    updated: int = field(default=0, compare=False)
    tree: Tree = field(default=Tree(), compare=False)
    stored: int = field(default=0, compare=False)
    unchanged: int | None = None

    @property
    def has_branches(self) -> bool:
        """True if messages are stored that are not on the branch that is read."""
        return self.message_count < self.stored


@value
class RunRecord:
    """A run, as it is kept for as long as its conversation.

    Attributes:
        follows: the number of the message that it continued; -1: it began the conversation.
        messages: how many it has stored, those of its post included.
        began: in milliseconds of the store's clock; 0: it was cancelled while it waited.
        ended: likewise; None: it goes on.
        outcome: None: it goes on.
        model: the name of the model that answered last; empty if none did.
        usage: of its messages.
        spent: by all its workers.
        note: what the protocol that began it keeps of the request.
        hidden: its client has deleted what it gave; its messages are a part of the conversation.
    """

    follows: int = -1
    messages: int = 0
    began: int = 0
    ended: int | None = None
    outcome: Annotated[Outcome, Field(discriminator="type")] | None = None
    model: str = ""
    usage: Usage = UNUSED
    spent: Spent = Spent()
    note: JsonObject | None = None
    hidden: bool = False


@value
class QueuedPost:
    """A post in the queue, and the run that it will start.

    The post has only the messages that were new when it came.

    Attributes:
        follows: the number of the message that it is posted after; None: of the last one.
    """

    run_id: RunId
    post: StartRun
    follows: int | None = None

    @property
    def stops(self) -> bool:
        """True if the post stops the run before it instead of waiting for its end."""
        return self.post.on_busy in {"interrupt", "rollback"}


@value
class LoadedConversation:
    """A conversation as loaded to judge a post.

    Attributes:
        messages: those from `state.history_start` on.
        tools: the client's tools.
        receipts: those that were asked for.
        queue: the posts that wait.
        left_out: the messages exceed the requested size and were not read.
        queue_bytes: the size of the records of the queued posts.
    """

    status: Status
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    receipts: Receipts = field(default_factory=dict[ReceiptName, Receipt])
    queue: tuple[QueuedPost, ...] = ()
    left_out: bool = False
    queue_bytes: int = field(default=0, compare=False)

    @property
    def start(self) -> int:
        """The position in the record of the first loaded message."""
        return self.status.state.history_start


@value
class Change:
    """A write to the transcript, all or nothing, and only if the version is still `expected`.

    Attributes:
        nonce: unique to this change, so that sending it again changes nothing more.
        leaf: the number of the message that `append` follows, which is on another branch, or before
            the end of this one, which becomes another branch; `NO_MESSAGE`: it follows none. None:
            it follows the last message.
        left: appended to the branch that is left.
        owed: the answers that the client owes after the change; empty while a run goes on.
        tools: replaces the client's tools; None keeps them.
        run_start: `Status.run_start` of the run that begins.
        dequeues: the queued run that begins; it has to be the first of the queue.
        cancel_on_disconnect: `Status.cancel_on_disconnect` of the run that begins. A take-over
            leaves it and `run_start` unchanged.
        state: replaces the conversation's state; None keeps it, but resets `history_start` to 0 if
            it is beyond the messages of that branch.
        title: the title, if the conversation has none yet; None keeps it.
        named: a client gives this title.
        settings: replaces the conversation's settings; None keeps them.
        note: `RunRecord.note` of the run that begins.
    """

    key: ConversationKey
    nonce: str
    expected: int
    append: tuple[Message, ...] = ()
    receipts: Receipts = field(default_factory=dict[ReceiptName, Receipt])
    owed: tuple[Owed, ...] = ()
    tools: tuple[ToolSpec, ...] | None = None
    leaf: int | None = None
    left: tuple[Message, ...] = ()
    run_start: int = 0
    dequeues: RunId | None = None
    cancel_on_disconnect: bool = False
    state: State | None = None
    title: str | None = None
    named: bool = False
    settings: ConversationSettings | None = None
    note: JsonObject | None = None


@value
class WrittenTitle:
    """The result of a model call for a conversation's title; there is one at most.

    Attributes:
        created: `Status.created` of the conversation, so that none is meant that was created again
            under the same id.
        title: empty if the call failed.
        call: what it has used.
    """

    key: ConversationKey
    created: int
    title: str
    call: TitleCall


@value
class Enqueue:
    """A post for the queue of its conversation, which has room for `limit` posts.

    Attributes:
        receipts: the receipts of the post.
        events: the first events of its run's log.
        expected: the version on which it was judged; None: any, as long as none of the receipts is
            taken.
    """

    queued: QueuedPost
    receipts: Receipts
    events: tuple[RunEvent, ...]
    limit: int
    expected: int | None = None

    @property
    def stops(self) -> bool:
        """True if the same write asks to cancel the current run."""
        return self.queued.stops

    @property
    def run(self) -> RunRef:
        return RunRef(self.queued.post.key, self.queued.run_id)


EnqueueAnswer: TypeAlias = Literal["queued", "full", "changed"]
"""The answer to `Store.enqueue`.

`changed`: nothing runs or waits any more, or another post has taken one of the receipts; the post
has to be judged again.
"""


@value
class LogWrite:
    """Events for a run's log, numbered from `first`."""

    lease: Lease
    first: int
    events: tuple[RunEvent, ...]


@value
class Commit:
    """A turn's messages and the events that reveal them, written atomically.

    Attributes:
        step: counts the commits of a lease, so that sending the same step again changes nothing.
        owed: the answers that the client owes.
        ends: release the lease; the last event is then `RunFinished`.
        stopped_early: the run is ended before its own end: `Status.stopped_early`.
        answer_within: seconds for the client to answer; sets `Status.answer_by`, which lasts until
            a run begins.
        state: replaces the conversation's state; None keeps it.
        open_turns: the turns that go on beside this commit: `Status.committed` is then before them.
            None: it is the last event of this write.
    """

    log: LogWrite
    step: int
    append: tuple[Message, ...] = ()
    owed: tuple[Owed, ...] = ()
    ends: bool = False
    stopped_early: bool = False
    answer_within: float | None = None
    state: State | None = None
    open_turns: OpenTurns | None = None


@value
class ClaimRequest:
    """A request of one client to claim an owed call, or to renew its claim.

    It has an effect only if the version is still `expected`. `nonce` is unique to it, so that
    sending it again changes nothing more. `claimant` is the name that the client gives itself.
    """

    key: ConversationKey
    nonce: str
    expected: int
    call_id: CallId
    claimant: str


@value
class CallClaim:
    """The current claim of a call.

    Attributes:
        mine: it belongs to the client that asked; False if it is another client's and nothing was
            written.
        until: its end, in milliseconds of the store's clock.
        left: milliseconds until then.
    """

    mine: bool
    until: int = field(compare=False)
    left: int = field(compare=False)


class InboxPlace(NamedTuple):
    """The position of a conversation in its owner's inbox, oldest first.

    `since` is when the calls were handed back, in microseconds of the store's clock. `tag`, 32 hex
    digits, orders conversations with the same time.
    """

    since: int
    tag: str


@value
class OwingConversation:
    """A conversation whose client owes an answer."""

    key: ConversationKey
    place: InboxPlace
    status: Status


@value
class Inbox:
    """Conversations that owe an answer, oldest first.

    `next`: more may follow after that position.
    """

    owing: tuple[OwingConversation, ...] = ()
    next: InboxPlace | None = None


class ConversationPlace(NamedTuple):
    """The position of a conversation among those of its owner, newest first.

    `updated` is `Status.updated` in microseconds. `tag`, 32 hex digits, orders conversations with
    the same time.
    """

    updated: int
    tag: str


@value
class ListedConversation:
    """A conversation in a list; its status has title and times."""

    key: ConversationKey
    place: ConversationPlace
    status: Status


@value
class ConversationPage:
    """Conversations of an owner, newest first.

    `next`: more may follow after that position.
    """

    conversations: tuple[ListedConversation, ...] = ()
    next: ConversationPlace | None = None


@value
class Erased:
    """The result of a step of erasing an owner's conversations; `more`: there are others."""

    deleted: int
    more: bool


@value
class Page:
    """Messages from position `start` of the record on; `total` counts all messages."""

    messages: tuple[Message, ...]
    start: int
    total: int


_TaggedMessage: TypeAlias = Annotated[Message, Field(discriminator="role")]
_TaggedEvent: TypeAlias = Annotated[RunEvent, Field(discriminator="type")]

_message_adapter: TypeAdapter[Message] = TypeAdapter(_TaggedMessage, config=DEFERRED)
_events_adapter: TypeAdapter[list[RunEvent]] = TypeAdapter(list[_TaggedEvent], config=DEFERRED)
_owed_adapter: TypeAdapter[list[Owed]] = TypeAdapter(list[Owed], config=DEFERRED)
_tools_adapter: TypeAdapter[list[ToolSpec]] = TypeAdapter(list[ToolSpec], config=DEFERRED)
_queued_adapter: TypeAdapter[QueuedPost] = TypeAdapter(QueuedPost)
_state_adapter: TypeAdapter[State] = TypeAdapter(State)
_title_call_adapter: TypeAdapter[TitleCall] = TypeAdapter(TitleCall)
_run_adapter: TypeAdapter[RunRecord] = TypeAdapter(RunRecord)
# `dump_json` spends most of its time passing options on, so records are written by serializers


def dump_message(message: Message, /) -> bytes:
    return _message_adapter.serializer.to_json(message)


def load_message(record: bytes, /) -> Message:
    return _message_adapter.validate_json(record)


def dump_events(events: Sequence[RunEvent], /) -> bytes:
    """Serialise a batch of events: one entry of a run's log."""
    return _events_adapter.serializer.to_json(list(events))


def load_events(record: bytes, /) -> list[RunEvent]:
    return _events_adapter.validate_json(record)


def dump_owed(owed: Sequence[Owed], /) -> bytes:
    return _owed_adapter.serializer.to_json(list(owed))


def load_owed(record: bytes, /) -> tuple[Owed, ...]:
    return tuple(_owed_adapter.validate_json(record))


def dump_tools(tools: Sequence[ToolSpec], /) -> bytes:
    return _tools_adapter.serializer.to_json(list(tools))


def load_tools(record: bytes, /) -> tuple[ToolSpec, ...]:
    return tuple(_tools_adapter.validate_json(record))


def dump_queued(queued: QueuedPost, /) -> bytes:
    return _queued_adapter.serializer.to_json(queued)


def load_queued(record: bytes, /) -> QueuedPost:
    return _queued_adapter.validate_json(record)


def dump_state(state: State, /) -> bytes:
    """Serialise a state without its defaults, which leaves only a few numbers in most cases, and
    without `title_call`.
    """
    return _state_adapter.serializer.to_json(state, exclude_defaults=True, exclude={"title_call"})


def load_state(record: bytes, /) -> State:
    return _state_adapter.validate_json(record)


def dump_title_call(call: TitleCall, /) -> bytes:
    return _title_call_adapter.serializer.to_json(call)


def dump_run(run: RunRecord, /) -> bytes:
    return _run_adapter.serializer.to_json(run, exclude_none=True)


def load_run(record: bytes, /) -> RunRecord:
    return _run_adapter.validate_json(record)


def load_title_call(record: bytes, /) -> TitleCall:
    return _title_call_adapter.validate_json(record)
