"""What is read from a store and what is written to it."""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import Field, TypeAdapter

from passback.core.events import START, Position, RunEvent
from passback.core.messages import CallId, ConversationKey, Message, Owed, RunId, RunRef, ToolSpec
from passback.core.posts import Receipt, ReceiptName, Receipts, StartRun
from passback.core.state import State
from passback.core.values import value


@value
class Lease:
    """The right to run a conversation. `fence` is counter and nonce: it never repeats, also after a failover."""

    run: RunRef
    epoch: int
    fence: str


LeaseState: TypeAlias = Literal["held", "followed", "cancelled", "lost"]
"""`followed`: held, and somebody has a `watch` on the conversation.
`cancelled`: still held, and somebody asked to cancel the run."""


@value
class CallDeadline:
    """That one of the clients says it is at work on an owed call, so that no other one is.

    `until` is its end, in milliseconds of the store's clock.
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
    """The turns that were open at a commit, one at least. What all others had said by then is committed.

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
        version: changes with every write to the transcript or the lease; 0: there is no such conversation.
        run_id: the newest run that has begun.
        running: whether it goes on.
        lapsed: whether it goes on but its lease is over: its worker is gone.
        expires: the end of its lease, in milliseconds of the store's clock; each sign of life of its worker moves it.
        owed: what the client has to answer.
        message_count: of the whole transcript.
        attempt: how many workers have run it, this one counted; a hand-over counts for nothing.
        logged: the last event of the run that is stored.
        committed: the last one that no take-over makes void.
        open_turns: those that were open at the last commit: they come after `committed`, and so may what was committed
            beside them. None: nothing after it is committed.
        mark: how many messages there were when the run began, the results that were posted with it included.
        cancelled: whether it goes on although somebody asked to cancel it.
        cut: whether the run was stopped before its own end.
        cancel_on_disconnect: whether the run is to be cancelled when nobody follows it any more.
        followed: whether somebody in another process has said of late that he follows it.
        queued: the runs of the posts that wait, in their order.
        answer_by: until when the client has to answer what it owes, in milliseconds of the store's clock; None: for ever.
        overdue: whether that time is over, and nothing runs: the calls count as answered with `timeout`.
        claims: those of calls in `owed` that are not over.
        state: what the conversation knows beside its messages.
        history_bytes: of the records of its messages from the boundary on; None: an older version has not counted them.
    """

    version: int = 0
    run_id: RunId | None = None
    running: bool = False
    lapsed: bool = False
    expires: int = field(default=0, compare=False)
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
    claims: tuple[CallDeadline, ...] = ()
    state: State = field(default_factory=State)
    history_bytes: int | None = field(default=0, compare=False)


@value
class Queued:
    """A post that waits for its turn, and the run that it will be. It has only the messages that were new when it came."""

    run_id: RunId
    post: StartRun

    @property
    def stops(self) -> bool:
        """Whether it does not wait for the end of what runs before it."""
        return self.post.on_busy in {"interrupt", "rollback"}


@value
class Loaded:
    """What a post is judged by: the messages from the boundary on, the client's tools, the asked receipts, and the
    posts that wait.

    Attributes:
        left_out: the messages are larger than asked for, and were not read.
        queue_bytes: of the records of the posts that wait.
    """

    status: Status
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    receipts: Receipts = field(default_factory=dict[ReceiptName, Receipt])
    queue: tuple[Queued, ...] = ()
    left_out: bool = False
    queue_bytes: int = field(default=0, compare=False)

    @property
    def start(self) -> int:
        """The position in the record of the first of the messages."""
        return self.status.state.history_start


@value
class Change:
    """A write to the transcript, all or nothing, and only if the version is still `expected`.

    Attributes:
        nonce: unique to this change: sending it again changes nothing more.
        keep: so many messages stay, those behind them are taken back before `append`; None: all stay.
        owed: what the client has to answer after the change; nothing while a run goes on.
        tools: replaces the client's tools, None keeps them.
        mark: `Status.mark` of the run that begins.
        dequeues: the queued run that begins, which has to be the first of the queue.
        cancel_on_disconnect: `Status.cancel_on_disconnect` of the run that begins; a take-over leaves it as it is, and `mark` too.
        state: replaces the conversation's; None keeps it, but a boundary behind what `keep` leaves is 0 then.
    """

    key: ConversationKey
    nonce: str
    expected: int
    append: tuple[Message, ...] = ()
    receipts: Receipts = field(default_factory=dict[ReceiptName, Receipt])
    owed: tuple[Owed, ...] = ()
    tools: tuple[ToolSpec, ...] | None = None
    keep: int | None = None
    run_start: int = 0
    dequeues: RunId | None = None
    cancel_on_disconnect: bool = False
    state: State | None = None


@value
class Enqueue:
    """A post for the queue of its conversation, which takes at most `limit`.

    Attributes:
        receipts: what it will be known by.
        events: open the log of its run.
    """

    queued: Queued
    receipts: Receipts
    events: tuple[RunEvent, ...]
    limit: int

    @property
    def stops(self) -> bool:
        """Ask for what runs now to be cancelled, in the same write."""
        return self.queued.stops

    @property
    def run(self) -> RunRef:
        return RunRef(self.queued.post.key, self.queued.run_id)


EnqueueAnswer: TypeAlias = Literal["queued", "full", "changed"]
"""`changed`: nothing runs or waits any more, or another post has taken one of the receipts: judge again."""


@value
class LogWrite:
    """Events for a run's log; the first has the number `first`, the others follow."""

    lease: Lease
    first: int
    events: tuple[RunEvent, ...]


