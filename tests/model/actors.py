"""Actors of the model: clients, runs in workers, recovery, the clock, and writes that come late.

Each is an immutable value that knows nothing of the others. Its steps read the conversation, judge
it by the rules of the server, and change it through the door. Reading and writing are two steps, so
that others come in between. Requests are judged where they come in, so the steps of a client are
also those of the worker that serves it.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from tests.model.apply_write import Conversation, append, apply_write, at_time, read
from tests.model.names import shared_value

from passback.core.admission import ConversationSnapshot, Verdict, decide_post
from passback.core.conversation.commands import Command
from passback.core.conversation.head import CLAIMS, STATUS, head_of, load_claims
from passback.core.conversation.rules import Decided, Known, Refused
from passback.core.conversation.store import Append, Guard, Write
from passback.core.conversation.table import decide
from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId
from passback.core.posts import OnBusy, StartRun
from passback.core.transcript import MintMessageId
from passback.core.values import value

KEY = ConversationKey(OwnerId("owner"), ConversationId("conversation"))
LEASE = 10  # milliseconds, of all leases
CLAIM = 10  # milliseconds, of all claims
ANSWERS = 10  # milliseconds for the answers that are owed, where there is a limit
QUEUE = 2  # posts that may wait
ATTEMPTS = 2  # workers that may try one run
NO_RUN = RunId("")

Cost: TypeAlias = Literal["free", "crash", "loss", "delay", "tick"]
"""A step that goes wrong, or that time passes, is counted: there are only so many of each."""

AnswerKind: TypeAlias = Literal["text", "client", "two", "server", "both", "ask", "fail"]
"""The answers of the model: text, calls, or an error."""


# ---------------------------------------------------------------- scripts
@value
class Say:
    """A client posts a user message.

    Attributes:
        text: equal in two posts only if these are repeats.
        key: its idempotency key.
        named: the client has chosen an id for the message.
        repeats: how often it is posted again once it was answered.
        brings: results for all owed calls, with this content, are in the same post.
        after: the number of the message that it follows, or `NO_MESSAGE`; without a text, what
            comes after that message is answered anew.
    """

    text: str
    key: str | None = None
    named: bool = False
    on_busy: OnBusy = "reject"
    repeats: int = 0
    brings: str = ""
    after: int | None = None


@value
class Answer:
    """A client posts answers to what is owed: for the first call only, or for all of them."""

    content: str = "done"
    only_first: bool = False
    repeats: int = 0
    key: str | None = None


@value
class Stray:
    """A client posts the result of a call that nobody made."""

    repeats: int = 0


@value
class Stop:
    """A client cancels the run that goes on, or else the last that waits."""

    waiting: bool = False
    repeats: int = 0


@value
class Claim:
    """A client claims the first call that is owed, or releases its claim."""

    releases: bool = False
    repeats: int = 0


@value
class Switch:
    """A client switches to the newest branch that has a message, which it names by its number."""

    to: int
    repeats: int = 0


Intent: TypeAlias = Say | Answer | Stray | Stop | Claim | Switch


@value
class Scene:
    """Who acts, and how often things go wrong.

    Attributes:
        clients: the scripts of the clients.
        answers: what the model may answer.
        turns: of a run, at most.
        workers: runs that worker processes work on at once, lost ones included.
        recoveries: workers that look after the conversation at once.
        answer_in_time: what is owed has a time limit.
        speaks: text is in the log before its turn is committed.
        leaves: a worker may leave a run to others between two turns.
        decide_post: judges posts.
    """

    clients: tuple[tuple[Intent, ...], ...]
    answers: tuple[AnswerKind, ...] = ("text",)
    turns: int = 2
    workers: int = 2
    recoveries: int = 1
    crashes: int = 0
    losses: int = 0
    delays: int = 0
    ticks: int = 0
    answer_in_time: bool = False
    speaks: bool = False
    leaves: bool = False
    decide_post: Callable[[ConversationSnapshot, StartRun, MintMessageId], Verdict] = decide_post

    @property
    def scripts(self) -> dict[str, tuple[Intent, ...]]:
        """The scripts by the names of the clients."""
        return dict(zip("abc", self.clients, strict=False))


# ---------------------------------------------------------------- actors
class Sent(NamedTuple):
    """A write that is on its way, and what its sender knows once it is applied.

    Attributes:
        what: the command.
        applied: it was applied, and the sender does not know.
        run_id: of the run that it begins or goes on with.
        head: afterwards.
        messages: those of the branch afterwards; `stored` is the number of all.
        cancelled: the run that it begins is cancelled at once.
        after: the number of the message that its branch has to have, if it changes that.
        until: the end of the claim that it makes, in the store's milliseconds.
    """

    write: Write | Append
    what: str
    applied: bool = False
    run_id: RunId = NO_RUN
    head: bytes = b""
    messages: tuple[bytes, ...] = ()
    stored: int = 0
    cancelled: bool = False
    after: int | None = None
    until: int = 0


class Client(NamedTuple):
    """A client, and the worker that serves its post.

    Attributes:
        name: of its script; `place` is that of the post.
        left: repeats of this post that are left.
        calls: ids of the calls that it answers.
        sent: None: its post is about to be judged.
        supersedes: it is about to begin the post that it has put into the queue.
        holds: the call that it has claimed, and until when.
    """

    name: str
    place: int = 0
    left: int = 0
    calls: tuple[str, ...] = ()
    sent: Sent | None = None
    supersedes: bool = False
    holds: tuple[str, int] | None = None


class Run(NamedTuple):
    """A run in a worker, as its lease's holder knows it.

    Attributes:
        head: of the conversation, as a record.
        stored: the number of all messages.
        step: of its last commit.
        seq: the number of its last event.
        messages: records of its transcript.
        turns: model calls so far.
        said: the id of the message whose text is in the log, if its turn is not committed.
        cancelled: it knows that it is to end.
    """

    fence: str
    run_id: RunId
    epoch: int
    head: bytes
    stored: int
    step: int
    seq: int
    messages: tuple[bytes, ...]
    turns: int
    said: str = ""
    cancelled: bool = False
    sent: Sent | None = None


class Recovery(NamedTuple):
    """A worker that looks after the conversation."""

    sent: Sent | None = None


class Late(NamedTuple):
    """A write whose sender has got no answer: it arrives later."""

    sent: Sent


class Clock(NamedTuple):
    """Time passes, and leases are over."""


Actor: TypeAlias = Client | Run | Recovery | Late | Clock

DOOMED = Write(KEY, "doomed", Guard(version=-1))
"""A write that no conversation will take."""


class Judged(NamedTuple):
    """A post and what it means; a text names the error that it got.

    Attributes:
        unread: what it means by receipts alone; None: messages are needed.
        refused: why the rules do not do it.
    """

    post: StartRun
    verdict: Verdict | str
    unread: object = None
    refused: str = ""


class Step(NamedTuple):
    """A step of an actor.

    Attributes:
        label: for people.
        after: the conversation after it.
        becomes: the actor after it, with those that it starts; none: it is gone.
        cost: what it uses up.
        sent: the write that the store has got.
        judged: the post that was judged.
        blocked: the call that another client has claimed.
    """

    label: str
    after: Conversation
    becomes: tuple[Actor, ...]
    cost: Cost = "free"
    sent: Sent | None = None
    judged: Judged | None = None
    blocked: str = ""


# ---------------------------------------------------------------- the door
def known_at(conversation: Conversation, /) -> Known:
    """Return a conversation as the rules know it after a reading."""
    found = read(conversation, STATUS)
    return Known(found, head_of(found))


def decided(known: Known, command: Command, now: int, /) -> Decided | Refused:
    return decide(known, command, now)


def deliver(known: Conversation, sent: Sent, /) -> tuple[Conversation, object]:
    """Bring a write to the store; return the conversation after it, and the answer."""
    write = sent.write
    if isinstance(write, Append):
        return append(known, write, LEASE)
    if not sent.applied:
        return apply_write(known, write)
    # the store remembers its id
    after, answer = apply_write(known._replace(writes=(*known.writes, write.id)), write)
    return (known if answer else after), answer


def arrivals(known: Conversation, actor: Client | Run | Recovery, sent: Sent, /) -> Iterator[Step]:
    """Yield what may happen to a write, unless its answer arrives: that is for the actor."""
    who = name_of(actor)
    if not sent.applied:
        after, answer = deliver(known, sent)
        if answer and after != known:
            waits = actor._replace(sent=sent._replace(applied=True))
            yield Step(
                f"{who}: {sent.what} applied, its answer lost", after, (waits,), "loss", sent
            )
        shared = shared_value(actor, _number_of(actor))
        assert shared.sent is not None
        yield Step(f"{who}: {sent.what} is late", known, (shared, Late(shared.sent)), "delay")


def arrival(known: Conversation, late: Late, /) -> Iterator[Step]:
    """Yield the arrival of a late write."""
    after, _ = deliver(known, late.sent)
    yield Step(f"late {late.sent.what} arrives", after, (), "free", late.sent)


def tick(known: Conversation, /) -> Iterator[Step]:
    """Yield the end of a lease, of a claim or of a time limit, if there is one."""
    found = known_at(known)
    lease, limit, fields = known.lease, found.head.answer_by, found.found.fields
    runs = lease is not None and bool(lease.fence) and lease.expires > known.now
    waits = lease is None and limit is not None and limit > known.now
    claims = CLAIMS in fields and load_claims(fields[CLAIMS]).at(known.now).by_call
    if runs or waits or claims:
        yield Step("time passes", at_time(known, known.now + LEASE), (Clock(),), "tick")


def _number_of(actor: Client | Run | Recovery) -> int:
    """Return a number below 256 that no other actor has that may send at the same version."""
    match actor:
        case Client():
            return ord(actor.name)
        case Run():
            return actor.epoch
        case Recovery():
            return 0


def name_of(actor: Actor, /) -> str:
    match actor:
        case Client():
            return f"client {actor.name}"
        case Run():
            return f"worker of epoch {actor.epoch}"
        case _:
            return type(actor).__name__.lower()
