"""Values that the tests of stores write: short to make, distinct, and legal."""

from dataclasses import replace
from itertools import count

import pytest

from passback.core.changes import Change, Commit, Enqueue, Lease, LogWrite, QueuedPost, Status
from passback.core.errors import LeaseLost
from passback.core.events import (
    START,
    Cancelled,
    Completed,
    Failed,
    Position,
    Rewound,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    TextDelta,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ConversationId,
    ConversationKey,
    Message,
    MessageId,
    OwnerId,
    RunId,
    RunRef,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import Receipts, StartRun
from passback.engine.ledger import Ledger

_numbers = count(1)
FINISHED = RunFinished(Completed())
CANCELLED = RunFinished(Cancelled())
LOST = RunFinished(Failed("lost", "the worker died", retryable=True))
LONG = 1_000_000.0  # seconds of a lease that does not end by itself


def new_key(name: str = "conversation") -> ConversationKey:
    return ConversationKey(OwnerId("owner"), ConversationId(f"{name}-{next(_numbers)}"))


def new_nonce() -> str:
    return f"nonce-{next(_numbers)}"


def new_run() -> RunId:
    return RunId(f"run-{next(_numbers)}")


def user(text: str) -> UserMessage:
    return UserMessage(MessageId(f"m-{text}"), text)


def asking(*calls: str) -> AssistantMessage:
    """A turn that calls client tools."""
    asked = tuple(ToolCall(CallId(call), "tool", "{}", client=True) for call in calls)
    return AssistantMessage(MessageId("m-asking"), "", asked)


def answer(call: str, text: str = "done") -> ToolMessage:
    return ToolMessage(MessageId(f"m-{call}"), CallId(call), text)


def change(key: ConversationKey, expected: int = 0, *messages: Message) -> Change:
    return Change(key, new_nonce(), expected, messages)


async def begin_run(
    store: Ledger, key: ConversationKey, *messages: Message, lease: float = LONG
) -> Lease:
    """Start a run on an idle conversation."""
    status: Status = await store.status(key)
    run_id = new_run()
    held = await store.begin(
        change(key, status.version, *messages), run_id, (RunStarted(run_id),), lease=lease
    )
    assert held is not None
    return held


async def unversioned(store: Ledger, key: ConversationKey) -> Status:
    """A status, whatever the number of writes that led to it."""
    return replace(await store.status(key), version=0)


def texts(lease: Lease, first: int, *words: str) -> LogWrite:
    return LogWrite(lease, first, tuple(map(TextDelta, words)))


def turn(lease: Lease, step: int, first: int, *events: RunEvent, say: str = "") -> Commit:
    """A commit in the middle of a run."""
    messages = (AssistantMessage(MessageId(f"m-{say}"), say),) if say else ()
    return Commit(LogWrite(lease, first, events), step, messages)


def ending(lease: Lease, step: int, first: int, say: str = "") -> Commit:
    """The commit that ends a run."""
    messages = (AssistantMessage(MessageId(f"m-{say}"), say),) if say else ()
    return Commit(LogWrite(lease, first, (FINISHED,)), step, messages, ends=True)


def opening(run_id: RunId) -> tuple[RunEvent, ...]:
    return (RunStarted(run_id),)


def waiting(
    key: ConversationKey,
    text: str = "next",
    *,
    receipts: Receipts | None = None,
    limit: int = 9,
    stops: bool = False,
) -> Enqueue:
    """A post for the queue."""
    run_id = new_run()
    post = StartRun(key, (user(text),), on_busy="interrupt" if stops else "enqueue")
    return Enqueue(QueuedPost(run_id, post), receipts or {}, (RunQueued(run_id),), limit)


async def take_over_run(
    store: Ledger, key: ConversationKey, *messages: Message, lease: float = LONG
) -> Lease:
    """Take over the run of a conversation, whose lease is over."""
    status = await store.status(key)
    assert status.run_id is not None
    held = await store.take_over(
        change(key, status.version, *messages),
        status.run_id,
        (Rewound(status.committed),),
        lease=lease,
    )
    assert held is not None
    return held


async def fail_lost_run(store: Ledger, key: ConversationKey, *messages: Message) -> None:
    """Close the run of a conversation, whose lease is over, as lost."""
    status = await store.status(key)
    assert status.run_id is not None
    assert await store.fail_lost(change(key, status.version, *messages), status.run_id, (LOST,))


async def read_events(
    store: Ledger, run: RunRef, after: Position = START
) -> list[tuple[str, RunEvent]]:
    """A run's log with the places written out."""
    return [(str(each.position), each.event) for each in await store.read_log(run, after=after)]


async def state(store: Ledger, run: RunRef) -> tuple[object, object]:
    return await store.load(run.key), await store.read_log(run)


async def assert_shut_out(store: Ledger, held: Lease) -> None:
    """Check that no write under a lost lease has any effect."""
    before = await state(store, held.run)
    assert await store.append([texts(held, 2, "late")], lease=LONG) == ["lost"]
    assert await store.append([texts(held, 99, "late")], lease=LONG) == ["lost"]
    assert await store.renew([held], lease=LONG) == ["lost"]
    for late in (turn(held, 7, 2, say="late"), ending(held, 7, 2, say="late")):
        with pytest.raises(LeaseLost):
            await store.commit(late, lease=LONG)
    assert await state(store, held.run) == before
