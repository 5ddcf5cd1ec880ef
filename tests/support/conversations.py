"""Values that the tests of stores write: short to make, distinct, and legal."""

from itertools import count

from passback.core.changes import Change, Commit, Lease, LogWrite, Status
from passback.core.events import Completed, RunEvent, RunFinished, RunStarted, TextDelta
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ConversationId,
    ConversationKey,
    Message,
    MessageId,
    OwnerId,
    RunId,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.ports import Store

_numbers = count(1)
FINISHED = RunFinished(Completed())
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


async def begun(
    store: Store, key: ConversationKey, *messages: Message, lease: float = LONG
) -> Lease:
    """Start a run on an idle conversation."""
    status: Status = await store.status(key)
    run_id = new_run()
    held = await store.begin(
        change(key, status.version, *messages), run_id, (RunStarted(run_id),), lease=lease
    )
    assert held is not None
    return held


def texts(lease: Lease, first: int, *words: str) -> LogWrite:
    return LogWrite(lease, first, tuple(map(TextDelta, words)))


def turn(lease: Lease, step: int, first: int, *events: RunEvent, say: str = "") -> Commit:
    """A commit in the middle of a run."""
    said = (AssistantMessage(MessageId(f"m-{say}"), say),) if say else ()
    return Commit(LogWrite(lease, first, events), step, said)


def ending(lease: Lease, step: int, first: int, say: str = "") -> Commit:
    """The commit that ends a run."""
    said = (AssistantMessage(MessageId(f"m-{say}"), say),) if say else ()
    return Commit(LogWrite(lease, first, (FINISHED,)), step, said, ends=True)