@value
class Commit:
    """A turn's messages together with the events that reveal them, atomically.

    Attributes:
        step: counts the commits of a lease: the same step again changes nothing.
        owed: what the client has to answer.
        ends: releases the lease; the last event is then `RunFinished`.
        cut: the run is ended before its own end: `Status.cut`.
        answer_within: seconds for what is owed when it ends: they make `Status.answer_by`, which lasts until a run begins.
        state: replaces the conversation's, None keeps it.
        open_turns: those that go on beside it: `Status.committed` is then before them. None: it is the last event of this
            write.
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
    """One client's claim of an owed call, taken or renewed, only if the version is still `expected`.

    `nonce` is unique to this write: sending it again changes nothing more. `claimant` is what the client calls itself.
    """

    key: ConversationKey
    nonce: str
    expected: int
    call_id: CallId
    claimant: str


@value
class CallClaim:
    """Whose the claim of a call is now.

    Attributes:
        mine: it is that of who asked; False: another one's, and nothing was written.
        until: its end, in milliseconds of the store's clock.
        left: milliseconds until then.
    """

    mine: bool
    until: int = field(compare=False)
    left: int = field(compare=False)


class Place(NamedTuple):
    """Of a conversation in the inbox of its owner: oldest first.

    `since` is when the calls were handed back, in microseconds of the store's clock; `tag`, 32 hex digits, tells
    conversations of one moment apart.
    """

    since: int
    tag: str


@value
class Owing:
    """A conversation whose client owes something."""

    key: ConversationKey
    place: Place
    status: Status


@value
class Inbox:
    """Conversations that owe something, oldest first; `next`: more may follow behind that place."""

    owing: tuple[Owing, ...] = ()
    next: Place | None = None


@value
class Page:
    """Messages from position `start` of the record on; `total` counts all of them."""

    messages: tuple[Message, ...]
    start: int
    total: int


_TaggedMessage: TypeAlias = Annotated[Message, Field(discriminator="role")]
_TaggedEvent: TypeAlias = Annotated[RunEvent, Field(discriminator="type")]

_message: TypeAdapter[Message] = TypeAdapter(_TaggedMessage)
_events: TypeAdapter[list[RunEvent]] = TypeAdapter(list[_TaggedEvent])
_owed: TypeAdapter[list[Owed]] = TypeAdapter(list[Owed])
_tools: TypeAdapter[list[ToolSpec]] = TypeAdapter(list[ToolSpec])
_queued: TypeAdapter[Queued] = TypeAdapter(Queued)
_state: TypeAdapter[State] = TypeAdapter(State)
_open_turns: TypeAdapter[OpenTurns] = TypeAdapter(OpenTurns)
# written by their serializers: most of what `dump_json` costs is to hand on its many options


def dump_message(message: Message, /) -> bytes:
    return _message.serializer.to_json(message)


def load_message(record: bytes, /) -> Message:
    return _message.validate_json(record)


def dump_events(events: Sequence[RunEvent], /) -> bytes:
    """One entry of a run's log: a batch of events."""
    return _events.serializer.to_json(list(events))


def load_events(record: bytes, /) -> list[RunEvent]:
    return _events.validate_json(record)


def dump_owed(owed: Sequence[Owed], /) -> bytes:
    return _owed.serializer.to_json(list(owed))


def load_owed(record: bytes, /) -> tuple[Owed, ...]:
    return tuple(_owed.validate_json(record))


def dump_open_turns(open_turns: OpenTurns, /) -> bytes:
    return _open_turns.serializer.to_json(open_turns)


def load_open_turns(record: bytes, /) -> OpenTurns:
    return _open_turns.validate_json(record)


def dump_tools(tools: Sequence[ToolSpec], /) -> bytes:
    return _tools.serializer.to_json(list(tools))


def load_tools(record: bytes, /) -> tuple[ToolSpec, ...]:
    return tuple(_tools.validate_json(record))


def dump_queued(queued: Queued, /) -> bytes:
    return _queued.serializer.to_json(queued)


def load_queued(record: bytes, /) -> Queued:
    return _queued.validate_json(record)


def dump_state(state: State, /) -> bytes:
    """Without what is as in a new conversation: mostly that is all but a few numbers."""
    return _state.serializer.to_json(state, exclude_defaults=True)


def load_state(record: bytes, /) -> State:
    return _state.validate_json(record)
