"""What is read from a store and what is written to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from passback.core.events import RunEvent
from passback.core.messages import (
    CallId,
    ConversationKey,
    Message,
    Owed,
    RunId,
    RunRef,
    ToolSpec,
)
from passback.core.transcript import Answer


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a conversation. `fence` is counter and nonce: it never repeats, also after a failover."""

    run: RunRef
    epoch: int
    fence: str


LeaseState: TypeAlias = Literal["held", "cancelled", "lost"]
"""`cancelled`: still held, and somebody asked to cancel the run."""


@dataclass(frozen=True, slots=True)
class Status:
    """A conversation without its messages.

    `version` changes with every write to the transcript or the lease, and is 0 for one that does not exist.
    `run_id` is the newest run; `running` says whether it goes on; `lapsed` that it does but its lease is over.
    """

    version: int = 0
    run_id: RunId | None = None
    running: bool = False
    lapsed: bool = False
    owed: tuple[Owed, ...] = ()
    message_count: int = 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a post is judged by: the messages, the client's tools, the remembered answers of the asked calls."""

    status: Status
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    answers: Mapping[CallId, Answer] = field(default_factory=dict[CallId, Answer])


@dataclass(frozen=True, slots=True)
class Change:
    """A write to the transcript, all or nothing, and only if the version is still `expected`.

    `nonce` is unique to this change: sending it again changes nothing more. `owed` is `transcript.owed` of the
    transcript after the change. `tools` replaces the client's tools, None keeps them.
    """

    key: ConversationKey
    nonce: str
    expected: int
    append: tuple[Message, ...] = ()
    answers: Mapping[CallId, Answer] = field(default_factory=dict[CallId, Answer])
    owed: tuple[Owed, ...] = ()
    tools: tuple[ToolSpec, ...] | None = None


@dataclass(frozen=True, slots=True)
class LogWrite:
    """Events for a run's log; the first has the number `first`, the others follow."""

    lease: Lease
    first: int
    events: tuple[RunEvent, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """A turn's messages together with the events that reveal them, atomically.

    `step` counts the commits of a lease: the same step again changes nothing. `ends` releases the lease; then
    `owed` is what the client has to answer, and the last event is `RunFinished`.
    """

    log: LogWrite
    step: int
    append: tuple[Message, ...] = ()
    owed: tuple[Owed, ...] = ()
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Messages from position `start` of the record on; `total` counts all of them."""

    messages: tuple[Message, ...]
    start: int
    total: int
